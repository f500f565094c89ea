"""Curves against simulating one LRU at every capacity, streams against the traces of single blocks, and the steps."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS, find_algorithm
from iosim.curves import (
    CapacityCurve,
    Run,
    alone_curve,
    find_steps,
    in_turn_curve,
    l2_study,
    merged_curve,
    sram_study,
)
from iosim.errors import SimulationError, UsageError
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.trace import blocks, trace
from iosim.levels import generic_policies
from iosim.memory import tile_streams
from iosim.memory.hierarchy import Policies
from iosim.memory.schedule import Schedule, interleave
from iosim.memory.tile_streams import KernelStream
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import evaluate

Access = tuple[str, int, int, range, range, bool]
Element = tuple[str, int, int, int, int]

PROGRAMS: list[tuple[str, dict[str, str]]] = [
    *((a.name, {}) for a in ALGORITHMS.values() if "causal" in a.masks),
    ("flash2", {"pass": "fwd+bwd"}),
    ("flash2", {"block-mask": "local:1"}),
    ("standard", {"gemm-tiles": "8x4"}),
    ("decode", {"splits": "2"}),
]
programs = st.sampled_from(PROGRAMS)


def run_of(name: str, options: dict[str, str], tile: str = "4x3", **sizes: Any) -> Run:
    shape = {"seq_q": 10, "seq_k": 13, "head_dim": 4, "heads": 2, "kv_heads": 1, "mask": "causal"} | sizes
    algorithm = find_algorithm(name)
    problem = AttentionProblem.of(**shape)
    return Run.of(algorithm, problem, algorithm.resolve(options), TileShape.parse(tile))


def block_traces(run: Run, *, backward: bool = False) -> Iterator[list[list[Access]]]:
    """For each kernel, the accesses of each block, as the one-block tracer gives them."""
    names = list(run.program.tensors)
    for kernel in run.program.kernels:
        out = []
        for block in blocks(kernel, run.binding):
            found = []
            for piece in trace(run.program, kernel, block, run.binding, backward=backward):
                for a in piece:
                    rows, cols = (
                        range(a["row_start"], a["row_stop"]),
                        range(a["col_start"], a["col_stop"]),
                    )
                    found.append((names[a["tensor"]], a["batch"], a["head"], rows, cols, bool(a["store"])))
            out.append(found)
        yield out


class ElementLru:
    """An LRU over single elements, where each access brings in its elements in row-major order of its tiles."""

    def __init__(self, capacity: int, sizes: dict[str, int], tiles: dict[str, Any]) -> None:
        self.capacity, self.sizes, self.tiles = capacity, sizes, tiles
        self.held: OrderedDict[Any, tuple[bool, int]] = OrderedDict()
        self.used = self.read = self.written = 0

    def touch(self, access: Access) -> None:
        name, batch, head, rows, cols, store = access
        row_cuts, col_cuts = self.tiles[name]
        for top, bottom in pieces(row_cuts, rows):
            for left, right in pieces(col_cuts, cols):
                tile = (name, batch, head, top, left)
                size = (bottom - top) * (right - left) * self.sizes[name]
                dirty, known = self.held.pop(tile, (False, 0))
                if not known:
                    self.used += size
                    self.read += 0 if store else size
                self.held[tile] = (dirty or store, size)
                while self.used > self.capacity:
                    self.evict()

    def evict(self) -> None:
        _, (dirty, size) = self.held.popitem(last=False)
        self.used -= size
        self.written += size * dirty

    def flush(self) -> None:
        while self.held:
            self.evict()


def pieces(cuts: list[int], span: range) -> list[tuple[int, int]]:
    inside = [c for c in cuts if span.start <= c <= span.stop] if len(span) else []
    return list(itertools.pairwise(inside))


def plain(
    run: Run, capacity: int, streams: list[list[list[Access]]], *, alone: bool = False
) -> tuple[int, int]:
    """Bytes read and written by simulating the LRU at one capacity; what is dirty is written at the end."""
    sizes, cuts = {}, {}
    accesses = [a for kernel in streams for block in kernel for a in block]
    for name, tensor in run.program.tensors.items():
        sizes[name] = bind_value(run, tensor.itemsize)
        edges: list[set[int]] = [
            {0, bind_value(run, tensor.rows)},
            {0, bind_value(run, tensor.cols)},
        ]
        for a in accesses:
            if a[0] == name:
                edges[0] |= {a[3].start, a[3].stop}
                edges[1] |= {a[4].start, a[4].stop}
        cuts[name] = (sorted(edges[0]), sorted(edges[1]))
    lru = ElementLru(capacity, sizes, cuts)
    for kernel in streams:
        for block in kernel:
            for access in block:
                lru.touch(access)
            if alone:
                lru.flush()
    lru.flush()
    return lru.read, lru.written


def bind_value(run: Run, expression: Any) -> int:
    return int(np.asarray(evaluate(expression, run.binding)))


def check(
    run: Run, curve: CapacityCurve, streams: list[list[list[Access]]], capacity: int, *, alone: bool = False
) -> None:
    read, written = plain(run, capacity, streams, alone=alone)
    assert (int(curve.read_bytes(capacity)), int(curve.write_bytes(capacity))) == (read, written)


@settings(max_examples=40)
@given(programs, st.sampled_from(["2x5", "4x3", "16x16"]), st.integers(0, 2500))
def test_blocks_in_turn_equal_one_lru(which: tuple[str, dict[str, str]], tile: str, capacity: int) -> None:
    run = run_of(*which, tile=tile)
    check(run, in_turn_curve(run), list(block_traces(run)), capacity)


@settings(max_examples=40)
@given(programs, st.sampled_from(["2x5", "4x3", "16x16"]), st.integers(0, 1500))
def test_blocks_alone_equal_an_lru_emptied_after_each(
    which: tuple[str, dict[str, str]], tile: str, capacity: int
) -> None:
    run = run_of(*which, tile=tile, batch=2)
    check(run, alone_curve(run), list(block_traces(run)), capacity, alone=True)


@settings(max_examples=30)
@given(
    programs,
    st.integers(0, 2500),
    st.sampled_from(["forward", "backward"]),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.4]),
)
def test_merged_blocks_equal_one_lru(
    which: tuple[str, dict[str, str]], capacity: int, walk: str, slots: int, skew: float
) -> None:
    run = run_of(*which)
    curve = merged_curve(run, Policies(sms=slots, kv_walk=walk, skew=skew, seed=3))
    merged = []
    for kernel in block_traces(run, backward=walk == "backward"):
        order = [block for block, found in enumerate(kernel) if found]
        lengths = [max(1, len(found)) for found in kernel]
        events = interleave(lengths, order, Schedule(slots=slots, skew=skew, seed=3))
        merged.append([[kernel[b][s] for e in events for b, s in zip(e.block, e.phase, strict=True)]])
    check(run, curve, merged, capacity)


@pytest.mark.parametrize("piece", [1, 7, 64])
@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_cutting_the_stream_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, str], piece: int
) -> None:
    run = run_of(name, options, heads=4, kv_heads=2)
    policies = Policies(sms=3, blocks_per_sm=2, skew=0.2, kv_walk="sawtooth")
    capacities = np.arange(0, 4000, 7)

    def bytes_of() -> list[list[int]]:
        curves = in_turn_curve(run), alone_curve(run), merged_curve(run, policies)
        return [curve.total_bytes(capacities).tolist() for curve in curves]

    whole = bytes_of()
    monkeypatch.setattr(tile_streams, "PIECE", piece)
    monkeypatch.setattr("iosim.curves.capacity.PIECE", piece)
    monkeypatch.setattr(tile_streams, "_KEPT", 0)
    assert bytes_of() == whole


@settings(max_examples=40)
@given(programs, st.integers(1, 3), st.sampled_from([(1, 1), (2, 1), (4, 2)]))
def test_without_a_cache_everything_counted_moves(
    which: tuple[str, dict[str, str]], batch: int, heads: tuple[int, int]
) -> None:
    run = run_of(*which, batch=batch, heads=heads[0], kv_heads=heads[1])
    tally = count(run.program, bind(run.problem, run.tile))
    for curve in (in_turn_curve(run), alone_curve(run), merged_curve(run, Policies(sms=2))):
        assert int(curve.read_bytes(0)) == sum(tally.read_bytes.values())
        assert int(curve.write_bytes(0)) == sum(tally.write_bytes.values())
        reads = {
            name: round(float(curve.passes(name, 0)) * size) for name, size in curve.tensor_bytes.items()
        }
        assert reads == {name: int(tally.read_bytes.get(name, 0)) for name in reads}


@settings(max_examples=40)
@given(programs, st.sampled_from(["none", "causal", "window:3"]), st.sampled_from(["2x2", "4x3", "8x16"]))
def test_no_curve_under_a_bound(which: tuple[str, dict[str, str]], mask: str, tile: str) -> None:
    run = run_of(*which, tile=tile, mask=mask, seq_q=24, seq_k=24, head_dim=2)
    for curve in (in_turn_curve(run), alone_curve(run), merged_curve(run, Policies(sms=2))):
        for capacity in [0, *curve.capacities_bytes.tolist()]:
            floor = run.floor(capacity + curve.beside_bytes)
            assert int(curve.total_bytes(capacity)) >= max(floor.values())


def test_a_step_by_hand() -> None:
    # 4 row tiles of 4 x 8 fp16 (64 B); K and V 16 x 8 each: 512 B a head. Between two reads of a key tile lie the
    # other 7 tiles of K and V, and one tile each of O and Q: 8 · 64 + 2 · 64 = 640 B.
    run = run_of("flash2", {}, tile="4x4", seq_q=16, seq_k=16, head_dim=8, mask="none", heads=2, kv_heads=2)
    curve = in_turn_curve(run)
    (step,) = find_steps(curve)
    assert (step.start_bytes, step.capacity_bytes) == (640, 640)
    assert step.passes == {"K": (4.0, 1.0), "V": (4.0, 1.0)}
    assert step.dropped_bytes == 3 * 2 * 512
    assert step.texts() == ["K, V read 4 → 1×"]
    assert find_steps(alone_curve(run)) == ()


def test_a_group_of_heads_reads_its_keys_once() -> None:
    shared = in_turn_curve(run_of("flash2", {}, heads=4, kv_heads=1, mask="none"))
    apart = in_turn_curve(run_of("flash2", {}, heads=4, kv_heads=4, mask="none"))
    assert shared.passes("K", [0, 10**6]).tolist() == [12, 1]
    assert apart.passes("K", [0, 10**6]).tolist() == [3, 1]


def test_dirty_bytes_are_those_still_held() -> None:
    run = run_of("flash2", {}, mask="none")
    curve = in_turn_curve(run)
    written = curve.tensor_bytes["O"]
    assert int(curve.dirty_bytes(0)) == 0
    assert int(curve.dirty_bytes(10**6)) == int(curve.write_bytes(10**6)) == written


def test_studies_know_the_capacities_of_the_gpu() -> None:
    gpu = load_profile("h100-sxm")
    run = run_of("flash2", {}, tile="16x16", head_dim=16)
    sram = sram_study(run, gpu)
    (block,) = sram.capacities
    assert (block.capacity_bytes, block.lru_bytes) == (232448, 232448 - run.live_bytes)
    table = sram.table(sram.curves[0])
    assert (table["capacity_bytes"] - table["lru_bytes"] == run.live_bytes).all()
    l2 = l2_study(run, gpu, generic_policies(gpu, run.live_bytes))
    assert [c.capacity_bytes for c in l2.capacities] == [50 * 2**20, 25 * 2**20]
    assert l2.extrapolated
    assert not l2_study(run, load_profile("h200-sxm"), Policies(sms=1)).extrapolated


def test_a_long_curve_is_shown_at_few_points_exactly() -> None:
    run = run_of("standard", {"gemm-tiles": "4x4"}, seq_q=1024, seq_k=64, mask="none")
    study = sram_study(run, load_profile("toy"))
    curve = study.curves[0]
    table = study.table(curve)
    assert len(table) < len(curve.capacities_bytes)
    assert table["total_bytes"].tolist() == [int(curve.total_bytes(c)) for c in table["lru_bytes"]]
    assert table["lru_bytes"].iloc[0] == 0
    assert table["lru_bytes"].iloc[-1] == curve.capacities_bytes[-1]


@pytest.mark.parametrize("size", [2**20, 2**40])
def test_endless_streams_are_refused(size: int) -> None:
    with pytest.raises(UsageError, match="take larger tiles or a shorter sequence"):
        in_turn_curve(run_of("flash1", {}, seq_q=size, seq_k=size, tile="4x4"))


def test_a_block_too_long_to_merge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_streams, "MOST_OF_A_BLOCK", 10)
    with pytest.raises(SimulationError, match="too many to merge"):
        merged_curve(run_of("flash1", {}), Policies(sms=1))


def test_too_many_tiles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosim.memory.tile_names.MOST_TILES", 10)
    with pytest.raises(SimulationError, match="too many to follow"):
        in_turn_curve(run_of("flash2", {}))


def test_kinds_cover_the_grid() -> None:
    run = run_of("flash2", {}, batch=3, heads=4, kv_heads=2)
    stream = KernelStream(run.program, run.program.kernels[0], run.binding)
    assert stream.heads_alike
    distinct = {int(block) for piece in stream.distinct() for block in piece.block}
    assert len(distinct) * stream.copies == len(stream.lengths) == 3 * 4 * 3


def test_bounds_count_all_that_is_on_chip() -> None:
    run = run_of("flash2", {}, seq_q=256, seq_k=256, head_dim=16, tile="16x16")
    study = l2_study(run, load_profile("toy"), Policies(sms=3, blocks_per_sm=2))
    shown = study.bounds([1000]).set_index("bound")["bytes"].to_dict()
    assert shown == run.floor(1000 + 6 * run.live_bytes)
    assert shown["fused"] < run.floor(1000)["fused"]
    sram = sram_study(run, load_profile("toy"))
    assert sram.bounds([5000]).set_index("bound")["bytes"].to_dict() == run.floor(5000)


def test_only_bounds_that_an_lru_cannot_break_are_kept() -> None:
    assert set(run_of("standard", {}).floor(10**4)) == {"compulsory"}  # S may never leave the chip
    assert set(run_of("gemm", {}).floor(10**4)) == {"compulsory", "matmul"}  # S is the result
    both, backward = run_of("flash2", {"pass": "fwd+bwd"}), run_of("flash2", {"pass": "bwd"})
    assert both.floor(10**4) == backward.floor(10**4)
