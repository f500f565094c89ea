"""The hierarchical roofline: slanted roofs of memories, flat roofs of units, a marker a level and kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from iosim.errors import UsageError
from iosim.plots.axes import new_figure, title
from iosim.plots.files import Plot
from iosim.plots.labels import Line, place_labels
from iosim.plots.roof_labels import MARKER_SHARE, label_roofs
from iosim.plots.style import BLACK, CYCLE, GREY, Style, styled
from iosim.roofline.chart import LEVELS, TITLES, Point, Roof, axis_decades, compute_roof, kernels_of
from iosim.units import format_rate

MARKERS = {"sram": "^", "l2": "s", "hbm": "o"}
MAX_NAMED = 5
"""More kernels than this carry numbers, and a table below the axes names them."""
MAX_KERNELS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """One kernel on the figure: its name beside the markers, its row of the table, its colour."""

    name: str
    short: str
    colour: str
    measured: bool
    points: dict[str, Point]


def plot_roofline(
    found: Sequence[Roof],
    points: Sequence[Point],
    style: Style,
    *,
    heading: str,
    details: str,
    name: str = "roofline",
) -> tuple[Plot, list[str]]:
    """The figure, and a warning for every point outside its fixed axes.

    `UsageError` for more kernels than can be told apart.
    """
    kernels = _kernels(points)
    (left, right), (bottom, top) = axis_decades(found)
    said = [
        _outside(p) for p in points if not (left <= p.intensity <= right and bottom <= p.flops_per_s <= top)
    ]
    with styled(style):
        figure, axes = new_figure(style)
        roof_axes(axes, (left, right), (bottom, top))
        lines = draw_roofs(axes, style, found, (left, right), (bottom, top))
        lines += [_markers(axes, style, kernel) for kernel in kernels]
        taken, unplaced = label_roofs(axes, style, found, points, lines)
        left_over = place_labels(
            axes, lines, size_pt=style.small_pt, right_in=style.right_in - 0.03, taken=taken
        )
        crowded = {line.text for line in left_over}
        named = len(kernels) <= MAX_NAMED
        listed = [k for k in kernels if not named or k.short in crowded]
        _below(figure, axes, style, kernels, listed, unplaced)
        title(axes, style, heading, details)
    plot = Plot(
        name=name,
        figure=figure,
        data=pd.DataFrame([p.to_dict() for p in points]),
        caption="Speed against flops a byte of each memory level; a kernel's markers stand at one height.",
        style=style,
    )
    return plot, said


def _kernels(points: Sequence[Point]) -> list[_Kernel]:
    groups = kernels_of(points)
    if len(groups) > MAX_KERNELS:
        raise UsageError(
            f"roofline: {len(groups)} kernels are too many to tell apart; at most {MAX_KERNELS}: choose with --case"
        )
    named = len(groups) <= MAX_NAMED
    colours = {kernel: CYCLE[i % len(CYCLE)] for i, kernel in enumerate(dict.fromkeys(g[0] for g in groups))}
    return [
        _Kernel(
            name=f"{kernel}, {'measured' if measured else 'predicted'}",
            short=kernel if named else str(number),
            colour=colours[kernel],
            measured=measured,
            points=own,
        )
        for number, (kernel, measured, own) in enumerate(groups, start=1)
    ]


def roof_axes(axes: Axes, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Logarithmic axes of flops a byte and speed."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.set_xlabel("flops a byte of the level")
    axes.set_ylabel("TFLOP/s")
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1e12:,g}"))
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(which="major")


def draw_roofs(
    axes: Axes, style: Style, found: Sequence[Roof], x: tuple[float, float], y: tuple[float, float]
) -> list[Line]:
    """Draw every roof; the lines as obstacles. Slanted roofs end under the matmul roof, flat ones start at SRAM's."""
    flat = compute_roof(found)
    fastest = max(r.value for r in found if r.level)
    lines = []
    for roof in found:
        start, end = x[0], flat.value / roof.value
        if not roof.level:
            start, end = min(max(x[0], roof.value / fastest), x[1]), x[1]
        at = np.geomspace(start, end, 60)
        values = np.array([roof.at(v) for v in at])
        colour = GREY if roof.measured else BLACK
        width = style.line_pt if roof is flat else style.thin_pt
        axes.plot(at, values, color=colour, lw=width, ls="--" if roof.measured else "-", zorder=2)
        inside = (values >= y[0]) & (values <= y[1])
        lines.append(Line(text="", colour=colour, x=at[inside], y=values[inside]))
    return lines


