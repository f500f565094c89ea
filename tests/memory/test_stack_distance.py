"""Reuse distances against simulating each capacity, and the tile LRU against an ordered dictionary."""

from __future__ import annotations

import runpy
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import SimulationError
from iosim.memory.cache import simulate
from iosim.memory.config import WRITE, Accesses, CacheConfig
from iosim.memory.stack_distance import MissCurve, StackDistance
from iosim.memory.tiles import TileCache, TileCounts

TRACES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "cache_traces.py"))
MIB = 2**20

sizes_lists = st.lists(st.integers(1, 9), min_size=1, max_size=12)
touch_lists = st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=80)


def plain_lru(touches: list[tuple[int, bool]], sizes: list[int], capacity: int) -> tuple[int, int, int]:
    """Fetched, written back and still dirty bytes, by an ordered dictionary: oldest tile first."""
    held: OrderedDict[int, bool] = OrderedDict()
    fetched = back = 0
    for tile, write in touches:
        if tile not in held and not write:
            fetched += sizes[tile]
        held[tile] = held.pop(tile, False) or write
        while sum(sizes[t] for t in held) > capacity:
            victim, dirty = held.popitem(last=False)
            back += sizes[victim] * dirty
    return fetched, back, sum(sizes[t] for t, dirty in held.items() if dirty)


def curve_of(touches: list[tuple[int, bool]], sizes: list[int], cut: int = 0) -> MissCurve:
    distance = StackDistance(sizes)
    for piece in (touches[:cut], touches[cut:]):
        distance.feed([t for t, _ in piece], [w for _, w in piece])
    return distance.curve()


@settings(max_examples=150, deadline=None)
@given(sizes_lists, touch_lists, st.integers(0, 80))
def test_curve_and_tile_cache_equal_plain_lru(
    sizes: list[int], raw: list[tuple[int, bool]], cut: int
) -> None:
    touches = [(tile % len(sizes), write) for tile, write in raw]
    curve = curve_of(touches, sizes, cut)
    for capacity in range(sum(sizes) + 2):
        fetched, back, dirty = plain_lru(touches, sizes, capacity)
        assert (curve.fetch_bytes(capacity), curve.writeback_bytes(capacity)) == (fetched, back)
        cache = TileCache(sizes, capacity)
        cache.feed([t for t, _ in touches], [w for _, w in touches])
        reads = sum(sizes[t] for t, write in touches if not write)
        writes = sum(sizes[t] for t, write in touches if write)
        assert cache.counts() == TileCounts(
            read_bytes=reads, write_bytes=writes, fetch_bytes=fetched, writeback_bytes=back, dirty_bytes=dirty
        )
    assert (curve.read_bytes, curve.write_bytes) == (reads, writes)
    assert curve.fetch_bytes(sum(sizes)) == curve.compulsory_bytes


@settings(max_examples=30, deadline=None)
@given(touch_lists)
def test_curve_equals_the_set_associative_engine_with_one_set(touches: list[tuple[int, bool]]) -> None:
    curve = curve_of(touches, [128] * 12)
    for lines in range(1, 13):
        config = CacheConfig(capacity_bytes=128 * lines, line_bytes=128, ways=0)
        start = [128 * tile for tile, _ in touches]
        counts = simulate(config, [Accesses.of(start, 128, kind=[WRITE * w for _, w in touches])])
        assert curve.fetch_bytes(128 * lines) == counts.fetch_bytes
        assert curve.writeback_bytes(128 * lines) == counts.writeback_bytes


def test_by_hand() -> None:
    # A(4) B(1) C(2) B A: the second B sees B + C = 3 bytes, the second A all 7.
    curve = curve_of([(0, False), (1, False), (2, False), (1, False), (0, False)], [4, 1, 2])
    assert curve.fetch_bytes([0, 2, 3, 6, 7]).tolist() == [12, 12, 11, 11, 7]
    assert curve.capacities_bytes.tolist() == [3, 7]
    assert curve.compulsory_bytes == 7


def test_long_trace_over_few_tiles_is_renumbered_rightly() -> None:
    # 3 tiles and far more touches than positions: cyclic, so every reuse is at 3 tiles.
    curve = curve_of([(i % 3, False) for i in range(5000)], [10, 10, 10])
    assert curve.fetch_bytes([29, 30]).tolist() == [50_000, 30]


def test_golden_fully_associative_miss_ratio() -> None:
    lines = TRACES["mixed_lines"](4_000_000) // 128  # libcachesim 0.3.5: 0.7390 at 40 MiB
    fresh = lines >= 2**29
    dense = np.where(fresh, lines - 2**29 + 30 * MIB // 128, lines)
    cache = TileCache(np.full(int(dense.max()) + 1, 128), 40 * MIB)
    cache.feed(dense)
    assert round(cache.counts().fetch_bytes / cache.counts().read_bytes, 4) == 0.7390


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StackDistance([]), "at least one size"),
        (lambda: TileCache([4, 0], 8), "1 byte or more"),
        (lambda: TileCache([4], -1), "capacity_bytes"),
        (lambda: TileCache([4, 4], 8).feed([0, 1, 2]), "touch 2: tile 2"),
    ],
)
def test_impossible_input_is_named(make: object, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        make()  # type: ignore[operator]
