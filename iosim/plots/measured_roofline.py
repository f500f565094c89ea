"""Measured kernels under the roofs of a GPU: many points, a colour an implementation and a shape a level."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.lines import Line2D

from iosim.audit.compare import Comparison
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.plots.axes import new_figure, title
from iosim.plots.files import Plot
from iosim.plots.measured import COLOURS
from iosim.plots.roof_labels import label_roofs
from iosim.plots.roofline import MARKERS, draw_roofs, roof_axes
from iosim.plots.style import BLACK, GREY, Style, styled
from iosim.plots.time import legend_below
from iosim.roofline.chart import LEVELS, TITLES, Point, axis_decades, roofs
from iosim.timing import measured_points
from iosim.units import counted

MARKER_SHARE = 0.45
LEAST_KERNELS = 4
"""Kernels of a dtype and head dimension that are worth a figure; the largest group has one in any case."""


def measured_roofline(items: Sequence[Comparison], profile: HardwareProfile, style: Style) -> list[Plot]:
    """A figure a dtype and head dimension of which enough was measured, largest first; none without a point."""
    groups: dict[tuple[str, int], list[tuple[str, Point]]] = {}
    for item in items:
        points, _ = measured_points(item.row)
        p = item.row.problem
        key = (str(p.dtype_k), p.head_dim)
        groups.setdefault(key, []).extend((item.row.implementation, point) for point in points)
    ordered = sorted(((key, own) for key, own in groups.items() if own), key=lambda x: -len(x[1]))
    ordered = [x for x in ordered if len({p.kernel for _, p in x[1]}) >= LEAST_KERNELS] or ordered[:1]
    plots = []
    for (dtype, d), own in ordered:
        try:
            plots.append(_figure(own, profile, style, dtype, d))
        except UsageError:  # this GPU has no such unit
            continue
    return plots


def _figure(
    own: Sequence[tuple[str, Point]], profile: HardwareProfile, style: Style, dtype: str, d: int
) -> Plot:
    found = roofs(profile, dtype, {d})
    x, y = axis_decades(found)
    names = list(dict.fromkeys(name for name, _ in own))
    points = [p for _, p in own if x[0] <= p.intensity <= x[1] and y[0] <= p.flops_per_s <= y[1]]
    with styled(style):
        figure, axes = new_figure(style)
        roof_axes(axes, x, y)
        lines = draw_roofs(axes, style, found, x, y)
        for name, p in own:
            axes.plot(
                [p.intensity],
                [p.flops_per_s],
                marker=MARKERS[p.level],
                ms=style.small_pt * MARKER_SHARE,
                mec=COLOURS[names.index(name) % len(COLOURS)],
                mfc="none",
                mew=style.thin_pt * 0.8,
                ls="none",
                zorder=4,
                clip_on=True,
            )
        _, unplaced = label_roofs(axes, style, found, points, lines)
        roofless = [Line2D([], [], color=BLACK, lw=style.thin_pt, label=text) for text in unplaced]
        legend_below(axes, style, [*_keys(style, names, own), *roofless])
        kernels = counted(len({p.kernel for _, p in own}), "kernel")
        title(
            axes, style, f"Measured kernels under the roofs of {profile.name}", f"{kernels}, d = {d}, {dtype}"
        )
    return Plot(
        name=f"measured_roofline_{dtype}_d{d}",
        figure=figure,
        data=pd.DataFrame([{"implementation": name, **p.to_dict()} for name, p in own]),
        caption=(
            f"Measured speed against flops a byte of each level on {profile.name}, {kernels} at d = {d} in {dtype}: "
            "counters, and flops of unmasked scores. A kernel is a marker a level at one height; dashed roofs are "
            "measured."
        ),
        style=style,
    )


def _keys(style: Style, names: Sequence[str], own: Sequence[tuple[str, Point]]) -> list[Line2D]:
    size = style.small_pt * 0.6
    there = {p.level for _, p in own}
    levels = [
        Line2D([], [], ls="none", marker=MARKERS[k], ms=size, mec=GREY, mfc="none", label=TITLES[k])
        for k in LEVELS
        if k in there
    ]
    kinds = [
        Line2D([], [], color=COLOURS[k % len(COLOURS)], lw=style.line_pt, label=name)
        for k, name in enumerate(names)
    ]
    return [*levels, *kinds]
