"""The measurements: files that are rewritten whole after every item, so that a run which is cut off keeps its rows.

`attention.csv` has what was timed, one row a kernel of an item (a case, an implementation, a tile). Its first columns
are those that `iosim audit` reads; the others say how a time was made. `checks.csv` has what was only checked, and
what failed, one row an item, with the reason in `flags`. `code` tells which text of a kernel was measured.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from iosim.errors import RunError
from iosim.profiler.metrics import ncu_metrics
from iosim_validation.check import Verdict
from iosim_validation.gpu import Gpu
from iosim_validation.items import Item, Key
from iosim_validation.timing import Times
from iosim_validation.whole_file import written_whole

Row = dict[str, str]

FILE, CHECKS = "attention.csv", "checks.csv"
SHAPE = ("case", "gpu", "impl", "batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "causal", "dtype")
LAUNCH = ("kernel", "block_rows", "block_cols", "grid", "block")
COUNTED = (
    *("registers_per_thread", "shared_bytes_per_block"),
    *(name for name in ncu_metrics() if not name.endswith("_s")),
    *(
        "local_store_warp_insts",
        "tensor_cycles",
        "barrier_stall_cycles",
        "profiled_time_s",
        "profiled_clock_hz",
    ),
)
WHAT = ("algorithm", "rung", "code", "block_mask")
TIMED = (
    "p10_time_s",
    "p90_time_s",
    "drift",
    "cache_state",
    "input_sets",
    "launches",
    "timed_by",
    "first_time_s",
    "warm_time_s",
    "cold_time_s",
    "cold_p10_time_s",
    "cold_p90_time_s",
    "sm_clock_hz",
    "power_w",
)
CHECKED = ("output_error", "allowed_error", "worst_error", "lse_error", "flags")
COLUMNS = (*SHAPE, *LAUNCH, *COUNTED, "median_time_s", *WHAT, *TIMED, *CHECKED)
CHECK_COLUMNS = (*SHAPE, *LAUNCH, *WHAT, *CHECKED)
FAILED = "failed: "
RESERVED_SHARED_BYTES = 1024
"""Of a block's shared memory that the driver takes, on compute capability 8.0 and later; the profiler counts it."""


class Table:
    """The rows of a folder of measurements, by item."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[Key, list[Row]] = {}
        for name, columns in ((FILE, COLUMNS), (CHECKS, CHECK_COLUMNS)):
            for row in _read(folder / name, columns):
                self._rows.setdefault(key_of(row), []).append(row)

    @property
    def path(self) -> Path:
        """The file of what was timed."""
        return self.folder / FILE

    def __iter__(self) -> Iterator[Row]:
        """All rows in order."""
        return (row for rows in self._rows.values() for row in rows)

    def rows(self, key: Key) -> Sequence[Row]:
        """The rows of an item, empty when it was not measured."""
        return self._rows.get(key, [])

    def of(self, item: Item) -> Sequence[Row]:
        """The rows of an item as its kernels are now; empty when it was not measured, or before they changed."""
        rows = self._rows.get(item.key, [])
        return rows if rows and rows[0]["code"] == item.code else []

    def put(self, key: Key, rows: Iterable[Row]) -> None:
        """Keep the rows of an item, instead of earlier ones, on disk as well. Errors: `RunError`."""
        self._rows[key] = [{name: row.get(name, "") for name in COLUMNS} for row in rows]
        self._save(timed=True)
        self._save(timed=False)

    def drop_failed(self) -> int:
        """Forget the items that failed, so that they are tried again; says how many."""
        failed = [key for key, rows in self._rows.items() if has_failed(rows)]
        for key in failed:
            del self._rows[key]
        if failed:
            self._save(timed=False)
        return len(failed)

    def _save(self, *, timed: bool) -> None:
        path = self.folder / (FILE if timed else CHECKS)
        rows = [row for row in self if is_timed(row) == timed]
        if rows or path.exists():
            _write(path, rows, COLUMNS if timed else CHECK_COLUMNS)


def is_timed(row: Mapping[str, str]) -> bool:
    """Whether a row has a time."""
    return bool(row.get("median_time_s"))


def key_of(row: Mapping[str, str]) -> Key:
    """The item that a row belongs to."""
    rows, cols = row["block_rows"], row["block_cols"]
    return Key(row["case"], row["impl"], f"{rows}x{cols}" if rows and cols else "")


def has_failed(rows: Sequence[Mapping[str, str]]) -> bool:
    """Whether an item could not be measured, or was wrong."""
    return any(row["flags"].startswith(FAILED) for row in rows)


def is_counted(rows: Sequence[Mapping[str, str]]) -> bool:
    """Whether the profiler's counters are there."""
    return any(row["hbm_read_bytes"] for row in rows)


