"""Claims about loop order and work."""

from __future__ import annotations

import numpy as np

from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers
from iosim.claims.readings import FP16, head, profile, run, tensor_bytes, vector_flops
from iosim.onchip import on_chip
from iosim.problem import TileShape

SECTION = "Order and work"
_TILE = TileShape(rows=128, cols=128)


def _outer() -> Numbers:
    problem = head(4096, 128)
    size = problem.seq_q * problem.head_dim * FP16
    one, two = (run(problem, name, str(_TILE)) for name in ("flash1", "flash2"))
    return {
        "v1_q": tensor_bytes(one, "Q")[0] / size,
        "v1_k": tensor_bytes(one, "K")[0] / size,
        "v2_q": tensor_bytes(two, "Q")[0] / size,
        "v2_k": tensor_bytes(two, "K")[0] / size,
    }


def _judge_outer(n: Numbers) -> str:
    v1, v2 = n["v1_q"] == 1 < n["v1_k"], n["v2_q"] == 1 < n["v2_k"]
    return HOLDS if v1 and v2 else CONDITION if v1 or v2 else FAILS


def _swap() -> Numbers:
    problem = head(4096, 128)
    one, two = (run(problem, name, str(_TILE)) for name in ("flash1", "flash2"))
    return {
        "o_before": sum(tensor_bytes(one, "O")) / 2**20,
        "o_after": sum(tensor_bytes(two, "O")) / 2**20,
        "total_before": one.traffic.total_bytes / 2**20,
        "total_after": two.traffic.total_bytes / 2**20,
    }


def _judge_swap(n: Numbers) -> str:
    if n["o_after"] >= n["o_before"]:
        return FAILS
    return HOLDS if n["total_after"] < n["total_before"] else CONDITION


def _rescale() -> Numbers:
    problem = head(4096, 128)
    before, after = (vector_flops(problem, name, _TILE) for name in ("flash1", "flash2"))
    gpus = {"a100": profile("a100-sxm-80gb"), "h100": profile("h100-sxm")}
    ratio = {k: g.peak_flops_per_s("fp16") / g.number("compute.vector.fp32") for k, g in gpus.items()}
    return {"cut_percent": 100 * (1 - after / before), **{f"dearer_{k}": float(v) for k, v in ratio.items()}}


def _judge_rescale(n: Numbers) -> str:
    if n["cut_percent"] <= 0 or abs(n["dearer_a100"] - 16) > 0.5:
        return FAILS
    return HOLDS if abs(n["dearer_h100"] - 16) <= 0.5 else CONDITION


def _split_q() -> Numbers:
    problem = head(4096, 128)
    old, new = (on_chip(problem, _TILE, scheme) for scheme in ("split-k", "split-q"))
    return {
        "kib_before": old.step.total_bytes / 1024,
        "kib_after": new.step.total_bytes / 1024,
        "barriers_before": float(old.step.block_barriers),
        "barriers_after": float(new.step.block_barriers),
    }


def _judge_split_q(n: Numbers) -> str:
    less_bytes, less_barriers = n["kib_after"] < n["kib_before"], n["barriers_after"] < n["barriers_before"]
    return HOLDS if less_bytes and less_barriers else CONDITION if less_bytes or less_barriers else FAILS


def _recompute() -> Numbers:
    problem = head(4096, 64)
    flops, moved = {}, {}
    for name, tiles in (("standard", "best"), ("flash2", "best")):
        for which in ("bwd", "fwd+bwd"):
            record = run(problem, name, tiles, options={"pass": which})
            flops[name, which] = record.work.executed_flops
            moved[name, which] = record.traffic.total_bytes
    return {
        "more_in_all": 100 * (flops["flash2", "fwd+bwd"] / flops["standard", "fwd+bwd"] - 1),
        "more_in_backward": 100 * (flops["flash2", "bwd"] / flops["standard", "bwd"] - 1),
        "less_bytes": moved["standard", "fwd+bwd"] / moved["flash2", "fwd+bwd"],
    }


def _judge_recompute(n: Numbers) -> str:
    cheap = n["less_bytes"] > 1
    if cheap and abs(n["more_in_all"] - 100 / 3) < 3:
        return HOLDS
    return CONDITION if cheap and abs(n["more_in_backward"] - 100 / 3) < 3 else FAILS


