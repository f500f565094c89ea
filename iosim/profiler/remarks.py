"""What a reader of an audited launch has to know: what does not fit together, and what cannot be."""

from __future__ import annotations

import re

from iosim.audit.measurements import MeasuredRow
from iosim.errors import ProfileError
from iosim.hardware import HardwareProfile
from iosim.kernels import KernelFacts
from iosim.problem import AttentionProblem, TileShape
from iosim.profiler.export import Launch
from iosim.profiler.facts import launched_blocks
from iosim.roofline import LowerBound
from iosim.roofline.chart import above_roofs, check_order, roofs
from iosim.timing import measured_points

LOW_CLOCK = 0.9  # of the highest: below it a locked or throttled clock is worth a word
BOUND_TOLERANCE = 0.01


def launch_remarks(
    launch: Launch,
    problem: AttentionProblem,
    facts: KernelFacts,
    tile: TileShape,
    profile: HardwareProfile,
    cold: bool | None,
) -> list[str]:
    """The grid against the tile, the threads against the card, caches, clock and spilled registers."""
    said = []
    expected = launched_blocks(facts, problem, tile)
    if launch.blocks is not None and not facts.persistent and launch.blocks != expected:
        said.append(
            f"the launch has {launch.blocks} blocks; {tile} tiles of this case make {expected}: "
            "check tiles, batch, heads and N"
        )
    threads = launch.threads_per_block
    if threads is not None and threads != facts.threads_per_block:
        said.append(f"the launch has {threads} threads a block, the card {facts.threads_per_block}")
    if cold is None:
        said.append(
            "the export does not say its cache control; taken for all: a cold L2 (cache=none in --case if not)"
        )
    elif not cold:
        said.append("caches were not flushed: HBM reads may be fewer than predicted, which is from a cold L2")
    if launch.clock_hz is not None and launch.clock_hz < LOW_CLOCK * profile.clock_hz:
        ran, most = launch.clock_hz / 1e9, profile.clock_hz / 1e9
        said.append(
            f"the SMs ran at {ran:.2f} GHz of {most:.2f}, and the time is predicted at that clock; "
            "--clock-control none leaves it free"
        )
    if launch.spilled_stores and facts.spill(problem.head_dim, tile) is None:
        said.append(
            f"registers were spilled, {launch.spilled_stores:,.0f} local stores: the prediction has not their bytes"
        )
    return said


def roof_remarks(row: MeasuredRow, profile: HardwareProfile, bound: LowerBound | None) -> list[str]:
    """What is above a roof or below the least time, with the likely reasons."""
    said = []
    seconds = row.measured.get("profiled_time_s")
    if bound is not None and seconds and seconds < bound.seconds * (1 - BOUND_TOLERANCE):
        said.append(
            f"measured in {seconds * 1e6:.1f} us, less than the least possible {bound.seconds * 1e6:.1f} us "
            f"({bound.limit}); likely: another shape, mask or dtype than the case, another GPU, several launches"
        )
    points, _ = measured_points(row)
    try:
        found = roofs(profile, str(row.problem.dtype_k), {row.problem.head_dim})
    except ProfileError:
        return said
    said += check_order(points) + above_roofs(points, found, causal=row.problem.mask.is_causal)
    # a speed above a flat roof is above it at every level: once is enough
    return list({re.sub(r"measured at \w+ ", "", text): text for text in reversed(said)}.values())[::-1]
