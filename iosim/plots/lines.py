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

DERIVED = {"sm_bytes": ("sm_read_bytes", "sm_write_bytes")}
_NAMES = {
    "sm_bytes": "bytes moved",
    "sm_read_bytes": "bytes read",
    "sm_write_bytes": "bytes written",
    "seq_q": "N: queries",
    "seq_k": "keys",
    "head_dim": "d: head dimension",
}
_UNITS = {"_bytes": "bytes", "_flops": "flops", "_ops": "operations"}
LOG_RATIO = 8
MAX_CURVES = 24


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
    table = _with_derived(table)
    for column in (x, y, *by, *(where or {})):
        _check_column(table, column)
    kept = _matching(table, where or {})
    kept = kept[
        pd.to_numeric(kept[x], errors="coerce").notna() & pd.to_numeric(kept[y], errors="coerce").notna()
    ]
    if kept.empty:
        raise UsageError(f"plot: no row has both {x} and {y}{' and matches --where' if where else ''}")
    by = [column for column in by if column not in (x, y)]
    _check_unique(kept, x, y, by)
    curves = [(key, rows.sort_values(x)) for key, rows in _groups(kept, by)]
    looks = _looks([key for key, _ in curves])
    if len(curves) > MAX_CURVES:
        raise UsageError(
            f"plot: {len(curves)} curves are too many to tell apart; at most {MAX_CURVES}: use --where"
        )
    with styled(style):
        figure, axes = new_figure(style)
        _x_axis(axes, x, kept[x].astype(float).to_numpy())
        _y_axis(axes, y, kept[y].astype(float).to_numpy())
        lines = [_curve(axes, key, looks[key], rows, x, y) for key, rows in curves]
        finish(axes, style, lines, f"{y} against {x}", _fixed(kept, {x, y, *by}))
    columns = [*by, x, y]
    return Plot(
        name=name,
        figure=figure,
        data=kept[columns].sort_values(columns[:-1]).reset_index(drop=True),
        caption=f"{y} against {x}, one curve for each {', '.join(by) or 'table'}.",
        style=style,
    )


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
    inputs: tuple[str, ...] = (
        "algorithm",
        "profile",
        "mask",
        "tiles",
        "batch",
        "heads",
        "kv_heads",
        "seq_q",
        "seq_k",
    )
    inputs += ("head_dim", "value_dim", "sram_bytes")
    varying = [
        c for c in inputs if c in first and c not in (x, y, *by) and first[c].nunique(dropna=False) > 1
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


def _name(key: tuple[Any, ...]) -> str:
    return ", ".join(str(part).removesuffix(".0") for part in key)


def _looks(keys: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[str, Any]]:
    """Colour by the first part of the key, dashes by the rest; algorithms keep the colours they have elsewhere."""
    firsts = list(dict.fromkeys(key[:1] for key in keys))
    rests = list(dict.fromkeys(key[1:] for key in keys))
    free = [c for c in CYCLE if c not in {ALGORITHM_COLOURS.get(str(f[0])) for f in firsts if f}] or list(
        CYCLE
    )
    out = {}
    for key in keys:
        first = firsts.index(key[:1])
        colour = ALGORITHM_COLOURS.get(str(key[0])) if key else None
        dash = (rests.index(key[1:]) + first // len(free)) % len(DASHES)
        out[key] = (colour or free[first % len(free)], DASHES[dash])
    return out


def _curve(
    axes: Axes, key: tuple[Any, ...], look: tuple[str, Any], rows: pd.DataFrame, x: str, y: str
) -> Line:
    text, (colour, dash) = _name(key), look
    xs, ys = rows[x].astype(float).to_numpy(), rows[y].astype(float).to_numpy()
    marker = "o" if len(xs) < 3 else None
    axes.plot(xs, ys, color=colour, ls=dash, marker=marker, ms=4, label=text or "_", zorder=3)
    return Line(text=text, colour=colour, x=np.asarray(xs), y=np.asarray(ys))


def _x_axis(axes: Axes, name: str, values: np.ndarray[Any, Any]) -> None:
    low, high = float(values.min()), float(values.max())
    if name == "sram_bytes" and SRAM_RANGE_BYTES[0] <= low and high <= SRAM_RANGE_BYTES[1]:
        sram_axis(axes)
    elif low > 0 and high / low >= LOG_RATIO:
        size_axis(axes, [low, high], _label(name))
    else:
        pad = (high - low) * 0.03 or 1
        axes.set_xlim(low - pad, high + pad)
        axes.set_xlabel(_label(name))


def _y_axis(axes: Axes, name: str, values: np.ndarray[Any, Any]) -> None:
    low, high = float(values.min()), float(values.max())
    if name.endswith("_bytes") and low > 0:
        bytes_axis(axes, values, _label(name))
        return
    if low > 0 and high / low >= LOG_RATIO:
        axes.set_yscale("log")
        axes.set_ylim(*decades(values))
    else:
        axes.set_ylim(min(0.0, low), high * 1.08 if high > 0 else 1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    axes.set_ylabel(_label(name))
    axes.grid(axis="y")


def _label(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    for suffix, unit in _UNITS.items():
        if name.endswith(suffix):
            return f"{name.removesuffix(suffix)}, {unit}"
    return name


def _fixed(table: pd.DataFrame, shown: set[str]) -> str:
    """The inputs that are the same everywhere and worth saying."""
    names = {
        "profile": "",
        "seq_q": "N = ",
        "head_dim": "d = ",
        "heads": "H = ",
        "mask": "mask ",
        "sram_bytes": "M = ",
    }
    parts = []
    for column, text in names.items():
        if column in table and column not in shown and table[column].nunique(dropna=False) == 1:
            parts.append(f"{text}{str(table[column].iloc[0]).removesuffix('.0')}")
    return ", ".join(p for p in parts if p not in ("H = 1", "mask none"))
