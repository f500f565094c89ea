"""Measured and published kernels as cases of the time model, without any cache: bytes are the compulsory ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iosim.algorithms.registry import find_algorithm
from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.kernels import KernelFacts, kernels_by_measurement
from iosim.levels import kernel_policies
from iosim.memory.hierarchy import launched_steps
from iosim.memory.sliced_l2 import sliced_l2
from iosim.problem import AttentionProblem, TileShape
from iosim.published.numbers import select
from iosim.roofline import FusedWork, Machine
from iosim.roofline.work import fused_work

MEASUREMENTS = Path(__file__).resolve().parents[2] / "validation" / "measurements"
TINY = Machine(
    name="tiny",
    architecture="hopper",
    sms=1,
    clock_hz=1e9,
    unit="tensor",
    tensor_flops_per_clk_sm=4096,
    special_ops_per_clk_sm=16,
    vector_lanes=128,
    shared_bytes_per_clk_sm=128,
    l2_bytes=0,
    hbm_peak_bytes_per_s=1e12,
    hbm_read_bytes_per_s=1e12,
    hbm_write_bytes_per_s=1e12,
    start_s=0.0,
    power=None,
    assumed=(),
)
"""One SM with Hopper's rates at 1 GHz: seconds are cycles / 1e9."""


def h200_rows() -> tuple[MeasuredRow, ...]:
    return read_measurements(MEASUREMENTS / "h200" / "attention.csv").rows


@dataclass(frozen=True)
class Published:
    """A printed speed as a time."""

    gpu: str
    implementation: str
    passes: str
    problem: AttentionProblem
    seconds: float


GPUS = {"A100-80GB-SXM4": "a100-sxm-80gb", "H100-80GB-SXM5": "h100-sxm"}


def published() -> Iterator[Published]:
    """FlashAttention-2, Figure 4, and FlashAttention-3, Table 2: printed speeds, by the printed count of flops."""
    rows = [n for n in select("Figure 4", "speed") if n.paper == "FlashAttention-2"]
    rows += [n for n in select("Table 2", "speed") if n.paper == "FlashAttention-3"]
    for n in rows:
        if n.value == "OOM":
            continue
        p = n.problem
        flops = 4 * p.batch * p.heads * p.seq_q**2 * p.head_dim
        flops *= {"fwd": 1, "fwd+bwd": 3.5}[n.passes] / (2 if p.mask.is_causal else 1)
        name = n.implementation or f"{n.paper} ({n.detail.partition('; ')[2]})"
        yield Published(GPUS[n.gpu], name, n.passes, p, flops / (n.number * 1e12))


def work_without_cache(
    facts: KernelFacts,
    problem: AttentionProblem,
    tile: TileShape,
    profile: HardwareProfile,
    *,
    registers: int | None = None,
    shared_bytes: int = 0,
) -> FusedWork:
    """The work of a fused kernel with every tensor moved once."""
    seen = facts.packed(problem)
    policies = kernel_policies(
        facts, seen, tile, profile, registers_per_thread=registers, shared_bytes=shared_bytes
    )
    program = find_algorithm(facts.algorithm).program(seen.mask.kind, facts.options)
    (steps,) = launched_steps(program, bind(seen, tile), policies, sliced_l2(profile)).values()
    p = problem
    size = p.dtype_k.itemsize
    read = p.batch * (p.heads * p.seq_q + 2 * p.kv_heads * p.seq_k) * p.head_dim * size
    return fused_work(
        facts,
        problem,
        tile,
        steps,
        residents=policies.blocks_per_sm,
        hbm_read_bytes=read,
        hbm_write_bytes=p.batch * p.heads * p.seq_q * p.head_dim * size,
    )


def fused_cases() -> Iterator[tuple[MeasuredRow, KernelFacts, FusedWork]]:
    """Every measured fused forward kernel whose tile is known."""
    profile = load_profile("h200-sxm")
    for row in h200_rows():
        if row.kernel == "flash_fwd" and row.tile is not None:
            facts = kernels_by_measurement()[row.implementation]
            work = work_without_cache(
                facts,
                row.problem,
                row.tile,
                profile,
                registers=row.registers_per_thread,
                shared_bytes=row.shared_bytes_per_block or 0,
            )
            yield row, facts, work
