"""The waterfall of a measured kernel: its own launch, and the counters as the last word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iosim.audit.compare import FUSED
from iosim.audit.measurements import MeasuredRow, MeasurementFile
from iosim.audit.unfused import KERNELS as UNFUSED
from iosim.audit.unfused import unfused_bytes
from iosim.errors import UsageError
from iosim.gap.build import gap_of_program, hbm_total, kernel_run, sm_total
from iosim.gap.hierarchy_side import Outcome, descend, undivided
from iosim.gap.program_side import Run, climb
from iosim.gap.record import Gap, Ladder
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.kernels import KernelFacts, kernels_by_measurement
from iosim.levels import kernel_policies
from iosim.memory.hierarchy import Policies
from iosim.problem import AttentionProblem, TileShape


def rows_of_case(file: MeasurementFile, case: str, name: str) -> list[MeasuredRow]:
    """The kernels of one case; `UsageError` names some cases where there is none."""
    found = [row for row in file.rows if row.case == case]
    if not found:
        known = list(dict.fromkeys(row.case for row in file.rows))
        shown = ", ".join(known[:8]) + (f", ... {known[-1]}" if len(known) > 8 else "")
        raise UsageError(f"--row: {name} has no case {case!r}; its cases: {shown}")
    return found


def gap_of_rows(rows: Sequence[MeasuredRow], profile: HardwareProfile) -> Gap:
    """The waterfall of one measured case: one fused kernel, or the kernels of unfused attention together.

    `UsageError` where no card knows the kernel, its tile is unknown, or kernels of an unfused case are missing.
    """
    facts = kernels_by_measurement().get(rows[0].implementation)
    if facts is None:
        known = ", ".join(sorted(kernels_by_measurement()))
        raise UsageError(f"gap: no facts about {rows[0].implementation!r}; known: {known}")
    if all(row.kernel in UNFUSED for row in rows):
        return _unfused(rows, facts, profile)
    fused = [row for row in rows if row.kernel == FUSED]
    if len(fused) != 1:
        kernels = ", ".join(row.kernel for row in rows)
        raise UsageError(
            f"gap: case {rows[0].case} has {kernels}; needed: one {FUSED}, or {', '.join(UNFUSED)}"
        )
    row = fused[0]
    if row.tile is None:
        raise UsageError(f"gap: case {row.case}: block_rows and block_cols are needed, and the file has none")
    run = kernel_run(row.problem, facts, row.tile, profile.sram_per_block_bytes)
    policies = kernel_policies(
        facts,
        run.problem,
        row.tile,
        profile,
        registers_per_thread=row.registers_per_thread,
        threads=row.threads_per_block,
        shared_bytes=row.shared_bytes_per_block or 0,
    )
    return gap_of_program(
        run,
        profile,
        policies,
        kernel=facts.name,
        in_step=facts.in_step,
        measured=row.measured,
        case=row.case,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnfusedMachine:
    """Kernels of unfused attention, each from a cold L2."""

    problem: AttentionProblem
    facts: KernelFacts
    profile: HardwareProfile
    written_bytes: int

    def run(self, *, copies: bool, jitter: bool, spills: bool) -> Outcome:
        """One reading; such kernels have neither jitter nor spills here."""
        gpu = self.profile if copies else undivided(self.profile)
        parts = [unfused_bytes(kernel, self.problem, self.facts, gpu) for kernel in UNFUSED]
        fetched = round(sum(p.hbm_read_bytes for p in parts))
        out = round(sum(p.hbm_write_bytes for p in parts))
        return Outcome(owed_bytes=fetched + self.written_bytes, dirty_bytes=self.written_bytes - out)


def _unfused(rows: Sequence[MeasuredRow], facts: KernelFacts, profile: HardwareProfile) -> Gap:
    missing = [name for name in UNFUSED if name not in {row.kernel for row in rows}]
    if missing:
        raise UsageError(f"gap: case {rows[0].case} lacks the kernels {', '.join(missing)}")
    problem = rows[0].problem
    tile = facts.tile(problem.head_dim) or TileShape(rows=128, cols=128)
    run: Run = kernel_run(problem, facts, tile, profile.sram_per_block_bytes)
    counters = _sums(rows)
    ladder = Ladder()
    climb(run, ladder)
    sm_total(run, ladder, counters)
    tally = count(run.program, bind(problem, tile))
    machine = _UnfusedMachine(
        problem=problem,
        facts=facts,
        profile=profile,
        written_bytes=int(sum(tally.write_bytes.values())),
    )
    descend(machine, profile, Policies(sms=profile.sm_count), ladder, has_spills=False)
    hbm_total(ladder, counters)
    return Gap(
        problem=problem,
        algorithm=run.algorithm.name,
        options=run.options,
        tiles=tile,
        kernel=facts.name,
        profile=profile.name,
        profile_sha256=profile.sha256,
        sram_bytes=run.sram_bytes,
        extrapolated=not profile.counter_data,
        entries=ladder.done(),
        case=rows[0].case,
        warnings=(
            "gap: the tile of the unfused GEMMs is assumed; their reads are simulated without a coalescer",
        ),
    )


def _sums(rows: Sequence[MeasuredRow]) -> Mapping[str, float]:
    """Counters of all kernels together; one that a kernel lacks is left out."""
    names = set.intersection(*(set(row.measured) for row in rows))
    return {name: sum(row.measured[name] for row in rows) for name in names}
