"""Reuse distances: what a fully associative LRU of every capacity would move, from one pass over the trace.

A touch hits in an LRU exactly if the distinct bytes touched since the tile's last touch, its own included,
fit (Mattson et al., 1970). So a sorted list of distances is the whole curve of miss bytes against capacity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.tiles import tile_sizes, tile_touches

Ints = NDArray[np.int64]
_BATCH = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class MissCurve:
    """Bytes moved as a function of capacity: steps at the distances, exact at every capacity.

    `read_steps` and `write_steps`: (distance, bytes) pairs, distances ascending: that many bytes move at
    every capacity below the distance. `read_bytes`, `write_bytes`: all bytes touched.
    """

    read_steps: tuple[Ints, Ints]
    write_steps: tuple[Ints, Ints]
    read_bytes: int
    write_bytes: int

    def fetch_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes read from the next level at each capacity; an array of the capacities' shape."""
        return _above(self.read_steps, capacity_bytes)

    def writeback_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes written to the next level at each capacity, those still dirty at the end left out."""
        return _above(self.write_steps, capacity_bytes)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes read at any capacity: first touches that are reads."""
        distance, moved = self.read_steps
        return int(moved[-1]) if distance.size and distance[-1] >= 2**62 else 0

    @property
    def capacities_bytes(self) -> Ints:
        """The capacities at which the curve steps down, ascending; between two of them nothing changes."""
        steps = np.union1d(self.read_steps[0], self.write_steps[0])
        return steps[steps < 2**62]


class StackDistance:
    """Feeds on touches of tiles 0, 1, … with `sizes_bytes[tile]` bytes each, in pieces, and gives the curve.

    Use lines as tiles for line granularity. Memory: a few words a tile and the steps of the curve.
    """

    def __init__(self, sizes_bytes: Any) -> None:
        self._sizes = tile_sizes(sizes_bytes)
        positions = max(1024, 2 * self._sizes.size)
        self._tree = np.zeros(positions + 1, np.int64)
        self._owner = np.full(positions + 1, -1, np.int64)
        self._when = np.zeros(self._sizes.size, np.int64)
        self._farthest = np.full(self._sizes.size, -1, np.int64)
        self._state = np.zeros(2, np.int64)
        empty = np.zeros(0, np.int64)
        self._reads, self._backs = (empty, empty), (empty, empty)
        self._read_bytes = self._write_bytes = 0

    def feed(self, tiles: Any, writes: Any = 0) -> None:
        """Touch tiles in order; `writes` is one flag or one a touch."""
        from iosim.memory import tile_kernels  # numba is loaded by the first simulation only

        touched, written = tile_touches(tiles, writes, self._sizes.size)
        for first in range(0, touched.size, _BATCH):
            batch, flags = touched[first : first + _BATCH], written[first : first + _BATCH]
            reads_at, backs_at = np.empty(batch.size, np.int64), np.empty(batch.size, np.int64)
            tile_kernels.distances(
                batch,
                flags,
                self._sizes,
                self._tree,
                self._owner,
                self._when,
                self._farthest,
                self._state,
                reads_at,
                backs_at,
            )
            sizes = self._sizes[batch]
            self._reads = _merge(self._reads, reads_at, sizes)
            self._backs = _merge(self._backs, backs_at, sizes)
            self._write_bytes += int(sizes[flags != 0].sum())
            self._read_bytes += int(sizes[flags == 0].sum())

    def curve(self) -> MissCurve:
        """The curve of the trace up to now."""
        from iosim.memory import tile_kernels

        depth = np.zeros(self._sizes.size, np.int64)
        tile_kernels.depths(self._sizes, self._tree, self._when, self._state, depth)
        dirty = self._farthest >= 0
        # what is dirty now was written back by every capacity that it fell out of since its last write
        left = np.where(dirty, np.maximum(depth, self._farthest), 0)
        return MissCurve(
            read_steps=self._reads,
            write_steps=_merge(self._backs, left, self._sizes),
            read_bytes=self._read_bytes,
            write_bytes=self._write_bytes,
        )


def _merge(steps: tuple[Ints, Ints], distance: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Add the bytes of positive distances to the steps."""
    distance, sizes = distance[distance > 0], sizes[distance > 0]
    where, moved = [steps[0]], [steps[1]]
    for size in np.unique(
        sizes
    ):  # few in practice; counting equal distances is a plain sort, the fastest NumPy has
        unique, count = np.unique(distance[sizes == size], return_counts=True)
        where.append(unique)
        moved.append(count * size)
    unique, inverse = np.unique(np.concatenate(where), return_inverse=True)
    total = np.zeros(unique.size, np.int64)
    np.add.at(total, inverse, np.concatenate(moved))
    return unique, total


def _above(steps: tuple[Ints, Ints], capacity_bytes: Any) -> Ints:
    """Bytes of all steps whose distance is larger than each capacity."""
    distance, moved = steps
    remaining = np.concatenate([np.cumsum(moved[::-1])[::-1], [0]])
    return np.asarray(remaining[np.searchsorted(distance, capacity_bytes, side="right")], dtype=np.int64)
