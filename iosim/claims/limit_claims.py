"""Claims about what limits a kernel, and about sparse attention and memory."""

from __future__ import annotations

from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers
from iosim.claims.readings import GIB, hbm_bytes, head, profile, run
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem
from iosim.published import select
from iosim.theory.peak_memory import held_memory
from iosim.timing import time_kernel

SECTION = "Bottleneck"
_GPU = "h200-sxm"
_UNFUSED = {"gemm-tiles": "128x128"}


def _regimes() -> Numbers:
    """Flops a byte at HBM, the L2 simulated, against the ridge of the tensor cores."""
    gpu = profile(_GPU)
    out = {"ridge": gpu.peak_flops_per_s("fp16") / gpu.hbm_bandwidth_bytes_per_s}
    for name, seq in (("tiny", 128), ("small", 512), ("large", 8192)):
        problem = head(seq, 128, heads=8)
        moved, owed = hbm_bytes(problem, "standard", gpu, _UNFUSED)
        out[name] = problem.useful_flops / moved
        out[f"{name}_owed"] = problem.useful_flops / owed
    return out


def _judge_regimes(n: Numbers) -> str:
    if n["large"] >= n["ridge"] or n["small"] < n["ridge"]:
        return FAILS
    return HOLDS if min(n["tiny"], n["small_owed"]) >= n["ridge"] else CONDITION


def _slowest() -> Numbers:
    gpu = profile(_GPU)
    out = {}
    for name, seq in (("small", 1024), ("large", 8192)):
        problem = head(seq, 128, heads=8)
        moved = run(problem, "standard", options=_UNFUSED).traffic.total_bytes
        out[f"{name}_hbm_us"] = (
            hbm_bytes(problem, "standard", gpu, _UNFUSED)[1] / gpu.hbm_bandwidth_bytes_per_s * 1e6
        )
        out[f"{name}_l2_us"] = moved / gpu.number("measured.l2_read_bandwidth") * 1e6
        out[f"{name}_tensor_us"] = problem.useful_flops / gpu.peak_flops_per_s("fp16") * 1e6
    return out


def _judge_slowest(n: Numbers) -> str:
    bound = [n[f"{s}_hbm_us"] > max(n[f"{s}_l2_us"], n[f"{s}_tensor_us"]) for s in ("small", "large")]
    return HOLDS if all(bound) else CONDITION if any(bound) else FAILS


def _constraint() -> Numbers:
    """HBM's share of the predicted time of fused attention, forward, N from 2K to 16K."""
    shares = []
    for name, card in (("a100-sxm-80gb", "torch-flash2"), (_GPU, "cudnn-sdpa")):
        for seq in (2048, 16384):
            timing = time_kernel(load_kernel(card), head(seq, 128, heads=8), profile(name))
            (launch,) = timing.launches
            hbm = next(t.seconds for t in launch.once.terms if t.name == "HBM")
            shares.append(hbm / launch.once.seconds)
    gpu = profile(_GPU)
    decode = AttentionProblem.of(seq_q=1, seq_k=8192, head_dim=128, heads=8)
    compulsory = run(decode, "decode").theory.compulsory_bytes
    seconds = decode.useful_flops / gpu.peak_flops_per_s("fp16")
    return {
        "largest_percent": 100 * max(shares),
        "smallest_percent": 100 * min(shares),
        "decode_times": compulsory / gpu.hbm_bandwidth_bytes_per_s / seconds,
    }


def _judge_constraint(n: Numbers) -> str:
    if n["smallest_percent"] > 50:
        return HOLDS
    return CONDITION if n["largest_percent"] > 50 else FAILS


def _sparse() -> Numbers:
    problem, mask = head(8192, 64), {"block-mask": "local:4"}
    tiles = "128x128"
    dense = run(problem, "masked_standard", tiles)
    unfused = run(problem, "masked_standard", tiles, options=mask)
    flash, flash_dense = run(problem, "flash2", tiles, options=mask), run(problem, "flash2", tiles)
    linear = run(problem, "linear", tiles)
    return {
        "flops": unfused.work.executed_flops / dense.work.executed_flops,
        "unfused": unfused.traffic.total_bytes / dense.traffic.total_bytes,
        "fused": flash.traffic.total_bytes / flash_dense.traffic.total_bytes,
        "linear": linear.traffic.total_bytes / dense.traffic.total_bytes,
    }


def _judge_sparse(n: Numbers) -> str:
    kept = n["unfused"] > 0.7
    cut = min(n["fused"], n["linear"]) < 0.7
    return CONDITION if kept and cut else HOLDS if kept else FAILS


def _block_sparse() -> Numbers:
    problem, tiles = head(8192, 64), "128x128"
    dense = run(problem, "flash2", tiles)
    out = {}
    for name, share in (("half", "0.5"), ("quarter", "0.25"), ("sixteenth", "0.0625")):
        sparse = run(problem, "flash2", tiles, options={"block-mask": f"random:{share}"})
        out[name] = dense.traffic.total_bytes / sparse.traffic.total_bytes
        out[f"{name}_flops"] = dense.work.executed_flops / sparse.work.executed_flops
    times = {
        kind: {n.seq: n.number for n in select("Table 18", implementation=kind)}
        for kind in ("FlashAttention", "BlockSparseFlash")
    }
    measured = {seq: times["FlashAttention"][seq] / t for seq, t in times["BlockSparseFlash"].items()}
    return out | {"printed_low": min(measured.values()), "printed_high": max(measured.values())}


