"""HBM bytes of unfused attention, kernel by kernel: the standard program with real GEMM tiles, each kernel from cold.

Heads are alike and only share the L2, so a few of them, as many as fill it several times over, stand for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from iosim.algorithms.registry import find_algorithm
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.kernels import KernelFacts
from iosim.memory.hierarchy import KernelLevels, Policies, simulate_kernels
from iosim.memory.moves import moves_of
from iosim.memory.sliced_l2 import sliced_l2
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Kernel, Program, Statement, Tensor

KERNELS = {"qk_gemm": "scores", "softmax": "softmax", "pv_gemm": "output"}
"""Names in measurement files -> kernels of the standard program."""
L2_FILLS = 4  # S of the simulated heads is at least this many times the L2
SAMPLED_SLICES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfusedBytes:
    """HBM bytes of one kernel."""

    hbm_read_bytes: float
    hbm_write_bytes: float


def unfused_bytes(
    kernel: str, problem: AttentionProblem, facts: KernelFacts, profile: HardwareProfile
) -> UnfusedBytes:
    """HBM reads and writes of one of KERNELS; written bytes that are dirty in the L2 at the end are not yet out."""
    heads = problem.batch * problem.heads
    scores = problem.seq_q * problem.seq_k * problem.dtype_o.itemsize
    group = 1 if facts.repeats_kv else problem.heads // problem.kv_heads
    groups = max(1, min(heads // group, -(-L2_FILLS * profile.l2_capacity_bytes // (scores * group))))
    some = groups * group
    few = replace(problem, batch=1, heads=some, kv_heads=groups)
    levels = _levels(KERNELS[kernel], few, facts, profile)
    written = levels.sm_write_bytes * heads / some
    return UnfusedBytes(
        hbm_read_bytes=levels.cache.fetch_bytes * heads / some,
        hbm_write_bytes=max(0.0, written - levels.cache.dirty_bytes),
    )


def _levels(
    kernel: str, problem: AttentionProblem, facts: KernelFacts, profile: HardwareProfile
) -> KernelLevels:
    tile = facts.tile(problem.head_dim) or TileShape(rows=128, cols=128)
    body, tensors = _body(kernel, facts.algorithm, problem.mask.kind, tuple(sorted(facts.options.items())))
    policies = Policies(
        sms=profile.sm_count,
        grid_order=facts.grid_order,
        kv_walk=facts.kv_walk,
        column_band=facts.column_band // tile.cols,
    )
    return _simulated(kernel, body, tensors, tuple(bind(problem, tile).items()), policies, profile)


@lru_cache(maxsize=96)
def _body(
    kernel: str, algorithm: str, mask: str, options: tuple[tuple[str, str], ...]
) -> tuple[tuple[Statement, ...], tuple[Tensor, ...]]:
    """What one kernel of a program moves, and the program's tensors; an own card is no other than one that ships."""
    program = find_algorithm(algorithm).program(mask, dict(options))
    body = moves_of(next(k for k in program.kernels if k.name == kernel).body)
    return body, tuple(program.tensors.values())


@lru_cache(maxsize=96)
def _simulated(
    kernel: str,
    body: tuple[Statement, ...],
    tensors: tuple[Tensor, ...],
    letters: tuple[tuple[str, int], ...],
    policies: Policies,
    profile: HardwareProfile,
) -> KernelLevels:
    """Kernels of different softmaxes, or under a mask, that move the same are one entry here."""
    program = Program(
        name="", tensors={t.name: t for t in tensors}, kernels=(Kernel(name=kernel, body=body, buffers={}),)
    )
    l2 = sliced_l2(profile, sampled_slices=SAMPLED_SLICES)
    return simulate_kernels(program, dict(letters), policies, l2)[0]
