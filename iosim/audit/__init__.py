"""Measurements in, predicted against measured out. Needs no GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosim.audit.compare import Comparison, ErrorSummary, by_kernel, summary
from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.audit.predict import COLUMNS, Progress, audit_rows
from iosim.errors import IosimError, UsageError
from iosim.hardware import HardwareProfile, load_profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """One file audited: every row, the summary of the fused forward kernels, and that of each kernel."""

    file: str
    profile: str
    profile_sha256: str
    items: tuple[Comparison, ...]
    faults: tuple[str, ...]
    summary: dict[str, ErrorSummary]
    by_kernel: dict[str, dict[str, ErrorSummary]]

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON: `summary`, `by_kernel`, `rows` (worst first), `faults`."""
        ordered = sorted(self.items, key=lambda item: -item.worst(COLUMNS))
        return {
            "schema_version": 1,
            "file": self.file,
            "profile": self.profile,
            "profile_sha256": self.profile_sha256,
            "summary": {c: s.to_dict() for c, s in self.summary.items()},
            "by_kernel": {
                k: {c: s.to_dict() for c, s in group.items()} for k, group in self.by_kernel.items()
            },
            "rows": [item.to_dict(COLUMNS) for item in ordered],
            "faults": list(self.faults),
        }


def audit_file(
    path: Path, hw: str | None = None, *, progress: Progress | None = None, processes: int = 1
) -> Audit:
    """Predict and compare every usable row of a measurements file.

    The profile is that of the first row's GPU unless `hw` names one; rows of another GPU are faults, not
    comparisons. The answer is the same with any number of `processes` (`iosim.workers`).
    Errors: see `read_measurements`; `ProfileError` for a GPU without a profile.
    """
    file = read_measurements(path)
    profile = load_profile(hw or file.rows[0].gpu)
    rows, faults = rows_of_gpu(file.rows, profile, path.name)
    if not rows:
        raise UsageError(f"{path.name}: no row is of {profile.name}; the first: {faults[0]}")
    items, failed = audit_rows(rows, profile, path.name, progress, processes=processes)
    if not items:
        raise UsageError(failed[0])
    return Audit(
        file=path.name,
        profile=profile.name,
        profile_sha256=profile.sha256,
        items=tuple(items),
        faults=(*file.faults, *faults, *failed),
        summary=summary(items, COLUMNS),
        by_kernel=by_kernel(items, COLUMNS),
    )


def rows_of_gpu(
    rows: tuple[MeasuredRow, ...], profile: HardwareProfile, name: str
) -> tuple[list[MeasuredRow], list[str]]:
    mine, faults = [], []
    same: dict[str, bool] = {}
    for row in rows:
        if row.gpu not in same:
            same[row.gpu] = _is(row.gpu, profile)
        if same[row.gpu]:
            mine.append(row)
        else:
            faults.append(f"{name}:{row.line}: gpu: measured on {row.gpu!r}, the profile is {profile.name}")
    return mine, faults


def _is(gpu: str, profile: HardwareProfile) -> bool:
    if gpu in profile.aliases or gpu == profile.name:
        return True
    try:
        return load_profile(gpu).name == profile.name
    except IosimError:
        return False
