"""Time on a map of SRAM by HBM bandwidth: lines of equal time, and real GPUs as dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from iosim.plots.axes import title
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.labels import Line, place_labels
from iosim.plots.style import BLACK, GREY, VERMILLION, Style, styled
from iosim.units import format_bytes, format_rate, format_seconds
from iosim.whatif import Map

RATIOS = (1.0, 1.05, 1.15, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Lines of equal time, over the best on the map; beyond the last one colour."""
SHADES = "Blues_r"
_LIGHT, _DARK = 0.95, 0.35  # of the shades: names stay readable on each
_TITLES = {"no L2": "every byte from HBM (no L2)", "behind the L2": "with the L2 of {profile}"}
_GAP_IN, _RIGHT_IN, _KEY_IN = 0.4, 0.3, 0.62


def what_if_map(found: Map, style: Style) -> Plot:
    """A panel a reading, one scale of time for both, a dot a GPU."""
    names = list(found.seconds)
    with styled(style):
        figure, panels, bar = _panels(style, len(names), len(found.fixed))
        left: list[str] = []
        for axes, name in zip(panels, names, strict=True):
            _fill(axes, style, found, name)
            left += _dots(axes, style, found)
            axes.set_title(_TITLES[name].format(profile=found.profile), fontsize=style.small_pt, loc="left")
        _share_labels(panels, style)
        _key(figure, bar, style, found)
        _said(figure, style, found, list(dict.fromkeys(left)))
        title(panels[0], style, "Time by SRAM and HBM bandwidth", _details(found))
    return Plot(
        name="what_if",
        figure=figure,
        data=found.to_frame(),
        caption=_caption(found),
        style=style,
    )


def _panels(style: Style, count: int, fixed: int) -> tuple[Figure, list[Axes], Axes]:
    """Side by side on a screen, one above the other in a column of a paper; a bar of colours and words below."""
    beside = style.titled
    words_in = _words_in(style, fixed)
    height_in = style.axes_height_in * (0.92 if beside else 1.0)
    rows = 1 if beside else count
    step_in = height_in + style.top_in * (0 if beside else 1) + (0 if beside else 0.28)
    foot_in = words_in + _KEY_IN * (1.0 if beside else 0.8) + style.bottom_in
    total_in = foot_in + (height_in + style.top_in + 0.18 if beside else rows * step_in)
    figure = Figure(figsize=(style.width_in, total_in))
    room_in = style.width_in - style.left_in - _RIGHT_IN
    width_in = (room_in - (count - 1) * _GAP_IN) / count if beside else room_in
    panels = []
    for k in range(count):
        x = style.left_in + k * (width_in + _GAP_IN) if beside else style.left_in
        y = foot_in if beside else foot_in + (rows - 1 - k) * step_in
        panels.append(
            figure.add_axes(
                (x / style.width_in, y / total_in, width_in / style.width_in, height_in / total_in)
            )
        )
    bar_y = (foot_in - style.bottom_in - 0.28 * (1.0 if beside else 0.6)) / total_in
    bar = figure.add_axes(
        (
            style.left_in / style.width_in,
            bar_y,
            room_in / style.width_in,
            0.13 * (1 if beside else 0.7) / total_in,
        )
    )
    return figure, panels, bar


def _words_in(style: Style, fixed: int) -> float:
    lines = math.ceil(fixed / (4 if style.titled else 2)) + 1
    return (lines * 1.4 + 0.8) * style.small_pt / 72


