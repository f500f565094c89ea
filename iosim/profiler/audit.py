"""Someone's own kernel against the model: an export, completed by a case and perhaps a card."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iosim.audit import rows_of_gpu
from iosim.audit.compare import Comparison, ErrorSummary, by_kernel
from iosim.audit.measurements import MeasuredRow
from iosim.audit.predict import Progress, fused_bytes, simulate_row
from iosim.audit.times import fused_times
from iosim.errors import ProfileError, SimulationError, UsageError
from iosim.hardware import HardwareProfile, load_profile
from iosim.kernels import KernelFacts
from iosim.levels import LevelTraffic
from iosim.problem import TileShape
from iosim.profiler.case import Case
from iosim.profiler.export import Export, Launch, read_export
from iosim.profiler.facts import facts_of
from iosim.profiler.remarks import launch_remarks, roof_remarks
from iosim.roofline import LowerBound, Machine, attention_bound

COLUMNS = (
    *("sm_read_bytes", "sm_write_bytes", "l2_read_bytes", "l2_write_bytes", "l2_fabric_bytes"),
    *("hbm_read_bytes", "hbm_write_bytes", "special_ops", "profiled_time_s"),
)
_PATH = re.compile(r"[/\\]|\.ya?ml$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnKernel:
    """One launch: what was predicted and measured, the least time, and what a reader has to know."""

    launch: Launch
    comparison: Comparison
    bound: LowerBound | None
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values: the comparison, the launch, the bound and the remarks."""
        made = self.launch
        return self.comparison.to_dict(COLUMNS) | {
            "launch": {
                "id": made.number,
                "grid": list(made.grid) if made.grid else None,
                "block": list(made.block) if made.block else None,
                "registers_per_thread": made.registers_per_thread,
                "shared_bytes_per_block": made.shared_bytes_per_block,
                "clock_hz": made.clock_hz,
            },
            "lower_bound_s": self.bound.seconds if self.bound else None,
            "lower_bound_limit": self.bound.limit if self.bound else None,
            "remarks": list(self.remarks),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportAudit:
    """An export audited: its launches worst first, their summary by kernel, and the faults of the file."""

    file: str
    profile: HardwareProfile
    card: str | None
    cold: bool | None
    items: tuple[OwnKernel, ...]
    faults: tuple[str, ...]

    @property
    def comparisons(self) -> list[Comparison]:
        """Predicted and measured of every launch."""
        return [item.comparison for item in self.items]

    @property
    def by_kernel(self) -> dict[str, dict[str, ErrorSummary]]:
        """Errors of each kernel over its launches."""
        return by_kernel(self.comparisons, COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim audit` on an export."""
        cache = None if self.cold is None else "all" if self.cold else "none"
        return {
            "schema_version": 1,
            "file": self.file,
            "profile": self.profile.name,
            "profile_sha256": self.profile.sha256,
            "card": self.card,
            "cache_control": cache,
            "by_kernel": {k: {c: s.to_dict() for c, s in g.items()} for k, g in self.by_kernel.items()},
            "rows": [item.to_dict() for item in self.items],
            "faults": list(self.faults),
        }


def audit_export(
    path: Path,
    cases: Sequence[Case],
    *,
    card: KernelFacts | None = None,
    hw: str | None = None,
    kernel: str | None = None,
    progress: Progress | None = None,
) -> ExportAudit:
    """Predict and compare every launch of an export.

    `cases`: one for all launches, or one each in their order. `kernel`: the name that is meant, or a part of it.
    `hw`: a profile, where the export does not name the GPU.
    Errors: see `read_export`; `UsageError` when kernels, cases, card and GPU do not fit together.
    """
    export = read_export(path)
    launches = _chosen(export, kernel, path.name)
    profile = _profile(launches[0], hw, path.name)
    items = []
    levels: dict[tuple[object, ...], LevelTraffic] = {}
    for done, (launch, case) in enumerate(zip(launches, _cases(cases, len(launches)), strict=True), start=1):
        items.append(_own(launch, case, card, profile, export.cold, levels))
        if progress:
            progress(done, len(launches))
    rows, faults = rows_of_gpu(tuple(i.comparison.row for i in items), profile, path.name)
    kept = {id(row) for row in rows}
    items = [item for item in items if id(item.comparison.row) in kept]
    if not items:
        raise UsageError(f"{faults[0]}; name the right one with --hw")
    return ExportAudit(
        file=path.name,
        profile=profile,
        card=card.name if card else None,
        cold=export.cold,
        items=tuple(sorted(items, key=lambda item: -item.comparison.worst(COLUMNS))),
        faults=(*export.faults, *faults),
    )


def _chosen(export: Export, kernel: str | None, name: str) -> list[Launch]:
    """The launches meant: those of one kernel. `UsageError` lists the kernels where it is not clear which."""
    names = list(dict.fromkeys(launch.kernel for launch in export.launches))
    found = [launch for launch in export.launches if kernel is None or kernel in launch.kernel]
    if exact := [launch for launch in found if launch.kernel == kernel]:
        found = exact
    if not found:
        raise UsageError(
            f"--kernel-name: no kernel of {name} has {kernel!r} in its name; there are: {_some(names)}"
        )
    if kernel is None and len(names) > 1:
        raise UsageError(f"{name}: several kernels; choose one with --kernel-name: {_some(names)}")
    return found


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(name[:60] for name in names[:most]) + (" ..." if len(names) > most else "")


def _cases(cases: Sequence[Case], launches: int) -> Sequence[Case]:
    if not cases:
        raise UsageError(
            "--case: needed, an export has no shapes; for example --case batch=2,heads=16,N=4096,d=128"
        )
    if len(cases) not in (1, launches):
        raise UsageError(
            f"--case: given {len(cases)} times for {launches} launches; give one for all, or one each"
        )
    return cases if len(cases) == launches else [cases[0]] * launches


def _profile(launch: Launch, hw: str | None, name: str) -> HardwareProfile:
    """The profile named, or that of the GPU in the export; a name in a file of others is never taken for a path."""
    if hw is None and launch.gpu is None:
        capability = f" (compute capability {launch.compute_capability})" if launch.compute_capability else ""
        raise UsageError(f"{name}: the export does not name the GPU{capability}; name its profile with --hw")
    if hw is None and _PATH.search(launch.gpu or ""):
        raise UsageError(f"{name}: {launch.gpu!r} is no GPU's name; name its profile with --hw")
    profile = load_profile(hw or launch.gpu or "")
    if launch.compute_capability and launch.compute_capability != profile.compute_capability:
        raise UsageError(
            f"{name}: measured on compute capability {launch.compute_capability}, {profile.name} has "
            f"{profile.compute_capability}; name the right profile with --hw"
        )
    return profile


def _own(
    launch: Launch,
    case: Case,
    card: KernelFacts | None,
    profile: HardwareProfile,
    cold: bool | None,
    known: dict[tuple[object, ...], LevelTraffic],
) -> OwnKernel:
    """One launch; equal ones share their simulation through `known`."""
    facts, tile, assumed = facts_of(launch, case, card, profile)
    row = MeasuredRow(
        line=launch.line,
        case=f"{launch.number} ({case.text})",
        gpu=launch.gpu or profile.name,
        implementation=facts.name,
        kernel=launch.kernel,
        problem=case.problem,
        tile=tile,
        threads_per_block=launch.threads_per_block,
        registers_per_thread=launch.registers_per_thread,
        shared_bytes_per_block=launch.shared_bytes_per_block,
        measured=launch.measured,
    )
    key = (
        case.text,
        facts.persistent,
        launch.block,
        launch.registers_per_thread,
        launch.shared_bytes_per_block,
    )
    if key not in known:
        try:
            known[key] = simulate_row(row, facts, tile, profile)
        except SimulationError as error:
            raise SimulationError(f"line {row.line}: {error}") from None
    predicted, said = _predicted(row, facts, tile, profile, known[key], launch.clock_hz)
    bound, more = _bound(case, profile)
    flushed = cold if case.cold is None else case.cold
    remarks = [
        *assumed,
        *said,
        *more,
        *launch_remarks(launch, case.problem, facts, tile, profile, flushed),
        *roof_remarks(replace(row, case=launch.number), profile, bound),
    ]
    comparison = Comparison(row=row, predicted=predicted)
    return OwnKernel(launch=launch, comparison=comparison, bound=bound, remarks=tuple(remarks))


def _predicted(
    row: MeasuredRow,
    facts: KernelFacts,
    tile: TileShape,
    profile: HardwareProfile,
    levels: LevelTraffic,
    clock_hz: float | None,
) -> tuple[dict[str, float | None], list[str]]:
    found = fused_bytes(row.problem, facts, tile, profile, levels)
    said = []
    try:
        times = fused_times(row, facts, tile, profile, levels, clock_hz=clock_hz)
        if times["profiled_time_s"] is None:
            said.append(f"time: not predicted, nothing is known of {facts.kernel_class} on {profile.name}")
    except UsageError as error:  # a tile that these warps do not divide
        times = {"profiled_time_s": None}
        said.append(f"time: not predicted: {error}")
    return {column: (found | times).get(column) for column in COLUMNS}, said


def _bound(case: Case, profile: HardwareProfile) -> tuple[LowerBound | None, list[str]]:
    try:
        return attention_bound(case.problem, Machine.of(profile, str(case.problem.dtype_k)), cold=False), []
    except ProfileError as error:
        return None, [f"lower bound: {error}"]