def _judge_block_sparse(n: Numbers) -> str:
    speedups = [n["half"], n["quarter"], n["sixteenth"]]
    return HOLDS if all(2 <= s <= 4 for s in speedups) else CONDITION if max(speedups) >= 2 else FAILS


def _linear_memory() -> Numbers:
    def held(name: str, seq: int) -> int:
        return held_memory(head(seq, 64, batch=16, heads=8), name).total_bytes

    moved = [run(head(seq, 64), "flash2", "128x128").traffic.total_bytes for seq in (8192, 16384)]
    return {
        "flash_growth": held("flash1", 16384) / held("flash1", 8192),
        "standard_growth": held("standard", 16384) / held("standard", 8192),
        "traffic_growth": moved[1] / moved[0],
        "flash_gib": held("flash1", 16384) / GIB,
        "standard_gib": held("standard", 16384) / GIB,
    }


LIMIT_CLAIMS = (
    Claim(
        key="two-regimes",
        section=SECTION,
        sentence="Standard attention is compute-bound for small N and memory-bound for large N.",
        source="simulated levels of an H200",
        command="iosim simulate --algorithm standard --gemm-tiles 128x128 --levels --hw h200-sxm --heads 8 --seq 512",
        measure=_regimes,
        judge=_judge_regimes,
        because="FLOP a byte at HBM (8 heads, d = 128; the tensor cores need {ridge:.0f}): {tiny:.0f} at N = 128, "
        "{small:.0f} at 512, {large:.0f} at 8,192. Above the ridge only while S and P live in L2; with their "
        "later write-back N = 512 has {small_owed:.0f}. The formula 4N² + 4Nd gives at most d/2 at any N.",
    ),
    Claim(
        key="slowest-level",
        section=SECTION,
        sentence="Standard attention is entirely bound by the slowest level, HBM.",
        source="simulated levels of an H200",
        command="iosim simulate --algorithm standard --gemm-tiles 128x128 --levels --hw h200-sxm --heads 8 --seq 1K",
        measure=_slowest,
        judge=_judge_slowest,
        because="8 heads, d = 128. N = 1,024: {small_hbm_us:.0f} us at HBM, {small_l2_us:.0f} at L2, "
        "{small_tensor_us:.0f} in the tensor cores; N = 8,192: {large_hbm_us:.0f}, {large_l2_us:.0f}, "
        "{large_tensor_us:.0f}. S of a few heads lives in L2.",
    ),
    Claim(
        key="bandwidth-limits",
        section=SECTION,
        sentence="Bandwidth, not flops, is almost always the constraint.",
        source="time model (docs/time.md)",
        command="iosim explain --kernel cudnn-sdpa --hw h200-sxm --heads 8 --seq 16K",
        measure=_constraint,
        judge=_judge_constraint,
        because="Fused forward, d = 128, N from 2K to 16K on A100 and H200: HBM alone would take "
        "{smallest_percent:.0f} to {largest_percent:.0f} % of the time. Decoding is another matter: "
        "there HBM takes {decode_times:.0f} times as long as the matmuls would.",
    ),
    Claim(
        key="sparse-linear",
        section=SECTION,
        sentence="Sparse and linear attention cut flops but not HBM traffic.",
        source="FlashAttention (2022), section 1",
        command="iosim simulate --algorithm masked_standard,flash2 --block-mask local:4 --tiles 128x128 --head-dim 64",
        measure=_sparse,
        judge=_judge_sparse,
        because="Unfused with a local mask: {flops:.2f} of the flops, {unfused:.2f} of the bytes. Fused with "
        "the same mask: {fused:.2f} of the bytes. Linear attention: {linear:.3f} of the dense unfused "
        "bytes.",
    ),
    Claim(
        key="block-sparse",
        section=SECTION,
        sentence="Block-sparse FlashAttention gives 2 to 4 times more.",
        source="FlashAttention (2022), table 18",
        command="iosim simulate --block-mask random:0.25 --tiles 128x128 --head-dim 64 --seq 8K",
        measure=_block_sparse,
        judge=_judge_block_sparse,
        because="It depends on the density alone: bytes fall {half:.1f}, {quarter:.1f} and {sixteenth:.1f} "
        "times at 1/2, 1/4 and 1/16 of the blocks. By the paper's own times the dense kernel takes "
        "{printed_low:.2f} times as long as the block-sparse one at N = 128 (there, the dense one is faster) and "
        "{printed_high:.0f} times as long at N = 64K.",
    ),
    Claim(
        key="linear-memory",
        section=SECTION,
        sentence="Memory is linear in N.",
        source="FlashAttention (2022), theorem 1 and table 21",
        command="iosim memory --batch 16 --heads 8 --head-dim 64 --seq 16K",
        measure=_linear_memory,
        judge=lambda n: HOLDS if abs(n["flash_growth"] - 2) < 0.05 else FAILS,
        because="From 8K to 16K what is held grows {flash_growth:.2f} times ({flash_gib:.1f} GiB), for "
        "standard attention {standard_growth:.2f} times ({standard_gib:.0f} GiB). Traffic is not "
        "linear: {traffic_growth:.2f} times.",
    ),
)
