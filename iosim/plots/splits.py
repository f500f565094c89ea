"""Bytes and busy SMs against the number of splits, the chosen one marked."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

from iosim.errors import UsageError
from iosim.plots.axes import bytes_axis, size_axis, title
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.labels import Line, place_labels
from iosim.plots.style import BLACK, BLUE, GREEN, GREY, VERMILLION, Style, styled
from iosim.results import RunRecord
from iosim.units import counted

_UPPER, _LOWER, _BETWEEN = 0.8, 0.42, 0.07  # heights of the panels, in heights of the style's axes
_MARK_PT = 2.6  # a mark, in widths of the curve


def splits_plot(record: RunRecord, style: Style) -> Plot:
    """Above, bytes and what is minimised, bytes over the busy share of the SMs; below, that share.

    `record`: of an algorithm with splits; its notes hold the table. `UsageError` for any other.
    """
    if "splits" not in record.notes:
        raise UsageError(
            f"splits: {record.algorithm} does not split its keys; use an algorithm that has --splits"
        )
    found = record.notes["splits"]
    table = pd.DataFrame(found["table"])
    chosen = int(found["chosen"])
    with styled(style):
        figure, upper, lower = _panels(style)
        x = table["splits"].to_numpy(float)
        ends = [1.0, max(2.0, float(x[-1]), float(chosen))]
        values = [*table["total_bytes"], *table["bytes_per_busy_share"]]
        size_axis(upper, ends, "")
        bytes_axis(upper, values, "bytes")
        size_axis(lower, ends, "splits of the keys")
        _share_axis(lower)
        upper.tick_params(axis="x", which="both", labelbottom=False)
        mark = _chosen(upper, lower, style, chosen)
        curves = [
            _curve(upper, style, table, "bytes_per_busy_share", "bytes / share of SMs busy", VERMILLION),
            _curve(upper, style, table, "total_bytes", "bytes moved", BLUE),
        ]
        _curve(lower, style, table, "sm_share", "", GREEN)
        for axes, names in ((upper, ("total_bytes", "bytes_per_busy_share")), (lower, ("sm_share",))):
            _dots(axes, style, table[table["splits"] == chosen], names)
        if place_labels(upper, [*curves, mark], size_pt=style.small_pt, right_in=style.right_in - 0.03):
            upper.legend(loc="best")
        title(upper, style, "Splits of the keys: bytes against idle SMs", _details(record))
    return Plot(
        name="splits",
        figure=figure,
        data=table.assign(chosen=table["splits"] == chosen, best=table["splits"] == found["best"]),
        caption=(
            f"Splits of the keys ({_details(record)}). Above: bytes of all kernels, and bytes over the share of the "
            "SMs that is busy, which the best split count minimises; both axes logarithmic. Below: that share, over "
            f"whole waves of one thread block an SM. Dotted line and dots: {counted(chosen, 'split')}, as in this "
            f"run; the best is {found['best']}."
        ),
        style=style,
    )


def _panels(style: Style) -> tuple[Figure, Axes, Axes]:
    """Two axes one above the other, as wide as those of every other figure."""
    unit = style.axes_height_in
    height = style.bottom_in + style.top_in + (_UPPER + _LOWER + _BETWEEN) * unit
    figure = Figure(figsize=(style.width_in, height))
    left = style.left_in / style.width_in
    width = (style.width_in - style.left_in - style.right_in) / style.width_in
    low = style.bottom_in / height
    lower = figure.add_axes((left, low, width, _LOWER * unit / height))
    upper = figure.add_axes((left, low + (_LOWER + _BETWEEN) * unit / height, width, _UPPER * unit / height))
    return figure, upper, lower


def _share_axis(axes: Axes) -> None:
    axes.set_ylim(0, 1.05)
    axes.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set_ylabel("SMs busy")
    axes.grid(axis="y")


def _curve(axes: Axes, style: Style, table: pd.DataFrame, column: str, text: str, colour: str) -> Line:
    x, y = table["splits"].to_numpy(float), table[column].to_numpy(float)
    marker = "o" if len(x) < 3 else None
    axes.plot(x, y, color=colour, lw=style.line_pt, marker=marker, ms=4, label=text or "_", zorder=3)
    return Line(text=text, colour=colour, x=x, y=y)


def _chosen(upper: Axes, lower: Axes, style: Style, chosen: int) -> Line:
    text = f"chosen: {counted(chosen, 'split')}"
    for axes in (upper, lower):
        axes.axvline(
            chosen,
            color=GREY,
            lw=style.thin_pt,
            ls=(0, (2, 1.5)),
            zorder=1,
            label=text if axes is upper else "_",
        )
    return Line(text=text, colour=GREY, x=np.full(2, float(chosen)), y=np.array(upper.get_ylim()), loose=True)


def _dots(axes: Axes, style: Style, row: pd.DataFrame, names: tuple[str, ...]) -> None:
    """A dot on every curve at the chosen count; none where the table does not reach it."""
    for name in names:
        axes.plot(
            row["splits"].to_numpy(float),
            row[name].to_numpy(float),
            ls="",
            marker="o",
            ms=_MARK_PT * style.line_pt,
            mfc="white",
            mec=BLACK,
            mew=style.thin_pt,
            zorder=4,
            clip_on=False,
        )


def _details(record: RunRecord) -> str:
    """The run in one line."""
    tile = f"tile {record.tiles}, " if record.tiles else ""
    return f"{record.algorithm}, {tile}{problem_text(record.problem)}, {record.profile}"