def _fill(axes: Axes, style: Style, found: Map, name: str) -> None:
    ratio = np.minimum(found.seconds[name] / found.best_s, RATIOS[-1] * 1.5)
    x, y = np.array(found.sram_bytes), np.array(found.hbm_bytes_per_s)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_facecolor("#EDEDED")
    levels = [0.999, *RATIOS[1:], RATIOS[-1] * 2]
    values = np.ma.masked_invalid(np.where(np.isfinite(found.seconds[name]), ratio, np.nan)).T
    axes.contourf(x, y, values, levels=levels, colors=_colours())
    axes.contour(x, y, values, levels=list(RATIOS[1:]), colors="white", linewidths=style.thin_pt * 0.8)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.xaxis.set_major_locator(FixedLocator([2.0**k for k in range(10, 31, 2)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v)))
    axes.yaxis.set_major_locator(FixedLocator([1e12 * 2.0**k for k in range(-4, 8)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v / 1e12:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    if not np.isfinite(found.seconds[name]).all():
        first = np.flatnonzero(np.isfinite(found.seconds[name]).any(axis=1))
        if len(first) and first[0] > 1:
            axes.text(
                math.sqrt(x[0] * x[first[0]]),
                math.sqrt(y[0] * y[-1]),
                "no tile fits",
                rotation=90,
                ha="center",
                va="center",
                fontsize=style.small_pt,
                color=GREY,
            )


def _colours() -> list[str]:
    shades = mpl.colormaps[SHADES]
    return [to_hex(shades(_DARK + (_LIGHT - _DARK) * k / (len(RATIOS) - 1))) for k in range(len(RATIOS))]


def _dots(axes: Axes, style: Style, found: Map) -> list[str]:
    """Draw the GPUs and their names; returns those for whose name there is no place."""
    inside = [
        d
        for d in found.dots
        if found.sram_bytes[0] <= d.sram_bytes <= found.sram_bytes[-1]
        and found.hbm_bytes_per_s[0] <= d.hbm_bytes_per_s <= found.hbm_bytes_per_s[-1]
    ]
    lines = []
    for d in sorted(inside, key=lambda d: not d.own):
        colour = VERMILLION if d.own else BLACK
        axes.plot(
            [d.sram_bytes],
            [d.hbm_bytes_per_s],
            ls="",
            marker="o",
            ms=style.small_pt * (0.6 if d.own else 0.45),
            mfc=colour,
            mec="white",
            mew=0.5,
            zorder=5,
        )
        lines.append(
            Line(
                text=d.name,
                colour=colour,
                x=np.array([d.sram_bytes]),
                y=np.array([d.hbm_bytes_per_s]),
                loose=True,
            )
        )
    written = len(axes.texts)
    left = {line.text for line in place_labels(axes, lines, size_pt=style.small_pt * 0.9)}
    for text in axes.texts[written:]:  # lines of equal time pass behind the names
        text.set_path_effects([withStroke(linewidth=2, foreground=(1, 1, 1, 0.75))])
    return [
        f"{d.name} {format_bytes(d.sram_bytes)}, {format_rate(d.hbm_bytes_per_s)}"
        for d in inside
        if d.name in left
    ]


def _share_labels(panels: Sequence[Axes], style: Style) -> None:
    """Axis titles where the panels meet the edge of the figure, and end ticks that keep to their own panel."""
    for k, axes in enumerate(panels):
        low, high = axes.get_xlim()
        for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
            if tick in (low, high):
                label.set_horizontalalignment("left" if tick == low else "right")
        if style.titled and k:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("HBM bandwidth, TB/s")
        if style.titled or k == len(panels) - 1:
            axes.set_xlabel("SRAM of a thread block")
        else:
            axes.tick_params(labelbottom=False)


def _key(figure: Figure, bar: Axes, style: Style, found: Map) -> None:
    edges = [*RATIOS, RATIOS[-1] * 1.5]
    colours = ListedColormap(_colours())
    mapped = mpl.cm.ScalarMappable(norm=BoundaryNorm(list(range(len(edges))), len(RATIOS)), cmap=colours)
    drawn = figure.colorbar(mapped, cax=bar, orientation="horizontal", ticks=list(range(len(RATIOS))))
    drawn.ax.set_xticklabels([format_seconds(found.best_s * r, digits=3) for r in RATIOS])
    drawn.ax.tick_params(labelsize=style.small_pt * (1 if style.titled else 0.75), length=2)
    drawn.outline.set_visible(False)
    bar.text(-0.01, 0.5, "time", transform=bar.transAxes, ha="right", va="center", fontsize=style.small_pt)


def _said(figure: Figure, style: Style, found: Map, left: Sequence[str]) -> None:
    """What stays fixed, and dots without a name, at the foot."""
    per = 4 if style.titled else 2
    words = [*found.fixed]
    lines = ["; ".join(words[k : k + per]) for k in range(0, len(words), per)]
    lines[0] = f"fixed: {lines[0]}"
    if left:
        lines.append(f"without a name: {'; '.join(left)}")
    figure.text(
        0.02,
        0.04 / figure.get_size_inches()[1],
        "\n".join(lines),
        fontsize=style.small_pt * (0.95 if style.titled else 0.85),
        color=GREY,
        ha="left",
        va="bottom",
        linespacing=1.3,
    )


def _details(found: Map) -> str:
    return f"{found.kernel_class}, {problem_text(found.problem)}, compute of {found.profile}"


def _caption(found: Map) -> str:
    own = {name: format_seconds(value) for name, value in found.own_s.items() if math.isfinite(value)}
    at = " and ".join(f"{value} ({name})" for name, value in own.items())
    return (
        f"Predicted time by SRAM of a thread block and HBM bandwidth ({_details(found)}), the fastest tile that fits "
        "at each point; white lines are lines of equal time. Dots: memories of real GPUs, whose own compute differs; "
        f"{found.profile} at its dot: {at}. Fixed: {'; '.join(found.fixed)}."
    )
