"""The compiled cache: the behaviour of `emulator`, tens of millions of lines a second, fed in chunks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from iosim.errors import SimulationError
from iosim.memory.config import (
    COPIES,
    COUNTERS,
    INDEX_KINDS,
    MAX_LINE,
    MAX_LINES,
    MAX_STREAMS,
    MAX_WAYS,
    POLICIES,
    Accesses,
    CacheConfig,
    CacheCounts,
)


def simulate(config: CacheConfig, chunks: Iterable[Accesses]) -> CacheCounts:
    """Counts of a trace given in pieces, from a cold cache. Memory: the cache's state and one piece."""
    cache = Cache(config)
    for accesses in chunks:
        cache.feed(accesses)
    return cache.counts()


class Cache:
    """The cache that `config` describes, cold; feed it accesses in as many pieces as you like, then ask
    for its counts."""

    def __init__(self, config: CacheConfig) -> None:
        if config.ways > MAX_WAYS:
            raise SimulationError(
                f"cache: {config.ways} ways are more than the engine's {MAX_WAYS}; use fewer, "
                "or stack_distance for a fully associative LRU"
            )
        self.config = config
        slots = config.sets * config.ways
        if config.partitions * slots > MAX_LINES:
            raise SimulationError(
                f"cache: {config.partitions * slots:,} lines are too many to simulate; at most {MAX_LINES:,}: "
                "take a smaller capacity"
            )
        self._words = np.zeros(config.partitions * slots, np.int64)
        self._ranks = np.tile(np.arange(config.ways, dtype=np.int64), config.partitions * config.sets)
        self._hands = np.zeros(config.partitions * config.sets, np.int64)
        self._state = np.array([0, config.seed], np.int64)
        self._counts = np.zeros((MAX_STREAMS, len(COUNTERS) - 1), np.int64)
        self._params = _params(config)

    def feed(self, accesses: Accesses) -> None:
        """Run the accesses; raises `SimulationError` for a side or an address that the cache does not
        have."""
        from iosim.memory import kernels  # numba is loaded by the first simulation only

        if len(accesses) == 0:
            return
        self._check(accesses)
        kernels.run(
            accesses.start_bytes,
            accesses.length_bytes,
            accesses.kind,
            accesses.side,
            accesses.stream,
            self._words,
            self._ranks,
            self._hands,
            self._state,
            self._counts,
            self._params,
        )

    def counts(self, stream: int | None = None) -> CacheCounts:
        """The counts of one stream, or of all, up to now."""
        from iosim.memory import kernels

        dirty = np.zeros(MAX_STREAMS, np.int64)
        kernels.dirty_sectors(self._words, dirty)
        table = np.column_stack([self._counts, dirty * self.config.sector_bytes])
        row = table.sum(axis=0) if stream is None else table[stream]
        slices = self.config.index.slices
        row = row * slices // (self.config.sampled_slices or slices)
        return CacheCounts(**dict(zip(COUNTERS, row.tolist(), strict=True)))

    def _check(self, accesses: Accesses) -> None:
        last = int((accesses.start_bytes + accesses.length_bytes).max())
        if last > MAX_LINE * self.config.line_bytes:
            raise SimulationError(f"access: address {last} is beyond {MAX_LINE} lines; use smaller addresses")
        side = int(accesses.side.max())
        if side >= self.config.partitions:
            raise SimulationError(f"access: side {side} of a cache with {self.config.partitions} partitions")


def _params(config: CacheConfig) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The description of the cache in the order that the kernels read it (`kernels.P_*`)."""
    index, line = config.index, config.line_bytes
    return np.array(
        [
            config.line_bytes.bit_length() - 1,
            config.sector_bytes.bit_length() - 1,
            config.sets,
            config.ways,
            POLICIES.index(config.policy),
            INDEX_KINDS.index(index.kind),
            index.slices,
            index.granule_bytes // line,
            index.span_bytes // line,
            config.home_bytes // line,
            config.partitions,
            COPIES.index(config.write_copies),
            config.sampled_slices,
            config.dirty_ways,
        ],
        np.int64,
    )
