"""Reuse distances: what a fully associative LRU of every capacity would move, from one pass over the trace.

A touch hits in an LRU exactly if the distinct bytes touched since the tile's last touch, its own included,
fit (Mattson et al., 1970). So a sorted list of distances is the whole curve of miss bytes against capacity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.tiles import tile_sizes, tile_touches

Ints = NDArray[np.int64]
Steps = tuple[Ints, Ints]
_BATCH = 2**20
_FAR = 2**62
"""The distance of bytes that move at every capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissCurve:
    """Bytes moved as a function of capacity: steps at the distances, exact at every capacity.

    `read_steps` and `write_steps`: (distance, bytes) pairs, distances ascending: that many bytes move at
    every capacity below the distance. `read_bytes`, `write_bytes`: all bytes touched. `group_read_steps`: the reads of
    each group of tiles, where there are groups.
    """

    read_steps: Steps
    write_steps: Steps
    read_bytes: int
    write_bytes: int
    group_read_steps: tuple[Steps, ...] = ()

    def fetch_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes read from the next level at each capacity; an array of the capacities' shape."""
        return _above(self.read_steps, capacity_bytes)

    def fetch_bytes_of(self, group: int, capacity_bytes: Any) -> Ints:
        """Bytes read from the next level at each capacity, of the tiles of one group."""
        return _above(self.group_read_steps[group], capacity_bytes)

    def writeback_bytes(self, capacity_bytes: Any) -> Ints:
        """Bytes written to the next level at each capacity; those still dirty at the end only in a flushed curve."""
        return _above(self.write_steps, capacity_bytes)

    @property
    def compulsory_bytes(self) -> int:
        """Bytes read at any capacity: first touches that are reads."""
        distance, moved = self.read_steps
        return int(moved[-1]) if distance.size and distance[-1] >= _FAR else 0

    @property
    def capacities_bytes(self) -> Ints:
        """The capacities at which the curve steps down, ascending; between two of them nothing changes."""
        steps = np.union1d(self.read_steps[0], self.write_steps[0])
        return steps[steps < _FAR]


class StackDistance:
    """Feeds on touches of tiles 0, 1, … with `sizes_bytes[tile]` bytes each, in pieces, and gives the curve.

    Use lines as tiles for line granularity. `groups`: for each tile a number below
    `group_count`; the reads of each group are kept apart.
    Memory: a few words a tile and the steps of the curve.
    """

    def __init__(self, sizes_bytes: Any, groups: Any = None, group_count: int = 1) -> None:
        self._sizes = tile_sizes(sizes_bytes)
        self._groups = np.zeros(self._sizes.size, np.int64) if groups is None else np.asarray(groups)
        positions = max(1024, 2 * self._sizes.size)
        self._tree = np.zeros(positions + 1, np.int64)
        self._owner = np.full(positions + 1, -1, np.int64)
        self._when = np.zeros(self._sizes.size, np.int64)
        self._farthest = np.full(self._sizes.size, -1, np.int64)
        self._state = np.zeros(2, np.int64)
        empty = np.zeros(0, np.int64)
        self._backs: Steps = (empty, empty)
        self._reads: list[Steps] = [(empty, empty)] * group_count
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
            sizes, groups = self._sizes[batch], self._groups[batch]
            for number, known in enumerate(self._reads):
                own = groups == number
                self._reads[number] = _merge(known, reads_at[own], sizes[own])
            self._backs = _merge(self._backs, backs_at, sizes)
            self._write_bytes += int(sizes[flags != 0].sum())
            self._read_bytes += int(sizes[flags == 0].sum())

    def curve(self, *, flushed: bool = False) -> MissCurve:
        """The curve of the trace up to now; `flushed`: what is dirty is written back at the end."""
        from iosim.memory import tile_kernels

        depth = np.zeros(self._sizes.size, np.int64)
        tile_kernels.depths(self._sizes, self._tree, self._when, self._state, depth)
        dirty = self._farthest >= 0
        # what is dirty now was written back by every capacity that it fell out of since its last write
        left = np.where(dirty, _FAR if flushed else np.maximum(depth, self._farthest), 0)
        return MissCurve(
            read_steps=_joined(self._reads),
            write_steps=_merge(self._backs, left, self._sizes),
            read_bytes=self._read_bytes,
            write_bytes=self._write_bytes,
            group_read_steps=tuple(self._reads),
        )


def add_curves(curves: Iterable[tuple[MissCurve, int]]) -> MissCurve:
    """The bytes of several memories of equal capacity and groups, each taken so many times."""
    known = list(curves)

    def total(steps: Iterable[Steps]) -> Steps:
        return _joined((d, moved * times) for (d, moved), (_, times) in zip(steps, known, strict=True))

    return MissCurve(
        read_steps=total(c.read_steps for c, _ in known),
        write_steps=total(c.write_steps for c, _ in known),
        read_bytes=sum(c.read_bytes * times for c, times in known),
        write_bytes=sum(c.write_bytes * times for c, times in known),
        group_read_steps=tuple(map(total, zip(*(c.group_read_steps for c, _ in known), strict=True))),
    )


def _joined(steps: Iterable[Steps]) -> Steps:
    """Steps of several curves as those of their sum."""
    known = list(steps)
    distance = np.concatenate([where for where, _ in known])
    return _added(distance, np.concatenate([moved for _, moved in known]))


def _added(distance: Ints, moved: Ints) -> Steps:
    """Each distance once, with the sum of its bytes."""
    unique, inverse = np.unique(distance, return_inverse=True)
    total = np.zeros(unique.size, np.int64)
    np.add.at(total, inverse, moved)
    return unique, total


def _merge(steps: Steps, distance: Ints, sizes: Ints) -> Steps:
    """Add the bytes of positive distances to the steps."""
    distance, sizes = distance[distance > 0], sizes[distance > 0]
    where, moved = [steps[0]], [steps[1]]
    for size in np.unique(
        sizes
    ):  # few in practice; counting equal distances is a plain sort, the fastest NumPy has
        unique, count = np.unique(distance[sizes == size], return_counts=True)
        where.append(unique)
        moved.append(count * size)
    return _added(np.concatenate(where), np.concatenate(moved))


def _above(steps: Steps, capacity_bytes: Any) -> Ints:
    """Bytes of all steps whose distance is larger than each capacity."""
    distance, moved = steps
    remaining = np.concatenate([np.cumsum(moved[::-1])[::-1], [0]])
    return np.asarray(remaining[np.searchsorted(distance, capacity_bytes, side="right")], dtype=np.int64)
