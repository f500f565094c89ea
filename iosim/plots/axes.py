"""Axes of figures: their size, ranges in whole decades, ticks with units, regimes and marks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from iosim.plots.labels import Line, place_labels
from iosim.plots.style import GREY, REGIME_FILLS, Style
from iosim.units import format_bytes

SRAM_RANGE_BYTES = (1e3, 1e7)
"""The M axis of every figure: four whole decades around what GPUs have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line at a value of x that has a name, such as the SRAM of a GPU's thread block."""

    text: str
    x: float


def new_figure(style: Style) -> tuple[Figure, Axes]:
    """A figure whose axes have the style's fixed height; the margins are the style's."""
    height = style.bottom_in + style.axes_height_in + style.top_in
    figure = Figure(figsize=(style.width_in, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    _fix(figure, axes, style, height, 0.0)
    return figure, axes


def _fix(figure: Figure, axes: Axes, style: Style, height: float, extra_in: float) -> None:
    width = style.width_in
    axes.set_position(
        (
            style.left_in / width,
            (style.bottom_in + extra_in) / height,
            (width - style.left_in - style.right_in) / width,
            style.axes_height_in / height,
        )
    )


def title(axes: Axes, style: Style, text: str, details: str) -> None:
    """A heading and its details above the axes, on a screen only: in a paper the caption says it."""
    if not style.titled:
        return
    figure, where = axes.figure, axes.get_position()
    assert isinstance(figure, Figure)
    height = figure.get_size_inches()[1]
    figure.text(
        where.x0, 1 - 0.1 / height, text, ha="left", va="top", fontsize=style.font_pt + 2, weight="bold"
    )
    figure.text(where.x0, 1 - 0.34 / height, details, ha="left", va="top", fontsize=style.font_pt, color=GREY)


def decades(values: Iterable[float]) -> tuple[float, float]:
    """The whole decades around all values, at least one."""
    good = [v for v in values if v > 0 and math.isfinite(v)]
    low = math.floor(math.log10(min(good)) + 1e-9)
    high = math.ceil(math.log10(max(good)) - 1e-9)
    return 10.0**low, 10.0 ** max(high, low + 1)


def bytes_axis(axes: Axes, values: Iterable[float], label: str) -> None:
    """A logarithmic y axis of bytes in decimal units, in whole decades."""
    axes.set_yscale("log")
    axes.set_ylim(*decades(values))
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v, decimal=True)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)
    axes.grid(axis="y", which="major")


def sram_axis(axes: Axes, *, itemsize: int | None = None) -> None:
    """The M axis, logarithmic and always the same; in elements of `itemsize` bytes where that is given."""
    size = itemsize or 1
    low, high = (edge / size for edge in SRAM_RANGE_BYTES)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [1024 * 4**k / size for k in range(7)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(FixedLocator([t * 2 for t in ticks]))
    if itemsize:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
        axes.set_xlabel("M: elements on chip, a thread block")
    else:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v)))
        axes.set_xlabel("M: bytes on chip, a thread block")
    axes.xaxis.set_minor_formatter(NullFormatter())


def capacity_axis(axes: Axes, low: float, high: float, label: str) -> None:
    """A logarithmic axis of capacities in binary units; ticks at powers of four (of sixteen on a long axis)."""
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    step = 4 if high / low <= 1.01e4 else 16
    count = math.ceil(math.log(high / 1024, step)) + 1
    axes.xaxis.set_major_locator(FixedLocator([1024.0 * step**k for k in range(count)]))
    axes.xaxis.set_minor_locator(FixedLocator([1024.0 * 2**k for k in range(64)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


def size_axis(axes: Axes, values: Sequence[float], label: str) -> None:
    """A logarithmic axis of sizes from the first to the last of the grid, ticks at the powers of two among them."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(min(values), max(values))
    powers = [
        2.0**k for k in range(math.ceil(math.log2(min(values))), math.floor(math.log2(max(values))) + 1)
    ]
    step = max(1, math.ceil(len(powers) / 9))
    axes.xaxis.set_major_locator(FixedLocator(powers[::step]))
    axes.xaxis.set_minor_locator(FixedLocator(powers))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: _short(v)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


def _short(value: float) -> str:
    return f"{value / 1024:g}K" if value >= 1024 and value % 1024 == 0 else f"{value:g}"


def regimes(axes: Axes, style: Style, edges: Sequence[float], names: Sequence[str]) -> None:
    """Shade the stretches of x between `edges` and write each name above the axes, where it fits."""
    low, high = axes.get_xlim()
    cuts = [low, *(min(max(e, low), high) for e in edges), high]
    width_pt = 72 * (style.width_in - style.left_in - style.right_in)
    for position, name in enumerate(names):
        start, stop = cuts[position], cuts[position + 1]
        if stop <= start:
            continue
        axes.axvspan(start, stop, color=REGIME_FILLS[position % len(REGIME_FILLS)], lw=0, zorder=0)
        share = math.log(stop / start) / math.log(high / low)
        if share * width_pt > 0.62 * style.small_pt * len(name):
            axes.text(
                math.sqrt(start * stop),
                1.015,
                name,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=style.small_pt,
                color=GREY,
            )


def mark(axes: Axes, style: Style, found: Mark) -> Line:
    """A vertical line, to be labelled with its name like a curve; nothing where it lies outside the axes."""
    if not axes.get_xlim()[0] <= found.x <= axes.get_xlim()[1]:
        return Line(text="", colour=GREY, x=np.zeros(0), y=np.zeros(0), loose=True)
    axes.axvline(found.x, color=GREY, lw=style.thin_pt, ls=(0, (2, 1.5)), zorder=1, label=found.text)
    ends = axes.get_ylim()
    return Line(text=found.text, colour=GREY, x=np.full(2, found.x), y=np.array(ends), loose=True)


def finish(
    axes: Axes, style: Style, lines: Sequence[Line], heading: str, details: str, notes: Sequence[str] = ()
) -> None:
    """Label the curves; those without a free place go to a legend below, for which the figure grows.

    `notes`: labels of drawn artists that stand in that legend in any case.
    """
    left = place_labels(axes, lines, size_pt=style.small_pt, right_in=style.right_in - 0.03)
    names = [*(line.text for line in left), *notes]
    if names:
        _legend_below(axes, style, names)
    title(axes, style, heading, details)


def _legend_below(axes: Axes, style: Style, names: Sequence[str]) -> None:
    figure = axes.figure
    assert isinstance(figure, Figure)
    drawn = {str(artist.get_label()): artist for artist in axes.get_lines()}
    handles = [drawn[name] for name in names if name in drawn]
    room_pt = 72 * (style.width_in - 0.1)
    most = int((room_pt - 4 * style.small_pt) / (0.56 * style.small_pt))
    shown = [name if len(name) <= most else f"{name[: most - 1]}…" for name in names if name in drawn]
    longest = max(map(len, shown))
    columns = max(1, min(len(names), int(room_pt // (0.56 * style.small_pt * longest + 4 * style.small_pt))))
    rows = math.ceil(len(names) / columns)
    extra = (rows * 1.45 * style.small_pt + 4) / 72
    height = style.bottom_in + style.axes_height_in + style.top_in + extra
    figure.set_size_inches(style.width_in, height)
    _fix(figure, axes, style, height, extra)
    figure.legend(
        handles=handles,
        labels=shown,
        loc="lower center",
        bbox_to_anchor=(0.5, 0.01 / height),
        ncols=columns,
        handlelength=2.2,
        columnspacing=1.2,
        labelspacing=0.35,
        borderpad=0.1,
    )
