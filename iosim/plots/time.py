"""Times against the length: the curves of kernels over the lower bound, and the terms of one kernel stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    PercentFormatter,
)

from iosim.plots.axes import decades, finish, new_figure, size_axis, title
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import (
    BLACK,
    BLUE,
    CYCLE,
    GREEN,
    GREY,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
    Style,
    styled,
)
from iosim.units import format_seconds

TERM_COLOURS: Mapping[str, str] = MappingProxyType(
    {
        "tensor": BLUE,
        "special functions": VERMILLION,
        "shared memory": GREEN,
        "vector": YELLOW,
        "masking": PURPLE,
        "edge": SKY,
        "waves and tail": ORANGE,
        "power": "#7A4B00",
        "HBM": BLACK,
        "side kernels": "#7F7F7F",
        "start": LIGHT,
        "compute": BLUE,
    }
)
_SPARE = ("#8FB9D6", "#E8A37A", "#85CDB8", "#F3CE85", "#E9CCDB", "#C2E2F5")
_BAR, _THIN = 0.46, 0.13  # widths of the stack and of the bars beside it, in steps of the axis
_BOUND_FILL = "#FFFFFF"


def time_axis(axes: Axes, values: Sequence[float], label: str) -> None:
    """A logarithmic y axis of times in whole decades."""
    axes.set_yscale("log")
    axes.set_ylim(*decades(values))
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=20))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: format_seconds(v * (1 + 1e-9), digits=3)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)
    axes.grid(axis="y", which="major")


def time_by_seq(table: pd.DataFrame, style: Style, *, gpu: str, details: str, square: bool = True) -> Plot:
    """Curves of predicted time, each with its range, and the lower bound below them.

    `table`: kernel, seq, seconds, low_s, high_s, bound_s, one row a kernel and length.
    """
    names = list(dict.fromkeys(table["kernel"]))
    with styled(style):
        figure, axes = new_figure(style)
        size_axis(axes, _ends(table["seq"]), "N: queries and keys" if square else "keys")
        time_axis(axes, [*table["seconds"], *table["bound_s"]], "time of one run")
        lines = []
        for position, name in enumerate(names):
            rows = table[table["kernel"] == name].sort_values("seq")
            x, y = _floats(rows["seq"]), _floats(rows["seconds"])
            colour = CYCLE[position % len(CYCLE)]
            axes.fill_between(
                x, _floats(rows["low_s"]), _floats(rows["high_s"]), color=colour, alpha=0.18, lw=0
            )
            axes.plot(x, y, color=colour, marker="o", ms=style.small_pt * 0.4, label=name, zorder=3)
            lines.append(Line(text=name, colour=colour, x=x, y=y))
        floor = table.groupby("seq")["bound_s"].min()
        x, y = np.asarray(floor.index, dtype=float), _floats(floor)
        axes.plot(x, y, color=GREY, ls=(0, (5, 2)), lw=style.line_pt, label="lower bound")
        lines.append(Line(text="lower bound", colour=GREY, x=x, y=y))
        finish(axes, style, lines, f"Time against length on {gpu}", details)
    return Plot(
        name="time_by_seq",
        figure=figure,
        data=table,
        caption=(
            f"Predicted time of one run on {gpu} against the length ({details}); both axes logarithmic, the band is "
            "the range of the prediction. Dashed: the lower bound, apart from it; no kernel beats it."
        ),
        style=style,
    )


def time_terms(
    terms: pd.DataFrame, table: pd.DataFrame, style: Style, *, gpu: str, details: str, square: bool = True
) -> Plot:
    """A bar a length, its terms stacked to the whole time; beside it the lower bound and what is hidden.

    `terms`: kernel, seq, term, seconds, hidden, of one kernel; `table`: as for `time_by_seq`.
    """
    kernel = str(terms["kernel"].iloc[0])
    rows = table[table["kernel"] == kernel].sort_values("seq").reset_index(drop=True)
    names = list(dict.fromkeys(terms.loc[~terms["hidden"], "term"]))
    colours = _colours(names)
    with styled(style):
        figure, axes = new_figure(style)
        axes.set_xlim(-0.6, max(len(rows), 4) - 0.4)
        axes.set_ylim(0, 1.0)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_ylabel("share of the time")
        axes.grid(axis="y")
        axes.xaxis.set_major_locator(FixedLocator(list(range(len(rows)))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([_length(n) for n in rows["seq"]])
        axes.set_xlabel("N: queries and keys" if square else "keys")
        for position, row in enumerate(rows.to_dict("records")):
            own = terms[terms["seq"] == row["seq"]]
            _stack(axes, style, position, own, row, colours)
        legend_below(axes, style, _keys(style, names, colours, hidden=bool(terms["hidden"].any())))
        title(axes, style, f"Where the time of {kernel} goes on {gpu}", details)
    return Plot(
        name="time_terms",
        figure=figure,
        data=terms.merge(
            rows[["seq", "seconds", "bound_s"]].rename(columns={"seconds": "total_s"}), on="seq"
        ),
        caption=(
            f"Terms of the predicted time of {kernel} on {gpu} against the length ({details}); the time stands above "
            "each bar. The white bar beside it is the lower bound, apart; the hatched one is what runs hidden behind "
            "the rest and adds nothing."
        ),
        style=style,
    )


def _stack(
    axes: Axes, style: Style, x: int, own: pd.DataFrame, row: Mapping[Any, Any], colours: Mapping[str, str]
) -> None:
    whole, base = float(row["seconds"]), 0.0
    for item in own[~own["hidden"]].to_dict("records"):
        share = float(item["seconds"]) / whole
        axes.bar(
            x - _THIN, share, _BAR, bottom=base, color=colours[item["term"]], ec="white", lw=0.4, zorder=3
        )
        base += share
    left = x - _THIN + _BAR / 2
    axes.bar(
        left + 0.75 * _THIN,
        float(row["bound_s"]) / whole,
        _THIN,
        color=_BOUND_FILL,
        ec=BLACK,
        lw=style.thin_pt,
        zorder=3,
    )
    behind = float(own.loc[own["hidden"], "seconds"].sum()) / whole
    if behind:
        axes.bar(
            left + 2 * _THIN, behind, _THIN, color="white", ec=GREY, hatch="////", lw=style.thin_pt, zorder=3
        )
    axes.text(
        x,
        1.012,
        format_seconds(whole, digits=3),
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="bottom",
        fontsize=style.small_pt,
        color=BLACK,
    )


def _keys(style: Style, names: Sequence[str], colours: Mapping[str, str], *, hidden: bool) -> list[Artist]:
    """Terms in the order of the stack, then what stands beside it."""
    keys: list[Artist] = [Patch(fc=colours[name], ec="white", label=name) for name in names]
    keys.append(Patch(fc=_BOUND_FILL, ec=BLACK, lw=style.thin_pt, label="lower bound"))
    if hidden:
        keys.append(Patch(fc="white", ec=GREY, hatch="////", lw=style.thin_pt, label="hidden"))
    return keys


def legend_below(axes: Axes, style: Style, keys: Sequence[Artist]) -> None:
    """A legend under the axes, for which the figure grows."""
    figure = axes.figure
    assert isinstance(figure, Figure)
    widest = max(len(str(h.get_label())) for h in keys)
    columns = max(
        1, int(72 * (style.width_in - 0.1) // (0.56 * style.small_pt * widest + 4.2 * style.small_pt))
    )
    columns = min(columns, len(keys))
    lines = -(-len(keys) // columns)
    extra = (lines * 1.5 * style.small_pt + 4) / 72
    height = style.bottom_in + style.axes_height_in + style.top_in + extra
    figure.set_size_inches(style.width_in, height)
    where = axes.get_position()
    axes.set_position(
        (where.x0, (style.bottom_in + extra) / height, where.width, style.axes_height_in / height)
    )
    figure.legend(
        handles=list(keys),
        loc="lower center",
        bbox_to_anchor=(0.5, 0.01 / height),
        ncols=columns,
        handlelength=1.4,
        columnspacing=1.2,
        labelspacing=0.35,
        borderpad=0.1,
    )


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A term's own colour; terms of several launches take spare ones."""
    spare = [name for name in names if name not in TERM_COLOURS]
    return {
        name: TERM_COLOURS.get(name) or (*CYCLE, *_SPARE)[spare.index(name) % (len(CYCLE) + len(_SPARE))]
        for name in names
    }


def _length(seq: int) -> str:
    return f"{seq // 1024}K" if seq >= 1024 and seq % 1024 == 0 else f"{seq:,}"


def _ends(seqs: pd.Series) -> list[float]:
    low, high = float(seqs.min()), float(seqs.max())
    return [low, high if high > low else 2 * low]


def _floats(values: pd.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(values.astype(float))
