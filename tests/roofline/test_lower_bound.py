"""The lower bound: exact cycles by hand, and below everything that anyone measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_cases import TINY, h200_rows, published

from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.problem import AttentionProblem
from iosim.roofline import Machine, attention_bound
from iosim.roofline.unfused import KERNELS, unfused_bound

TILE = AttentionProblem.of(seq=128, head_dim=128)


def cycles(machine: Machine, passes: str) -> dict[str, int]:
    bound = attention_bound(TILE, machine, passes=passes, recompute=True)
    return {t.name: round(t.seconds * machine.clock_hz) for t in bound.terms if t.name != "HBM"}


def test_a_tile_takes_the_cycles_that_flash_attention_4_prints() -> None:
    # FlashAttention-4: M = N = D = 128 at 8192 tensor operations and 16 exponentials a clock
    blackwell = replace(TINY, tensor_flops_per_clk_sm=8192)
    assert cycles(blackwell, "fwd") == {"tensor": 1024, "special functions": 1024}
    assert cycles(blackwell, "bwd") == {"tensor": 2560, "special functions": 1024}
    assert cycles(TINY, "fwd") == {"tensor": 2048, "special functions": 1024}


def test_never_above_a_measurement_of_the_h200() -> None:
    profile = load_profile("h200-sxm")
    compared = 0
    for row in h200_rows():
        machine = Machine.of(profile, str(row.problem.dtype_k))
        if row.kernel in KERNELS:
            bound = unfused_bound(row.kernel, row.problem, machine)
        elif row.kernel in ("flash_fwd", "flash_fwd_splitkv"):
            bound = attention_bound(row.problem, machine)
        else:
            assert row.kernel == "splitkv_combine"  # a part of an attention: nothing to bound
            continue
        assert bound.seconds < row.measured["profiled_time_s"], row
        if row.kernel == "flash_fwd":
            assert bound.seconds < row.measured["median_time_s"], row
        compared += 1
    assert compared == 120


def test_never_above_a_published_speed() -> None:
    machines = {name: Machine.of(load_profile(name), "fp16") for name in ("a100-sxm-80gb", "h100-sxm")}
    compared = 0
    for case in published():
        machine = machines[case.gpu]
        # repeated runs of a benchmark may find their input in the L2
        bound = attention_bound(case.problem, machine, passes=case.passes, cold=False)
        assert bound.seconds < case.seconds, case
        compared += 1
    assert compared == 119


def test_uses_the_clock_and_the_width_and_not_the_printed_peak() -> None:
    machine = Machine.of(load_profile("h200-sxm"), "bf16")
    assert machine.tensor_flops_per_s == 4096 * 132 * 1_980_000_000 > 989.4e12
    a100 = Machine.of(load_profile("a100-sxm-80gb"), "fp16")
    assert (a100.tensor_flops_per_clk_sm, a100.vector_lanes) == (2048, 64)


def test_exponentials_on_other_units_leave_the_other_terms() -> None:
    free = attention_bound(AttentionProblem.of(seq=128, head_dim=32), TINY, exp_on_special_units=False)
    assert [t.name for t in free.terms] == ["tensor", "HBM"]
    assert free.seconds == pytest.approx(
        512e-9
    )  # 4 · 128² · 32 / 4096 cycles, half of the 1024 for exponentials
    assert attention_bound(AttentionProblem.of(seq=128, head_dim=32), TINY).limit == "special functions"


def test_compulsory_bytes_bound_a_decode_step() -> None:
    problem = AttentionProblem.of(heads=8, kv_heads=2, seq_q=1, seq_k=4096, head_dim=128)
    moved = 2 * 2 * 4096 * 128 * 2 + 2 * 8 * 128 * 2
    bound = attention_bound(problem, TINY)
    assert (bound.limit, bound.seconds) == ("HBM", pytest.approx(moved / 1e12))


@given(batch=st.integers(1, 50), seq=st.integers(1, 3000), causal=st.booleans(), l2=st.integers(0, 10**8))
def test_cold_is_never_faster_and_work_adds_up(batch: int, seq: int, causal: bool, l2: int) -> None:
    machine = replace(TINY, l2_bytes=l2)
    mask = "causal" if causal else "none"
    one = AttentionProblem.of(seq=seq, head_dim=64, mask=mask)
    many = AttentionProblem.of(batch=batch, seq=seq, head_dim=64, mask=mask)
    for passes in ("fwd", "bwd", "fwd+bwd"):
        cold, warm = (attention_bound(many, machine, passes=passes, cold=c) for c in (True, False))
        assert cold.seconds >= warm.seconds
        single = attention_bound(one, machine, passes=passes).terms[0].seconds
        assert cold.terms[0].seconds == pytest.approx(batch * single)
    parts = [attention_bound(many, machine, passes=p).terms[0].seconds for p in ("fwd", "bwd", "fwd+bwd")]
    assert parts[0] + parts[1] == pytest.approx(parts[2])


def test_unknown_pass() -> None:
    with pytest.raises(UsageError, match=r"pass: unknown pass 'sideways'; allowed: fwd, bwd, fwd\+bwd"):
        attention_bound(TILE, TINY, passes="sideways")
