"""Measured times against the length, with what was predicted and the least that any kernel needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from iosim.audit.compare import DECODE_QUERIES, Comparison
from iosim.plots.axes import finish, new_figure, size_axis
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.measured import COLOURS, shape
from iosim.plots.style import GREY, Style, styled
from iosim.plots.time import time_axis

LEAST_LENGTHS = 3
"""Lengths that make a curve against the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """Measured cases that differ in their length alone, at a fixed number of tokens or a fixed batch."""

    heads: int
    kv_heads: int
    head_dim: int
    mask: str
    dtype: str
    batch: int | None
    tokens: int | None

    @property
    def text(self) -> str:
        """In a heading."""
        heads = f"H = {self.heads}" + (f":{self.kv_heads}" if self.kv_heads != self.heads else "")
        amount = f"{self.tokens:,} tokens" if self.tokens else f"B = {self.batch}"
        masked = "" if self.mask == "none" else f", {self.mask}"
        return f"{amount}, {heads}, d = {self.head_dim}, {self.dtype}{masked}"


def case_times(items: Sequence[Comparison]) -> pd.DataFrame:
    """One row an implementation and problem: measured seconds, of all its kernels together, and predicted ones.

    The profiled time where every kernel has one, otherwise the median of plain runs; a prediction only where every
    kernel has one. Of several tiles the fastest.
    """
    groups: dict[tuple[Any, ...], list[Comparison]] = {}
    for item in items:
        key = (item.row.implementation, item.row.case, str(item.row.tile or ""))
        groups.setdefault(key, []).append(item)
    rows = []
    for (name, case, _), group in groups.items():
        column = (
            "profiled_time_s" if all("profiled_time_s" in i.row.measured for i in group) else "median_time_s"
        )
        measured = [i.row.measured.get(column) for i in group]
        if not all(measured):
            continue
        predicted = [i.predicted.get(column) for i in group]
        whole = math.fsum(p for p in predicted if p) if all(predicted) else None
        spent = (
            math.fsum(m for m in measured if m)
            if column == "profiled_time_s"
            else max(m for m in measured if m)
        )
        rows.append(
            {"implementation": name, "case": case, **shape(group[0])}
            | {
                "measured_s": spent,
                "predicted_s": whole if column == "profiled_time_s" or len(group) == 1 else None,
            }
        )
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    same = ["implementation", "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "mask", "dtype"]
    return table.sort_values("measured_s").drop_duplicates(same).sort_index()


def times_by_seq(
    items: Sequence[Comparison], style: Style, *, gpu: str, bounds: Mapping[str, float] | None = None
) -> list[Plot]:
    """Measured time against the length, a figure for each family of cases that differ in the length alone.

    A curve an implementation, the prediction dotted in its colour. `bounds`: lower bound in seconds by case.
    """
    table = case_times([i for i in items if i.row.problem.seq_q >= DECODE_QUERIES])
    if table.empty:
        return []
    if bounds:
        table["bound_s"] = table["case"].map(bounds)
    return [
        _times_of_family(family, rows, style, gpu, number)
        for number, (family, rows) in enumerate(_families(table).items(), start=1)
    ]


def _families(table: pd.DataFrame) -> dict[_Family, pd.DataFrame]:
    """Families with enough lengths, the larger first; a case stands in one of them only."""
    square = table[table["seq_q"] == table["seq_k"]]
    square = square.assign(tokens=square["batch"] * square["seq_q"])
    found: dict[_Family, pd.DataFrame] = {}
    used: set[Any] = set()
    shapes = ["heads", "kv_heads", "head_dim", "mask", "dtype"]
    for fixed in ("tokens", "batch"):
        groups = square[~square.index.isin(list(used))].groupby([*shapes, fixed], sort=True)
        for _, rows in groups:
            if rows["seq_q"].nunique() < LEAST_LENGTHS:
                continue
            first = rows.iloc[0]
            family = _Family(
                heads=int(first["heads"]),
                kv_heads=int(first["kv_heads"]),
                head_dim=int(first["head_dim"]),
                mask=str(first["mask"]),
                dtype=str(first["dtype"]),
                batch=int(first["batch"]) if fixed == "batch" else None,
                tokens=int(first["tokens"]) if fixed == "tokens" else None,
            )
            found[family] = rows
            used |= set(rows.index)
    return found


def _times_of_family(family: _Family, rows: pd.DataFrame, style: Style, gpu: str, number: int) -> Plot:
    names = list(dict.fromkeys(rows["implementation"]))
    with styled(style):
        figure, axes = new_figure(style)
        size_axis(axes, sorted(rows["seq_q"].astype(float)), "N: queries and keys")
        every = [
            v for column in ("measured_s", "predicted_s", "bound_s") if column in rows for v in rows[column]
        ]
        time_axis(axes, [v for v in every if v == v and v is not None], "time of one run")
        lines = []
        for position, name in enumerate(names):
            own = rows[rows["implementation"] == name].sort_values("seq_q")
            colour = COLOURS[position % len(COLOURS)]
            x, y = own["seq_q"].to_numpy(float), own["measured_s"].to_numpy(float)
            axes.plot(x, y, color=colour, marker="o", ms=style.small_pt * 0.45, label=name, zorder=3)
            guess = own["predicted_s"].to_numpy(float)
            axes.plot(x, guess, color=colour, ls=(0, (1, 1.4)), lw=style.thin_pt, zorder=2)
            lines.append(Line(text=name, colour=colour, x=x, y=y))
            lines.append(Line(text="", colour=colour, x=x, y=guess))
        if "bound_s" in rows:
            floor = rows.groupby("seq_q")["bound_s"].min()
            x, y = np.asarray(floor.index, dtype=float), floor.to_numpy(float)
            axes.plot(x, y, color=GREY, ls=(0, (5, 2)), lw=style.line_pt, label="lower bound")
            lines.append(Line(text="lower bound", colour=GREY, x=x, y=y))
        finish(axes, style, lines, f"Measured time against length on {gpu}", family.text)
    return Plot(
        name=f"measured_time_{number}",
        figure=figure,
        data=rows.drop(columns="tokens"),
        caption=(
            f"Measured time of one run on {gpu} against the length ({family.text}); both axes logarithmic. Dotted: "
            "predicted. Dashed, grey: the lower bound."
        ),
        style=style,
    )
