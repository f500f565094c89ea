"""The figures of the bound: bytes against M, N and d, and the gap, from the tables of a study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from iosim.plots.axes import Mark, bytes_axis, finish, mark, new_figure, regimes, size_axis, sram_axis
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import GREY, Style, colour_of, styled
from iosim.problem import AttentionProblem
from iosim.scaling import BoundStudy
from iosim.units import format_bytes

REGIMES = ("M < d²", "d² ≤ M ≤ Nd", "M > Nd")
BYTES_LABEL = "bytes moved"
PAPER_TILES = "dotted: the paper's tiles"
_BOUND_DASHES = {
    "compulsory": (0, (1, 1.2)),
    "fused bound": "-",
    "matmul bound": (0, (6, 2)),
    "score round trip": (0, (6, 1.6, 1.2, 1.6)),
}
_BOUND_GREY = "#8A8A8A"
_SHAPE = "#A08A3C"


def traffic_by_sram(study: BoundStudy, style: Style, *, elements: bool = False) -> Plot:
    """Bytes of each algorithm against M, the best schedule at each M, bounds and shapes; regimes shaded."""
    p = study.problem
    size = p.dtype_k.itemsize
    unit = size if elements else 1
    with styled(style):
        figure, axes = new_figure(style)
        sram_axis(axes, itemsize=size if elements else None)
        bytes_axis(axes, [*study.by_sram["sm_bytes"], *study.bounds["bytes"]], BYTES_LABEL)
        _regimes(axes, style, p, unit)
        lines = [
            *_best(axes, style, study.best, unit),
            *_algorithms(axes, style, study.by_sram, "sram_bytes", "sm_bytes", unit),
            *_bounds(axes, style, study.bounds, unit),
            *_shapes(axes, style, study.shapes, unit),
            mark(axes, style, _sram_mark(study, unit)),
        ]
        finish(axes, style, lines, "Bytes moved against on-chip memory", _about(study), _notes(axes, style))
    return Plot(
        name="traffic_by_sram",
        figure=figure,
        data=_with_lines(study),
        caption=(
            "Bytes between slow memory and the SMs against M, the bytes one thread block may hold; both axes "
            "logarithmic. Solid: best tiles. Dotted in the same colour: the paper's tiles. Wide pale line: the best "
            "schedule at each M. Grey: lower bounds, each of its own class only: the fused bound of what keeps the "
            "scores on chip (flash1, flash2), the matmul bound and the score round trip of what writes them out "
            "(standard, small_cache), so flash2 may well run below those two. Dashed, shape only: Θ statements, whose "
            "constant is unknown. Standard attention is counted as if each matmul read its operands once; where the "
            "matmul bound rules that out, below M = 4d², it is drawn thin."
            + _small_cache_text(study)
            + _with(study)
        ),
        style=style,
    )


def gap_by_sram(study: BoundStudy, style: Style, *, elements: bool = False) -> Plot:
    """Bytes over the strongest valid bound of each algorithm, against M."""
    p = study.problem
    size = p.dtype_k.itemsize
    unit = size if elements else 1
    table = study.by_sram[study.by_sram["attainable"]]
    with styled(style):
        figure, axes = new_figure(style)
        sram_axis(axes, itemsize=size if elements else None)
        top = float(table["gap"].max())
        axes.set_ylim(0, max(8, 2 * np.ceil(top / 2)))
        axes.set_ylabel("bytes / strongest valid bound")
        axes.grid(axis="y")
        _regimes(axes, style, p, unit)
        axes.axhline(1, color=_BOUND_GREY, lw=style.thin_pt)
        floor = np.array(axes.get_xlim())
        lines = _algorithms(axes, style, table, "sram_bytes", "gap", unit)
        lines.append(Line(text="the bound", colour=GREY, x=floor, y=np.ones(2)))
        lines.append(mark(axes, style, _sram_mark(study, unit)))
        finish(axes, style, lines, "Gap to the lower bound", _about(study), _notes(axes, style))
    return Plot(
        name="gap_by_sram",
        figure=figure,
        data=_plain(table, "count"),
        caption=(
            "How many times the strongest valid lower bound each algorithm moves, against M. Solid: best tiles; "
            "dotted: the paper's tiles. Each algorithm is held to the bounds of its own class." + _with(study)
        ),
        style=style,
    )


def traffic_by_seq(study: BoundStudy, style: Style) -> Plot:
    """Bytes against N at the GPU's M."""
    return _by_size(
        study, style, study.by_seq, "seq_q", "N: queries and keys", "traffic_by_seq", "sequence length"
    )


def traffic_by_head_dim(study: BoundStudy, style: Style) -> Plot:
    """Bytes against d at the GPU's M."""
    return _by_size(
        study,
        style,
        study.by_head_dim,
        "head_dim",
        "d: head dimension",
        "traffic_by_head_dim",
        "head dimension",
    )