def _markers(axes: Axes, style: Style, kernel: _Kernel) -> Line:
    """A kernel's markers on a thin line, and that line to be labelled."""
    shown = [kernel.points[level] for level in LEVELS if level in kernel.points]
    x, y = np.array([p.intensity for p in shown]), np.array([p.flops_per_s for p in shown])
    axes.plot(x, y, color=kernel.colour, lw=style.thin_pt * 0.8, ls=":", zorder=3)
    for p in shown:
        axes.plot(
            [p.intensity],
            [p.flops_per_s],
            marker=MARKERS[p.level],
            ms=style.small_pt * MARKER_SHARE,
            mec=kernel.colour,
            mfc="none" if kernel.measured else kernel.colour,
            mew=style.thin_pt,
            ls="none",
            zorder=4,
            clip_on=True,
        )
    span = np.geomspace(float(x.min()) / 1.12, float(x.max()) * 1.12, 40)
    return Line(text=kernel.short, colour=kernel.colour, x=span, y=np.full(40, y.mean()))


def _numbers(kernel: _Kernel) -> str:
    """Its speed, and its flops a byte by level."""
    any_point = next(iter(kernel.points.values()))
    parts = [f"{TITLES[k]} {_rounded(kernel.points[k].intensity)}" for k in LEVELS if k in kernel.points]
    return f"{format_rate(any_point.flops_per_s, 'FLOP/s', digits=3)}; flops a byte: {', '.join(parts)}"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _below(
    figure: Figure,
    axes: Axes,
    style: Style,
    kernels: Sequence[_Kernel],
    listed: Sequence[_Kernel],
    roofs: Sequence[str],
) -> None:
    """The key of the markers, roofs without a label, and a table of kernels, for which the figure grows."""
    step = 1.5 * style.small_pt / 72
    rows = [(f"roof {text}", BLACK) for text in roofs]
    for kernel in listed:
        name = kernel.name if kernel.name.startswith(kernel.short) else f"{kernel.short}  {kernel.name}"
        numbers = _numbers(kernel)  # a narrow column takes them on a line of their own
        texts = [f"{name}: {numbers}"] if style.titled else [name, f"    {numbers}"]
        rows += [(text, kernel.colour) for text in texts]
    extra = step * (1.3 + (0.5 + len(rows) if rows else 0))
    height = style.bottom_in + style.axes_height_in + style.top_in + extra
    figure.set_size_inches(style.width_in, height)
    width = style.width_in - style.left_in - style.right_in
    axes.set_position(
        (
            style.left_in / style.width_in,
            (style.bottom_in + extra) / height,
            width / style.width_in,
            style.axes_height_in / height,
        )
    )
    _key(figure, style, kernels, (extra - 0.6 * step) / height)
    for row, (text, colour) in enumerate(rows):
        y = (extra - step * (1.9 + row)) / height
        figure.text(0.02, y, text, fontsize=style.small_pt, color=colour, ha="left", va="center")


def _key(figure: Figure, style: Style, kernels: Sequence[_Kernel], y: float) -> None:
    """One line: which marker is which level, what filled and hollow mean, and dashed roofs."""

    def mark(shape: str, hollow: bool) -> Line2D:
        face = "none" if hollow else GREY
        return Line2D([], [], marker=shape, ls="none", ms=style.small_pt * 0.7, mec=GREY, mfc=face)

    handles, labels = [mark(MARKERS[level], False) for level in LEVELS], [TITLES[level] for level in LEVELS]
    for measured in sorted({k.measured for k in kernels}):
        handles.append(mark("D", measured))
        labels.append("measured" if measured else "predicted")
    handles.append(Line2D([], [], color=GREY, ls="--", lw=style.thin_pt))
    labels.append("measured roof")
    figure.legend(
        handles=handles,
        labels=labels,
        loc="center",
        bbox_to_anchor=(0.5, y),
        ncols=len(labels),
        handlelength=1.4,
        handletextpad=0.35,
        columnspacing=1.0,
        borderpad=0.0,
    )


def _outside(p: Point) -> str:
    return (
        f"roofline: {p.kernel} at {TITLES[p.level]} lies outside the axes "
        f"({p.intensity:.3g} FLOP/B, {format_rate(p.flops_per_s, 'FLOP/s')})"
    )
