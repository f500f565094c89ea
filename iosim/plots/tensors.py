"""Bytes by tensor, one stacked bar an algorithm, reads plain and writes hatched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from iosim.plots.axes import title
from iosim.plots.files import Plot
from iosim.plots.style import CYCLE, GREY, TENSOR_COLOURS, Style, styled
from iosim.results import RunRecord
from iosim.units import format_bytes

_DARK = {"#0072B2", "#000000", "#D55E00", "#009E73", "#6E6E6E"}
LEAST_BAR_PT = 1.0  # a thinner bar lies wholly under its white edges
BAR_IN = {"screen": 0.5, "paper": 0.27}


def tensor_table(records: Sequence[RunRecord]) -> pd.DataFrame:
    """One row a record and tensor: algorithm, tiles, tensor, read_bytes, write_bytes, total and compulsory bytes."""
    return pd.DataFrame(
        [
            {
                "algorithm": record.algorithm,
                "tiles": str(record.tiles) if record.tiles else "",
                "tensor": item.tensor,
                "read_bytes": item.read_bytes,
                "write_bytes": item.write_bytes,
                "sm_bytes": record.traffic.total_bytes,
                "compulsory_bytes": record.theory.compulsory_bytes,
            }
            for record in records
            for item in record.traffic_by_tensor
        ]
    )


def bytes_by_tensor(records: Sequence[RunRecord], style: Style, details: str) -> Plot:
    """A bar for each record, in the order given; the compulsory bytes as a line across."""
    table = tensor_table(records)
    with styled(style):
        height = style.bottom_in + style.top_in + BAR_IN[style.name] * len(records) + 0.05
        figure = Figure(figsize=(style.width_in, height))
        left = style.left_in * (1.75 if style.titled else 1.35)
        axes = figure.add_axes(
            (
                left / style.width_in,
                style.bottom_in / height,
                (style.width_in - left - style.right_in) / style.width_in,
                1 - (style.bottom_in + style.top_in) / height,
            )
        )
        most = max(r.traffic.total_bytes for r in records)
        axes.set_xlim(0, _nice_above(most * 1.04))
        for position, record in enumerate(records):
            _bar(axes, style, position, record)
        compulsory = max(r.theory.compulsory_bytes for r in records)
        axes.axvline(compulsory, color=GREY, ls=(0, (1, 1.2)), lw=style.thin_pt)
        axes.text(
            compulsory,
            1.01,
            f"compulsory {format_bytes(compulsory, decimal=True)}",
            transform=axes.get_xaxis_transform(),
            fontsize=style.small_pt,
            color=GREY,
            va="bottom",
            ha="left",
        )
        names = [r.algorithm + (f"\n{r.tiles}" if r.tiles else "") for r in records]
        axes.set_yticks(range(len(records)), names)
        axes.set_ylim(len(records) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(6 if style.titled else 4, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_bytes(v, decimal=True)))
        axes.set_xlabel("bytes moved between slow memory and the SMs")
        axes.grid(axis="x")
        _legend(figure, style, _seen(table, axes, style), height)
        title(axes, style, "Bytes by tensor", details)
    return Plot(
        name="bytes_by_tensor",
        figure=figure,
        data=table,
        caption="Bytes of each tensor by algorithm: reads plain, writes hatched; re-reads included.",
        style=style,
    )


def _seen(table: pd.DataFrame, axes: Axes, style: Style) -> list[str]:
    """The tensors of which some bar is wide enough to be seen, in the order of the table."""
    low, high = axes.get_xlim()
    widest = table.groupby("tensor", sort=False)[["read_bytes", "write_bytes"]].max().max(axis=1)
    shown = widest * (_width_pt(style) / (high - low)) >= LEAST_BAR_PT
    return [str(name) for name in widest.index[shown]]


def _width_pt(style: Style) -> float:
    return 72 * (style.width_in - style.left_in * 1.75 - style.right_in)


def _nice_above(value: float) -> float:
    """The next of 1, 1.5, 2, 3, 4, 5, 6, 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _colour(tensor: str) -> str:
    return TENSOR_COLOURS.get(tensor) or CYCLE[sum(map(ord, tensor)) % len(CYCLE)]


def _bar(axes: Axes, style: Style, position: int, record: RunRecord) -> None:
    start = 0
    low, high = axes.get_xlim()
    width_pt = _width_pt(style)
    for item in record.traffic_by_tensor:
        begin = start
        for amount, hatch in ((item.read_bytes, ""), (item.write_bytes, "////")):
            if amount:
                axes.barh(
                    position,
                    amount,
                    left=start,
                    height=0.62,
                    color=_colour(item.tensor),
                    edgecolor="white",
                    linewidth=0.4,
                    hatch=hatch,
                )
                start += amount
        if (start - begin) / (high - low) * width_pt > 1.3 * style.small_pt * len(item.tensor):
            ink = "white" if _colour(item.tensor) in _DARK else "black"
            shown = {
                "boxstyle": "round,pad=0.12",
                "facecolor": _colour(item.tensor),
                "edgecolor": "none",
            }
            axes.text(
                begin + (start - begin) / 2,
                position,
                item.tensor,
                ha="center",
                va="center",
                color=ink,
                fontsize=style.small_pt,
                bbox=shown if item.write_bytes else None,
            )
    axes.annotate(
        format_bytes(record.traffic.total_bytes, decimal=True, digits=3),
        (start, position),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=style.small_pt,
        color="#333333",
        annotation_clip=False,
    )


def _legend(figure: Figure, style: Style, tensors: Sequence[str], height: float) -> None:
    handles = [Patch(facecolor=_colour(t), label=t) for t in tensors]
    handles.append(Patch(facecolor="#DDDDDD", edgecolor="white", hatch="////", label="writes"))
    extra = (2.0 * style.small_pt) / 72
    taller = height + extra
    axes = figure.axes[0]
    where = axes.get_position()
    figure.set_size_inches(style.width_in, taller)
    axes.set_position(
        (where.x0, (where.y0 * height + extra) / taller, where.width, where.height * height / taller)
    )
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 0.01 / taller),
        ncols=len(handles),
        handlelength=1.0,
        handleheight=0.9,
        columnspacing=0.9,
        handletextpad=0.4,
        borderpad=0.1,
    )
