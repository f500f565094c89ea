"""genz-llm on one layer, N=8192, d=128, H=32: its smallest unit; the attention rows are picked out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from measure import measure

MIB = 2**20


def prepare() -> Callable[[], dict[str, Any]]:
    from GenZ import ModelConfig, System, create_full_prefill_model, get_model_df

    layer = ModelConfig(
        model="one_layer",
        hidden_size=4096,
        num_attention_heads=32,
        head_dim=128,
        num_decoder_layers=1,
        intermediate_size=4096,
        vocab_size=1,
    )
    system = System(flops=989, offchip_mem_bw=3350, off_chip_mem_size=80 * 1024, bits="bf16")

    def call() -> dict[str, Any]:
        model = create_full_prefill_model(
            name=layer, input_sequence_length=8192, tensor_parallel=1, pipeline_parallel=1, expert_parallel=1
        )
        table = get_model_df(model, system=system, batch_size=1, intermediate_on_chip=True)
        attention = table[table["Op Type"].isin(["Logit", "Attend"])]
        return {
            "bytes": int(attention["Total Data (MB)"].sum() * MIB),
            "flops": int(attention["Num ops (MFLOP)"].sum() * 1e6),
        }

    return call


measure(prepare, repeats=20)
