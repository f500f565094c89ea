"""Rows that are one kernel of several: bytes and special functions of that kernel alone, read off the program.

The three kernels of standard attention with known GEMM tiles, and the two of a decode with split keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from iosim.algorithms.registry import find_algorithm
from iosim.audit.measurements import MeasuredRow
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import lines
from iosim.kernels import KernelFacts
from iosim.levels import kernel_policies
from iosim.memory.hierarchy import simulate_kernels
from iosim.memory.sliced_l2 import sliced_l2
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.evaluate import Frame
from iosim.program.expr import is_const
from iosim.program.ir import Compute, Load, Program
from iosim.splits import best_split, split_table

UNFUSED: Mapping[str, str] = MappingProxyType(
    {"qk_gemm": "scores", "softmax": "softmax", "pv_gemm": "output"}
)
DECODE: Mapping[str, str] = MappingProxyType({"decode_split": "split", "decode_combine": "combine"})
"""Names in measurement files -> kernels of the program."""
SAMPLED_SLICES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBytes:
    """One kernel of a decode: bytes into the SMs, HBM bytes from a cold L2, special functions (None: not known).

    `splits`: of the keys; with more than one, both kernels run. `main_hbm_*`: of the first of them.
    """

    sm_read_bytes: int
    hbm_read_bytes: float
    hbm_write_bytes: float
    special_ops: int | None
    splits: int
    main_hbm_read_bytes: float
    main_hbm_write_bytes: float


def read_bytes(program: Program, kernel: str, problem: AttentionProblem, tile: TileShape) -> int:
    """Bytes that one kernel of a program reads."""
    frame = Frame(bind(problem, tile))
    own = [line for line in lines(program) if line.kernel == kernel and isinstance(line.statement, Load)]
    return sum(int(frame.value(line.read_bytes)) for line in own)


def unfused_read_bytes(row: MeasuredRow, facts: KernelFacts) -> int | None:
    """Bytes into the SMs of one of UNFUSED; None where the row does not know the GEMM's tile."""
    if row.tile is None:
        return None
    options = {**facts.options, "gemm-tiles": str(row.tile)}
    program = find_algorithm(facts.algorithm).program(row.problem.mask.kind, options)
    return read_bytes(program, UNFUSED[row.kernel], row.problem, row.tile)


def decode_part(
    row: MeasuredRow, facts: KernelFacts, tile: TileShape, profile: HardwareProfile
) -> PartBytes | None:
    """One of DECODE, with the splits that `iosim.splits` chooses; None for a kernel that is then not launched."""
    algorithm = find_algorithm(facts.algorithm)
    table = split_table(row.problem, algorithm, facts.options, tile, profile.sm_count)
    splits = best_split(table).splits
    if splits == 1 and row.kernel != "decode_split":
        return None
    kernel = algorithm.name if splits == 1 else DECODE[row.kernel]
    options = {**facts.options, "splits": str(splits)}
    program = algorithm.program(row.problem.mask.kind, options)
    policies = kernel_policies(
        facts,
        row.problem,
        tile,
        profile,
        registers_per_thread=row.registers_per_thread,
        threads=row.threads_per_block,
        shared_bytes=max(0, (row.shared_bytes_per_block or 0) - profile.sram_reserved_per_block_bytes),
    )
    l2 = sliced_l2(profile, sampled_slices=SAMPLED_SLICES)
    simulated = simulate_kernels(program, bind(row.problem, tile), policies, l2, cold_kernels=True)
    levels, main = next(k for k in simulated if k.kernel == kernel), simulated[0]
    return PartBytes(
        sm_read_bytes=read_bytes(program, kernel, row.problem, tile),
        hbm_read_bytes=levels.cache.fetch_bytes,
        hbm_write_bytes=max(0.0, levels.sm_write_bytes - levels.cache.dirty_bytes),
        special_ops=_special_ops(row, facts, kernel, options, tile) if row.kernel == "decode_split" else None,
        splits=splits,
        main_hbm_read_bytes=main.cache.fetch_bytes,
        main_hbm_write_bytes=max(0.0, main.sm_write_bytes - main.cache.dirty_bytes),
    )


def _special_ops(
    row: MeasuredRow, facts: KernelFacts, kernel: str, options: Mapping[str, str], tile: TileShape
) -> int | None:
    """Of whole tiles, as a kernel computes them: packed rows and keys rounded up, `row_lanes` lanes a row.

    None for several queries under a mask: which of them share a tile is then not that of one query.
    """
    problem = row.problem
    if problem.seq_q > 1 and problem.mask.is_causal:
        return None
    rows = problem.seq_q * problem.group_size
    whole = replace(
        problem,
        heads=problem.kv_heads,
        seq_q=-(-rows // tile.rows) * tile.rows,
        seq_k=-(-problem.seq_k // tile.cols) * tile.cols,
        mask=Mask(),
    )
    program = find_algorithm(facts.algorithm).program("none", options)
    frame = Frame(bind(whole, tile))
    total = 0
    for line in lines(program):
        amount = line.work.get("special")
        if line.kernel == kernel and amount is not None and isinstance(line.statement, Compute):
            row_wise = is_const(line.statement.spans[1].length, 1) if line.statement.spans else False
            total += int(frame.value(amount)) * (facts.row_lanes if row_wise else 1)
    return total
