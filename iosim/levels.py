"""The bytes of one run at every level: SMs, L2 slices, between the L2's partitions, HBM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from iosim.algorithms.registry import Algorithm
from iosim.errors import SimulationError
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.kernels import KernelFacts
from iosim.memory.coalescer import merged_share
from iosim.memory.config import CacheCounts
from iosim.memory.hierarchy import KernelLevels, Policies, Progress, simulate_kernels
from iosim.memory.occupancy import BlockNeeds, SmLimits, occupancy
from iosim.memory.sliced_l2 import sliced_l2
from iosim.placement import untiled
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.results import LevelBytes, RunRecord

SKEW = 0.2
"""Standard deviation of the time of one K or V tile, as a share of it (docs/hierarchy.md)."""
SAMPLED_SLICES = 2
"""L2 slices simulated of those a partition has; the rest behave alike, and four give the same within 1 %."""
GENERIC_IN_STEP = 1.9
"""The coalescer's constant for a kernel that was not measured: one value for FlashAttention-2 and cuDNN together,
within 9 % of their L2 reads on average (docs/hierarchy.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelTraffic:
    """Bytes at each boundary, and how they came about.

    `sm_write_bytes` includes `spill_write_bytes`. `hbm_write_bytes` is what was written less `dirty_bytes`, which are
    still in the L2 at the end. `extrapolated`: no counter data for this GPU. `hit_rate`: of L2 reads, by bytes.
    """

    sm_read_bytes: int
    sm_write_bytes: int
    spill_write_bytes: int
    l2_read_bytes: int
    l2_write_bytes: int
    l2_fabric_bytes: int
    hbm_read_bytes: int
    hbm_write_bytes: int
    dirty_bytes: int
    hit_rate: float
    extrapolated: bool
    in_step: float | None
    policies: Policies
    kernels: tuple[KernelLevels, ...]

    def bytes(self) -> LevelBytes:
        """The levels that a record carries."""
        return LevelBytes(**{f.name: getattr(self, f.name) for f in fields(LevelBytes)})

    def to_dict(self) -> dict[str, Any]:
        """Hit rates, blocks and waves by kernel, and every assumption."""
        return {
            "hit_rate": self.hit_rate,
            "dirty_bytes": self.dirty_bytes,
            "spill_write_bytes": self.spill_write_bytes,
            "extrapolated": self.extrapolated,
            "blocks_per_sm": self.policies.blocks_per_sm,
            "in_step": self.in_step,
            "policies": self.policies.to_dict(),
            "kernels": [_kernel_dict(k) for k in self.kernels],
        }


def _kernel_dict(item: KernelLevels) -> dict[str, Any]:
    return {
        "kernel": item.kernel,
        "blocks": item.blocks,
        "full_waves": item.waves.full,
        "tail_blocks": item.waves.tail_blocks,
        "sm_read_bytes": item.sm_read_bytes,
        "sm_write_bytes": item.sm_write_bytes,
        "hbm_read_bytes": item.cache.fetch_bytes,
        "hbm_write_bytes": item.cache.writeback_bytes,
        "l2_fabric_bytes": item.cache.fabric_bytes,
        "hit_rate": _hit_rate(item.cache),
    }


def _hit_rate(counts: CacheCounts) -> float:
    return counts.read_hit_bytes / counts.read_bytes if counts.read_bytes else 1.0


def kernel_policies(
    facts: KernelFacts,
    problem: AttentionProblem,
    tile: TileShape,
    profile: HardwareProfile,
    *,
    registers_per_thread: int | None = None,
    threads: int | None = None,
    shared_bytes: int | None = None,
) -> Policies:
    """The policies of a production kernel: its facts, and how many of its blocks an SM holds.

    Launch figures that were measured may replace the card's.
    """
    blocks = 1
    if not facts.persistent:
        needs = BlockNeeds(
            threads=threads or facts.threads_per_block,
            registers_per_thread=registers_per_thread or facts.registers_per_thread,
            shared_bytes=facts.shared_bytes(problem, tile) if shared_bytes is None else shared_bytes,
        )
        blocks = occupancy(needs, SmLimits.of(profile)).blocks_per_sm
    spill = facts.spill(problem.head_dim, tile)
    return Policies(
        sms=profile.sm_count,
        blocks_per_sm=blocks,
        grid_order=facts.grid_order,
        kv_walk=facts.kv_walk,
        head_group=_head_group(facts, problem, tile, profile),
        skew=SKEW,
        spill_bytes_per_step=spill.bytes_per_step if spill else 0,
        spill_bytes_per_block=spill.bytes_per_block if spill else 0,
    )


def _head_group(
    facts: KernelFacts, problem: AttentionProblem, tile: TileShape, profile: HardwareProfile
) -> int:
    if facts.causal_groups is None or not problem.mask.is_causal:
        return 0
    return facts.causal_groups.heads(problem, tile, profile.l2_capacity_bytes, profile.sm_count)


def generic_policies(profile: HardwareProfile, sram_live_bytes: int, **chosen: Any) -> Policies:
    """The policies of a kernel that nobody measured: as many blocks an SM as its live bytes allow, grid order."""
    if "blocks_per_sm" not in chosen:
        room = profile.sram_per_sm_bytes // max(1, sram_live_bytes + profile.sram_reserved_per_block_bytes)
        chosen["blocks_per_sm"] = max(1, min(room, profile.max_blocks_per_sm))
    return Policies(sms=profile.sm_count, **{"skew": SKEW, **chosen})


def simulate_levels(
    algorithm: Algorithm,
    problem: AttentionProblem,
    options: Mapping[str, str],
    tile: TileShape,
    profile: HardwareProfile,
    policies: Policies,
    *,
    in_step: float | None = None,
    sampled_slices: int = SAMPLED_SLICES,
    sequences: Sequence[AttentionProblem] = (),
    progress: Progress | None = None,
) -> LevelTraffic:
    """Run one algorithm's kernels through the L2 of a profile.

    `sequences`: those of a ragged batch, in order, one problem of batch 1 each; `problem` is then their padded batch.

    `in_step`: the kernel's coalescer constant; None takes the generic one on a GPU with a coalescer.
    `sampled_slices`: L2 slices simulated, 0 for all. `progress`: as in `simulate_kernels`.
    Errors: `ProfileError` for an unknown L2, `SimulationError` for a grid that is too large.
    """
    program = algorithm.program(problem.mask.kind, options)
    binding = bind(problem, tile)
    kernels = simulate_kernels(
        program,
        binding,
        policies,
        sliced_l2(profile, sampled_slices=sampled_slices),
        sequences=[bind(p, tile) for p in sequences],
        progress=progress,
    )
    counts = sum((k.cache for k in kernels), CacheCounts())
    read_of = _reads(program, sequences or [problem], tile)
    reads = sum(read_of.values())
    if sum(k.sm_read_bytes for k in kernels) != reads:
        raise SimulationError(f"{program.name}: the simulated reads differ from the count; this is a bug")
    constant = (GENERIC_IN_STEP if in_step is None else in_step) if profile.l2_coalescer else None
    alike = len(set(sequences)) < 2 and not problem.mask.is_causal
    merged = (
        0.0
        if constant is None
        else _merged_bytes(program, problem, tile, policies, constant, kernels, read_of, same_length=alike)
    )
    writes = sum(k.sm_write_bytes + k.spill_write_bytes for k in kernels)
    return LevelTraffic(
        sm_read_bytes=int(reads),
        sm_write_bytes=writes,
        spill_write_bytes=sum(k.spill_write_bytes for k in kernels),
        l2_read_bytes=int(reads) - round(merged),
        l2_write_bytes=writes,
        l2_fabric_bytes=counts.fabric_bytes,
        hbm_read_bytes=counts.fetch_bytes,
        hbm_write_bytes=counts.writeback_bytes,
        dirty_bytes=kernels[-1].cache.dirty_bytes,
        hit_rate=_hit_rate(counts),
        extrapolated=not profile.counter_data,
        in_step=constant,
        policies=policies,
        kernels=tuple(kernels),
    )


def add_levels(
    record: RunRecord,
    algorithm: Algorithm,
    profile: HardwareProfile,
    *,
    kernel: KernelFacts | None = None,
    chosen: Mapping[str, Any] | None = None,
    sequences: Sequence[AttentionProblem] = (),
    progress: Progress | None = None,
) -> RunRecord:
    """The record with the bytes of every level, and under the note `levels` how they came about.

    `sequences`: those of a ragged batch in order; the record's problem is then their padded batch.
    `kernel`: the facts of a production kernel, whose policies are then used. `chosen`: fields of `Policies` to set.
    """
    tile = record.tiles or untiled(record.options, record.problem.seq_k)
    if kernel is None:
        policies = generic_policies(profile, record.sram.live_bytes, **(chosen or {}))
    else:
        policies = replace(kernel_policies(kernel, record.problem, tile, profile), **(chosen or {}))
    levels = simulate_levels(
        algorithm,
        record.problem,
        record.options,
        tile,
        profile,
        policies,
        in_step=kernel.in_step if kernel else None,
        sequences=sequences,
        progress=progress,
    )
    said = list(record.warnings)
    if levels.extrapolated:
        said.append(
            f"levels: extrapolated, {profile.name} has no counter data; the L2's inside is that of an H200"
        )
    if algorithm.idealised and not record.sram.fits:
        said.append(
            f"levels: {algorithm.name} is idealised, one thread block a head; real tiles: --gemm-tiles 128x128"
        )
    note = {"levels": {"kernel": kernel.name if kernel else None} | levels.to_dict()}
    return replace(record, level_bytes=levels.bytes(), notes={**record.notes, **note}, warnings=tuple(said))


def _reads(program: Program, problems: Sequence[AttentionProblem], tile: TileShape) -> dict[str, int]:
    """Bytes that the SMs read of each tensor, over all problems."""
    out: Counter[str] = Counter()
    for problem, times in Counter(problems).items():
        for name, size in count(program, bind(problem, tile)).read_bytes.items():
            out[name] += int(size) * times
    return out


def _merged_bytes(
    program: Program,
    problem: AttentionProblem,
    tile: TileShape,
    policies: Policies,
    in_step: float,
    kernels: list[KernelLevels],
    read_of: Mapping[str, int],
    *,
    same_length: bool,
) -> float:
    """Bytes that the coalescer takes off the K and V reads of blocks that walk the same keys."""
    blocks = kernels[0].blocks
    if program.spills_scores or len(kernels) != 1 or blocks <= problem.batch * problem.kv_heads:
        return (
            0.0  # measured for fused kernels only; and where nobody else reads the same keys nothing merges
        )
    shared = float(read_of.get("K", 0) + read_of.get("V", 0))
    row_bytes = problem.head_dim * problem.dtype_k.itemsize + problem.value_dim * problem.dtype_v.itemsize
    steps = shared / (blocks * tile.cols * row_bytes)
    share = merged_share(steps, in_step, same_length=same_length, backward=policies.kv_walk == "backward")
    return shared * share
