"""Measurements beside predictions: on the 45° line, and against the rows of a tile.

All take the comparisons of `iosim.audit`, so any file of measurements in its columns can be drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from iosim.audit.compare import LARGE_ONLY, Comparison, summarise
from iosim.plots.axes import bytes_axis, decades, finish, new_figure, size_axis, title
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import CYCLE, GREY, LIGHT, Style, styled
from iosim.units import format_bytes, format_rate, format_seconds

COLUMN_WORDS = {
    "sm_read_bytes": "bytes read into the SMs",
    "sm_write_bytes": "bytes written by the SMs",
    "l2_read_bytes": "bytes read at the L2 slices",
    "l2_fabric_bytes": "bytes between the L2's partitions",
    "hbm_read_bytes": "bytes read from HBM",
    "hbm_write_bytes": "bytes written to HBM",
    "special_ops": "special-function results",
    "profiled_time_s": "time of one run",
    "median_time_s": "time of each of many runs",
}
BAND = 0.1
"""Half the width of the band around the 45° line, as a share."""
_UPPER, _LOWER, _BETWEEN = 0.95, 0.34, 0.07  # heights of the panels, in heights of the style's axes
MOST_CURVES = 8
COLOURS = (*CYCLE, "#7A4B00", "#7B3FA0", "#8A8A00", "#5A5A5A")
"""Of implementations: as many as a file of our kernels and the libraries has."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")


def comparable(items: Sequence[Comparison], column: str) -> list[Comparison]:
    """Rows with both a prediction and a measurement that is large enough to count."""
    least = LARGE_ONLY.get(column, 0)
    return [i for i in items if i.error(column) is not None and i.row.measured.get(column, 0) >= least]


def predicted_against_measured(items: Sequence[Comparison], column: str, style: Style, *, gpu: str) -> Plot:
    """One point a row on equal axes, the line on which both agree, and a band of 10 %.

    `items`: those of `comparable`; at least one.
    """
    table = _points(items, column)
    names = list(dict.fromkeys(table["implementation"]))
    found = summarise(table["error"])
    unit = _unit(column)
    with styled(style):
        keys = _keys(names, table, style)
        figure, axes, lower = _panels(style, keys)
        low, high = decades([*table["predicted"], *table["measured"]])
        _log_axis(axes, "x", low, high, unit)
        _log_axis(axes, "y", low, high, unit)
        _log_axis(lower, "x", low, high, unit)
        axes.tick_params(axis="x", which="both", labelbottom=False)
        lower.set_xlabel(f"measured {unit.word}")
        axes.set_ylabel(f"predicted {unit.word}")
        _error_axis(lower, table["error"])
        ends = np.array([low, high])
        axes.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=LIGHT, alpha=0.45, lw=0, zorder=1)
        axes.plot(ends, ends, color=GREY, lw=style.thin_pt, zorder=2)
        for position, name in enumerate(names):
            for masked in (False, True):
                rows = table[(table["implementation"] == name) & ((table["mask"] != "none") == masked)]
                _scatter(axes, style, rows, "predicted", position, hollow=masked)
                _scatter(lower, style, rows, "error", position, hollow=masked)
        mean, worst = found.mean_abs_error or 0.0, found.max_abs_error or 0.0
        details = f"{gpu}: {len(table)} kernels, off by {mean:.1%} on average, {worst:.1%} at worst"
        title(axes, style, f"Predicted and measured: {COLUMN_WORDS.get(column, column)}", details)
    return Plot(
        name=f"measured_{column}",
        figure=figure,
        data=table,
        caption=(
            f"Predicted against measured {COLUMN_WORDS.get(column, column)} on {gpu}, {len(table)} kernels; both axes "
            "logarithmic and equal. On the line both agree; the band is 10 % to both sides. Below: predicted / "
            "measured − 1. Filled: no mask; hollow: causal. "
            f" Off by {mean:.1%} on average, {worst:.1%} at worst."
        ),
        style=style,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    word: str
    bytes: bool = False
    time: bool = False

    def text(self, value: float) -> str:
        """A tick."""
        if self.bytes:
            return format_bytes(value, decimal=True)
        return format_seconds(value * (1 + 1e-9), digits=3) if self.time else format_rate(value, "op")


def _unit(column: str) -> _Unit:
    if column.endswith("_bytes"):
        return _Unit(word="bytes", bytes=True)
    return _Unit(word="time", time=True) if column.endswith("_s") else _Unit(word="operations")


def _points(items: Iterable[Comparison], column: str) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "case": i.row.case,
                "implementation": i.row.implementation,
                "kernel": i.row.kernel,
                **shape(i),
                "measured": i.row.measured[column],
                "predicted": i.predicted[column],
                "error": i.error(column),
            }
            for i in items
        ]
    )


