"""What a cache is, what an access is, and what is counted. Shared by the emulator and the compiled engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError

Policy = Literal["lru", "fifo", "clock", "random", "tree"]
POLICIES: tuple[Policy, ...] = ("lru", "fifo", "clock", "random", "tree")
IndexKind = Literal["modulo", "hashed", "sliced"]
INDEX_KINDS: tuple[IndexKind, ...] = ("modulo", "hashed", "sliced")
Copies = Literal["home", "near", "all"]
COPIES: tuple[Copies, ...] = ("home", "near", "all")

READ, WRITE, WRITE_PRIVATE = 0, 1, 2
"""Kinds of access. A private write leaves no copy outside the home partition (spilled registers)."""

MAX_LINE = 2**38
"""Largest line number: the compiled engine packs it into one word with the sector masks."""
MAX_STREAMS = 256
MAX_WAYS = 4096
MAX_LINES = 2**28  # of all partitions; each takes 16 bytes of state
MAX_SECTORS = 8
MAX_TREE_WAYS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFunction:
    """How a line finds its set.

    `modulo`: line number modulo sets. `hashed`: a hash of the line number modulo sets.
    `sliced`: the sets are spread over `slices` slices, a power of two of sets in each. Memory is cut into
    granules of `granule_bytes`, and as many of them as a slice has sets make a turn. A line's position in
    its slice is its granule's number in the turn, xored with a hash of the turn's number. The lines of a
    granule go round the slices in order, where the same position of the turn before left off; each
    `span_bytes` starts anew, at slices drawn by a hash. So a contiguous range fills the sets almost
    evenly, pieces of a few granules from far apart meet on the same sets by chance, and no stride is bad.
    """

    kind: IndexKind = "modulo"
    slices: int = 1
    granule_bytes: int = 0
    span_bytes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in INDEX_KINDS:
            raise SimulationError(
                f"cache index: unknown kind {self.kind!r}; allowed: {', '.join(INDEX_KINDS)}"
            )
        if self.kind == "sliced":
            check_multiple("index slices", self.slices, 1)
            check_multiple("index granule_bytes", self.granule_bytes, 1)
            check_multiple("index span_bytes", self.span_bytes, self.granule_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """One cache, or several equal partitions of one.

    `capacity_bytes` is that of one partition. `sector_bytes` is what moves on a miss (the line if 0).
    `ways` 0 is fully associative. With several partitions a line has one home, chosen by a hash of its
    address in pieces of
    `home_bytes`; a reader looks in its own partition, then in the home, and both keep a copy; a write is
    dirty at home, and clean copies stay in no other partition, in the writer's (`near`) or in `all`, by
    `write_copies`.
    `dirty_ways`: a set that comes to hold more dirty lines than this writes back its two least recent ones,
    which stay, clean (0: no limit).
    `sampled_slices` simulates only that many slices of a sliced index and scales the counts up (0: all of
    them).
    """

    capacity_bytes: int
    line_bytes: int = 4096
    sector_bytes: int = 0
    ways: int = 16
    policy: Policy = "lru"
    index: IndexFunction = field(default_factory=IndexFunction)
    partitions: int = 1
    home_bytes: int = 4096
    write_copies: Copies = "near"
    dirty_ways: int = 0
    sampled_slices: int = 0
    seed: int = 1

    def __post_init__(self) -> None:
        _check_power_of_two("line_bytes", self.line_bytes)
        if self.sector_bytes == 0:
            object.__setattr__(self, "sector_bytes", self.line_bytes)
        _check_power_of_two("sector_bytes", self.sector_bytes)
        if not 1 <= self.line_bytes // self.sector_bytes <= MAX_SECTORS:
            raise SimulationError(
                f"cache: a line of {self.line_bytes} B needs 1 to {MAX_SECTORS} sectors, "
                f"got {self.sector_bytes} B each"
            )
        check_multiple("capacity_bytes", self.capacity_bytes, self.line_bytes)
        if self.ways == 0:
            object.__setattr__(self, "ways", self.capacity_bytes // self.line_bytes)
        if self.ways < 1 or self.capacity_bytes % (self.ways * self.line_bytes):
            raise SimulationError(
                f"cache: capacity_bytes {self.capacity_bytes} is not a multiple of {self.ways} ways × "
                f"{self.line_bytes} B lines; change ways or line_bytes"
            )
        if self.policy not in POLICIES:
            raise SimulationError(f"cache: unknown policy {self.policy!r}; allowed: {', '.join(POLICIES)}")
        if self.policy == "tree" and (self.ways & (self.ways - 1) or self.ways > MAX_TREE_WAYS):
            raise SimulationError(
                f"cache: policy tree needs a power of two of at most {MAX_TREE_WAYS} ways, got {self.ways}"
            )
        if self.partitions < 1:
            raise SimulationError(f"cache: partitions must be at least 1, got {self.partitions}")
        check_multiple("home_bytes", self.home_bytes, self.line_bytes)
        if self.write_copies not in COPIES:
            raise SimulationError(
                f"cache: unknown write_copies {self.write_copies!r}; allowed: {', '.join(COPIES)}"
            )
        if self.dirty_ways < 0 or (self.dirty_ways and self.policy != "lru"):
            raise SimulationError(
                f"cache: dirty_ways must be 0 (no limit), or positive with policy lru, got {self.dirty_ways}"
            )
        if self.index.kind == "sliced":
            self._check_sliced()
        if not 0 <= self.sampled_slices <= (self.index.slices if self.index.kind == "sliced" else 0):
            raise SimulationError(
                f"cache: sampled_slices must lie between 0 and the {self.index.slices} slices of a sliced index, "
                f"got {self.sampled_slices}"
            )

    def _check_sliced(self) -> None:
        check_multiple("index granule_bytes", self.index.granule_bytes, self.line_bytes)
        if self.sets % self.index.slices:
            raise SimulationError(
                f"cache index: {self.sets} sets do not divide into {self.index.slices} slices; "
                "change slices, ways or capacity_bytes"
            )
        if self.sets_per_slice < 2 or self.sets_per_slice & (self.sets_per_slice - 1):
            raise SimulationError(
                f"cache index: a slice must have a power of two of sets, got {self.sets_per_slice}; "
                "change slices, ways or capacity_bytes"
            )

    @property
    def sets(self) -> int:
        """Sets of one partition."""
        return self.capacity_bytes // (self.ways * self.line_bytes)

    @property
    def sectors(self) -> int:
        """Sectors of one line."""
        return self.line_bytes // self.sector_bytes

    @property
    def sets_per_slice(self) -> int:
        """Sets of one slice; all of them if the index is not sliced."""
        return self.sets // self.index.slices


Bytes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accesses:
    """A piece of a trace, in order: byte ranges read or written, by which side, for which stream.

    Every field is an array of the same length, or one value for all: `start_bytes`, `length_bytes`, `kind`
    (READ, WRITE, WRITE_PRIVATE), `side` (the partition of the SM), `stream` (a small number that counters
    are kept apart by, such as a tensor's).
    """

    start_bytes: Bytes
    length_bytes: Bytes
    kind: NDArray[np.uint8]
    side: NDArray[np.uint8]
    stream: NDArray[np.uint8]

    @classmethod
    def of(
        cls,
        start_bytes: Sequence[int] | Bytes,
        length_bytes: int | Sequence[int] | Bytes,
        *,
        kind: Any = READ,
        side: Any = 0,
        stream: Any = 0,
    ) -> Self:
        """Build from sequences or single values; raises `SimulationError` naming the first bad access."""
        start = np.ascontiguousarray(start_bytes, dtype=np.int64)
        self = cls(
            start_bytes=start,
            length_bytes=_column("length_bytes", length_bytes, start.size, np.int64),
            kind=_column("kind", kind, start.size, np.uint8),
            side=_column("side", side, start.size, np.uint8),
            stream=_column("stream", stream, start.size, np.uint8),
        )
        self._check()
        return self

    def _check(self) -> None:
        for name, bad in (
            ("a negative start", self.start_bytes < 0),
            ("a length below 1 byte", self.length_bytes < 1),
            ("an unknown kind", self.kind > WRITE_PRIVATE),
        ):
            if bad.any():
                at = int(np.argmax(bad))
                raise SimulationError(
                    f"access {at}: {name} (start {self.start_bytes[at]}, length {self.length_bytes[at]}, "
                    f"kind {self.kind[at]}); drop it or correct the program"
                )

    def check_aligned(self, alignment_bytes: int) -> Self:
        """Refuse accesses that do not start and end on a multiple of `alignment_bytes`; returns itself."""
        bad = (self.start_bytes % alignment_bytes != 0) | (self.length_bytes % alignment_bytes != 0)
        if bad.any():
            at = int(np.argmax(bad))
            raise SimulationError(
                f"access {at}: start {self.start_bytes[at]}, length {self.length_bytes[at]} is not aligned "
                f"to {alignment_bytes} bytes; use smaller chunks"
            )
        return self

    def __len__(self) -> int:
        return int(self.start_bytes.size)


def _column(name: str, values: Any, size: int, dtype: type[np.generic]) -> NDArray[Any]:
    raw = np.asarray(values)
    array = raw if raw.ndim else np.full(size, raw)
    if array.shape != (size,):
        raise SimulationError(
            f"accesses: {name} has shape {array.shape}, expected one value or {size} of them"
        )
    limits = np.iinfo(dtype)  # type: ignore[type-var]
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise SimulationError(f"accesses: {name} must lie between {limits.min} and {limits.max}")
    return np.ascontiguousarray(array, dtype=dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """What a cache did. Touches are counted a line, bytes by whole sectors; all are additive.

    `*_misses`: touches that found no line (in the reader's partition; at home for writes). `fetch_bytes`:
    from the next level down, also for partly written sectors. `writeback_bytes`: dirty sectors evicted.
    `fabric_bytes`: between partitions. `dirty_bytes`: still dirty when asked, a state rather than a sum.
    """

    read_touches: int = 0
    read_misses: int = 0
    write_touches: int = 0
    write_misses: int = 0
    read_bytes: int = 0
    read_hit_bytes: int = 0
    write_bytes: int = 0
    fetch_bytes: int = 0
    writeback_bytes: int = 0
    fabric_bytes: int = 0
    dirty_bytes: int = 0

    @property
    def miss_ratio(self) -> float:
        """Share of all touches that missed; 0 for an empty trace."""
        touches = self.read_touches + self.write_touches
        return (self.read_misses + self.write_misses) / touches if touches else 0.0

    def __add__(self, other: CacheCounts) -> CacheCounts:
        return CacheCounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


COUNTERS: tuple[str, ...] = tuple(f.name for f in fields(CacheCounts))


def _check_power_of_two(name: str, value: int) -> None:
    if value < 1 or value & (value - 1):
        raise SimulationError(f"cache: {name} must be a power of two, got {value}")


def check_multiple(name: str, value: int, unit: int) -> None:
    if value < 1 or value % unit:
        raise SimulationError(f"cache: {name} must be a positive multiple of {unit}, got {value}")
