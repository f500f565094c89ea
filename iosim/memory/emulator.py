"""The specification of the cache: plain Python, one object a line, no tricks. Slow; use `cache` for real
traces.

Semantics, in order:
1. An access touches the lines that its bytes lie in, lowest address first, and of each line the sectors.
2. A read looks in the reader's partition. Sectors missing there are asked of the line's home partition
   (that is fabric traffic), and what is missing at home is fetched from the next level. Home fills before
   the reader's side does.
3. A write goes to the home partition. A sector written whole is never fetched; a sector written in part
   is, if it is not there. The written sectors are dirty at home. Unless the write is private, the other
   partitions that
   `write_copies` names hold a clean copy of the written sectors as well, filled in order after the home.
   Before that, if the home's set has more than `dirty_ways` dirty lines, the two of them that were least
   recently touched are written back and stay, clean.
4. A line that needs room takes the first empty slot of its set, else the victim named by the policy: the
   least recently touched (lru), the oldest (fifo), the next one past the hand that was not touched since
   the hand came by (clock), the one that a tree of bits points to, each pointing away from its half last
touched (tree), or one drawn by a generator (random). A dirty victim's dirty sectors are written back. 5.
With sampled slices, lines of the other slices are passed over and every count is scaled up, rounding down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from iosim.errors import SimulationError
from iosim.memory.config import WRITE, WRITE_PRIVATE, Accesses, CacheConfig, CacheCounts

_WORD = 2**64


def mix(value: int) -> int:
    """Scramble a 64-bit number: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = (value + 0x9E3779B97F4A7C15) % _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % _WORD
    return value ^ (value >> 31)


def set_of(line: int, config: CacheConfig) -> int:
    """The set of a line, the same in every partition."""
    index = config.index
    if index.kind == "modulo":
        return line % config.sets
    if index.kind == "hashed":
        return mix(line) % config.sets
    return position_of(line, config) * index.slices + slice_of(line, config)


