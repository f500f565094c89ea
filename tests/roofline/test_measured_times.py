"""The prediction against measured and published times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from statistics import mean

from time_cases import fused_cases, h200_rows, published, work_without_cache

from iosim.hardware import load_profile
from iosim.kernels import CLASSES, load_kernel
from iosim.problem import TileShape
from iosim.roofline import (
    Machine,
    Prediction,
    attention_bound,
    predict,
    predict_both,
)
from iosim.roofline.backward import backward_work
from iosim.roofline.unfused import GEMMS, aligned, predict_gemm, streaming_time


@cache
def h200_predictions() -> list[tuple[dict[str, float], Prediction, Prediction, float]]:
    """Measured numbers, one run, many runs and the lower bound of every fused kernel; decode kernels of unknown tile
    as pure streaming."""
    machine = Machine.of(load_profile("h200-sxm"), "fp16")
    out = []
    for row, facts, work in fused_cases():
        once, repeated = predict_both(work, machine, CLASSES[facts.kernel_class])
        out.append((dict(row.measured), once, repeated, attention_bound(row.problem, machine).seconds))
    for row in h200_rows():
        if row.kernel == "flash_fwd" and row.tile is None:
            p = row.problem
            read = 2 * p.batch * (p.heads + 2 * p.kv_heads * p.seq_k) * p.head_dim
            found = streaming_time(machine, read, 2 * p.batch * p.heads * p.head_dim)
            out.append((dict(row.measured), found, found, attention_bound(p, machine).seconds))
    return out


def errors(
    chosen: Callable[[tuple[dict[str, float], Prediction, Prediction, float]], tuple[float, float]],
) -> list[float]:
    pairs = [chosen(x) for x in h200_predictions()]
    return sorted(abs(p / m - 1) for p, m in pairs if m)


def test_one_run_on_the_h200() -> None:
    found = errors(lambda x: (x[1].seconds, x[0]["profiled_time_s"]))
    assert len(found) == 77
    assert mean(found) <= 0.025
    assert found[math.ceil(0.9 * 77) - 1] <= 0.05
    assert found[-1] <= 0.13


def test_many_runs_on_the_h200() -> None:
    found = errors(lambda x: (x[2].seconds, x[0]["median_time_s"] if x[0]["median_time_s"] > 60e-6 else 0))
    assert len(found) == 75
    assert mean(found) <= 0.03


def test_ranges_hold_most_measurements_and_no_prediction_beats_the_bound() -> None:
    inside = [once.low_s <= m["profiled_time_s"] <= once.high_s for m, once, _, _ in h200_predictions()]
    assert sum(inside) >= 0.9 * len(inside)
    assert all(once.seconds > bound for _, once, _, bound in h200_predictions())


def test_forward_and_backward_on_the_a100() -> None:
    facts, profile = load_kernel("torch-flash2"), load_profile("a100-sxm-80gb")
    machine, kernel = Machine.of(profile, "fp16"), CLASSES["mma-sync"]
    found = []
    for case in published():
        if case.implementation != "FlashAttention-2":
            continue
        d = case.problem.head_dim
        tile, back = facts.tile(d), facts.backward_tile(d)
        assert tile is not None
        assert back is not None
        forward = predict(work_without_cache(facts, case.problem, tile, profile), machine, kernel)
        backward = predict(backward_work(case.problem, back), machine, kernel)
        found.append(abs((forward.seconds + backward.seconds) / case.seconds - 1))
    assert len(found) == 24
    assert mean(found) <= 0.03


def test_flash_attention_3_on_an_h100() -> None:
    """Numbers that no constant was fitted to: Table 2, three variants of one kernel."""
    profile = load_profile("h100-sxm")
    machine = Machine.of(profile, "fp16")
    found = {}
    for case in published():
        if case.implementation.startswith("FlashAttention-3"):
            name = "wgmma-ping-pong" if "full" in case.implementation else "wgmma"
            facts = replace(load_kernel("cudnn-sdpa"), kernel_class=name, pad_cols=1)
            work = work_without_cache(facts, case.problem, TileShape(rows=128, cols=176), profile)
            once = predict(work, machine, CLASSES[name], sustained=True, pause_s=0)
            found[case.implementation] = once.seconds / case.seconds - 1
    assert len(found) == 3
    assert all(abs(error) <= 0.03 for error in found.values())


def test_gemms_of_unfused_attention_on_the_h200() -> None:
    profile = load_profile("h200-sxm")
    for kernel in GEMMS:
        found = []
        for row in h200_rows():
            if row.kernel != kernel or not aligned(row.problem):
                continue
            p, size = row.problem, row.problem.dtype_k.itemsize
            scores = p.batch * p.heads * p.seq_q * p.seq_k * size
            q = p.batch * p.heads * p.seq_q * p.head_dim * size
            kv = p.batch * p.kv_heads * p.seq_k * p.head_dim * size
            read, written = (q + kv, scores) if kernel == "qk_gemm" else (scores + kv, q)
            machine = Machine.of(profile, str(p.dtype_k))
            once = predict_gemm(
                kernel, p, machine, CLASSES["unfused"], hbm_read_bytes=read, hbm_write_bytes=written
            )
            found.append(abs(once.seconds / row.measured["profiled_time_s"] - 1))
        assert len(found) == 13
        assert mean(found) <= 0.06
