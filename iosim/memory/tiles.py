"""One fully associative LRU over named tiles of any size: the simplest cache, a hundred million touches a
second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError

Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileCounts:
    """Bytes that touched an LRU of tiles and that it moved; `dirty_bytes` is what it still owes."""

    read_bytes: int
    write_bytes: int
    fetch_bytes: int
    writeback_bytes: int
    dirty_bytes: int


class TileCache:
    """LRU over tiles 0, 1, …: `sizes_bytes[tile]` is a tile's size. A written tile is not fetched, a dirty
    one written back.

    A tile larger than the capacity passes through.
    """

    def __init__(self, sizes_bytes: Any, capacity_bytes: int) -> None:
        self._sizes = tile_sizes(sizes_bytes)
        if capacity_bytes < 0:
            raise SimulationError(f"tile cache: capacity_bytes must not be negative, got {capacity_bytes}")
        self._capacity = capacity_bytes
        self._links = np.full((self._sizes.size + 1, 2), -1, np.int64)
        self._links[-1] = self._sizes.size
        self._dirty = np.zeros(self._sizes.size, np.uint8)
        self._counts = np.zeros(5, np.int64)

    def feed(self, tiles: Any, writes: Any = 0) -> None:
        """Touch tiles in order; `writes` is one flag or one a touch."""
        from iosim.memory import tile_kernels  # numba is loaded by the first simulation only

        touched, written = tile_touches(tiles, writes, self._sizes.size)
        tile_kernels.lru(
            touched, written, self._sizes, self._capacity, self._links, self._dirty, self._counts
        )

    def counts(self) -> TileCounts:
        """What happened up to now."""
        _, read, fetch, write, back = self._counts.tolist()
        dirty = int(self._sizes[self._dirty == 1].sum())
        return TileCounts(
            read_bytes=read, write_bytes=write, fetch_bytes=fetch, writeback_bytes=back, dirty_bytes=dirty
        )


def tile_sizes(sizes_bytes: Any) -> Ints:
    """The sizes as an array; raises `SimulationError` if there are none or one is below 1 byte."""
    sizes = np.ascontiguousarray(sizes_bytes, dtype=np.int64)
    if sizes.ndim != 1 or sizes.size == 0 or sizes.min() < 1:
        raise SimulationError("tiles: sizes_bytes must be a row of at least one size, each 1 byte or more")
    return sizes


def tile_touches(tiles: Any, writes: Any, known: int) -> tuple[Ints, Octets]:
    """The touches as arrays; raises `SimulationError` naming the first tile that has no size."""
    touched = np.ascontiguousarray(tiles, dtype=np.int64)
    bad = (touched < 0) | (touched >= known)
    if bad.any():
        at = int(np.argmax(bad))
        raise SimulationError(f"touch {at}: tile {touched[at]} is not one of the {known} with a size")
    flags = np.broadcast_to(np.asarray(writes, dtype=np.uint8), touched.shape)
    return touched, np.ascontiguousarray(flags)