def _by_size(
    study: BoundStudy, style: Style, table: pd.DataFrame, axis: str, label: str, name: str, word: str
) -> Plot:
    p = study.problem
    floor = table.drop_duplicates(axis).sort_values(axis)
    where = f"{study.profile}, M = {format_bytes(study.sram_bytes)}"
    lengths = study.batch.seq_lens
    fixed = (
        f"d = {p.head_dim}"
        if axis == "seq_q"
        else _length_text(p, lengths)
        if lengths
        else f"N = {p.seq_q:,}"
    )
    with styled(style):
        figure, axes = new_figure(style)
        size_axis(axes, table[axis].astype(float).tolist(), label)
        bytes_axis(axes, [*table["sm_bytes"], *table["compulsory_bytes"]], BYTES_LABEL)
        lines = _algorithms(axes, style, table, axis, "sm_bytes", 1)
        x, y = _floats(floor[axis]), _floats(floor["compulsory_bytes"])
        axes.plot(
            x, y, color=_BOUND_GREY, ls=_BOUND_DASHES["compulsory"], lw=style.line_pt, label="compulsory"
        )
        lines.append(Line(text="compulsory", colour=GREY, x=x, y=y))
        lines += _class_bounds(axes, style, table, axis)
        if axis == "head_dim":
            edge = float(np.sqrt(study.sram_bytes / p.dtype_k.itemsize))
            lines.append(mark(axes, style, Mark(text="M = d²", x=edge)))
        more = [str(p.dtype_k), *([str(p.mask)] if p.mask.is_causal else []), where]
        more += [f"H = {p.heads}"] if p.heads > 1 else []
        more += [study.short_options_text] if study.options else []
        details = ", ".join([fixed, *more])
        finish(axes, style, lines, f"Bytes moved against {word}", details, _notes(axes, style))
    return Plot(
        name=name,
        figure=figure,
        data=_plain(table, "count"),
        caption=(
            f"Bytes between slow memory and the SMs against the {word} ({fixed}, {p.dtype_k}, {where}). "
            "Solid: best tiles; dotted: the paper's tiles. Grey: the compulsory bytes, and the strongest valid lower "
            "bound of each class: scores kept on chip (flash1, flash2), scores written out (standard)."
            + _with(study)
        ),
        style=style,
    )


def problem_text(p: AttentionProblem, seq_lens: Sequence[int] = ()) -> str:
    """The problem in a heading: only what is not the default; `seq_lens`: the lengths of a ragged batch."""
    parts = [f"B = {p.batch}"] if p.batch > 1 and not seq_lens else []
    parts += [f"H = {p.heads}" + (f":{p.kv_heads}" if p.kv_heads != p.heads else "")] if p.heads > 1 else []
    parts += [_length_text(p, seq_lens), f"d = {p.head_dim}"]
    parts += [str(p.dtype_k)] + ([str(p.mask)] if p.mask.is_causal else [])
    return ", ".join(parts)


def _length_text(p: AttentionProblem, seq_lens: Sequence[int]) -> str:
    if seq_lens:
        return f"{len(seq_lens):,} sequences of {min(seq_lens):,} to {max(seq_lens):,}"
    return f"N = {p.seq_q:,}" + (f" × {p.seq_k:,}" if p.seq_k != p.seq_q else "")


def _about(study: BoundStudy) -> str:
    """The problem, and the options where they are not the defaults."""
    options = [study.short_options_text] if study.options else []
    return ", ".join([problem_text(study.problem, study.batch.seq_lens), *options])


def _with(study: BoundStudy) -> str:
    """The end of a caption."""
    lengths = study.batch.seq_lens
    ragged = f" A batch of {len(lengths)} sequences, {sum(lengths):,} tokens." if lengths else ""
    return ragged + (f" Counted with {study.options_text}." if study.options else "")


def _small_cache_text(study: BoundStudy) -> str:
    if "small_cache" not in set(study.by_sram["algorithm"]):
        return ""
    return (
        " small_cache is drawn up to M = 4d² only: it is made for M < d², and its score passes never shrink."
    )


