"""Claims about sizes and rates of memories."""

from __future__ import annotations

from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers
from iosim.claims.readings import FP16, GIB, KIB, MIB, head, profile
from iosim.theory.peak_memory import held_memory

SECTION = "Hardware"
_GPUS = ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200-sxm")
_L2_KEYS = ("measured.l2_read_bandwidth",)


def _sram() -> Numbers:
    gpu = profile("a100-sxm-40gb")
    return {
        "combined_mb": gpu.sm_count * gpu.sram_combined_per_sm_bytes / MIB,
        "usable_mb": gpu.sm_count * gpu.sram_per_sm_bytes / MIB,
        "block_kib": gpu.sram_per_block_bytes / KIB,
        "tb_per_s": gpu.level("sram").bandwidth_bytes_per_s / 1e12,
        "sms": float(gpu.sm_count),
    }


def _judge_sram(n: Numbers) -> str:
    if abs(n["combined_mb"] / 20 - 1) > 0.05 or abs(n["tb_per_s"] / 19 - 1) > 0.05:
        return FAILS
    return HOLDS if n["block_kib"] / KIB > 0.9 * n["combined_mb"] else CONDITION


def _ratios() -> Numbers:
    sram, l2 = {}, {}
    for name in _GPUS:
        gpu = profile(name)
        sram[name] = gpu.level("sram").bandwidth_bytes_per_s / gpu.hbm_bandwidth_bytes_per_s
        for key in _L2_KEYS:
            if gpu.has(key):
                l2[name] = gpu.number(key) / gpu.hbm_bandwidth_bytes_per_s
    return {
        "sram_low": min(sram.values()),
        "sram_high": max(sram.values()),
        "sram_in_range": float(sum(10 <= round(v, 1) <= 12 for v in sram.values())),
        "l2_low": min(l2.values()),
        "l2_high": max(l2.values()),
        "l2_in_range": float(sum(3 <= v <= 5 for v in l2.values())),
        "gpus": float(len(sram)),
        "l2_gpus": float(len(l2)),
    }


def _judge_ratios(n: Numbers) -> str:
    if n["sram_in_range"] == n["gpus"] and n["l2_in_range"] == n["l2_gpus"]:
        return HOLDS
    return CONDITION if n["sram_in_range"] + n["l2_in_range"] else FAILS


_SAID = {1024: 8 * MIB, 8192: 512 * MIB, 131072: 128 * GIB}


def _matrix() -> Numbers:
    scores = {N: N * N for N in _SAID}
    implied = {size / scores[N] for N, size in _SAID.items()}
    return {
        "bytes_a_score": implied.pop() if len(implied) == 1 else float("nan"),
        "fp16_1k_mib": scores[1024] * FP16 / MIB,
        "fp16_8k_mib": scores[8192] * FP16 / MIB,
        "fp16_128k_gib": scores[131072] * FP16 / GIB,
        "held_bytes": float(FP16),
    }


def _judge_matrix(n: Numbers) -> str:
    if n["bytes_a_score"] != n["bytes_a_score"]:
        return FAILS
    return HOLDS if n["bytes_a_score"] == n["held_bytes"] else CONDITION


def _fits() -> Numbers:
    gpu = profile("h100-sxm")
    return {
        "matrix_kib": _SAID[1024] / KIB,
        "block_kib": gpu.sram_per_block_bytes / KIB,
        "times": _SAID[1024] / gpu.sram_per_block_bytes,
    }


def _at_128k() -> Numbers:
    one, layer = head(131072, 128), head(131072, 128, heads=32)
    sizes = {name: profile(name).hbm_capacity_bytes / 1e9 for name in _GPUS}
    return {
        "head_gb": held_memory(one, "standard", "fwd").total_bytes / 1e9,
        "layer_gb": held_memory(layer, "standard", "fwd").total_bytes / 1e9,
        "flash_gb": held_memory(layer, "flash2", "fwd").total_bytes / 1e9,
        "smallest_gb": min(sizes.values()),
        "largest_gb": max(sizes.values()),
    }


def _judge_128k(n: Numbers) -> str:
    if n["head_gb"] > n["largest_gb"]:
        return HOLDS
    return CONDITION if n["layer_gb"] > n["largest_gb"] else FAILS


HARDWARE_CLAIMS = (
    Claim(
        key="sram-20mb",
        section=SECTION,
        sentence="SRAM is 20 MB at 19 TB/s.",
        source="FlashAttention (2022), section 2.1 and figure 1",
        command="iosim hw show a100-sxm-40gb",
        measure=_sram,
        judge=_judge_sram,
        because="As a sum over {sms:.0f} SMs of an A100 at boost: {combined_mb:.1f} MiB with L1, "
        "{usable_mb:.1f} MiB usable, {tb_per_s:.1f} TB/s. What one thread block has, the M of every "
        "formula, is {block_kib:.0f} KiB.",
    ),
    Claim(
        key="bandwidth-ratios",
        section=SECTION,
        sentence="SRAM is 10 to 12 times and L2 3 to 5 times as fast as HBM.",
        source="hardware profiles",
        command="iosim hw diff a100-sxm-80gb h200-sxm",
        measure=_ratios,
        judge=_judge_ratios,
        because="On A100 (40 and 80 GB), H100 and H200 SRAM is {sram_low:.1f} to {sram_high:.1f} times HBM, "
        "in the range on {sram_in_range:.0f} of {gpus:.0f}; L2, where it was measured, {l2_low:.1f} "
        "to {l2_high:.1f}, in the range on {l2_in_range:.0f} of {l2_gpus:.0f}.",
    ),
    Claim(
        key="matrix-sizes",
        section=SECTION,
        sentence="The attention matrix is 8 MB at n = 1024, 512 MB at 8192, 128 GB at 128K.",
        source="arithmetic",
        command="iosim memory --algorithm standard --seq 1K --pass fwd",
        measure=_matrix,
        judge=_judge_matrix,
        because="That is {bytes_a_score:.0f} bytes a score: fp64, or S and P both in fp32, of one head. In "
        "fp16 one copy of one head is {fp16_1k_mib:.0f} MiB, {fp16_8k_mib:.0f} MiB and "
        "{fp16_128k_gib:.0f} GiB.",
    ),
    Claim(
        key="barely-fits",
        section=SECTION,
        sentence="At n = 1024 the 8 MB just barely fit in SRAM.",
        source="hardware profiles",
        command="iosim hw show h100-sxm",
        measure=_fits,
        judge=lambda n: HOLDS if n["times"] <= 1 else FAILS,
        because="SRAM is private to an SM: a thread block of an H100 has {block_kib:.0f} KiB, the matrix "
        "{matrix_kib:,.0f} KiB, {times:.0f} times as much.",
    ),
    Claim(
        key="fails-at-128k",
        section=SECTION,
        sentence="Standard attention fails at 128K.",
        source="derived (docs/memory.md)",
        command="iosim memory --algorithm standard,flash2 --seq 128K --heads 32 --pass fwd",
        measure=_at_128k,
        judge=_judge_128k,
        because="S and P of one head take {head_gb:.0f} GB, of 32 heads {layer_gb:,.0f} GB; GPUs here have "
        "{smallest_gb:.0f} to {largest_gb:.0f} GB. A layer at once fails, a head at a time fits on "
        "the larger ones. FlashAttention-2: {flash_gb:.1f} GB for the layer.",
    ),
)
