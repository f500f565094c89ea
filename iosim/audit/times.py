"""The predicted times of a measured row, from its simulated levels; None where no constant is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from iosim.algorithms.registry import find_algorithm
from iosim.audit.compare import DECODE_QUERIES
from iosim.audit.measurements import MeasuredRow
from iosim.audit.parts import PartBytes
from iosim.audit.unfused import UnfusedBytes
from iosim.errors import ProfileError
from iosim.hardware import HardwareProfile
from iosim.kernels import CLASSES, KernelFacts
from iosim.levels import LevelTraffic, kernel_policies
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline import FusedWork, Machine, predict_both
from iosim.roofline.combine import combine_time
from iosim.roofline.lower_bound import attention_bound, compulsory_bytes
from iosim.roofline.outer import outer_work
from iosim.roofline.tiled_gemm import predict_tiled_gemm, tiled_gemm
from iosim.roofline.unfused import GEMMS, aligned, predict_gemm, streaming_time
from iosim.roofline.work import fused_work

Times = dict[str, float | None]
_UNKNOWN: Mapping[str, float | None] = MappingProxyType({"profiled_time_s": None, "median_time_s": None})


def work_of(
    problem: AttentionProblem,
    facts: KernelFacts,
    tile: TileShape,
    levels: LevelTraffic,
    *,
    threads: int | None = None,
) -> FusedWork:
    """What a fused kernel does, whichever loop is outside, with the HBM bytes of the simulation.

    `threads`: of a block, where it was measured; None takes the card's.
    """
    hbm = {"hbm_read_bytes": levels.hbm_read_bytes, "hbm_write_bytes": levels.hbm_write_bytes}
    residents = levels.policies.blocks_per_sm
    if _keys_outside(facts):
        return outer_work(facts, problem, tile, residents=residents, threads=threads, **hbm)
    steps = levels.kernels[0].steps
    return fused_work(facts, problem, tile, steps, residents=residents, threads=threads, **hbm)


def uncounted_loop(facts: KernelFacts) -> bool:
    """Whether the keys are outside in a loop whose instructions the card does not count: no time is known of it."""
    return _keys_outside(facts) and "loop" not in facts.instructions


def _keys_outside(facts: KernelFacts) -> bool:
    return find_algorithm(facts.algorithm).outer == "k"


def fused_times(
    row: MeasuredRow,
    facts: KernelFacts,
    tile: TileShape,
    profile: HardwareProfile,
    levels: LevelTraffic,
    *,
    clock_hz: float | None = None,
) -> Times:
    """`profiled_time_s` (one launch) and `median_time_s` (repeated launches) of a fused kernel.

    `clock_hz`: of the SMs during the launch, where it was measured; None takes the highest. Nothing is predicted for
    a loop over the keys outside whose card does not count its instructions, or for a launch whose keys another kernel
    divides.
    """
    if facts.divides_keys(row.problem, profile.sm_count) or uncounted_loop(facts):
        return dict(_UNKNOWN)
    work = work_of(row.problem, facts, tile, levels, threads=row.threads_per_block)
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
        if clock_hz is not None:
            machine = machine.at(clock_hz)
        once, repeated = predict_both(work, machine, CLASSES[facts.kernel_class])
    except ProfileError:  # this GPU has no such unit, or nobody knows the class on it
        return dict(_UNKNOWN)
    return {"profiled_time_s": once.seconds, "median_time_s": repeated.seconds}


def streaming_times(row: MeasuredRow, profile: HardwareProfile) -> Times:
    """Of a decode kernel whose tile is not known: K and V once at the read bandwidth. Nothing for longer queries."""
    if row.problem.seq_q >= DECODE_QUERIES:
        return dict(_UNKNOWN)
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
    except ProfileError:
        return dict(_UNKNOWN)
    bound = attention_bound(row.problem, machine)
    seconds = streaming_time(machine, *compulsory_bytes(row.problem), bound).seconds
    return {"profiled_time_s": seconds, "median_time_s": seconds}


def decode_times(row: MeasuredRow, part: PartBytes, profile: HardwareProfile) -> Times:
    """Of one kernel of a decode: the main one streams its HBM bytes, the one that joins splits is a chain of loads.

    One run is of the row's kernel; of many runs the file has both kernels together.
    """
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
    except ProfileError:
        return dict(_UNKNOWN)
    bound = attention_bound(row.problem, machine)
    main = streaming_time(machine, part.main_hbm_read_bytes, part.main_hbm_write_bytes, bound).seconds
    joined = part.splits > 1
    once = combine_time(machine, part.splits, again=False).seconds if row.kernel == "decode_combine" else main
    after = combine_time(machine, part.splits, again=True).seconds if joined else 0.0
    return {"profiled_time_s": once, "median_time_s": main + after}


def gemm_time(
    row: MeasuredRow, facts: KernelFacts, profile: HardwareProfile, found: UnfusedBytes
) -> float | None:
    """One launch of a GEMM of unfused attention.

    None for the softmax, which depends on the library, for rows that the library gives to another GEMM, and for a GEMM
    of one known tile a thread block whose card does not count its instructions.
    """
    if row.kernel not in GEMMS:
        return None
    moved = {"hbm_read_bytes": found.hbm_read_bytes, "hbm_write_bytes": found.hbm_write_bytes}
    kind = CLASSES[facts.kernel_class]
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
        if row.tile is None:
            if not aligned(row.problem):
                return None
            return predict_gemm(row.kernel, row.problem, machine, kind, **moved).seconds
        policies = kernel_policies(
            facts,
            row.problem,
            row.tile,
            profile,
            registers_per_thread=row.registers_per_thread,
            threads=row.threads_per_block,
            shared_bytes=max(0, (row.shared_bytes_per_block or 0) - profile.sram_reserved_per_block_bytes),
        )
        work = tiled_gemm(row.kernel, row.problem, facts, row.tile, residents=policies.blocks_per_sm)
        if work is None:
            return None
        return predict_tiled_gemm(work, machine, kind.stream_share, **moved).seconds
    except ProfileError:
        return None
