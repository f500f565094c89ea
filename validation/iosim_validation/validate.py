"""`iosim validate`: from a suite and a GPU to a folder of measurements and a report of what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.hardware.names import canonical
from iosim_validation import environment
from iosim_validation.build_all import build_all
from iosim_validation.cases import Suite, find_case
from iosim_validation.counters import Run, count, run_command
from iosim_validation.gpu import Gpu
from iosim_validation.harness import Done, Progress, Settings, measure
from iosim_validation.items import OURS, Refusal, Work, find_work
from iosim_validation.launch import Build, GpuFacts
from iosim_validation.measured_profile import profile_for
from iosim_validation.peers import PEERS
from iosim_validation.results import Row, Table, is_timed
from iosim_validation.rung import Rung

Bar = Callable[[str, int], AbstractContextManager[Progress]]
Compile = Callable[[Sequence[Build], Progress], dict[Build, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the user asked for. `rungs`: names, all when empty. `force`: mix environments, take another profile."""

    suite: Suite
    out: Path
    rungs: tuple[str, ...] = ()
    peers: bool = True
    counters: bool = False
    profile: str | None = None
    force: bool = False
    retry: bool = False
    stop_after_s: float | None = None
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One timed item for people: times in seconds, FLOP/s and compulsory B/s at the median, flags."""

    case: str
    impl: str
    tile: str
    median_s: float
    cold_s: float
    flop_per_s: float
    bytes_per_s: float
    output_error: str
    flags: str

    @staticmethod
    def of(row: Row) -> Line:
        """The line of a row of the table; useful flops only, and each tensor once."""
        p = find_case(row["case"]).problem
        rows, keys = p.batch * p.heads * p.seq_q, p.batch * p.kv_heads * p.seq_k
        moved = (rows + keys) * (p.head_dim * p.dtype_q.itemsize + p.value_dim * p.dtype_o.itemsize)
        median = float(row["median_time_s"])
        return Line(
            case=row["case"],
            impl=row["impl"],
            tile=f"{row['block_rows']}x{row['block_cols']}" if row["block_rows"] else "",
            median_s=median,
            cold_s=float(row["cold_time_s"]),
            flop_per_s=p.useful_flops / median,
            bytes_per_s=moved / median,
            output_error=row["output_error"],
            flags=row["flags"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came out: the files, what was measured, failed and refused, and sentences for people."""

    gpu: str
    profile: str | None
    folder: Path
    files: tuple[str, ...]
    done: Done
    refusals: tuple[Refusal, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        done = self.done
        return {
            "schema_version": 1,
            "gpu": self.gpu,
            "profile": self.profile,
            "folder": str(self.folder),
            "files": list(self.files),
            "measured": done.measured,
            "kept": done.kept,
            "left": done.left,
            "failed": dict(done.failed),
            "refused": [{"case": r.case, "impl": r.impl, "reason": r.reason} for r in self.refusals],
            "timed": [line.to_dict() for line in self.lines],
            "notes": list(self.notes),
            "seconds": dict(self.seconds),
        }


def choose_rungs(names: Sequence[str], known: Mapping[str, Rung]) -> dict[str, Rung]:
    """The rungs of some names, all of them for none. Errors: `UsageError` lists the known ones."""
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"--rungs: no rung {unknown[0]!r}; known: {', '.join(known)}")
    return {name: rung for name, rung in known.items() if not names or name in names}


def match_profile(gpu: str, asked: str | None, *, force: bool) -> HardwareProfile | None:
    """The profile of the GPU; None when nobody wrote one. Errors: `UsageError` for another GPU's, unless `force`."""
    profile = profile_for(gpu, asked)
    if profile is None:
        return None
    names = {canonical(name) for name in (profile.name, *profile.aliases)}
    if canonical(gpu) not in names and not force:
        raise UsageError(
            f"--hw: {profile.name} is not the profile of {gpu} (it names {', '.join(profile.aliases) or 'no GPU'}); "
            "leave --hw out, or add --force to compare all the same"
        )
    return profile