def make_rows(
    item: Item, gpu: Gpu, *, verdict: Verdict | None, times: Times | None, fault: str = ""
) -> list[Row]:
    """The rows of an item: one a kernel, or a single one with the fault."""
    shared = {**_shape(item, gpu.facts.name), **_checked(verdict), **_timed(times)}
    if fault:
        shared["flags"] = FAILED + " ".join(fault.split())[:300]
    if fault or times is None:
        return [shared | {"kernel": "+".join(item.kernels)}]
    return [shared | {"kernel": kernel} | _launch(item, n, gpu) for n, kernel in enumerate(item.kernels)]


def _shape(item: Item, gpu: str) -> Row:
    p = item.case.problem
    sizes = {name: str(getattr(p, name)) for name in SHAPE[3:9]}
    return {
        "case": item.case.name,
        "gpu": gpu,
        "impl": item.impl,
        **sizes,
        "causal": str(int(p.mask.kind == "causal")),
        "dtype": str(p.dtype_q),
        "block_rows": str(item.tile.rows) if item.tile else "",
        "block_cols": str(item.tile.cols) if item.tile else "",
        "algorithm": item.rung.algorithm if item.rung else "",
        "rung": item.rung.name if item.rung else "",
        "code": item.code,
        "block_mask": item.case.block_mask or "",
    }


def _launch(item: Item, number: int, gpu: Gpu) -> Row:
    if item.plan is None:
        return {}
    launch = item.plan.launches[number]
    taken = gpu.resources(launch.build)
    shared = launch.build.shared_bytes + taken.static_shared_bytes + RESERVED_SHARED_BYTES
    return {
        "grid": "x".join(map(str, launch.grid)),
        "block": f"{launch.build.threads}x1x1",
        "registers_per_thread": str(taken.registers_per_thread),
        "shared_bytes_per_block": str(shared),
    }


def _checked(verdict: Verdict | None) -> Row:
    if verdict is None:
        return {}
    errors = verdict.errors
    return {
        "output_error": f"{errors.output:.3e}",
        "allowed_error": f"{verdict.allowed.output:.3e}",
        "worst_error": f"{errors.worst:.3e}",
        "lse_error": "" if errors.lse is None else f"{errors.lse:.3e}",
        "flags": "",
    }


def _timed(times: Times | None) -> Row:
    if times is None:
        return {"flags": ""}
    numbers = {
        "median_time_s": times.median_s,
        "p10_time_s": times.p10_s,
        "p90_time_s": times.p90_s,
        "first_time_s": times.first_s,
        "warm_time_s": times.warm_s,
        "cold_time_s": times.cold_s,
        "cold_p10_time_s": times.cold_p10_s,
        "cold_p90_time_s": times.cold_p90_s,
    }
    return {
        **{name: f"{value:.9g}" for name, value in numbers.items()},
        "drift": f"{times.drift:.4f}",
        "cache_state": times.cache_state,
        "input_sets": str(times.input_sets),
        "launches": str(times.launches),
        "timed_by": times.timed_by,
        "sm_clock_hz": "" if times.sm_clock_hz is None else f"{times.sm_clock_hz:.0f}",
        "power_w": "" if times.power_w is None else f"{times.power_w:.1f}",
        "flags": "; ".join(times.flags),
    }


def _read(path: Path, columns: Sequence[str]) -> list[Row]:
    if not path.exists():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, restval="")
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise RunError(
                    f"{path}: not a file of this version: no column {missing[0]}; choose another folder"
                )
            return [{name: row.get(name) or "" for name in COLUMNS} for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path}: cannot read: {error}") from error


def _write(path: Path, rows: Iterable[Row], columns: Sequence[str]) -> None:
    with written_whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())
