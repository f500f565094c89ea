"""What the model says of one measured row: exact bytes and operations, and the simulated levels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from iosim.algorithms.registry import find_algorithm
from iosim.audit.compare import FUSED, Comparison
from iosim.audit.measurements import MeasuredRow
from iosim.audit.parts import DECODE, decode_part, unfused_read_bytes
from iosim.audit.times import decode_times, fused_times, gemm_time, streaming_times
from iosim.audit.unfused import KERNELS as UNFUSED
from iosim.audit.unfused import unfused_bytes
from iosim.errors import ProfileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import count, lines
from iosim.kernels import KernelFacts, measured_kernel
from iosim.levels import LevelTraffic, kernel_policies, simulate_levels
from iosim.onchip import special_ops as exact_special_ops
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.evaluate import Frame
from iosim.program.expr import is_const
from iosim.program.ir import Compute, Program
from iosim.workers import in_order

COLUMNS = (
    "sm_read_bytes",
    "l2_read_bytes",
    "l2_fabric_bytes",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "special_ops",
    "profiled_time_s",
    "median_time_s",
)
LEAST_ROWS = 8
"""Of a process: starting one costs as much as predicting some."""
Prediction = dict[str, float | None]
Progress = Callable[[int, int], None]


def audit_rows(
    rows: Sequence[MeasuredRow],
    profile: HardwareProfile,
    name: str,
    progress: Progress | None = None,
    *,
    processes: int = 1,
) -> tuple[list[Comparison], list[str]]:
    """Predict every row of file `name`; a row the model has no facts for gets None in every column.

    Rows that cannot be simulated, as with too many thread blocks, are left out and named in the second list. The
    answer is the same with any number of `processes`; with more than one, see `iosim.workers.in_order`.
    """
    groups = _groups(rows)
    finished = 0

    def tell(group: int) -> None:
        nonlocal finished
        finished += len(groups[group])
        if progress:
            progress(finished, len(rows))

    tasks = [tuple(rows[number] for number in group) for group in groups]
    useful = min(processes, max(1, len(rows) // LEAST_ROWS))
    answers = in_order(partial(_predict_all, profile=profile), tasks, useful, tell)
    found = {
        number: answer
        for group, several in zip(groups, answers, strict=True)
        for number, answer in zip(group, several, strict=True)
    }
    out, faults = [], []
    for number, row in enumerate(rows):
        answer = found[number]
        if isinstance(answer, str):
            faults.append(f"{name}:{row.line}: {answer}; left out")
        else:
            out.append(Comparison(row=row, predicted=answer))
    return out, faults


def _groups(rows: Sequence[MeasuredRow]) -> list[list[int]]:
    """Numbers of rows that are predicted by one process, since they share a simulation: a shape's unfused kernels."""
    groups: dict[object, list[int]] = {}
    for number, row in enumerate(rows):
        shared = replace(row.problem, mask=Mask()) if row.kernel in UNFUSED else number
        groups.setdefault(shared, []).append(number)
    return list(groups.values())


def _predict_all(rows: Sequence[MeasuredRow], profile: HardwareProfile) -> list[Prediction | str]:
    """Every row's prediction, or why there is none."""
    answers: list[Prediction | str] = []
    for row in rows:
        try:
            answers.append(predict(row, profile))
        except ProfileError:  # of the GPU, and so of every row
            raise
        except UsageError as error:
            answers.append(str(error))
    return answers


def predict(row: MeasuredRow, profile: HardwareProfile) -> Prediction:
    """Every column for one row, from its shape, its launch and the facts of its kernel alone."""
    facts = measured_kernel(row.implementation, row.problem, row.tile)
    if facts is not None and row.block_mask is not None:
        facts = replace(facts, options={**facts.options, "block-mask": row.block_mask})
    if facts is not None and row.kernel in UNFUSED:
        found = unfused_bytes(row.kernel, row.problem, facts, profile)
        known = {
            "sm_read_bytes": unfused_read_bytes(row, facts),
            "hbm_read_bytes": found.hbm_read_bytes,
            "hbm_write_bytes": found.hbm_write_bytes,
            "profiled_time_s": gemm_time(row, facts, profile, found),
        }
        return {column: known.get(column) for column in COLUMNS}
    if facts is not None and row.kernel in DECODE and row.tile is not None:
        part = decode_part(row, facts, row.tile, profile)
        known = asdict(part) | decode_times(row, part, profile) if part else {}
        return {column: known.get(column) for column in COLUMNS}
    if row.kernel != FUSED or facts is None:
        return dict.fromkeys(COLUMNS)
    if row.tile is None:
        return {column: streaming_times(row, profile).get(column) for column in COLUMNS}
    return _fused(row, facts, row.tile, profile)


