"""The compiled cache against its specification, hand-worked caches, and the miss ratios of other
simulators."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import SimulationError
from iosim.memory.cache import Cache, simulate
from iosim.memory.config import (
    COPIES,
    POLICIES,
    READ,
    WRITE,
    WRITE_PRIVATE,
    Accesses,
    CacheConfig,
    CacheCounts,
    IndexFunction,
)
from iosim.memory.emulator import EmulatedCache

TRACES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "cache_traces.py"))
MIB = 2**20
SLICED = IndexFunction(kind="sliced", slices=60, granule_bytes=16384, span_bytes=16 * MIB)


@st.composite
def configs(draw: st.DrawFn) -> CacheConfig:
    line = draw(st.sampled_from([64, 128]))
    ways, sets = draw(st.integers(1, 5)), draw(st.sampled_from([1, 2, 6, 8]))
    indexes = [IndexFunction(), IndexFunction(kind="hashed")]
    slices = {2: 1, 6: 3, 8: 2}.get(sets)
    if slices:
        span = draw(st.sampled_from([2, 4, 16])) * line
        indexes.append(IndexFunction(kind="sliced", slices=slices, granule_bytes=2 * line, span_bytes=span))
    index = draw(st.sampled_from(indexes))
    policy = draw(st.sampled_from([p for p in POLICIES if p != "tree" or ways in (1, 2, 4)]))
    return CacheConfig(
        capacity_bytes=line * ways * sets,
        line_bytes=line,
        sector_bytes=draw(st.sampled_from([32, line])),
        ways=ways,
        policy=policy,
        index=index,
        sampled_slices=draw(st.integers(0, index.slices if index.kind == "sliced" else 0)),
        partitions=draw(st.integers(1, 3)),
        home_bytes=line * draw(st.integers(1, 3)),
        write_copies=draw(st.sampled_from(COPIES)),
        dirty_ways=draw(st.integers(0, 3)) if policy == "lru" else 0,
        seed=draw(st.integers(0, 3)),
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[CacheConfig, list[tuple[int, int, int, int, int]]]:
    config = draw(configs())
    access = st.tuples(
        st.integers(0, 3 * config.capacity_bytes),
        st.one_of(st.integers(1, 4 * config.line_bytes), st.just(config.line_bytes)),
        st.sampled_from([READ, READ, WRITE, WRITE_PRIVATE]),
        st.integers(0, config.partitions - 1),
        st.integers(0, 2),
    )
    return config, draw(st.lists(access, min_size=1, max_size=60))


def accesses(rows: list[tuple[int, int, int, int, int]]) -> Accesses:
    start, length, kind, side, stream = zip(*rows, strict=True)
    return Accesses.of(start, length, kind=kind, side=side, stream=stream)


@settings(max_examples=150, deadline=None)
@given(runs(), st.integers(0, 60))
def test_engine_equals_emulator(
    run: tuple[CacheConfig, list[tuple[int, int, int, int, int]]], cut: int
) -> None:
    config, rows = run
    slow, fast = EmulatedCache(config), Cache(config)
    for piece in (rows[:cut], rows[cut:]):  # feeding in pieces changes nothing
        if piece:
            fast.feed(accesses(piece))
    slow.feed(accesses(rows))
    assert [fast.counts(stream) for stream in (None, 0, 1, 2)] == [
        slow.counts(stream) for stream in (None, 0, 1, 2)
    ]


@settings(max_examples=50, deadline=None)
@given(runs())
def test_bytes_are_conserved(run: tuple[CacheConfig, list[tuple[int, int, int, int, int]]]) -> None:
    config, rows = run
    counts = simulate(config, [accesses(rows)])
    assert counts.read_bytes >= counts.read_hit_bytes
    assert counts.writeback_bytes + counts.dirty_bytes <= counts.write_bytes
    if config.partitions == 1:
        assert counts.fabric_bytes == 0
    if all(kind == READ for _, _, kind, _, _ in rows):
        assert counts.writeback_bytes == counts.dirty_bytes == 0
        if config.partitions == 1:
            assert counts.fetch_bytes == counts.read_bytes - counts.read_hit_bytes


def two_lines(policy: str) -> CacheConfig:
    return CacheConfig(capacity_bytes=256, line_bytes=128, ways=2, policy=policy)  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "misses"), [("lru", 4), ("fifo", 5), ("clock", 5)])
def test_policies_by_hand(policy: str, misses: int) -> None:
    # A B A C A B in two slots. LRU: A B . C(out B) . B(out C) = 4. FIFO: A B . C(out A) A(out B) B(out C)
    # = 5. Clock, both referenced when C comes: the hand clears A and B and takes A, so A misses (out B)
    # and B misses too = 5.
    a, b, c = 0, 128, 256
    assert simulate(two_lines(policy), [Accesses.of([a, b, a, c, a, b], 128)]).read_misses == misses


def test_whole_sector_write_does_not_fetch_and_part_does() -> None:
    config = CacheConfig(capacity_bytes=1024, line_bytes=128, sector_bytes=32, ways=2)
    whole = simulate(config, [Accesses.of([0], 64, kind=WRITE)])
    assert (whole.fetch_bytes, whole.dirty_bytes, whole.write_bytes) == (0, 64, 64)
    part = simulate(config, [Accesses.of([0], 40, kind=WRITE)])
    assert (part.fetch_bytes, part.dirty_bytes) == (32, 64)


def test_a_read_after_a_write_of_its_neighbour_fetches_one_sector() -> None:
    config = CacheConfig(capacity_bytes=1024, line_bytes=128, sector_bytes=32, ways=2)
    counts = simulate(config, [Accesses.of([0, 0], [32, 64], kind=[WRITE, READ])])
    assert (counts.fetch_bytes, counts.read_hit_bytes, counts.read_misses) == (32, 32, 0)


def test_dirty_lines_are_written_back_once() -> None:
    config = CacheConfig(capacity_bytes=512, line_bytes=128, ways=4)
    counts = simulate(
        config, [Accesses.of([0, 0, 512], [512, 512, 512], kind=[WRITE, WRITE, READ], stream=[1, 1, 2])]
    )
    assert (counts.writeback_bytes, counts.dirty_bytes, counts.fetch_bytes) == (512, 0, 512)


def test_streams_own_their_bytes() -> None:
    cache = Cache(CacheConfig(capacity_bytes=512, line_bytes=128, ways=4))
    cache.feed(Accesses.of([0, 512], 512, kind=[WRITE, READ], stream=[1, 2]))
    assert cache.counts(1).writeback_bytes == 512
    assert cache.counts(2) == CacheCounts(read_touches=4, read_misses=4, read_bytes=512, fetch_bytes=512)


def test_two_partitions_hold_two_copies() -> None:
    # Eight lines fit once in each partition: read from both sides, HBM is asked once, and every line
    # crosses once.
    config = CacheConfig(capacity_bytes=1024, line_bytes=128, ways=8, partitions=2, home_bytes=128)
    counts = simulate(config, [Accesses.of([0, 0, 0, 0], 1024, side=[0, 1, 0, 1])])
    assert (counts.fetch_bytes, counts.fabric_bytes) == (1024, 1024)
    # Two times as many, half of them homed on each side, fit in the two together but not twice: all misses
    # again.
    counts = simulate(config, [Accesses.of([0, 0], 2048, side=[0, 0])])
    assert counts.fetch_bytes > 2048


GOLDEN = {  # pycachesim 0.3.1 and libcachesim 0.3.5 agree on the first three; 16 ways is pycachesim's
    "flash 4 MiB": (0.0236, lambda: TRACES["flash_lines"](4_000_000, 4 * MIB)),
    "flash 32 MiB": (0.0675, lambda: TRACES["flash_lines"](4_000_000, 32 * MIB)),
    "cyclic 60 MiB": (1.0, lambda: TRACES["cyclic_lines"](4_000_000)),
    "mixed": (0.7395, lambda: TRACES["mixed_lines"](4_000_000)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_miss_ratios(name: str) -> None:
    expected, trace = GOLDEN[name]
    config = CacheConfig(capacity_bytes=40 * MIB, line_bytes=128, sector_bytes=32, ways=16)
    assert round(simulate(config, [Accesses.of(trace(), 128)]).miss_ratio, 4) == expected


def test_ranges_equal_lines() -> None:
    config = CacheConfig(
        capacity_bytes=MIB, line_bytes=128, sector_bytes=32, ways=16, index=IndexFunction(kind="hashed")
    )
    start, length = TRACES["flash_ranges"](100_000, MIB)
    lines = np.concatenate([np.arange(s, s + n, 128) for s, n in zip(start, length, strict=True)])
    assert simulate(config, [Accesses.of(start, length)]) == simulate(config, [Accesses.of(lines, 128)])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CacheConfig(capacity_bytes=1000, line_bytes=128), "capacity_bytes"),
        (lambda: CacheConfig(capacity_bytes=1280, line_bytes=128, ways=16), "16 ways"),
        (lambda: CacheConfig(capacity_bytes=4096, line_bytes=100), "power of two"),
        (lambda: CacheConfig(capacity_bytes=4096, line_bytes=1024, sector_bytes=32, ways=4), "sectors"),
        (lambda: CacheConfig(capacity_bytes=65536, policy="plru"), "allowed: lru, fifo"),  # type: ignore[arg-type]
        (lambda: CacheConfig(capacity_bytes=3 * 65536, ways=12, policy="tree"), "power of two"),
        (lambda: CacheConfig(capacity_bytes=65536, policy="fifo", dirty_ways=2), "dirty_ways"),
        (lambda: IndexFunction(kind="magic"), "allowed: modulo"),  # type: ignore[arg-type]
        (lambda: IndexFunction(kind="sliced"), "granule_bytes"),
        (lambda: CacheConfig(capacity_bytes=65536, index=SLICED), "60 slices"),
        (lambda: CacheConfig(capacity_bytes=65536, sampled_slices=1), "sampled_slices"),
        (lambda: CacheConfig(capacity_bytes=65536, write_copies="far"), "allowed: home"),  # type: ignore[arg-type]
        (lambda: Cache(CacheConfig(capacity_bytes=8192 * 4096, ways=0)), "stack_distance"),
        (lambda: Accesses.of([0, -1], 128), "access 1: a negative start"),
        (lambda: Accesses.of([0, 128], [128, 0]), "access 1: a length below 1"),
        (lambda: Accesses.of([0], 128, kind=7), "unknown kind"),
        (lambda: Accesses.of([0], 128, side=300), "between 0 and 255"),
        (lambda: Accesses.of([0, 1], [1, 2, 3]), "length_bytes has shape"),
        (lambda: Accesses.of([0, 100], 4096).check_aligned(4096), "access 1: start 100"),
        (lambda: simulate(CacheConfig(capacity_bytes=65536), [Accesses.of([0], 1, side=1)]), "side 1"),
        (lambda: simulate(CacheConfig(capacity_bytes=65536), [Accesses.of([2**60], 1)]), "beyond"),
    ],
)
def test_impossible_input_is_named(make: object, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        make()  # type: ignore[operator]


def test_a_set_with_too_many_dirty_lines_cleans_the_two_oldest() -> None:
    config = CacheConfig(capacity_bytes=1024, line_bytes=128, ways=8, dirty_ways=4)
    cache = Cache(config)
    cache.feed(Accesses.of(np.arange(4) * 128, 128, kind=WRITE))
    assert (cache.counts().writeback_bytes, cache.counts().dirty_bytes) == (0, 4 * 128)
    cache.feed(Accesses.of([4 * 128], 128, kind=WRITE))  # the fifth
    assert (cache.counts().writeback_bytes, cache.counts().dirty_bytes) == (2 * 128, 3 * 128)
    cache.feed(Accesses.of(np.arange(5) * 128, 128))  # nothing has left
    assert cache.counts().fetch_bytes == 0
