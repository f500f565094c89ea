"""Dtypes by tensor, and head dimensions that a kernel pads: bytes of the true size, flops of the padded one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import ProblemError
from iosim.problem import AttentionProblem
from iosim.results import RunRecord

Run = Callable[..., Any]


def moved(record: RunRecord) -> dict[str, int]:
    return {t.tensor: t.read_bytes + t.write_bytes for t in record.traffic_by_tensor}


@pytest.mark.parametrize("algorithm", ["standard", "flash1", "flash2", "small_cache"])
def test_fp8_keys_and_values_halve_their_own_bytes_and_no_others(algorithm: str) -> None:
    sizes: dict[str, Any] = {"seq": 512, "head_dim": 64, "heads": 4, "kv_heads": 2}
    tiles = "64x64"
    half = analyze(AttentionProblem.of(**sizes), algorithm, tiles=tiles)
    fp8 = analyze(AttentionProblem.of(**sizes, dtype_k="fp8", dtype_v="fp8"), algorithm, tiles=tiles)
    for tensor, size in moved(half).items():
        assert moved(fp8)[tensor] == (size // 2 if tensor in "KV" else size)
    assert fp8.traffic.total_bytes == fp8.theory.closed_form_bytes


def test_accumulators_and_scores_take_four_bytes_in_a_kernel() -> None:
    p = AttentionProblem.of(seq=512, head_dim=64, value_dim=128)
    record = analyze(p, "flash2", tiles="64x32", footprint_model="kernel")
    held = {b.name: b for b in record.sram.buffers}
    assert held["O_i"].bytes == 64 * 128 * 4
    assert held["O_i"].place == held["S"].place == "registers"
    assert held["S"].bytes == 64 * 32 * 4
    assert held["Q_i"].bytes == 64 * 64 * 2


def test_half_precision_accumulators_take_two() -> None:
    sizes: dict[str, Any] = {"seq": 512, "head_dim": 64}
    full, half = (
        analyze(AttentionProblem.of(**sizes, dtype_acc=d), "flash2", tiles="64x32", footprint_model="kernel")
        for d in ("fp32", "fp16")
    )
    assert full.traffic == half.traffic
    assert half.sram.register_bytes < full.sram.register_bytes


# padding ------------------------------------------------------------------------------------------------------------


@given(d=st.integers(1, 300), dv=st.integers(1, 300), multiple=st.sampled_from([1, 16, 64, 128]))
def test_padding_rounds_up_and_keeps_the_scale(d: int, dv: int, multiple: int) -> None:
    p = AttentionProblem.of(seq=8, head_dim=d, value_dim=dv)
    q = p.padded(multiple)
    assert q.head_dim % multiple == q.value_dim % multiple == 0
    assert 0 <= q.head_dim - d < multiple
    assert 0 <= q.value_dim - dv < multiple
    assert q.softmax_scale == p.softmax_scale


@pytest.mark.parametrize("mask", ["none", "causal", "window:100"])
@pytest.mark.parametrize("algorithm", ["standard", "flash1", "flash2"])
def test_bytes_stay_true_and_flops_grow_by_the_padded_width(algorithm: str, mask: str) -> None:
    p = AttentionProblem.of(seq_q=300, seq_k=500, head_dim=96, value_dim=80, heads=4, kv_heads=2, mask=mask)
    plain = analyze(p, algorithm, tiles="64x48")
    padded = analyze(p, algorithm, tiles="64x48", pad_head_dim=64)
    assert plain.work.padded_executed_flops is None
    assert padded.traffic_by_tensor == plain.traffic_by_tensor
    assert padded.work.executed_flops == plain.work.executed_flops
    # every executed score costs 2 (d + dv) flops, so the flops scale as the widths do
    assert padded.work.padded_executed_flops == plain.work.executed_flops * (128 + 128) // (96 + 80)
    assert padded.notes["padding"] == {"multiple": 64, "head_dim": 128, "value_dim": 128}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_width_that_is_already_a_multiple_is_not_padded(algorithm: str) -> None:
    record = analyze(AttentionProblem.of(seq=256, head_dim=128), algorithm, tiles="64x64", pad_head_dim=64)
    assert record.work.padded_executed_flops == record.work.executed_flops


def test_a_padding_of_nothing_is_refused() -> None:
    with pytest.raises(ProblemError, match="padding"):
        AttentionProblem.of(seq=8, head_dim=8).padded(0)


def test_the_command_shows_both(iosim: Run) -> None:
    words = "simulate --head-dim 96 --seq 1K --tiles 64x64 --pad-head-dim 64"
    record = iosim(f"{words} --json").json
    assert record["work"]["padded_executed_flops"] * 96 == record["work"]["executed_flops"] * 128
    assert record["padding"]["head_dim"] == 128
    assert "with padded head dims" in iosim(words).out
    assert iosim("simulate --json").json["work"]["padded_executed_flops"] is None
    outcome = iosim("simulate --pad-head-dim 0")
    assert outcome.code == 2
    assert "--pad-head-dim" in outcome.err