def simulate_row(
    row: MeasuredRow, facts: KernelFacts, tile: TileShape, profile: HardwareProfile
) -> LevelTraffic:
    """The levels of a measured fused kernel: its shape and launch, and the facts of its kernel."""
    seen = facts.packed(row.problem)
    policies = kernel_policies(
        facts,
        seen,
        tile,
        profile,
        registers_per_thread=row.registers_per_thread,
        threads=row.threads_per_block,
        shared_bytes=_own_shared_bytes(row, profile),
    )
    algorithm = find_algorithm(facts.algorithm)
    return simulate_levels(algorithm, seen, facts.options, tile, profile, policies, in_step=facts.in_step)


def _own_shared_bytes(row: MeasuredRow, profile: HardwareProfile) -> int | None:
    """Without the driver's part, which a launch states with the rest and the occupancy rules add again."""
    if row.shared_bytes_per_block is None:
        return None
    return max(0, row.shared_bytes_per_block - profile.sram_reserved_per_block_bytes)


def _fused(row: MeasuredRow, facts: KernelFacts, tile: TileShape, profile: HardwareProfile) -> Prediction:
    levels = simulate_row(row, facts, tile, profile)
    times = fused_times(row, facts, tile, profile, levels)
    return fused_bytes(row.problem, facts, tile, profile, levels) | times


def fused_bytes(
    problem: AttentionProblem,
    facts: KernelFacts,
    tile: TileShape,
    profile: HardwareProfile,
    levels: LevelTraffic,
) -> Prediction:
    """Bytes at every level and special functions of a fused kernel, from its simulated levels."""
    program = find_algorithm(facts.algorithm).program(facts.packed(problem).mask.kind, facts.options)
    sm_reads = int(sum(count(program, bind(facts.padded(problem), tile)).read_bytes.values()))
    sm_reads += facts.q_box_bytes(problem)
    return {
        "sm_read_bytes": sm_reads,
        "sm_write_bytes": levels.sm_write_bytes,
        "l2_read_bytes": sm_reads * levels.l2_read_bytes / levels.sm_read_bytes,
        "l2_write_bytes": levels.l2_write_bytes,
        "l2_fabric_bytes": levels.l2_fabric_bytes,
        "hbm_read_bytes": levels.hbm_read_bytes,
        "hbm_write_bytes": levels.hbm_write_bytes,
        "special_ops": special_ops(program, facts, problem, tile, profile),
    }


def special_ops(
    program: Program, facts: KernelFacts, problem: AttentionProblem, tile: TileShape, profile: HardwareProfile
) -> int:
    """Special-function results of a kernel: by its card's exact rule, else whole tiles of its program.

    An accumulator row lies in the lanes of a quad, and each of them computes the row's rescale, reciprocal and log.
    """
    if facts.special is not None:
        most = profile.sm_count if facts.persistent else None
        return exact_special_ops(
            facts.packed(problem),
            tile,
            facts.special,
            pack=False,
            most_blocks=most,
            block_mask=facts.options.get("block-mask", "off"),
        )
    padded = facts.padded(problem)
    whole = replace(
        padded,
        seq_q=-(-padded.seq_q // tile.rows) * tile.rows,
        seq_k=-(-padded.seq_k // tile.cols) * tile.cols,
    )
    frame = Frame(bind(whole, tile))
    total = 0
    for line in lines(program):
        amount = line.work.get("special")
        if amount is not None and isinstance(line.statement, Compute):
            row_wise = is_const(line.statement.spans[1].length, 1) if line.statement.spans else False
            total += int(frame.value(amount)) * (facts.row_lanes if row_wise else 1)
    return total
