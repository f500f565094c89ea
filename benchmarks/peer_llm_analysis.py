"""llm-analysis on one attention layer, N=8192, d=128, H=32: operations and a time, no bytes moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from measure import measure


def prepare() -> Callable[[], dict[str, Any]]:
    from llm_analysis.analysis import LLMAnalysis
    from llm_analysis.config import GPUConfig, ModelConfig

    layer = ModelConfig(name="one_layer", num_layers=1, n_head=32, hidden_dim=4096, vocab_size=1)
    gpu = GPUConfig(
        name="h100-sxm",
        mem_per_GPU_in_GB=80,
        hbm_bandwidth_in_GB_per_sec=3350,
        intra_node_bandwidth_in_GB_per_sec=450,
        intra_node_min_message_latency=8e-6,
        peak_fp16_TFLOPS=989,
    )
    analysis = LLMAnalysis(layer, gpu)
    projections = 8 * 8192 * 4096**2  # Q, K, V and output projections, which it counts in

    def call() -> dict[str, Any]:
        analysis.get_latency_fwd_per_layer_attn(batch_size=1, seq_len=8192)
        flops = analysis.get_num_flops_fwd_per_layer_attn(batch_size=1, seq_len=8192)
        return {"bytes": None, "flops": int(flops) - projections}

    return call


measure(prepare, repeats=20)
