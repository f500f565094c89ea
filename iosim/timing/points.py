"""Points of a roofline: of a predicted kernel, and of a measured row."""

from __future__ import annotations

from iosim import block_mask
from iosim.audit.measurements import MeasuredRow
from iosim.audit.unfused import KERNELS as UNFUSED
from iosim.onchip.wavefronts import WAVEFRONT_BYTES
from iosim.roofline.chart import Point, point
from iosim.roofline.unfused import GEMMS, gemm_flops
from iosim.timing.kernel import Timing

NO_MATMUL = "combine"
"""How the name of a kernel ends that only adds up what others computed."""


def timing_points(timing: Timing) -> tuple[list[Point], list[str]]:
    """One point a level of a predicted kernel at the speed of one run, and a warning for each level without one.

    Flops are those of unmasked scores; a kernel without a prediction has no point.
    """
    if timing.once_s is None:
        return [], [f"{timing.kernel}: no point, {timing.reason or 'nothing is predicted'}"]
    moved = {"sram": timing.shared_bytes, "l2": timing.sm_bytes, "hbm": timing.hbm_bytes}
    return _points(timing.kernel, timing.useful_flops, timing.once_s, moved, measured=False)


def measured_points(row: MeasuredRow) -> tuple[list[Point], list[str]]:
    """The same of a measured kernel: its counters, and the flops of its unmasked scores.

    A GEMM of unfused attention counts all scores; other kernels of it have no flops, and so no point.
    """
    name = f"{row.implementation} {row.case}" + (f" {row.kernel}" if row.kernel in UNFUSED else "")
    seconds = row.measured.get("profiled_time_s") or row.measured.get("median_time_s")
    flops = _useful_flops(row)
    if row.kernel in UNFUSED:
        flops = gemm_flops(row.kernel, row.problem) if row.kernel in GEMMS else 0
    elif row.kernel.endswith(NO_MATMUL):
        flops = 0
    if not seconds or not flops:
        what = "no time was measured" if flops else "a kernel without matmul flops"
        return [], [f"{name}: no point, {what}"]
    counters = row.measured
    moved = {
        "sram": counters.get("shared_wavefronts", 0) * WAVEFRONT_BYTES,
        "l2": counters.get("sm_read_bytes", 0) + counters.get("sm_write_bytes", 0),
        "hbm": counters.get("hbm_read_bytes", 0) + counters.get("hbm_write_bytes", 0),
    }
    return _points(name, flops, seconds, moved, measured=True)


def _useful_flops(row: MeasuredRow) -> int:
    """Of unmasked scores; under a block mask of those that its blocks leave."""
    p = row.problem
    if row.block_mask is None or row.tile is None:
        return p.useful_flops
    return p.useful_flops * block_mask.pairs(p, row.tile, row.block_mask) // p.pairs


def _points(
    kernel: str,
    flops: int,
    seconds: float,
    moved: dict[str, int | None] | dict[str, float],
    *,
    measured: bool,
) -> tuple[list[Point], list[str]]:
    found, said = [], []
    for level, amount in moved.items():
        if amount:
            found.append(
                point(kernel, level, flops=flops, bytes_moved=amount, seconds=seconds, measured=measured)
            )
        else:
            said.append(
                f"{kernel}: no point at {level}, its bytes there are {'0' if amount == 0 else 'unknown'}"
            )
    return found, said
