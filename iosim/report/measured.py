"""Measurements beside the predictions: the facts of the report's section on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosim.audit import rows_of_gpu
from iosim.audit.compare import Comparison, ErrorSummary, by_kernel, summary
from iosim.audit.measurements import MeasurementFile, read_measurements
from iosim.audit.predict import COLUMNS, audit_rows
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile, load_profile
from iosim.profiler import is_export
from iosim.roofline import Machine, attention_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One file of measurements on one GPU. `bounds`: the least seconds of each case; `faults`: rows left out."""

    file: str
    gpu: str
    items: tuple[Comparison, ...]
    faults: tuple[str, ...]
    summary: Mapping[str, ErrorSummary]
    by_kernel: Mapping[str, Mapping[str, ErrorSummary]]
    bounds: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, worst rows first."""
        ordered = sorted(self.items, key=lambda item: -item.worst(COLUMNS))
        return {
            "file": self.file,
            "summary": {column: s.to_dict() for column, s in self.summary.items()},
            "by_kernel": {
                name: {column: s.to_dict() for column, s in group.items()}
                for name, group in self.by_kernel.items()
            },
            "rows": [item.to_dict(COLUMNS) for item in ordered],
            "faults": list(self.faults),
        }


def gpu_of_file(path: Path) -> str:
    """The profile of the GPU of the file's first row; `UsageError` and `ProfileError` where there is none."""
    return load_profile(_read(path).rows[0].gpu).name


def read_for(path: Path, profiles: Sequence[HardwareProfile]) -> MeasurementFile:
    """The file, which has rows of at least one of the GPUs; `UsageError` otherwise."""
    file = _read(path)
    if not any(rows_of_gpu(file.rows, profile, path.name)[0] for profile in profiles):
        names = ", ".join(profile.name for profile in profiles)
        there = ", ".join(dict.fromkeys(row.gpu for row in file.rows))
        raise UsageError(f"--measurements: {path.name} has rows of {there} and none of {names}")
    return file


def _read(path: Path) -> MeasurementFile:
    if path.is_file() and is_export(path):
        raise UsageError(
            f"--measurements: {path.name} is a profiler's export of one kernel, which says no shapes; `iosim audit "
            f"{path.name} --case ...` reads it; here a CSV of measurements as of `iosim validate` is meant"
        )
    return read_measurements(path)


def measured_on(
    file: MeasurementFile, name: str, profile: HardwareProfile, *, processes: int = 1
) -> Measured | None:
    """The rows of one GPU against the model; None where there are none. `processes`: as in `audit_file`."""
    rows, _ = rows_of_gpu(file.rows, profile, name)
    if not rows:
        return None
    found, failed = audit_rows(rows, profile, name, processes=processes)
    if not found:
        raise UsageError(failed[0])
    items = tuple(found)
    bounds: dict[str, float] = {}
    for row in rows:
        if row.block_mask is not None:  # the bound knows causal masks only
            continue
        try:
            machine = Machine.of(profile, str(row.problem.dtype_k))
        except UsageError:
            continue
        bounds.setdefault(row.case, attention_bound(row.problem, machine).seconds)
    return Measured(
        file=name,
        gpu=profile.name,
        items=items,
        faults=(*file.faults, *failed),
        summary=summary(items, COLUMNS),
        by_kernel=by_kernel(items, COLUMNS),
        bounds=bounds,
    )
