"""Any two columns of a saved sweep as curves: what `iosim plot` draws."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from iosim.errors import UsageError
from iosim.plots.axes import SRAM_RANGE_BYTES, bytes_axis, decades, finish, new_figure, size_axis, sram_axis
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import ALGORITHM_COLOURS, CYCLE, DASHES, Style, styled
from iosim.plots.words import axis_text, listed, short_text, value_text

DERIVED = {"sm_bytes": ("sm_read_bytes", "sm_write_bytes")}
INPUTS: tuple[str, ...] = (
    "algorithm",
    "profile",
    "mask",
    "tiles",
    "batch",
    "heads",
    "kv_heads",
    "seq_q",
    "seq_k",
    "head_dim",
)
INPUTS += ("value_dim", "sram_bytes", "dtype_q", "dtype_k", "dtype_v", "dtype_o", "dtype_acc")
"""Columns that can tell rows apart, in the order in which they are asked."""

LOG_RATIO = 8
MAX_CURVES = 24
_COLOURS = (*CYCLE, "#7A4B00")  # eight; only more curves than that take dashes as well


def complete_by(
    table: pd.DataFrame,
    *,
    x: str,
    y: str = "sm_bytes",
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """`by`, and after it the inputs that vary too among rows with one x on one curve.

    A column that follows another (kv_heads the heads, M the GPU) is not added. `UsageError`: as `plot_sweep`.
    """
    kept = _kept(table, x, y, by, where or {})
    out = [column for column in by if column not in (x, y)]
    for column in INPUTS:
        if column not in kept or column in (x, y, *out):
            continue
        groups = kept.groupby([*out, x], dropna=False)
        if kept.duplicated([*out, x]).any() and (groups[column].nunique(dropna=False) > 1).any():
            out.append(column)
    return tuple(out)


def varying_axis(table: pd.DataFrame, where: Mapping[str, str] | None = None) -> str:
    """The x axis where nobody named one: N if it varies, else the first of M, d and the others that does."""
    kept = _matching(_with_derived(table), where or {})
    for column in ("seq_q", "sram_bytes", "head_dim", "seq_k", "batch", "heads", "kv_heads", "value_dim"):
        if column in kept and kept[column].nunique() > 1:
            return column
    return "seq_q"


def plot_sweep(
    table: pd.DataFrame,
    style: Style,
    *,
    x: str,
    y: str = "sm_bytes",
    by: Sequence[str] = ("algorithm",),
    where: Mapping[str, str] | None = None,
    name: str = "sweep",
) -> Plot:
    """Curves of `y` against `x`, one for each combination of the `by` columns, of the rows that match `where`.

    `UsageError`: an unknown or non-numeric column, no rows left, or several rows at one x of one curve (another
    column varies too: put it into `by` or fix it with `where`).
    """
    kept = _kept(table, x, y, by, where or {})
    by = [column for column in by if column not in (x, y)]
    _check_unique(kept, x, y, by)
    told = [column for column in by if kept[column].nunique(dropna=False) > 1] or by
    curves = [(key, rows.sort_values(x)) for key, rows in _groups(kept, told)]
    if len(curves) > MAX_CURVES:
        raise UsageError(
            f"plot: {len(curves)} curves are too many to tell apart; at most {MAX_CURVES}: use --where"
        )
    looks = _looks([key for key, _ in curves], told)
    heading = f"{short_text(y)} against {short_text(x)}"
    heading = heading[0].upper() + heading[1:]
    with styled(style):
        figure, axes = new_figure(style)
        _x_axis(axes, x, kept)
        _y_axis(axes, y, kept[y].astype(float).to_numpy())
        lines = [
            _curve(axes, ", ".join(map(value_text, told, key)), look, rows, x, y)
            for (key, rows), look in zip(curves, looks, strict=True)
        ]
        finish(axes, style, lines, heading, _fixed(kept, {x, y, *told}))
    columns = [*by, x, y]
    return Plot(
        name=name,
        figure=figure,
        data=kept[columns].sort_values(columns[:-1]).reset_index(drop=True),
        caption=f"{heading}{f', one curve for each {listed(told)}' if told else ''}.",
        style=style,
    )


def _kept(table: pd.DataFrame, x: str, y: str, by: Sequence[str], where: Mapping[str, str]) -> pd.DataFrame:
    """The rows that match and have numbers in both columns; `UsageError` where that is none, or a name is wrong."""
    table = _with_derived(table)
    for column in (x, y, *by, *where):
        _check_column(table, column)
    kept = _matching(table, where)
    kept = kept[
        pd.to_numeric(kept[x], errors="coerce").notna() & pd.to_numeric(kept[y], errors="coerce").notna()
    ]
    if kept.empty:
        raise UsageError(f"plot: no row has both {x} and {y}{' and matches --where' if where else ''}")
    return kept


def _with_derived(table: pd.DataFrame) -> pd.DataFrame:
    out = table.copy()
    for column, parts in DERIVED.items():
        if column not in out and set(parts) <= set(out.columns):
            out[column] = out[list(parts)].sum(axis=1, min_count=len(parts))
    return out


def _check_column(table: pd.DataFrame, column: str) -> None:
    if column not in table:
        near = difflib.get_close_matches(column, [str(c) for c in table.columns], n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(map(str, table.columns))}"
        raise UsageError(f"plot: the table has no column {column!r}{hint}")


def _matching(table: pd.DataFrame, where: Mapping[str, str]) -> pd.DataFrame:
    for column, value in where.items():
        chosen = table[table[column].astype(str).str.removesuffix(".0") == value]
        if chosen.empty:
            there = sorted({str(v).removesuffix(".0") for v in table[column].dropna()})
            raise UsageError(f"plot: no row has {column}={value}; it has: {', '.join(there[:12])}")
        table = chosen
    return table


def _check_unique(table: pd.DataFrame, x: str, y: str, by: Sequence[str]) -> None:
    doubles = table[table.duplicated([*by, x], keep=False)]
    if doubles.empty:
        return
    first = (
        doubles.groupby([*by, x], dropna=False).get_group(tuple(doubles.iloc[0][[*by, x]])) if by else doubles
    )
    varying = [
        c for c in INPUTS if c in first and c not in (x, y, *by) and first[c].nunique(dropna=False) > 1
    ]
    raise UsageError(
        f"plot: several rows have the same {x} on one curve; "
        + (f"what varies too: {', '.join(varying)}; " if varying else "")
        + "add it to --by, or fix it with --where COLUMN=VALUE"
    )


def _groups(table: pd.DataFrame, by: Sequence[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    if not by:
        return [((), table)]
    return [
        (key if isinstance(key, tuple) else (key,), rows)
        for key, rows in table.groupby(list(by), sort=False, dropna=False)
    ]


def _looks(keys: Sequence[tuple[Any, ...]], by: Sequence[str]) -> list[tuple[str, Any]]:
    """A colour for each curve, and dashes once the colours are used up; algorithms keep the colours of other figures.

    Only where nothing but the algorithm tells curves apart: beside another column its colour would mean two curves.
    """
    fixed = [ALGORITHM_COLOURS.get(str(key[0])) if list(by) == ["algorithm"] else None for key in keys]
    free = [colour for colour in _COLOURS if colour not in fixed] or list(_COLOURS)
    out: list[tuple[str, Any]] = []
    others = 0
    for colour in fixed:
        if colour is not None:
            out.append((colour, DASHES[0]))
            continue
        out.append((free[others % len(free)], DASHES[others // len(free) % len(DASHES)]))
        others += 1
    return out


def _curve(axes: Axes, text: str, look: tuple[str, Any], rows: pd.DataFrame, x: str, y: str) -> Line:
    colour, dash = look
    xs, ys = rows[x].astype(float).to_numpy(), rows[y].astype(float).to_numpy()
    marker = "o" if len(xs) < 3 else None
    axes.plot(xs, ys, color=colour, ls=dash, marker=marker, ms=4, label=text or "_", zorder=3)
    return Line(text=text, colour=colour, x=np.asarray(xs), y=np.asarray(ys))


def _x_axis(axes: Axes, name: str, table: pd.DataFrame) -> None:
    values = table[name].astype(float)
    low, high = float(values.min()), float(values.max())
    square = name == "seq_q" and "seq_k" in table and bool((table["seq_q"] == table["seq_k"]).all())
    label = "N: queries and keys" if square else axis_text(name)
    if name == "sram_bytes" and SRAM_RANGE_BYTES[0] <= low and high <= SRAM_RANGE_BYTES[1]:
        sram_axis(axes)
    elif low > 0 and high / low >= LOG_RATIO:
        size_axis(axes, [low, high], label)
    else:
        pad = (high - low) * 0.03 or 1
        axes.set_xlim(low - pad, high + pad)
        axes.set_xlabel(label)


def _y_axis(axes: Axes, name: str, values: np.ndarray[Any, Any]) -> None:
    low, high = float(values.min()), float(values.max())
    if name.endswith("_bytes") and low > 0:
        bytes_axis(axes, values, axis_text(name))
        return
    if low > 0 and high / low >= LOG_RATIO:
        axes.set_yscale("log")
        axes.set_ylim(*decades(values))
    else:
        axes.set_ylim(min(0.0, low), high * 1.08 if high > 0 else 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    axes.set_ylabel(axis_text(name))
    axes.grid(axis="y")


def _fixed(table: pd.DataFrame, shown: set[str]) -> str:
    """The inputs that are the same everywhere and worth saying."""
    parts = []
    for column in ("algorithm", "profile", "seq_q", "head_dim", "heads", "mask", "sram_bytes"):
        if column in table and column not in shown and table[column].nunique(dropna=False) == 1:
            parts.append(value_text(column, table[column].iloc[0]))
    return ", ".join(p for p in parts if p not in ("H = 1", "no mask"))
