"""Predicted against measured, where measurements are given: a figure a level, times, and every row, worst first."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from iosim.audit.compare import Comparison, ErrorSummary
from iosim.audit.predict import COLUMNS
from iosim.plots.measured import (
    COLUMN_WORDS,
    bytes_by_block_rows,
    comparable,
    predicted_against_measured,
    shape,
)
from iosim.plots.measured_roofline import measured_roofline
from iosim.plots.measured_time import times_by_seq
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.measured import Measured
from iosim.report.sections.facts import Facts

NOTE = (
    "Every row of the file was predicted from its shape, its launch and the facts of its kernel alone. Errors are "
    "predicted / measured − 1; the summary leaves out what is too small to measure, as `iosim audit` does."
)
MOST_ROWS = 40


def section(facts: Facts) -> Section:
    """For each GPU with rows: summary, figures, rows. No blocks where nothing was measured."""
    blocks: list[Block] = []
    for part in facts.parts:
        if part.measured is not None:
            blocks += [Heading(text=part.profile.name), *_of_gpu(facts, part.measured)]
    if blocks:
        blocks.insert(0, Text(text=NOTE, note=True))
    return Section(key="measured", title="Predicted against measured", nav="Measured", blocks=tuple(blocks))


def _of_gpu(facts: Facts, found: Measured) -> list[Block]:
    gpu, style = found.gpu, facts.style
    blocks: list[Block] = [
        *items([headline(found)] if headline(found) else []),
        Table(
            name=f"{gpu}_errors",
            frame=error_table(found),
            caption=f"Errors by kernel and column on {gpu}, {found.file}",
        ),
    ]
    for column in COLUMNS:
        kept = comparable(found.items, column)
        if kept:
            blocks.append(figure(gpu, predicted_against_measured(kept, column, style, gpu=gpu)))
    tiles = bytes_by_block_rows(found.items, style, gpu=gpu)
    blocks += [figure(gpu, tiles)] if tiles else []
    profile = next(part.profile for part in facts.parts if part.profile.name == gpu)
    blocks += [figure(gpu, plot) for plot in measured_roofline(found.items, profile, style)]
    blocks += [figure(gpu, plot) for plot in times_by_seq(found.items, style, gpu=gpu, bounds=found.bounds)]
    blocks.append(
        Table(
            name=f"{gpu}_measured",
            frame=row_table(found.items),
            caption=f"Every measured kernel on {gpu}, worst first",
            most=MOST_ROWS,
        )
    )
    return [*blocks, *items(found.faults, note=True)]


def headline(found: Measured) -> str:
    """How far off the model is at HBM and in time, over the fused kernels."""
    parts = [
        f"{COLUMN_WORDS.get(column, column)} {s.mean_abs_error:.1%} on average and {s.max_abs_error:.1%} at worst"
        for column in ("sm_read_bytes", "hbm_read_bytes", "profiled_time_s", "median_time_s")
        if (s := found.summary[column]).n and s.mean_abs_error is not None and s.max_abs_error is not None
    ]
    return f"Over the fused kernels the prediction is off by: {'; '.join(parts)}." if parts else ""


def error_table(found: Measured) -> pd.DataFrame:
    """One row a kernel and column."""
    groups = {"all fused": found.summary, **found.by_kernel}
    return pd.DataFrame(
        [
            {"kernel": name, "column": column, **_errors(s)}
            for name, columns in groups.items()
            for column, s in columns.items()
            if s.n
        ]
    )


def _errors(s: ErrorSummary) -> dict[str, float | int | None]:
    return {
        "rows": s.n,
        "mean": _rounded(s.mean_abs_error),
        "p90": _rounded(s.p90_abs_error),
        "worst": _rounded(s.max_abs_error),
        "bias": _rounded(s.bias),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def row_table(found: Sequence[Comparison]) -> pd.DataFrame:
    """One row a measured kernel: its error in each column, then what was predicted and measured."""
    ordered = sorted(found, key=lambda item: -item.worst(COLUMNS))
    rows = []
    for item in ordered:
        errors = {f"{c}_error": _rounded(item.error(c)) for c in COLUMNS}
        amounts = {
            name: value
            for c in COLUMNS
            for name, value in (
                (f"{c}_predicted", item.predicted.get(c)),
                (f"{c}_measured", item.row.measured.get(c)),
            )
        }
        rows.append(
            {"case": item.row.case, "implementation": item.row.implementation, "kernel": item.row.kernel}
            | {"worst_error": _rounded(item.worst(COLUMNS)), **shape(item), **errors, **amounts}
        )
    return pd.DataFrame(rows)
