"""Reads what `ncu --csv` prints: the raw page (a column a metric) or the details page (a line a metric).

Facts of the format: lines of the profiler begin with ==; a program's own output may stand between them; the raw page
has a line of units below its header; numbers may have thousands commas; a file holds several kernels and launches.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from iosim.audit.measurements import MAX_FILE_BYTES
from iosim.errors import RunError, UsageError
from iosim.profiler.importer import import_report
from iosim.profiler.metrics import (
    BARRIER_STALLS,
    BLOCK,
    CLOCKS,
    COLUMN_METRICS,
    DETAILS,
    GPU_NAME,
    GRID,
    KNOWN,
    REGISTERS,
    SHARED,
    SHARED_PARTS,
    SPILLED_STORES,
    TENSOR_CYCLES,
    WGMMAS,
    in_base_units,
)

REPORT_ENDING = ".ncu-rep"
SNIFFED_BYTES = 1 << 20
MISSING = ("", "n/a", "nan", "-nan", "inf", "-inf")
CLOCK_RANGE_HZ = (1e8, 1e10)
"""A clock outside was not measured, or is in another unit."""
Dim = tuple[int, int, int]
_CACHE = re.compile(r"cache[- _]control\W{1,9}(all|none|flush all|flush none)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One profiled launch. `measured`: our columns, in base units; None for what the export does not say.

    `shared_bytes_per_block` includes what the driver takes, as `launch__shared_mem_per_block` does.
    `tensor_cycles`: in which the tensor cores work, of the mean SM. `barrier_stall_cycles`: that warps wait at a
    block's barrier, of all warps.
    """

    line: int
    number: str
    kernel: str
    gpu: str | None
    compute_capability: str | None
    grid: Dim | None
    block: Dim | None
    registers_per_thread: int | None
    shared_bytes_per_block: int | None
    clock_hz: float | None
    spilled_stores: float | None
    wgmmas: float | None
    tensor_cycles: float | None
    barrier_stall_cycles: float | None
    measured: Mapping[str, float]

    @property
    def threads_per_block(self) -> int | None:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2] if self.block else None

    @property
    def blocks(self) -> int | None:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2] if self.grid else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The launches of a file, whether caches were flushed before each pass (None: not said), and faults by line."""

    launches: tuple[Launch, ...]
    cold: bool | None
    faults: tuple[str, ...]


def is_export(path: Path) -> bool:
    """Whether a file looks like an export of the profiler and not like a measurements file."""
    if path.suffix == REPORT_ENDING:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(SNIFFED_BYTES)
    except (OSError, ValueError):
        return False
    return any(b"Kernel Name" in line and b"," in line for line in head.splitlines())


def read_export(path: Path) -> Export:
    """Read a CSV export, or a report through `ncu --import`.

    Errors: `RunError` for a file that cannot be read or imported; `UsageError` for one without a launch.
    """
    if path.suffix == REPORT_ENDING:
        text = import_report(path)
    else:
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise UsageError(
                    f"{path.name}: larger than {MAX_FILE_BYTES >> 20} MiB; not a profiler export"
                )
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise RunError(f"{path}: cannot read: {(error.strerror or str(error)).lower()}") from None
        except ValueError as error:
            raise UsageError(f"{path.name}: not a CSV file of UTF-8 text: {error}") from None
    return parse_export(text, path.name)


def parse_export(text: str, name: str) -> Export:
    """The launches of an export's text. `UsageError` where there is none, with the first fault or what to do."""
    reader = _Reader(name)
    for line, row in _rows(text):
        reader.take(line, row)
    launches = reader.launches()
    if not launches:
        first = f"; the first fault: {reader.faults[0]}" if reader.faults else ""
        todo = "export with ncu --csv --page raw (iosim audit --print-ncu-command)"
        raise UsageError(f"{name}: no kernel launch in this file; {todo}{first}")
    said = _CACHE.search(text)
    cold = None if said is None else "all" in said[1].lower()
    return Export(launches=tuple(launches), cold=cold, faults=tuple(reader.faults))


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines as fields, without those of the profiler; each line alone, so that a stray quote spoils no other."""
    for line, raw in enumerate(text.splitlines(), start=1):
        if raw.strip() and not raw.startswith("=="):
            try:
                yield line, [field.strip() for field in next(csv.reader([raw]))]
            except csv.Error:
                yield line, [raw]


class _Reader:
    """Collects metrics by launch; a header may come again, as where two exports were put together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[str] = []
        self.header: list[str] | None = None
        self.units: dict[str, str] = {}
        self.table = 0
        self.found: dict[tuple[str, ...], dict[str, str]] = {}
        self.metrics: dict[tuple[str, ...], dict[str, float]] = {}
        self.lines: dict[tuple[str, ...], int] = {}

    def take(self, line: int, row: list[str]) -> None:
        if "Kernel Name" in row:
            self.header, self.units, self.table = row, {}, self.table + 1
            return
        if self.header is None:
            return  # what the program printed
        if len(row) != len(self.header):
            if len(row) > 2:
                self.faults.append(
                    f"{self.name}:{line}: {len(row)} fields, the header has {len(self.header)}; left out"
                )
            return
        entry = dict(zip(self.header, row, strict=True))
        if not entry["Kernel Name"]:
            self.units = entry
            return
        key = (str(self.table), entry.get("Process ID", ""), entry.get("ID", str(line)))
        self.lines.setdefault(key, line)
        self.found.setdefault(key, entry)
        metrics = self.metrics.setdefault(key, {})
        if "Metric Name" in entry:
            name = DETAILS.get(entry["Metric Name"], entry["Metric Name"])
            self._metric(
                metrics, key, line, name, entry.get("Metric Value", ""), entry.get("Metric Unit", "")
            )
        else:
            for name in KNOWN & entry.keys():
                self._metric(metrics, key, line, name, entry[name], self.units.get(name, ""))

    def _metric(
        self, metrics: dict[str, float], key: tuple[str, ...], line: int, name: str, text: str, unit: str
    ) -> None:
        if name == GPU_NAME:
            if text.lower() not in MISSING:
                self.found[key] = {**self.found[key], GPU_NAME: text}
            return
        bare = text.partition(" (")[0].replace(",", "")  # an instanced metric lists its parts in brackets
        if name not in KNOWN or bare.lower() in MISSING or bare.startswith("(!)"):
            return
        try:
            value = in_base_units(float(bare) if len(bare) < 40 and bare.isascii() else float("nan"), unit)
        except ValueError:
            value = float("nan")
        except UsageError as error:
            self.faults.append(f"{self.name}:{line}: {name}: {error}; left out")
            return
        if not 0 <= value < 1e24:
            self.faults.append(
                f"{self.name}:{line}: {name}: must be a number of at least 0, got {text[:40]!r}; left out"
            )
            return
        metrics.setdefault(name, value)

    def launches(self) -> list[Launch]:
        return [_launch(self.lines[key], key[-1], self.found[key], self.metrics[key]) for key in self.found]