def facts_of(profile: HardwareProfile) -> GpuFacts:
    """What plans need to know of a GPU that is not here."""
    number = round(10 * float(profile.compute_capability))

    def whole(key: str) -> int:
        value = profile.quantities[key].value
        if value is None:
            raise UsageError(f"{profile.name}: {key} is unknown")
        return int(value)

    return GpuFacts(
        name=profile.aliases[0] if profile.aliases else profile.name,
        architecture=f"sm_{number}a" if number == 90 else f"sm_{number}",
        sms=whole("compute.sm_count"),
        shared_bytes_per_block=whole("memory.sram.per_block"),
        l2_bytes=whole("memory.l2.capacity"),
    )


def plan_work(asked: Asked, rungs: Mapping[str, Rung], gpu: GpuFacts, *, torch: bool) -> Work:
    """What a request comes to; no GPU is touched."""
    chosen = choose_rungs(asked.rungs, rungs)
    return find_work(asked.suite.cases, chosen, gpu, peers=PEERS if asked.peers and torch else ())


def validate(
    asked: Asked,
    gpu: Gpu,
    rungs: Mapping[str, Rung],
    *,
    bar: Bar = lambda what, total: nullcontext(lambda done, total: None),
    compile_all: Compile = build_all,
    profiler: Run = run_command,
    tool: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Compile, check, time and count; whatever is there already is not made again.

    Errors: `UsageError` for another GPU's profile or a folder of another environment, `InterruptedRun` on Ctrl-C,
    `RunError` when the GPU or the disk fails; rows are kept.
    """
    left = _time_left(asked.stop_after_s, clock)
    profile = match_profile(gpu.facts.name, asked.profile, force=asked.force)
    named = {"name": profile.name, "sha256": profile.sha256} if profile else None
    here = environment.describe(gpu, named)
    work = plan_work(asked, rungs, gpu.facts, torch=here.get("torch") is not None)
    notes = environment.enter(
        asked.out, here, suite=asked.suite.name, command=asked.command, force=asked.force
    )
    if profile is None:
        notes.append(f"no profile of {gpu.facts.name}: rows are written, `iosim audit` cannot predict them")
    if asked.peers and here.get("torch") is None:
        notes.append("torch is not installed: no peers beside the kernels")
    table = Table(asked.out)
    if asked.retry and (again := table.drop_failed()):
        notes.append(f"trying {again} failed items again")
    settings = Settings(run_s=asked.suite.run_s, pause_s=asked.suite.pause_s, stop_after_s=asked.stop_after_s)
    builds = tuple(dict.fromkeys(b for item in work.all_items if not table.of(item) for b in item.builds))
    took = _Phases(clock)
    with bar("compile", len(builds)) as tell:
        broken = compile_all(builds, tell)
    took.end("compile")
    settings = Settings(run_s=asked.suite.run_s, pause_s=asked.suite.pause_s, stop_after_s=left())
    with bar("measure", len(work.all_items)) as tell:
        done = measure(gpu, work, table, settings, broken=broken, progress=tell)
    took.end("measure")
    if asked.counters:
        gpu.release()
        with bar("counters", 1) as tell:
            notes += count(work, table, run=profiler, tool=tool, stop_after_s=left(), progress=tell)
        took.end("counters")
    return Report(
        gpu=gpu.facts.name,
        profile=profile.name if profile else None,
        folder=asked.out,
        files=tuple(sorted(path.name for path in asked.out.iterdir() if path.suffix in (".csv", ".json"))),
        done=done,
        refusals=work.refusals,
        lines=_lines(work, table),
        notes=tuple(notes),
        seconds=took.seconds,
    )


class _Phases:
    """How long each phase took."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._start = clock, clock()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """The phase since the last end."""
        now = self._clock()
        self.seconds[name], self._start = round(now - self._start, 3), now


def _time_left(stop_after_s: float | None, clock: Callable[[], float]) -> Callable[[], float | None]:
    started = clock()
    return lambda: None if stop_after_s is None else max(0.0, started + stop_after_s - clock())


def _lines(work: Work, table: Table) -> tuple[Line, ...]:
    firsts = [rows[0] for item in work.all_items if (rows := table.of(item))]
    return tuple(Line.of(row) for row in firsts if is_timed(row))


def list_work(work: Work) -> list[dict[str, Any]]:
    """Every item as plain values, for `--list`."""
    return [
        {
            "case": item.case.name,
            "impl": item.impl,
            "tile": str(item.tile or ""),
            "timed": item.case.timed,
            "ours": item.impl.startswith(OURS),
        }
        for item in work.all_items
    ]