def _factor() -> Numbers:
    """Row maxima of standard normal scores, tile after tile: how often does a maximum stay as it is?"""
    random = np.random.default_rng(0)
    rows, tiles, cols = 512, 64, 64
    maxima = np.maximum.accumulate(random.standard_normal((rows, tiles, cols)).max(axis=-1), axis=1)
    factor = np.exp(maxima[:, :-1] - maxima[:, 1:])
    return {"largest": float(factor.max()), "equal_percent": 100 * float((factor == 1).mean())}


def _judge_factor(n: Numbers) -> str:
    if n["largest"] > 1:
        return FAILS
    return CONDITION if n["equal_percent"] > 0 else HOLDS


ORDER_CLAIMS = (
    Claim(
        key="outer-q",
        section=SECTION,
        sentence="FlashAttention loops over Q outside and K, V inside.",
        source="FlashAttention, algorithm 1; FlashAttention-2, algorithm 1",
        command="iosim show flash1 --tiles 128x128",
        measure=_outer,
        judge=_judge_outer,
        because="Version 2 does: Q is read {v2_q:.0f} time, K {v2_k:.0f} times. Version 1 does not: Q "
        "{v1_q:.0f} times, K {v1_k:.0f} (N = 4,096, 128 x 128).",
    ),
    Claim(
        key="swap-saves-o",
        section=SECTION,
        sentence="Swapping the loops in version 2 saves the reads and writes of O.",
        source="FlashAttention-2, section 3.1",
        command="iosim simulate --algorithm flash1,flash2 --tiles 128x128",
        measure=_swap,
        judge=_judge_swap,
        because="O moves {o_before:.0f} MiB before and {o_after:.0f} MiB after, all tensors "
        "{total_before:.0f} and {total_after:.0f} MiB (N = 4,096, d = 128, 128 x 128).",
    ),
    Claim(
        key="deferred-rescale",
        section=SECTION,
        sentence="Deferring the rescale cuts non-matmul work, which is 16 times dearer.",
        source="FlashAttention-2, section 3.1",
        command="iosim simulate --algorithm flash1,flash2 --tiles 128x128",
        measure=_rescale,
        judge=_judge_rescale,
        because="{cut_percent:.0f} % less non-matmul work at 128 x 128. Matmul peak over FP32 peak: "
        "{dearer_a100:.1f} on an A100, {dearer_h100:.1f} on an H100.",
    ),
    Claim(
        key="split-q",
        section=SECTION,
        sentence="Split-Q cuts shared-memory traffic and synchronisation.",
        source="FlashAttention-2, section 3.3",
        command="iosim on-chip --tiles 128x128 --head-dim 128",
        measure=_split_q,
        judge=_judge_split_q,
        because="{kib_before:.0f} KiB and {barriers_before:.0f} barriers a tile with split-K, {kib_after:.0f} "
        "KiB and {barriers_after:.0f} with split-Q (four warps).",
    ),
    Claim(
        key="recompute",
        section=SECTION,
        sentence="Recomputation costs a third more flops, and is cheap.",
        source="FlashAttention, section 3.1",
        command="iosim simulate --algorithm standard,flash2 --pass fwd+bwd --seq 4096 --head-dim 64",
        measure=_recompute,
        judge=_judge_recompute,
        because="{more_in_all:.1f} % more matmul flops in forward and backward together, "
        "{more_in_backward:.0f} % in the backward; bytes fall by a factor of {less_bytes:.1f} (N = "
        "4,096, d = 64). Cheap it is, a third it is not.",
    ),
    Claim(
        key="fewer-flops",
        section=SECTION,
        sentence="FlashAttention is faster because it computes less.",
        source="FlashAttention, section 3.1",
        command="iosim simulate --algorithm standard,flash2 --pass fwd+bwd --seq 4096 --head-dim 64",
        measure=_recompute,
        judge=lambda n: FAILS if n["more_in_all"] >= 0 else HOLDS,
        because="It computes {more_in_all:.1f} % more in training, and moves {less_bytes:.1f} times less.",
    ),
    Claim(
        key="rescale-factor",
        section=SECTION,
        sentence="The rescale factor e^(m_old − m_new) is below 1.",
        source="FlashAttention-2, algorithm 1",
        command="iosim claims --only rescale-factor",
        measure=_factor,
        judge=_judge_factor,
        because="At most 1: in {equal_percent:.1f} % of tile steps the maximum does not move and the factor "
        "is exactly 1 (standard normal scores, N = 4,096, 64 keys a tile); largest seen {largest:g}.",
    ),
)
