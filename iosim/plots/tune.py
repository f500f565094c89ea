"""A search over tiles as a map: rows of Q by rows of K, the winner framed, what does not fit hatched by its reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from iosim.plots.axes import new_figure, title
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.style import BLACK, FAINT, GREY, VERMILLION, Style, styled
from iosim.tune import TuneRow, TuneTable
from iosim.units import format_bytes

HATCHES = {"registers": "////", "shared memory": "\\\\\\\\", "threads": "xxxx"}
"""Lines: a dot is drawn as a circle, and a map of dots is half a megabyte of SVG."""
SHADES = "Blues"
_LIGHTEST, _DARKEST = 0.06, 0.75  # of the shades: a number stays readable on each
_FAR = 2.0
"""Times the best at which the shades end."""
_RIGHT_IN = 0.15
_ROW_IN = 0.34  # height of a row of cells; a figure of few rows is low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """The best design of a tile, whatever its warps, stages and order; None in `best` where no design fits."""

    best: TuneRow | None
    reason: str
    score: float


def tune_map(found: TuneTable, style: Style) -> Plot:
    """Every tile of a search: its time or bytes over the best, the winner framed, reasons hatched."""
    cells = _cells(found)
    rows = sorted({r for r, _ in cells})
    cols = sorted({c for _, c in cells})
    best = min(c.score for c in cells.values() if c.best is not None)
    with styled(style):
        figure, axes = new_figure(style)
        _shrink(figure, axes, style, len(rows))
        seen = _draw(axes, style, found, cells, rows, cols, best)
        _axes(axes, style, rows, cols)
        _legend(figure, style, seen)
        title(axes, style, _heading(found), _details(found))
    return Plot(
        name=f"tune_{found.objective}",
        figure=figure,
        data=_table(found, cells, best),
        caption=_caption(found, best),
        style=style,
    )


def _cells(found: TuneTable) -> dict[tuple[int, int], _Cell]:
    """Of each tile the best design that fits, or why none does (the reason of the design that asks least)."""
    out: dict[tuple[int, int], _Cell] = {}
    for row in found.rows:  # best first, then those that do not fit
        key = (row.design.tile.rows, row.design.tile.cols)
        score = found.score(row)
        if score is not None:
            if key not in out:
                out[key] = _Cell(best=row, reason="", score=score)
        else:
            known = out.get(key)
            if known is None:
                out[key] = _Cell(best=None, reason=row.fit.reason_class, score=math.inf)
    return out


def _shrink(figure: Figure, axes: Axes, style: Style, count: int) -> None:
    """As many rows of cells as there are, each of one height; room for the key below."""
    scale = style.axes_height_in / 4.1
    height_in = max(3, count) * _ROW_IN * scale * (1.6 if count < 8 else 1.0)
    key_in = 2.1 * style.small_pt / 72
    total = style.bottom_in + style.top_in + height_in + key_in
    figure.set_size_inches(style.width_in, total)
    width = style.width_in - style.left_in - _RIGHT_IN
    axes.set_position(
        (
            style.left_in / style.width_in,
            (style.bottom_in + key_in) / total,
            width / style.width_in,
            height_in / total,
        )
    )


def _draw(
    axes: Axes,
    style: Style,
    found: TuneTable,
    cells: dict[tuple[int, int], _Cell],
    rows: Sequence[int],
    cols: Sequence[int],
    best: float,
) -> list[str]:
    """Draw the cells; returns the reasons that occur."""
    shades = mpl.colormaps[SHADES]
    width_pt = 72 * (style.width_in - style.left_in - _RIGHT_IN) / len(cols)
    texts = width_pt > 2.5 * style.small_pt
    size = min(style.small_pt, width_pt / 2.6)
    seen: list[str] = []
    for (r, c), cell in cells.items():
        x, y = cols.index(c), rows.index(r)
        corner = (x - 0.5, y - 0.5)
        if cell.best is None:
            seen += [cell.reason] if cell.reason not in seen else []
            axes.add_patch(
                Rectangle(corner, 1, 1, fc="white", ec="#BDBDBD", lw=0, hatch=HATCHES[cell.reason], zorder=1)
            )
            continue
        ratio = cell.score / best
        dark = min(1.0, math.log(ratio) / math.log(_FAR))
        colour = shades(_DARKEST - (_DARKEST - _LIGHTEST) * dark)
        axes.add_patch(Rectangle(corner, 1, 1, fc=colour, ec="white", lw=style.thin_pt * 0.6, zorder=2))
        if texts or size > 4:
            ink = "white" if 0.3 * colour[0] + 0.59 * colour[1] + 0.11 * colour[2] < 0.55 else BLACK
            text = f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}"
            axes.text(x, y, text, ha="center", va="center", fontsize=size, color=ink, zorder=3)
    win = found.winner.design.tile
    x, y = cols.index(win.cols), rows.index(win.rows)
    axes.add_patch(
        Rectangle(
            (x - 0.5, y - 0.5), 1, 1, fc="none", ec=VERMILLION, lw=style.line_pt, zorder=4, clip_on=False
        )
    )
    return seen


def _axes(axes: Axes, style: Style, rows: Sequence[int], cols: Sequence[int]) -> None:
    width_pt = 72 * (style.width_in - style.left_in - _RIGHT_IN)
    every = math.ceil(2.6 * style.small_pt * len(cols) / width_pt)  # numbers of three digits, apart
    axes.set_xlim(-0.5, len(cols) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(
        np.arange(len(cols)), [str(c) if k % every == every - 1 else "" for k, c in enumerate(cols)]
    )
    axes.set_yticks(np.arange(len(rows)), [str(r) for r in rows])
    axes.tick_params(length=0)
    axes.set_xlabel("Bc: rows of K and V a tile")
    axes.set_ylabel("Br: rows of Q a tile")
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_facecolor(FAINT)


def _legend(figure: Figure, style: Style, reasons: Sequence[str]) -> None:
    frame = Patch(fc="none", ec=VERMILLION, lw=style.line_pt * 0.7, label="winner")
    handles = [frame] + [
        Patch(
            fc="white",
            ec=GREY,
            lw=0.4,
            hatch=HATCHES[r],
            label=f"{'does not fit' if style.titled else 'no fit'}: {r}",
        )
        for r in reasons
    ]
    height = figure.get_size_inches()[1]
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 0.03 / height),
        ncols=len(handles),
        handlelength=1.6,
        handleheight=1.1,
        columnspacing=1.4,
        borderpad=0.1,
    )


def _heading(found: TuneTable) -> str:
    if found.objective == "time":
        return "Predicted time of each tile over the best"
    return f"Bytes at {'HBM' if found.level == 'hbm' else 'the SMs'} of each tile over the best"


def _details(found: TuneTable) -> str:
    kind = f"{found.kernel_class}, {found.passes}" if found.passes != "fwd" else found.kernel_class
    return f"{kind}, {problem_text(found.problem)}, {found.profile}"


def _caption(found: TuneTable, best: float) -> str:
    value = f"{best * 1e6:,.1f} µs" if found.objective == "time" else format_bytes(best, decimal=True)
    what = "predicted time" if found.objective == "time" else "bytes"
    return (
        f"{_heading(found)} ({_details(found)}): the best warps, stages and order of each. The winner, framed: "
        f"{found.winner.design}, {value}. Darker is better; hatched tiles fit on no SM. Numbers: {what} over the best."
    )


def _table(found: TuneTable, cells: dict[tuple[int, int], _Cell], best: float) -> pd.DataFrame:
    """A row a tile."""
    rows = []
    for (r, c), cell in sorted(cells.items()):
        top = cell.best
        rows.append(
            {
                "rows": r,
                "cols": c,
                "fits": top is not None,
                "reason_class": cell.reason or None,
                "design": str(top.design) if top else None,
                "score": cell.score if top else None,
                "over_best": cell.score / best if top else None,
                "winner": top is found.winner,
            }
        )
    return pd.DataFrame(rows)
