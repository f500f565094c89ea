"""A ragged batch below the SMs and on chip: one grid over the true lengths, held against equal lengths and by hand."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.levels import add_levels, simulate_levels
from iosim.memory.config import CacheConfig
from iosim.memory.hierarchy import Policies, simulate_kernels
from iosim.memory.ragged_streams import RaggedTraces, ragged_table
from iosim.onchip import on_chip_report
from iosim.problem import AttentionProblem, TileShape
from iosim.ragged import analyze_ragged, ragged_listing, sequences_of

H200 = load_profile("h200-sxm")
TILE = TileShape(rows=64, cols=32)
POLICIES = Policies(sms=4, blocks_per_sm=1)


def batch(lengths, *, queries=None, **shape):
    shape = {"heads": 2, "head_dim": 32, **shape}
    longest = max(lengths)
    padded = AttentionProblem.of(batch=len(lengths), seq_q=queries or longest, seq_k=longest, **shape)
    return padded, sequences_of(padded, lengths, fixed_queries=queries is not None)


def levels(name, padded, sequences, options=None):
    algorithm = ALGORITHMS[name]
    return simulate_levels(
        algorithm,
        padded,
        algorithm.resolve(options or {}),
        TILE,
        H200,
        POLICIES,
        sequences=sequences,
        sampled_slices=0,
    )


@pytest.mark.parametrize(
    ("name", "options", "mask"),
    [
        ("flash2", {}, "causal"),
        ("flash2", {"pass": "fwd+bwd"}, "none"),
        ("flash1", {}, "window:50"),
        ("flash2", {"pass": "fwd+bwd", "block-mask": "strided:2"}, "causal"),
        ("flash1", {"pass": "bwd", "block-mask": "local:1"}, "none"),
        ("standard", {}, "none"),
        ("decode", {"splits": "2", "page": "16"}, "none"),
    ],
)
def test_equal_lengths_are_the_batch_access_for_access(name, options, mask):
    padded, sequences = batch([200] * 3, mask=mask, kv_heads=1 if name == "decode" else 2)
    together = levels(name, padded, sequences, options)
    alone = levels(name, padded, (), options)
    assert together.bytes() == alone.bytes()
    assert [k.cache for k in together.kernels] == [k.cache for k in alone.kernels]
    assert [k.blocks for k in together.kernels] == [k.blocks for k in alone.kernels]


def test_what_reaches_hbm_of_a_batch_that_fits_in_l2_is_every_true_row_once():
    lengths = [1000, 37, 300, 37]
    padded, sequences = batch(lengths)
    found = levels("flash2", padded, sequences)
    rows = sum(lengths) * 2 * 32 * 2  # bytes of one tensor: two heads, 32 columns, two bytes
    assert found.hbm_read_bytes == 3 * rows
    assert found.sm_read_bytes == sum(
        analyze(p, "flash2", tiles=TILE, profile=H200).traffic.sm_read_bytes for p in sequences
    )
    assert found.sm_write_bytes == rows


def test_the_grid_has_the_blocks_of_every_sequence_and_no_more():
    lengths = [1000, 37, 300]
    _, sequences = batch(lengths)
    program = ALGORITHMS["flash2"].program("none", ALGORITHMS["flash2"].resolve({}))
    table, _ = ragged_table(program.kernels[0], [bind(p, TILE) for p in sequences], 1000)
    blocks = sorted(zip(table["batch"], table["head"], table["i"], strict=True))
    assert blocks == [(s, h, i) for s, n in enumerate(lengths) for h in range(2) for i in range(-(-n // 64))]


def test_sequences_lie_one_after_another_without_padding_or_overlap():
    lengths = [100, 37, 64, 37]
    _, sequences = batch(lengths)
    program = ALGORITHMS["flash2"].program("none", ALGORITHMS["flash2"].resolve({}))
    (kernel,) = program.kernels
    bindings = [bind(p, TILE) for p in sequences]
    table, _ = ragged_table(kernel, bindings, 1000)
    many = len(table["batch"])
    traces = RaggedTraces(program, kernel, bindings, table, np.zeros(many, dtype=bool))
    block = np.repeat(np.arange(many), traces.phases)
    phase = np.arange(len(block)) - np.repeat(np.cumsum(traces.phases) - traces.phases, traces.phases)
    found = traces.piece(block, phase)
    for number, name in enumerate(program.tensors):
        mine = found.tensor == number
        start, stop = found.start[mine], found.start[mine] + found.length[mine]
        touched = np.zeros(stop.max() - start.min(), dtype=np.int64)
        for a, b in zip(start - start.min(), stop - start.min(), strict=True):
            touched[a:b] += 1
        assert len(touched) == sum(lengths) * 2 * 32 * 2, name
        if name in ("Q", "O"):
            assert (touched == 1).all()
        else:  # K and V once for every row tile of their own sequence
            expected = [-(-n // 64) for n in lengths for _ in range(n * 2 * 32 * 2)]
            assert touched.tolist() == expected


def test_the_longest_sequence_keeps_its_slots_busy_longest():
    _, sequences = batch([1024, 64, 64, 64], heads=1)
    program = ALGORITHMS["flash2"].program("none", ALGORITHMS["flash2"].resolve({}))
    bindings = [bind(p, TILE) for p in sequences]
    l2 = CacheConfig(capacity_bytes=1 << 20)
    (run,) = simulate_kernels(program, bindings[0], POLICIES, l2, sequences=bindings)
    assert run.blocks == 16 + 3
    assert run.steps.tolist() == [2 * 32] * 16 + [2 * 2] * 3  # K_j and V_j of 32 key tiles, of two
    assert run.waves.makespan == 4 * 64 + 4


def test_a_record_gets_levels_on_chip_totals_and_padded_flops():
    lengths = [500, 37, 300]
    padded, sequences = batch(lengths, head_dim=40, mask="causal")
    record = analyze_ragged(
        padded, lengths, ALGORITHMS["flash2"], tiles=TILE, profile=H200, options={}, pad_head_dim=64
    )
    parts = [analyze(p, "flash2", tiles=TILE, profile=H200, pad_head_dim=64) for p in sequences]
    assert record.work.padded_executed_flops == sum(p.work.padded_executed_flops for p in parts)
    assert record.notes["padding"] == parts[0].notes["padding"]
    full = add_levels(record, ALGORITHMS["flash2"], H200, sequences=sequences)
    assert full.notes["levels"]["kernels"][0]["sm_read_bytes"] == record.traffic.sm_read_bytes
    assert full.level_bytes is not None
    assert full.level_bytes.l2_read_bytes <= record.traffic.sm_read_bytes
    schemes = ("split-q", "wgmma")
    found = on_chip_report(padded, TILE, schemes, sequences=sequences)
    each = [on_chip_report(p, TILE, schemes) for p in sequences]
    assert found["special_ops"] == sum(e["special_ops"] for e in each)
    for place, scheme in enumerate(found["schemes"]):
        assert scheme["shared_bytes"] == sum(e["schemes"][place]["shared_bytes"] for e in each)
        assert scheme["step"] == each[0]["schemes"][place]["step"]


def test_the_listing_adds_up_to_the_record():
    lengths = [500, 37, 300, 37]
    padded, _ = batch(lengths, mask="causal")
    algorithm = ALGORITHMS["flash2"]
    record = analyze_ragged(padded, lengths, algorithm, tiles=TILE, profile=H200, options={})
    program = algorithm.program("causal", algorithm.resolve({}))
    rows = ragged_listing(program, padded, lengths, TILE, fixed_queries=False)
    assert sum(r.read_bytes for r in rows) == record.traffic.sm_read_bytes
    assert sum(r.write_bytes for r in rows) == record.traffic.sm_write_bytes
    assert sum(r.tensor_flops for r in rows) == record.work.executed_flops
    assert sum(r.special_ops for r in rows) == record.work.special_ops


@pytest.mark.parametrize("passes", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("name", ["flash2", "standard"])
def test_bounds_of_equal_lengths_are_those_of_the_batch(name, passes):
    # M bytes may be left on chip from before once, not once a sequence
    padded, _ = batch([2048] * 5)
    own = {"pass": passes}
    run = analyze_ragged(
        padded, [2048] * 5, ALGORITHMS[name], tiles=TILE, profile=H200, options=own, sram_bytes=1 << 15
    )
    whole = analyze(padded, name, tiles=TILE, profile=H200, options=own, sram_bytes=1 << 15)
    assert {b.name: b.bytes for b in run.theory.bounds} == {b.name: b.bytes for b in whole.theory.bounds}
    assert run.theory.lower_bound_bytes == whole.theory.lower_bound_bytes