def _floats(values: pd.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(values.astype(float))


def _regimes(axes: Axes, style: Style, p: AttentionProblem, unit: int) -> None:
    size = p.dtype_k.itemsize
    edges = [p.head_dim**2 * size / unit, p.seq_k * p.head_dim * size / unit]
    regimes(axes, style, edges, REGIMES if edges[0] < edges[1] else ("", "", ""))


def _sram_mark(study: BoundStudy, unit: int) -> Mark:
    shown = format_bytes(study.sram_bytes) if unit == 1 else f"{study.sram_bytes // unit:,} elements"
    return Mark(text=f"{study.profile}: {shown}", x=study.sram_bytes / unit)


def _notes(axes: Axes, style: Style) -> list[str]:
    """What the dotted curves are, as a line of the legend."""
    axes.plot([], [], color=GREY, lw=style.thin_pt * 1.2, ls=(0, (1, 1.5)), label=PAPER_TILES)
    return [PAPER_TILES]


def _algorithms(axes: Axes, style: Style, table: pd.DataFrame, x: str, y: str, unit: int) -> list[Line]:
    out = []
    searched = set(table.loc[table["tiles"] == "best", "algorithm"])
    for position, ((algorithm, tiles), rows) in enumerate(table.groupby(["algorithm", "tiles"], sort=False)):
        rows = rows.sort_values(x)
        xs, ys = _floats(rows[x]) / unit, _floats(rows[y])
        colour = colour_of(str(algorithm), position)
        best = tiles == "best"
        real = np.asarray(rows["attainable"].astype(bool))
        label = str(algorithm) if best or algorithm not in searched else ""
        if best and not real.all():
            axes.plot(xs, ys, color=colour, lw=style.thin_pt * 0.8)
            axes.plot(np.where(real, xs, np.nan), ys, color=colour, lw=style.line_pt, label=label, zorder=3)
        else:
            axes.plot(
                xs,
                ys,
                color=colour,
                lw=style.line_pt if best else style.thin_pt * 1.2,
                ls="-" if best else (0, (1, 1.5)),
                label=label or "_",
                zorder=3,
            )
        out.append(Line(text=label, colour=colour, x=xs, y=ys))
    return out


def _best(axes: Axes, style: Style, best: pd.DataFrame, unit: int) -> list[Line]:
    x, y = _floats(best["sram_bytes"]) / unit, _floats(best["sm_bytes"])
    axes.plot(x, y, color="#F2D9A8", lw=style.line_pt * 3.4, label="best schedule", zorder=2)
    return [Line(text="best schedule", colour="#9A6B00", x=x, y=y, loose=True)]


def _bounds(axes: Axes, style: Style, bounds: pd.DataFrame, unit: int) -> list[Line]:
    out = []
    low = axes.get_ylim()[0]
    for name, rows in bounds.groupby("bound", sort=False):
        x, y = _floats(rows["sram_bytes"]) / unit, _floats(rows["bytes"])
        axes.plot(
            x, y, color=_BOUND_GREY, ls=_BOUND_DASHES[str(name)], lw=style.thin_pt * 1.2, label=str(name)
        )
        seen = y >= low
        out.append(Line(text=str(name), colour=GREY, x=x[seen], y=y[seen]))
    return out


def _class_bounds(axes: Axes, style: Style, table: pd.DataFrame, axis: str) -> list[Line]:
    """The strongest bound of each class at each point, off the rows of an algorithm of that class."""
    out = []
    for algorithm, text, dashes in (
        ("flash2", "bound, scores on chip", _BOUND_DASHES["fused bound"]),
        ("standard", "bound, scores written", _BOUND_DASHES["score round trip"]),
    ):
        rows = table[(table["algorithm"] == algorithm) & (table["tiles"] == "best")].sort_values(axis)
        if not len(rows):  # under a block mask each tile has a bound of its own
            continue
        x, y = _floats(rows[axis]), _floats(rows["lower_bound_bytes"])
        axes.plot(x, y, color=_BOUND_GREY, ls=dashes, lw=style.thin_pt * 1.2, label=text)
        out.append(Line(text=text, colour=GREY, x=x, y=y))
    return out


def _shapes(axes: Axes, style: Style, shapes: pd.DataFrame, unit: int) -> list[Line]:
    out = []
    low = axes.get_ylim()[0]
    for name, rows in shapes.groupby("shape", sort=False):
        x, y = _floats(rows["sram_bytes"]) / unit, _floats(rows["bytes"])
        text = f"{name}, shape only"
        axes.plot(x, y, color=_SHAPE, ls=(0, (3, 2)), lw=style.thin_pt, label=text)
        seen = y >= low
        out.append(Line(text=text, colour="#7A6722", x=x[seen], y=y[seen]))
    return out


def _plain(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    out = table.copy()
    out.insert(0, "kind", kind)
    return out


def _with_lines(study: BoundStudy) -> pd.DataFrame:
    """Counts, bounds and shapes in the columns of the counts, so that one file holds all that is drawn."""
    parts: Sequence[pd.DataFrame] = (
        study.bounds.rename(columns={"bound": "algorithm", "bytes": "sm_bytes"}).assign(kind="bound"),
        study.shapes.rename(columns={"shape": "algorithm", "bytes": "sm_bytes"}).assign(kind="shape only"),
    )
    kept = ["kind", "algorithm", "sram_bytes", "sm_bytes"]
    filled = [_plain(study.by_sram, "count"), *(part[kept] for part in parts if len(part))]
    return pd.concat(filled, ignore_index=True)


BOUND_FIGURES = (traffic_by_sram, traffic_by_seq, traffic_by_head_dim, gap_by_sram)


def bound_figures(study: BoundStudy) -> tuple[Callable[[BoundStudy, Style], Plot], ...]:
    """The figures that a study has: none against N for a ragged batch."""
    return tuple(draw for draw in BOUND_FIGURES if draw is not traffic_by_seq or len(study.by_seq))
