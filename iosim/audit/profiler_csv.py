"""Reads what `ncu --csv` prints: one column a metric (`--page raw`), or one line a metric.

Lines before the table (`==PROF== …`, a program's own words) are skipped. Values may have thousands commas and scaled
units; they come back in base units (bytes, nanoseconds, hertz).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from iosim.errors import UsageError

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_TIMES = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
}
_SCALED = re.compile(r"([kmgt]?)(byte|b|hz)(/.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """One launch of a kernel under the profiler. `grid`, `block`: as `4x32x32`; metrics in base units."""

    name: str
    grid: str
    block: str
    metrics: Mapping[str, float] = field(default_factory=dict)


def read_profile(text: str) -> list[Profiled]:
    """The launches in order. Errors: `UsageError` when there is no table of metrics in the text."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise UsageError('no table of metrics: expected the CSV of ncu, whose head line starts with "ID"')
    table = [line for line in lines[start:] if line.startswith('"')]
    rows = list(csv.DictReader(table))
    if rows and "Metric Name" in rows[0]:
        return list(_long(rows))
    return list(_wide(rows))


def _wide(rows: list[dict[str, str]]) -> Iterator[Profiled]:
    units = rows[0] if rows and not rows[0]["ID"] else {}
    for row in rows[1:] if units else rows:
        metrics = {}
        for name, text in row.items():
            if name and "__" in name and (value := _value(text, units.get(name, ""))) is not None:
                metrics[name] = value
        yield _launch(row, metrics)


def _long(rows: list[dict[str, str]]) -> Iterator[Profiled]:
    found: dict[str, tuple[dict[str, str], dict[str, float]]] = {}
    for row in rows:
        _, metrics = found.setdefault(row["ID"], (row, {}))
        if (value := _value(row["Metric Value"], row.get("Metric Unit", ""))) is not None:
            metrics[row["Metric Name"]] = value
    for row, metrics in found.values():
        yield _launch(row, metrics)


def _launch(row: Mapping[str, str], metrics: Mapping[str, float]) -> Profiled:
    return Profiled(
        name=row.get("Kernel Name") or "",
        grid=_size(row.get("Grid Size") or ""),
        block=_size(row.get("Block Size") or ""),
        metrics=metrics,
    )


def _size(text: str) -> str:
    """`(4, 32, 32)` as `4x32x32`."""
    return "x".join(re.findall(r"\d+", text))


def _value(text: str | None, unit: str | None) -> float | None:
    try:
        number = float((text or "").replace(",", ""))
    except ValueError:
        return None
    word = (unit or "").strip().lower()
    if word in _TIMES:
        return number * _TIMES[word]
    match = _SCALED.fullmatch(word)
    return number * (_SCALES[match[1]] if match else 1.0)