def _launch(line: int, number: str, entry: Mapping[str, str], metrics: Mapping[str, float]) -> Launch:
    measured: dict[str, float] = {}
    for column, metric, factor in COLUMN_METRICS:
        if metric in metrics:
            measured.setdefault(column, metrics[metric] * factor)
    low, high = CLOCK_RANGE_HZ
    clock = next((metrics[name] for name in CLOCKS if low <= metrics.get(name, 0) <= high), None)
    return Launch(
        line=line,
        number=number,
        kernel=" ".join(_printable(entry["Kernel Name"]).split())[:200],
        gpu=_named(entry.get(GPU_NAME, "")),
        compute_capability=entry.get("CC") or None,
        grid=_dim(entry.get("Grid Size", "")) or _dims(metrics, GRID),
        block=_dim(entry.get("Block Size", "")) or _dims(metrics, BLOCK),
        registers_per_thread=int(metrics[REGISTERS]) if REGISTERS in metrics else None,
        shared_bytes_per_block=_shared(metrics),
        clock_hz=clock,
        spilled_stores=metrics.get(SPILLED_STORES),
        wgmmas=metrics.get(WGMMAS),
        tensor_cycles=metrics.get(TENSOR_CYCLES),
        barrier_stall_cycles=metrics.get(BARRIER_STALLS),
        measured=measured,
    )


def _named(gpu: str) -> str | None:
    text = _printable(gpu).strip()
    return None if text.lower() in MISSING else text[:100]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _shared(metrics: Mapping[str, float]) -> int | None:
    if SHARED in metrics:
        return int(metrics[SHARED])
    parts = [metrics[name] for name in SHARED_PARTS if name in metrics]
    return int(sum(parts)) if parts else None


def _dim(text: str) -> Dim | None:
    """(128, 1, 1), 128x1x1 or 128."""
    numbers = re.findall(r"\d{1,12}", text)
    if not re.fullmatch(r"[\d\s,x()]+", text) or not 1 <= len(numbers) <= 3:
        return None
    x, y, z = (int(n) for n in (*numbers, "1", "1")[:3])
    return (x, y, z) if x and y and z else None


def _dims(metrics: Mapping[str, float], names: tuple[str, ...]) -> Dim | None:
    if not all(metrics.get(name) for name in names):
        return None
    x, y, z = (int(metrics[name]) for name in names)
    return x, y, z
