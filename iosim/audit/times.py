"""The predicted times of a measured row, from its simulated levels; None where no constant is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from iosim.algorithms.registry import find_algorithm
from iosim.audit.compare import DECODE_QUERIES
from iosim.audit.measurements import MeasuredRow
from iosim.audit.parts import PartBytes
from iosim.audit.unfused import UnfusedBytes
from iosim.errors import ProfileError
from iosim.hardware import HardwareProfile
from iosim.kernels import CLASSES, KernelFacts
from iosim.levels import LevelTraffic
from iosim.problem import TileShape
from iosim.roofline import FusedWork, Machine, predict_both
from iosim.roofline.lower_bound import compulsory_bytes
from iosim.roofline.unfused import GEMMS, aligned, predict_gemm, streaming_time
from iosim.roofline.work import fused_work

Times = dict[str, float | None]
_UNKNOWN: Mapping[str, float | None] = MappingProxyType({"profiled_time_s": None, "median_time_s": None})


def work_of(row: MeasuredRow, facts: KernelFacts, tile: TileShape, levels: LevelTraffic) -> FusedWork:
    """What a measured fused kernel did, with the HBM bytes of the simulation and not those of the counter."""
    return fused_work(
        facts,
        row.problem,
        tile,
        levels.kernels[0].steps,
        residents=levels.policies.blocks_per_sm,
        threads=row.threads_per_block,
        hbm_read_bytes=levels.hbm_read_bytes,
        hbm_write_bytes=levels.hbm_write_bytes,
    )


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
    a loop over the keys outside, whose output comes from memory and goes back for every key tile, or for a launch
    whose keys another kernel divides.
    """
    if find_algorithm(facts.algorithm).outer == "k" or facts.divides_keys(row.problem, profile.sm_count):
        return dict(_UNKNOWN)
    work = work_of(row, facts, tile, levels)
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
        if clock_hz is not None:
            machine = replace(machine, clock_hz=clock_hz)
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
    seconds = streaming_time(machine, *compulsory_bytes(row.problem)).seconds
    return {"profiled_time_s": seconds, "median_time_s": seconds}


def decode_times(row: MeasuredRow, part: PartBytes, profile: HardwareProfile) -> Times:
    """Of one kernel of a decode with split keys: its HBM bytes at the measured bandwidth."""
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
    except ProfileError:
        return dict(_UNKNOWN)
    seconds = streaming_time(machine, part.hbm_read_bytes, part.hbm_write_bytes).seconds
    return {"profiled_time_s": seconds, "median_time_s": seconds}


def gemm_time(
    row: MeasuredRow, facts: KernelFacts, profile: HardwareProfile, found: UnfusedBytes
) -> float | None:
    """One launch of a GEMM of unfused attention.

    None for the softmax, which depends on the library, for rows that the library gives to another GEMM, and for a GEMM
    of one known tile a thread block: the constant is that of a library's, which streams tile after tile.
    """
    if row.kernel not in GEMMS or not aligned(row.problem) or row.tile is not None:
        return None
    try:
        machine = Machine.of(profile, str(row.problem.dtype_k))
        predicted = predict_gemm(
            row.kernel,
            row.problem,
            machine,
            CLASSES[facts.kernel_class],
            hbm_read_bytes=found.hbm_read_bytes,
            hbm_write_bytes=found.hbm_write_bytes,
        )
    except ProfileError:
        return None
    return predicted.seconds
