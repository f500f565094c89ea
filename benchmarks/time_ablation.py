"""What each term of the run-time prediction is worth: errors on measured kernels with the term left out.

    python -m benchmarks.time_ablation [FILE [IMPLEMENTATION ...]]

Prints the tables of docs/time.md. Reads a file of measurements (by default that of the H200), of it all fused kernels
or those named; half a minute. Terms that change nothing are left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.audit.predict import simulate_row
from iosim.audit.times import streaming_times, work_of
from iosim.hardware import load_profile
from iosim.kernels import CLASSES, KernelClass, measured_kernel
from iosim.roofline import TERMS, FusedWork, Machine, predict_both

FILE = Path(__file__).resolve().parents[1] / "validation" / "measurements" / "h200" / "attention.csv"
COLUMNS = ("profiled_time_s", "median_time_s")
SHORTEST_MEDIAN_S = 60e-6
Case = tuple[MeasuredRow, FusedWork, KernelClass]


def main(arguments: Sequence[str]) -> None:
    """Print the errors of the whole model by kernel, then those without each term."""
    rows = read_measurements(Path(arguments[0]) if arguments else FILE).rows
    rows = tuple(r for r in rows if not arguments[1:] or r.implementation in arguments[1:])
    profile = load_profile(rows[0].gpu)
    machine = Machine.of(profile, "fp16")
    cases: list[Case] = []
    for row in rows:
        facts = measured_kernel(row.implementation, row.problem, row.tile)
        if row.kernel == "flash_fwd" and facts is not None and row.tile is not None:
            if facts.divides_keys(row.problem, profile.sm_count):
                continue
            if row.block_mask is not None:
                facts = replace(facts, options={**facts.options, "block-mask": row.block_mask})
            levels = simulate_row(row, facts, row.tile, profile)
            cases.append(
                (
                    row,
                    work_of(row.problem, facts, row.tile, levels, threads=row.threads_per_block),
                    CLASSES[facts.kernel_class],
                )
            )
    streamed = [row for row in rows if row.kernel == "flash_fwd" and row.tile is None]
    # decode kernels of unknown tile have two terms, HBM and start
    fixed = {c: [_error(r, c, streaming_times(r, profile)[c]) for r in streamed] for c in COLUMNS}
    bare = {c: [_error(r, c, machine.start_s) for r in streamed] for c in COLUMNS}
    print("| terms | one run: mean | p90 | worst | many runs: mean | p90 | worst |")
    print("|---|---|---|---|---|---|---|")
    for kernel in dict.fromkeys(row.implementation for row, _, _ in cases):
        own = [c for c in cases if c[0].implementation == kernel]
        _line(f"all, {kernel}", own, machine, (), {c: [] for c in COLUMNS})
    whole = _line("**all**", cases, machine, (), fixed)
    for term in TERMS:
        _line(f"without {term}", cases, machine, (term,), bare if term == "HBM" else fixed, unlike=whole)


def _line(
    label: str,
    cases: Sequence[Case],
    machine: Machine,
    without: Sequence[str],
    fixed: dict[str, list[float | None]],
    unlike: str = "",
) -> str:
    """Print a line of the table, unless its numbers are those of `unlike`; return the numbers."""
    found = {c: [e for e in fixed[c] if e is not None] for c in COLUMNS}
    for row, work, kernel in cases:
        for column, predicted in zip(
            COLUMNS, predict_both(work, machine, kernel, without=without), strict=True
        ):
            error = _error(row, column, predicted.seconds)
            if error is not None:
                found[column].append(error)
    numbers = " | ".join(_summary(found[c]) for c in COLUMNS)
    if numbers != unlike:
        print(f"| {label} | {numbers} |")
    return numbers


def _error(row: MeasuredRow, column: str, predicted: float | None) -> float | None:
    measured = row.measured.get(column, 0.0)
    if not measured or predicted is None or (column == "median_time_s" and measured < SHORTEST_MEDIAN_S):
        return None
    return abs(predicted / measured - 1)


def _summary(errors: list[float]) -> str:
    ordered = sorted(errors)
    if not ordered:
        return "- | - | -"
    p90 = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return f"{sum(ordered) / len(ordered):.1%} | {p90:.1%} | {ordered[-1]:.1%}"


if __name__ == "__main__":
    main(sys.argv[1:])
