"""Reads a file of measurements: one row a kernel and case. Every fault is named with its line; good rows go on."""

from __future__ import annotations

import csv
import math
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosim.block_mask import check as check_block_mask
from iosim.errors import RunError, UsageError
from iosim.problem import AttentionProblem, TileShape

SHAPE = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal")
WORDS = ("case", "gpu", "impl", "dtype", "kernel")
OPTIONAL_COUNTS = ("block_rows", "block_cols", "registers_per_thread", "shared_bytes_per_block")
COUNTERS = (
    "hbm_read_bytes",
    "hbm_write_bytes",
    "sm_read_bytes",
    "sm_write_bytes",
    "l2_read_bytes",
    "l2_write_bytes",
    "l2_fabric_bytes",
    "special_ops",
    "profiled_time_s",
    "median_time_s",
    "shared_wavefronts",
)
REQUIRED = (*WORDS, *SHAPE, "block_rows", "block_cols")
LEAST, MOST = 1e-30, 1e30
"""Of what is measured and not 0."""
MAX_FILE_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One measured kernel. `tile` is None where the file does not know it; counters that are missing are absent.

    `block_mask`: the pattern of `iosim.block_mask` that it ran over, from an optional column.
    """

    line: int
    case: str
    gpu: str
    implementation: str
    kernel: str
    problem: AttentionProblem
    tile: TileShape | None
    threads_per_block: int | None
    registers_per_thread: int | None
    shared_bytes_per_block: int | None
    measured: Mapping[str, float]
    block_mask: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementFile:
    """The rows that can be used, and one sentence for every row that cannot."""

    rows: tuple[MeasuredRow, ...]
    faults: tuple[str, ...]


def read_measurements(path: Path) -> MeasurementFile:
    """Read a CSV with the columns of REQUIRED and any of COUNTERS.

    Errors: `RunError` when the file cannot be read, `UsageError` when columns are missing or no row is usable.
    """
    try:
        if stat.S_ISCHR((found := path.stat()).st_mode) or stat.S_ISFIFO(found.st_mode):
            raise UsageError(f"{path}: a pipe or a device; save the measurements to a file first")
        if found.st_size > MAX_FILE_BYTES:
            raise UsageError(f"{path.name}: larger than {MAX_FILE_BYTES >> 20} MiB; not a measurements file")
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            header = reader.fieldnames or []
            if (twice := _first_twice(header)) is not None:
                raise UsageError(f"{path.name}:1: column {twice} is given twice")
            if missing := [name for name in REQUIRED if name not in header]:
                raise UsageError(f"{path.name}:1: missing columns: {', '.join(missing)}")
            if not any(name in header for name in COUNTERS):
                raise UsageError(f"{path.name}:1: no measured column; at least one of {', '.join(COUNTERS)}")
            rows, faults = _rows(reader, path.name)
    except OSError as error:
        raise RunError(f"{path}: cannot read: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path.name}: not a CSV file of text: {error}") from None
    if not rows:
        raise UsageError(
            f"{path.name}: no usable row" + (f"; the first fault: {faults[0]}" if faults else "")
        )
    return MeasurementFile(rows=tuple(rows), faults=tuple(faults))


def _first_twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _rows(reader: csv.DictReader[str], name: str) -> tuple[list[MeasuredRow], list[str]]:
    rows, faults = [], []
    for entry in reader:
        try:
            rows.append(_row(entry, reader.line_num))
        except UsageError as error:
            faults.append(f"{name}:{reader.line_num}: {error}")
    return rows, faults


def _row(entry: Mapping[str, str | None], line: int) -> MeasuredRow:
    def text(column: str) -> str:
        return (entry.get(column) or "").strip()

    if None in entry:
        raise UsageError("more fields than columns")
    for column in WORDS:
        if not text(column).isprintable():
            raise UsageError(f"{column}: must be printable text, got {text(column)[:40]!r}")
    sizes = {column: _whole(column, text(column)) for column in SHAPE}
    if sizes["causal"] not in (0, 1):
        raise UsageError(f"causal: must be 0 or 1, got {sizes['causal']}")
    optional = {column: _whole(column, text(column)) if text(column) else None for column in OPTIONAL_COUNTS}
    rows, cols = optional["block_rows"], optional["block_cols"]
    measured = {c: _counter(c, text(c)) for c in COUNTERS if text(c)}
    if not measured:
        raise UsageError("nothing was measured in this row")
    mask = "causal" if sizes.pop("causal") else "none"
    shape: dict[str, Any] = dict(sizes)
    problem = AttentionProblem.of(**shape, mask=mask, dtype=text("dtype"))
    return MeasuredRow(
        line=line,
        case=text("case"),
        gpu=text("gpu"),
        implementation=text("impl"),
        kernel=text("kernel"),
        problem=problem,
        tile=TileShape(rows=rows, cols=cols) if rows and cols else None,
        threads_per_block=_threads(text("block")),
        registers_per_thread=optional["registers_per_thread"],
        shared_bytes_per_block=optional["shared_bytes_per_block"],
        measured=measured,
        block_mask=_block_mask(text("block_mask")) if text("block_mask") else None,
    )


def _whole(column: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise UsageError(f"{column}: must be a whole number, got {text!r}")
    return int(text)


def _block_mask(text: str) -> str:
    try:
        return check_block_mask(text)
    except UsageError as error:
        raise UsageError(f"block_mask: {error}") from None


def _counter(column: str, text: str) -> float:
    try:
        value = float(text) if text.isascii() else math.nan
    except ValueError:
        raise UsageError(f"{column}: must be a number, got {text!r}") from None
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{column}: must be a finite number of at least 0, got {text!r}")
    if (
        value and not LEAST <= value <= MOST
    ):  # nothing that a GPU counts or a clock shows; ratios would overflow
        raise UsageError(f"{column}: must be 0, or between {LEAST:g} and {MOST:g}, got {text!r}")
    return value


def _threads(text: str) -> int | None:
    """Threads of a block printed as 128x1x1; None where it is not given."""
    parts = text.split("x")
    if not all(p.isascii() and p.isdigit() and len(p) < 6 for p in parts):
        return None
    return math.prod(map(int, parts))
