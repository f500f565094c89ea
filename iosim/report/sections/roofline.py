"""The roofline: a point a level and kernel under the roofs of the GPU."""

from __future__ import annotations

import pandas as pd

from iosim.errors import UsageError
from iosim.plots.bound import problem_text
from iosim.plots.roofline import plot_roofline
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.roofline.chart import Point, Roof, above_roofs, check_order, compute_roof, ridge, roofs
from iosim.timing import timing_points
from iosim.units import format_rate

NOTE = (
    "Left of a ridge the memory is the limit, right of it a unit. A kernel is a marker a level, all at one height: its "
    "speed. Flops are those of unmasked scores."
)


def section(facts: Facts) -> Section:
    """A figure and two tables a GPU."""
    blocks: list[Block] = [Text(text=NOTE, note=True)]
    for part in facts.parts:
        blocks += [Heading(text=part.profile.name), *_of_gpu(facts, part)]
    return Section(key="roofline", title="The roofline", nav="Roofline", blocks=tuple(blocks))


def _of_gpu(facts: Facts, part: GpuPart) -> list[Block]:
    gpu, p = part.profile, facts.problem
    try:
        found = roofs(gpu, str(p.dtype_k), {p.head_dim})
    except UsageError as error:
        return [Text(text=f"No roofline: {error}.", note=True)]
    points: list[Point] = []
    said: list[str] = []
    for timing in part.times.timings:
        own, more = timing_points(timing)
        points, said = points + own, said + more
    said += check_order(points) + above_roofs(points, found, causal=p.mask.is_causal)
    heading = f"Roofline of {gpu.name}"
    drawn, more = plot_roofline(
        found, points, facts.style, heading=heading, details=problem_text(p, facts.batch.seq_lens)
    )
    blocks: list[Block] = [
        figure(gpu.name, drawn),
        Table(
            name=f"{gpu.name}_roofs",
            frame=roof_table(found),
            caption=f"Roofs of {gpu.name}; a ridge is where a memory's roof meets that of the matmul units",
            prose=("source",),
        ),
    ]
    if points:
        caption = f"Kernels under the roofs of {gpu.name}, predicted"
        blocks.append(Table(name=f"{gpu.name}_points", frame=point_table(points), caption=caption))
    return [*blocks, *items([*said, *more], note=True)]


def roof_table(found: list[Roof]) -> pd.DataFrame:
    """One row a roof."""
    flat = compute_roof(found)
    return pd.DataFrame(
        [
            {
                "roof": r.name,
                "kind": "measured" if r.measured else "theoretical",
                "value": format_rate(r.value, "B/s" if r.level else "FLOP/s"),
                "ridge_flop_per_byte": ridge(r, flat) if r.level else None,
                "source": r.source,
            }
            for r in found
        ]
    )


def point_table(points: list[Point]) -> pd.DataFrame:
    """One row a kernel and level."""
    return pd.DataFrame(
        [
            {
                "kernel": p.kernel,
                "level": p.level,
                "flop_per_byte": p.intensity,
                "speed": format_rate(p.flops_per_s, "FLOP/s"),
                "bytes": round(p.bytes_moved),
                "seconds": p.seconds,
            }
            for p in points
        ]
    )
