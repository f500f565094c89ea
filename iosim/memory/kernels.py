"""The cache of `emulator`, compiled. Arrays in, arrays changed in place; `cache` is the door to it.

One slot is two words. `words`: line number + 1 (from bit 24), owner stream (16..23), dirty sectors
(8..15), valid sectors (0..7); 0 is empty. `ranks`: when the slot was last touched or filled, above the
slot's own number in the set, so that the smallest rank of a set names the victim, empty slots first and
lowest first. For clock it holds the reference bit instead; a set's hand is in `hands`. The slots of all
partitions and sets lie in one row.

Almost every touch of a real trace is a whole line that hits, next to the line before: `run` settles that
case in place and leaves every other one to `read_line` and `write_line`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.jit import kernel

Int = Any
"""An int64 scalar; mypy does not follow how numba widens them."""
Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]

LRU, FIFO, CLOCK, RANDOM, TREE = 0, 1, 2, 3, 4
MODULO, HASHED, SLICED = 0, 1, 2
HOME, NEAR, ALL = 0, 1, 2
WAY_BITS = 12
WAY_MASK = 2**WAY_BITS - 1

# positions in `params`, which describes the cache; shifts are base-2 logarithms, P_GRANULE to P_HOME count
# lines
P_LINE_SHIFT, P_SECTOR_SHIFT, P_SETS, P_WAYS, P_POLICY = range(5)
P_INDEX, P_SLICES, P_GRANULE, P_SPAN, P_HOME = range(5, 10)
P_PARTS, P_COPIES, P_SAMPLED, P_DIRTY = range(10, 14)
# positions in `state`, which lives on between calls
S_CLOCK, S_RANDOM = 0, 1
# columns of `counts`, in the order of CacheCounts
(READS, READ_MISSES, WRITES, WRITE_MISSES, READ_B, READ_HIT_B, WRITE_B, FETCH_B, BACK_B, FABRIC_B) = range(10)
COLUMNS = 10


@kernel
def mix(value: Int) -> Int:
    x = np.uint64(value) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@kernel
def set_of(line: Int, params: Ints) -> Int:
    sets = params[P_SETS]
    if params[P_INDEX] == MODULO:
        return line % sets
    if params[P_INDEX] == HASHED:
        return np.int64(mix(line) % np.uint64(sets))
    slices = params[P_SLICES]
    granule, positions = line // params[P_GRANULE], sets // slices
    turn = granule // positions
    position = granule % positions ^ np.int64(mix(turn) % np.uint64(positions))
    start = mix(line // params[P_SPAN] * positions + position) % np.uint64(slices)
    walked = turn * params[P_GRANULE] + line % params[P_GRANULE]
    return position * slices + (walked + np.int64(start)) % slices


@kernel
def home_of(line: Int, params: Ints) -> Int:
    if params[P_PARTS] == 1:
        return 0
    return np.int64((mix(line // params[P_HOME]) >> np.uint64(32)) % np.uint64(params[P_PARTS]))


@kernel
def next_set(line: Int, one: Int, params: Ints) -> Int:
    """The set of `line` if that of `line` - 1 is `one`, without a division where none is needed."""
    if params[P_INDEX] == MODULO:
        return one + 1 if one + 1 < params[P_SETS] else 0
    if params[P_INDEX] == SLICED and line % params[P_GRANULE] != 0:  # spans are whole granules
        slices = params[P_SLICES]
        return one + 1 if (one + 1) % slices != 0 else one + 1 - slices
    return set_of(line, params)


@kernel
def skip(line: Int, one: Int, params: Ints) -> Int:
    """How many lines to pass over from one in set `one` to the next sampled slice, or to the end of its
    granule."""
    slices, granule = params[P_SLICES], params[P_GRANULE]
    if one % slices < params[P_SAMPLED]:
        return 0
    return min(slices - one % slices, granule - line % granule)


@kernel
def population(mask: Int) -> Int:
    """Ones in an 8-bit mask."""
    mask = mask - ((mask >> 1) & 0x55)
    mask = (mask & 0x33) + ((mask >> 2) & 0x33)
    return (mask + (mask >> 4)) & 0x0F


@kernel
def find(words: Ints, first: Int, ways: Int, line: Int) -> Int:
    """The slot of a line in the set that begins at `first`, or -1."""
    mine = words[
        first : first + ways
    ]  # a view from 0 and a loop without an early exit: this way it is vectorized
    way = -1
    for w in range(ways):
        way = max(way, w if mine[w] >> 24 == line + 1 else -1)
    return first + way if way >= 0 else -1


@kernel
def victim(words: Ints, ranks: Ints, hands: Ints, state: Ints, params: Ints, first: Int) -> Int:
    """The slot to give up: the first empty one, else the policy's choice."""
    ways, policy = params[P_WAYS], params[P_POLICY]
    if policy > FIFO:
        for s in range(first, first + ways):
            if words[s] == 0:
                return s
    if policy == RANDOM:
        drawn = mix(state[S_RANDOM])
        state[S_RANDOM] = np.int64(drawn)
        return first + np.int64((drawn >> np.uint64(32)) % np.uint64(ways))
    if policy == TREE:
        bits, node = hands[first // ways], 1
        while node < ways:
            node = 2 * node + ((bits >> node) & 1)
        return first + node - ways
    if policy == CLOCK:
        one = first // ways
        hand = hands[one]
        while ranks[first + hand] == 1:
            ranks[first + hand] = 0
            hand = (hand + 1) % ways
        hands[one] = (hand + 1) % ways
        return first + hand
    mine = ranks[first : first + ways]
    rank = mine[0]
    for w in range(ways):
        rank = min(rank, mine[w])
    return first + (rank & WAY_MASK)


@kernel
def away(bits: Int, node: Int) -> Int:
    """Turn the bits of all nodes above a leaf of the tree away from it."""
    while node > 1:
        parent = node >> 1
        bits = bits | (1 << parent) if node & 1 == 0 else bits & ~(1 << parent)
        node = parent
    return bits


@kernel
def hold(
    words: Ints,
    ranks: Ints,
    hands: Ints,
    state: Ints,
    counts: Ints,
    params: Ints,
    line: Int,
    first: Int,
    slot: Int,
    stream: Int,
) -> Int:
    """The slot of a line, made the most recent; `slot` is what `find` says: -1 brings it in, without its
    sectors."""
    policy = params[P_POLICY]
    state[S_CLOCK] += 1
    if slot < 0:
        slot = victim(words, ranks, hands, state, params, first)
        old = words[slot]
        if old & 0xFF00:
            counts[(old >> 16) & 0xFF, BACK_B] += population((old >> 8) & 0xFF) << params[P_SECTOR_SHIFT]
        words[slot] = ((line + 1) << 24) | (stream << 16)
    elif policy == FIFO:
        return slot
    if policy == TREE:
        hands[first // params[P_WAYS]] = away(hands[first // params[P_WAYS]], slot - first + params[P_WAYS])
        return slot
    ranks[slot] = (state[S_CLOCK] << WAY_BITS) | (slot - first) if policy <= FIFO else 1
    return slot


@kernel
def clean_oldest(words: Ints, ranks: Ints, counts: Ints, params: Ints, first: Int) -> None:
    """Write back the two least recent dirty lines of a set that has too many; they stay, clean."""
    dirty = 0
    for slot in range(first, first + params[P_WAYS]):
        dirty += words[slot] & 0xFF00 != 0
    if dirty <= params[P_DIRTY]:
        return
    for _ in range(min(2, dirty)):
        oldest = -1
        for slot in range(first, first + params[P_WAYS]):
            if words[slot] & 0xFF00 and (oldest < 0 or ranks[slot] < ranks[oldest]):
                oldest = slot
        old = words[oldest]
        counts[(old >> 16) & 0xFF, BACK_B] += population((old >> 8) & 0xFF) << params[P_SECTOR_SHIFT]
        words[oldest] = old & ~0xFF00


@kernel
def read_line(
    words: Ints,
    ranks: Ints,
    hands: Ints,
    state: Ints,
    counts: Ints,
    params: Ints,
    line: Int,
    one: Int,
    sectors: Int,
    side: Int,
    stream: Int,
) -> Int:
    """Read sectors of a line; returns its slot in the reader's partition."""
    ways, shift = params[P_WAYS], params[P_SECTOR_SHIFT]
    slots = params[P_SETS] * ways
    mine = side * slots + one * ways
    slot = find(words, mine, ways, line)
    needed = sectors & ~words[slot] if slot >= 0 else sectors
    counts[stream, READS] += 1
    counts[stream, READ_MISSES] += slot < 0
    counts[stream, READ_B] += population(sectors) << shift
    counts[stream, READ_HIT_B] += population(sectors & ~needed) << shift
    fetched = needed
    if needed != 0:
        home = home_of(line, params)
        if home != side:
            counts[stream, FABRIC_B] += population(needed) << shift
            first = home * slots + one * ways
            there = find(words, first, ways, line)
            there = hold(words, ranks, hands, state, counts, params, line, first, there, stream)
            fetched &= ~words[there]
            words[there] |= needed
        counts[stream, FETCH_B] += population(fetched) << shift
    slot = hold(words, ranks, hands, state, counts, params, line, mine, slot, stream)
    words[slot] |= needed
    return slot


@kernel
def write_line(
    words: Ints,
    ranks: Ints,
    hands: Ints,
    state: Ints,
    counts: Ints,
    params: Ints,
    line: Int,
    one: Int,
    whole: Int,
    part: Int,
    side: Int,
    stream: Int,
    private: bool,
) -> None:
    ways, shift = params[P_WAYS], params[P_SECTOR_SHIFT]
    slots, written = params[P_SETS] * ways, whole | part
    home = home_of(line, params)
    first = home * slots + one * ways
    counts[stream, WRITES] += 1
    slot = find(words, first, ways, line)
    counts[stream, WRITE_MISSES] += slot < 0
    counts[stream, WRITE_B] += population(written) << shift
    if home != side:
        counts[stream, FABRIC_B] += population(written) << shift
    slot = hold(words, ranks, hands, state, counts, params, line, first, slot, stream)
    old = words[slot]
    counts[stream, FETCH_B] += population(part & ~old) << shift
    words[slot] = (old & ~0xFF0000) | (stream << 16) | (written << 8) | written
    if params[P_DIRTY] > 0 and old & 0xFF00 == 0:
        clean_oldest(words, ranks, counts, params, first)
    if private or params[P_COPIES] == HOME:
        return
    for other in range(params[P_PARTS]):
        if other != home and (params[P_COPIES] == ALL or other == side):
            first = other * slots + one * ways
            slot = find(words, first, ways, line)
            slot = hold(words, ranks, hands, state, counts, params, line, first, slot, stream)
            words[slot] |= written


@kernel
def sector_masks(start: Int, end: Int, line_start: Int, line_end: Int, sector: Int) -> tuple[Int, Int]:
    """Sectors of a line that [start, end) covers whole, and in part."""
    whole, part, bit = 0, 0, 1
    for low in range(line_start, line_end, sector):
        covered = min(end, low + sector) - max(start, low)
        if covered == sector:
            whole |= bit
        elif covered > 0:
            part |= bit
        bit <<= 1
    return whole, part


@kernel
def count_hits(counts: Ints, stream: Int, hits: Int, shift: Int) -> None:
    """Count whole lines that were read and there."""
    counts[stream, READS] += hits
    counts[stream, READ_B] += hits << shift
    counts[stream, READ_HIT_B] += hits << shift


@kernel
def run(
    starts: Ints,
    lengths: Ints,
    kinds: Octets,
    sides: Octets,
    streams: Octets,
    words: Ints,
    ranks: Ints,
    hands: Ints,
    state: Ints,
    counts: Ints,
    params: Ints,
) -> None:
    """Run accesses through the cache. words, ranks [partitions * sets * ways]; hands [partitions * sets];
    counts [256, 10]."""
    shift, ways, lru = params[P_LINE_SHIFT], params[P_WAYS], params[P_POLICY] == LRU
    size, sector = 1 << shift, 1 << params[P_SECTOR_SHIFT]
    every = (1 << (size // sector)) - 1
    slots = params[P_SETS] * ways
    sampled = params[P_SAMPLED] > 0
    way, hits, counted = 0, 0, np.int64(0)
    previous, one = -2, 0
    for i in range(starts.size):
        start, end = starts[i], starts[i] + lengths[i]
        kind, side, stream = np.int64(kinds[i]), np.int64(sides[i]), np.int64(streams[i])
        base = side * slots
        if stream != counted:
            count_hits(counts, counted, hits, shift)
            hits, counted = 0, stream
        line, last = (start >> shift) - 1, (end - 1) >> shift
        while line < last:
            line += 1
            one = next_set(line, one, params) if line == previous + 1 else set_of(line, params)
            previous = line
            if sampled:
                passed = skip(line, one, params)
                if passed:  # to the line before the next of interest, still in this round of the slices
                    line, one, previous = line + passed - 1, one + passed - 1, line + passed - 1
                    continue
            whole, part = every, 0
            if (line << shift) < start or ((line + 1) << shift) > end:
                whole, part = sector_masks(start, end, line << shift, (line + 1) << shift, sector)
            if kind == 0:
                slot = base + one * ways + way
                word = words[slot]
                if lru and whole == every and word >> 24 == line + 1 and word & every == every:
                    state[S_CLOCK] += 1
                    ranks[slot] = (state[S_CLOCK] << WAY_BITS) | way
                    hits += 1
                else:
                    slot = read_line(
                        words, ranks, hands, state, counts, params, line, one, whole | part, side, stream
                    )
                    way = slot - base - one * ways
            else:
                write_line(
                    words,
                    ranks,
                    hands,
                    state,
                    counts,
                    params,
                    line,
                    one,
                    whole,
                    part,
                    side,
                    stream,
                    kind == 2,
                )
    count_hits(counts, counted, hits, shift)


@kernel
def dirty_sectors(words: Ints, sectors: Ints) -> None:
    """Add the dirty sectors of every slot to `sectors` [256], by the stream that wrote last."""
    for word in words:
        sectors[(word >> 16) & 0xFF] += population((word >> 8) & 0xFF)
