"""Predicted against measured: errors row by row, and their summary. Worst first, nothing averaged away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from iosim.audit.measurements import MeasuredRow
from iosim.errors import UsageError

LARGE_ONLY: Mapping[str, float] = MappingProxyType(
    {"hbm_write_bytes": 30e6, "l2_fabric_bytes": 30e6, "median_time_s": 60e-6}
)
"""Smaller measurements are not counted. Below 30 MB most of what is written is still in the L2 at the end; repeated
runs of less than 60 us time the host that launches them."""
DECODE_QUERIES = 8
FUSED = "flash_fwd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One row: what was predicted (None where the model cannot know), measured, and predicted/measured − 1."""

    row: MeasuredRow
    predicted: Mapping[str, float | None]

    def error(self, column: str) -> float | None:
        """The relative error as a fraction; None without a prediction or a measurement to divide by."""
        predicted, measured = self.predicted.get(column), self.row.measured.get(column)
        return None if predicted is None or not measured else predicted / measured - 1

    def worst(self, columns: Sequence[str]) -> float:
        """The largest error in absolute value."""
        return max((abs(e) for c in columns if (e := self.error(c)) is not None), default=0.0)

    def to_dict(self, columns: Sequence[str]) -> dict[str, Any]:
        """Plain values: who, which shape, and per column predicted, measured and error, apart."""
        row = self.row
        return {
            "line": row.line,
            "case": row.case,
            "gpu": row.gpu,
            "implementation": row.implementation,
            "kernel": row.kernel,
            "problem": row.problem.to_dict(),
            "tiles": {"rows": row.tile.rows, "cols": row.tile.cols}
            if row.tile
            else {"rows": None, "cols": None},
            "predicted": {c: self.predicted.get(c) for c in columns},
            "measured": {c: row.measured.get(c) for c in columns},
            "error": {c: self.error(c) for c in columns},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Errors of one column as fractions; percentiles by linear interpolation, bias the signed mean."""

    n: int
    mean_abs_error: float | None
    median_abs_error: float | None
    p90_abs_error: float | None
    max_abs_error: float | None
    bias: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def summarise(errors: Iterable[float]) -> ErrorSummary:
    """The summary of a list of relative errors."""
    values = list(errors)
    if not values:
        return ErrorSummary(
            n=0, mean_abs_error=None, median_abs_error=None, p90_abs_error=None, max_abs_error=None, bias=None
        )
    sizes = sorted(abs(e) for e in values)
    return ErrorSummary(
        n=len(values),
        mean_abs_error=sum(sizes) / len(sizes),
        median_abs_error=_percentile(sizes, 0.5),
        p90_abs_error=_percentile(sizes, 0.9),
        max_abs_error=sizes[-1],
        bias=sum(values) / len(values),
    )


def _percentile(ordered: list[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _counted(item: Comparison, column: str) -> bool:
    return item.row.measured.get(column, 0) >= LARGE_ONLY.get(column, 0)


def _errors(items: Iterable[Comparison], column: str) -> list[float]:
    return [e for item in items if _counted(item, column) and (e := item.error(column)) is not None]


def summary(items: Sequence[Comparison], columns: Sequence[str]) -> dict[str, ErrorSummary]:
    """Errors of the fused forward kernels with at least eight query rows, column by column."""
    fused = [i for i in items if i.row.kernel == FUSED and i.row.problem.seq_q >= DECODE_QUERIES]
    return {column: summarise(_errors(fused, column)) for column in columns}


def by_kernel(items: Sequence[Comparison], columns: Sequence[str]) -> dict[str, dict[str, ErrorSummary]]:
    """The same for each implementation and kernel; single-query rows of a fused kernel are a group of their own."""
    groups: dict[str, list[Comparison]] = {}
    for item in items:
        decode = item.row.kernel == FUSED and item.row.problem.seq_q < DECODE_QUERIES
        name = f"{item.row.implementation}/{item.row.kernel}{' (decode)' if decode else ''}"
        groups.setdefault(name, []).append(item)
    return {name: {c: summarise(_errors(group, c)) for c in columns} for name, group in groups.items()}


def parse_limits(texts: Iterable[str], columns: Sequence[str]) -> dict[str, float]:
    """Read `hbm_read_bytes=0.05` (a fraction) for --max-error."""
    limits = {}
    for text in texts:
        column, _, number = text.partition("=")
        if column not in columns:
            raise UsageError(f"--max-error: unknown column {column!r}; known: {', '.join(columns)}")
        try:
            limit = float(number)
        except ValueError:
            limit = -1.0
        if not 0 <= limit < float("inf"):
            raise UsageError(f"--max-error: {text!r}: write a fraction of at least 0, as {column}=0.05")
        limits[column] = limit
    return limits


def past_limits(items: Sequence[Comparison], limits: Mapping[str, float]) -> list[str]:
    """A sentence for every counted row whose error passes its limit, worst first."""
    found = []
    for column, limit in limits.items():
        for item in items:
            error = item.error(column) if _counted(item, column) else None
            if error is not None and abs(error) > limit:
                text = f"line {item.row.line}, case {item.row.case}: {column} is off by {error:+.1%}, limit {limit:.1%}"
                found.append((-abs(error), text))
    return [text for _, text in sorted(found)]