def shape(item: Comparison) -> dict[str, Any]:
    """The sizes of a row as columns."""
    p, tile = item.row.problem, item.row.tile
    return {
        "batch": p.batch,
        "heads": p.heads,
        "kv_heads": p.kv_heads,
        "seq_q": p.seq_q,
        "seq_k": p.seq_k,
        "head_dim": p.head_dim,
        "mask": str(p.mask),
        "dtype": str(p.dtype_k),
        "tile": str(tile) if tile else "unknown",
    }


def _panels(style: Style, keys: Sequence[Line2D]) -> tuple[Figure, Axes, Axes]:
    """Predicted against measured above, the error below, the key under both."""
    widest = max(len(str(key.get_label())) for key in keys)
    room = int(72 * (style.width_in - 0.1) // (0.56 * style.small_pt * widest + 3.4 * style.small_pt))
    columns = max(1, min(room, len(keys)))
    unit, key_in = style.axes_height_in, (1.5 * -(-len(keys) // columns) + 0.7) * style.small_pt / 72
    height = style.bottom_in + style.top_in + (_UPPER + _LOWER + _BETWEEN) * unit + key_in
    figure = Figure(figsize=(style.width_in, height))
    left = style.left_in / style.width_in
    width = (style.width_in - style.left_in - style.right_in) / style.width_in
    low = style.bottom_in + key_in
    lower = figure.add_axes((left, low / height, width, _LOWER * unit / height))
    upper = figure.add_axes(
        (left, (low + (_LOWER + _BETWEEN) * unit) / height, width, _UPPER * unit / height)
    )
    figure.legend(
        handles=list(keys),
        loc="lower center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=columns,
        handlelength=1.2,
        columnspacing=1.2,
        labelspacing=0.35,
    )
    return figure, upper, lower


def _log_axis(axes: Axes, which: str, low: float, high: float, unit: _Unit) -> None:
    if which == "x":
        axes.set_xscale("log")
        axes.set_xlim(low, high)
    else:
        axes.set_yscale("log")
        axes.set_ylim(low, high)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, numticks=20))
    axis.set_major_formatter(FuncFormatter(lambda v, _: unit.text(v)))
    axis.set_minor_formatter(NullFormatter())
    axes.grid(which="major", axis="both")


def _error_axis(axes: Axes, errors: pd.Series) -> None:
    """Linear and even to both sides; at least the band."""
    most = max(BAND, math.ceil(float(errors.abs().max()) * 20 + 1e-9) / 20)
    axes.set_ylim(-1.08 * most, 1.08 * most)
    axes.yaxis.set_major_locator(FixedLocator([-most, 0, most]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:+.0%}".replace("-", "−") if v else "0"))
    axes.set_ylabel("error")
    axes.axhspan(-BAND, BAND, color=LIGHT, alpha=0.3, lw=0, zorder=1)
    axes.axhline(0, color=GREY, lw=0.8, zorder=2)


def _scatter(
    axes: Axes, style: Style, rows: pd.DataFrame, column: str, position: int, *, hollow: bool
) -> None:
    colour = COLOURS[position % len(COLOURS)]
    axes.plot(
        rows["measured"].to_numpy(float),
        rows[column].to_numpy(float),
        ls="none",
        marker=MARKERS[position % len(MARKERS)],
        ms=style.small_pt * 0.62,
        mec=colour,
        mfc="none" if hollow else colour,
        mew=style.thin_pt * 0.9,
        alpha=0.85,
        zorder=3,
    )


def _keys(names: Sequence[str], table: pd.DataFrame, style: Style) -> list[Line2D]:
    keys = [
        Line2D(
            [],
            [],
            ls="none",
            marker=MARKERS[k % len(MARKERS)],
            ms=style.small_pt * 0.62,
            color=COLOURS[k % len(COLOURS)],
            label=f"{name} ({int((table['implementation'] == name).sum())})",
        )
        for k, name in enumerate(names)
    ]
    if (table["mask"] != "none").any():
        keys.append(
            Line2D(
                [],
                [],
                ls="none",
                marker="o",
                ms=style.small_pt * 0.62,
                mec=GREY,
                mfc="none",
                label="hollow: masked",
            )
        )
    return keys


def bytes_by_block_rows(
    items: Sequence[Comparison], style: Style, *, gpu: str, column: str = "sm_read_bytes"
) -> Plot | None:
    """Measured bytes against Br with the prediction drawn through, a curve a kernel and problem, a marker shape a Bc.

    None where no problem was measured with two different Br. Both axes logarithmic, so bytes as 1/Br fall straight.
    """
    table = _by_tile(items, column)
    if table.empty:
        return None
    counts = table.groupby("curve", sort=False)["measured"].agg(["size", "max"])
    shown = list(counts.sort_values(["size", "max"], ascending=False).index[:MOST_CURVES])
    widths = sorted(set(table["cols"]))
    worst = float((table["predicted"] / table["measured"] - 1).abs().max())
    drawn = table[table["curve"].isin(shown)]
    with styled(style):
        figure, axes = new_figure(style)
        ends = [float(drawn["rows"].min()), float(drawn["rows"].max())]
        size_axis(axes, ends, "Br: rows of Q in a tile")
        axes.set_xlim(ends[0] / 1.15, ends[1] * 1.15)
        bytes_axis(axes, [*drawn["measured"], *drawn["predicted"]], COLUMN_WORDS.get(column, column))
        lines = [
            _tile_curve(
                axes, style, str(name), drawn[drawn["curve"] == name], COLOURS[k % len(COLOURS)], widths
            )
            for k, name in enumerate(shown)
        ]
        x = np.array(ends)
        y = float(drawn["predicted"].max()) * 1.35 * ends[0] / x
        axes.plot(x, y, color=GREY, ls=(0, (1, 1.5)), lw=style.thin_pt, label="falls as 1/Br")
        lines.append(Line(text="falls as 1/Br", colour=GREY, x=x, y=y, loose=True))
        for k, cols in enumerate(widths):
            axes.plot([], [], ls="none", marker=MARKERS[k % len(MARKERS)], color=GREY, label=f"Bc = {cols}")
        details = f"{gpu}; points measured, lines predicted, at most {worst:.2%} apart"
        finish(
            axes,
            style,
            lines,
            "Bytes against the rows of a tile",
            details,
            [f"Bc = {cols}" for cols in widths],
        )
    return Plot(
        name=f"{column}_by_block_rows",
        figure=figure,
        data=table,
        caption=(
            f"{COLUMN_WORDS.get(column, column).capitalize()} against Br on {gpu}; both axes logarithmic. Points are "
            f"measured, lines predicted, at most {worst:.2%} apart; dotted: what falls as 1/Br."
            + ("" if len(counts) == len(shown) else f" Of {len(counts)} problems {len(shown)} are drawn.")
        ),
        style=style,
    )


def _by_tile(items: Sequence[Comparison], column: str) -> pd.DataFrame:
    """Rows of problems that were measured with two different Br or more, in order of Br."""
    rows = [
        {"curve": _curve_text(i), "implementation": i.row.implementation, "case": i.row.case, **shape(i)}
        | {"rows": i.row.tile.rows, "cols": i.row.tile.cols}
        | {"measured": i.row.measured[column], "predicted": i.predicted[column]}
        for i in comparable(items, column)
        if i.row.tile is not None
    ]
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    table = table.drop_duplicates(["curve", "rows", "cols"])
    several = table.groupby("curve")["rows"].transform("nunique") > 1
    return table[several].sort_values(["curve", "rows", "cols"]).reset_index(drop=True)


def _tile_curve(
    axes: Axes, style: Style, name: str, own: pd.DataFrame, colour: str, widths: Sequence[int]
) -> Line:
    mean = own.groupby("rows")["predicted"].mean()
    x, y = np.asarray(mean.index, dtype=float), mean.to_numpy(float)
    axes.plot(x, y, color=colour, lw=style.thin_pt, label=name, zorder=2)
    for cols, points in own.groupby("cols"):
        axes.plot(
            points["rows"].to_numpy(float),
            points["measured"].to_numpy(float),
            ls="none",
            marker=MARKERS[list(widths).index(int(str(cols))) % len(MARKERS)],
            ms=style.small_pt * 0.7,
            mec=colour,
            mfc="none",
            zorder=3,
        )
    return Line(text=name, colour=colour, x=x, y=y)


def _curve_text(item: Comparison) -> str:
    p = item.row.problem
    mask = "" if str(p.mask) == "none" else f" {p.mask}"
    return f"{item.row.implementation}, {p.batch * p.heads}×{p.seq_q:,}, d {p.head_dim}{mask}"