def position_of(line: int, config: CacheConfig) -> int:
    """The place of a line inside its slice: granules in order, xored with a hash of how often they went
    round."""
    turn, position = divmod(line * config.line_bytes // config.index.granule_bytes, config.sets_per_slice)
    return position ^ mix(turn) % config.sets_per_slice


def slice_of(line: int, config: CacheConfig) -> int:
    """The slice of a line: round the slices in order, going on at the same position of the next turn.

    Where the round starts is a hash of the span and the position.
    """
    lines, sets = config.index.granule_bytes // config.line_bytes, config.sets_per_slice
    turn, inside = line // lines // sets, line % lines
    span = line * config.line_bytes // config.index.span_bytes
    start = mix(span * sets + position_of(line, config))
    return (turn * lines + inside + start) % config.index.slices


def home_of(line: int, config: CacheConfig) -> int:
    """The partition that owns a line."""
    return (mix(line * config.line_bytes // config.home_bytes) >> 32) % config.partitions


@dataclass(slots=True)
class _Line:
    number: int
    stream: int
    touched: int
    filled: int
    referenced: bool = True
    valid: set[int] = field(default_factory=set)
    dirty: set[int] = field(default_factory=set)


class _Set:
    """The slots of one set and its clock hand."""

    def __init__(self, ways: int) -> None:
        self.slots: list[_Line | None] = [None] * ways
        self.hand = 0
        self.points_right = [False] * ways

    def find(self, number: int) -> _Line | None:
        return next((line for line in self.slots if line is not None and line.number == number), None)

    def pointed_at(self) -> int:
        """The slot that the tree of bits leads to; node 1 is the root, the children of n are 2n and 2n +
        1."""
        node = 1
        while node < len(self.slots):
            node = 2 * node + self.points_right[node]
        return node - len(self.slots)

    def point_away(self, slot: int) -> None:
        """Make every node above a slot point to its other child."""
        node = slot + len(self.slots)
        while node > 1:
            self.points_right[node // 2] = node % 2 == 0
            node //= 2


class EmulatedCache:
    """The cache that `config` describes; feed it accesses, then ask for its counts."""

    def __init__(self, config: CacheConfig) -> None:
        self.config = config
        self._sets = [[_Set(config.ways) for _ in range(config.sets)] for _ in range(config.partitions)]
        self._counts: Counter[tuple[int, str]] = Counter()
        self._clock = 0
        self._random = config.seed

    def feed(self, accesses: Accesses) -> None:
        """Run the accesses; raises `SimulationError` for a side that the cache does not have."""
        columns = (accesses.start_bytes, accesses.length_bytes, accesses.kind, accesses.side, accesses.stream)
        for start, length, kind, side, stream in zip(*(c.tolist() for c in columns), strict=True):
            if side >= self.config.partitions:
                raise SimulationError(
                    f"access: side {side} of a cache with {self.config.partitions} partitions"
                )
            for number, whole, part in self._lines(start, start + length):
                if kind in (WRITE, WRITE_PRIVATE):
                    self._write(number, whole, part, side, stream, private=kind == WRITE_PRIVATE)
                else:
                    self._read(number, whole | part, side, stream)

    def counts(self, stream: int | None = None) -> CacheCounts:
        """The counts of one stream, or of all."""
        totals: Counter[str] = Counter()
        for (owner, name), value in self._counts.items():
            if stream in (None, owner):
                totals[name] += value
        lines = (line for side in self._sets for one in side for line in one.slots if line is not None)
        dirty = sum(len(line.dirty) for line in lines if stream in (None, line.stream))
        totals["dirty_bytes"] = dirty * self.config.sector_bytes
        sampled = self.config.sampled_slices or self.config.index.slices
        return CacheCounts(**{name: n * self.config.index.slices // sampled for name, n in totals.items()})

    def _lines(self, start: int, end: int) -> Iterator[tuple[int, set[int], set[int]]]:
        """Line numbers of a byte range with the sectors covered whole and in part."""
        size, sector = self.config.line_bytes, self.config.sector_bytes
        for number in range(start // size, (end - 1) // size + 1):
            if self.config.sampled_slices and slice_of(number, self.config) >= self.config.sampled_slices:
                continue
            whole, part = set(), set()
            for s in range(self.config.sectors):
                first = number * size + s * sector
                covered = min(end, first + sector) - max(start, first)
                if covered == sector:
                    whole.add(s)
                elif covered > 0:
                    part.add(s)
            yield number, whole, part

    def _read(self, number: int, sectors: set[int], side: int, stream: int) -> None:
        home = home_of(number, self.config)
        line = self._set(side, number).find(number)
        self._count(stream, "read_touches")
        self._count_bytes(stream, "read_bytes", sectors)
        if line is None:
            self._count(stream, "read_misses")
        needed = sectors - line.valid if line else sectors
        self._count_bytes(stream, "read_hit_bytes", sectors - needed)
        if needed and home != side:
            self._count_bytes(stream, "fabric_bytes", needed)
            at_home = self._hold(home, number, stream)
            self._count_bytes(stream, "fetch_bytes", needed - at_home.valid)
            at_home.valid |= needed
        elif needed:
            self._count_bytes(stream, "fetch_bytes", needed)
        self._hold(side, number, stream).valid |= needed

    def _write(
        self, number: int, whole: set[int], part: set[int], side: int, stream: int, *, private: bool
    ) -> None:
        home, written = home_of(number, self.config), whole | part
        self._count(stream, "write_touches")
        self._count_bytes(stream, "write_bytes", written)
        if self._set(home, number).find(number) is None:
            self._count(stream, "write_misses")
        if home != side:
            self._count_bytes(stream, "fabric_bytes", written)
        line = self._hold(home, number, stream)
        self._count_bytes(stream, "fetch_bytes", part - line.valid)
        line.valid |= written
        line.dirty |= written
        line.stream = stream
        self._limit_dirty(self._set(home, number))
        for other in range(self.config.partitions):
            copied = self.config.write_copies == "all" or (
                self.config.write_copies == "near" and other == side
            )
            if other != home and copied and not private:
                self._hold(other, number, stream).valid |= written

    def _limit_dirty(self, one: _Set) -> None:
        """Clean the two least recently touched dirty lines of a set that has more than it may."""
        dirty = sorted(
            (line for line in one.slots if line is not None and line.dirty), key=lambda line: line.touched
        )
        if 0 < self.config.dirty_ways < len(dirty):
            for line in dirty[:2]:
                self._write_back(line)
                line.dirty.clear()

    def _hold(self, side: int, number: int, stream: int) -> _Line:
        """The line in that partition, touched; brought in without its sectors if it was not there."""
        self._clock += 1
        one = self._set(side, number)
        line = one.find(number)
        if line is None:
            slot = one.slots.index(None) if None in one.slots else self._victim(one)
            self._write_back(one.slots[slot])
            line = _Line(number=number, stream=stream, touched=self._clock, filled=self._clock)
            one.slots[slot] = line
        one.point_away(one.slots.index(line))
        line.touched, line.referenced = self._clock, True
        return line

    def _victim(self, one: _Set) -> int:
        lines = [line for line in one.slots if line is not None]
        if self.config.policy == "lru":
            return min(range(len(lines)), key=lambda slot: lines[slot].touched)
        if self.config.policy == "fifo":
            return min(range(len(lines)), key=lambda slot: lines[slot].filled)
        if self.config.policy == "tree":
            return one.pointed_at()
        if self.config.policy == "random":
            self._random = mix(self._random)
            return (self._random >> 32) % len(lines)
        while lines[one.hand].referenced:
            lines[one.hand].referenced = False
            one.hand = (one.hand + 1) % len(lines)
        slot, one.hand = one.hand, (one.hand + 1) % len(lines)
        return slot

    def _write_back(self, line: _Line | None) -> None:
        if line is not None:
            self._count_bytes(line.stream, "writeback_bytes", line.dirty)

    def _set(self, side: int, number: int) -> _Set:
        return self._sets[side][set_of(number, self.config)]

    def _count(self, stream: int, name: str) -> None:
        self._counts[stream, name] += 1

    def _count_bytes(self, stream: int, name: str, sectors: set[int]) -> None:
        self._counts[stream, name] += len(sectors) * self.config.sector_bytes
