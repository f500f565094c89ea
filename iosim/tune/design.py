"""Designs of a fused kernel: a tile, who computes it, copies in flight; and whether one fits on an SM, or why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosim.errors import SimulationError, UsageError
from iosim.hardware import HardwareProfile
from iosim.memory.occupancy import BlockNeeds, SmLimits, occupancy
from iosim.problem import AttentionProblem, TileShape
from iosim.tune.registers import (
    MMA_COLS,
    MMA_ROWS,
    WGMMA_KEYS,
    WGMMA_ROWS,
    Needs,
    backward_needs,
    mma_needs,
    wgmma_needs,
)

MOST_ROWS, MOST_COLS = 256, 256
BACKWARD_STEP = 32
HEAD_STEP = 16
"""Head dimensions are padded to the k of an MMA."""
FEW_ROWS = 64
"""Rows of Q up to which small tiles are tried: blocks of one or two warps, no more rows than these."""
ORDERS = ("grid", "longest-first")
WALKS = ("forward", "backward", "sawtooth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """One way to write the kernel.

    `warps` that compute (a wgmma kernel has four more that load); `stages` of K and V (of Q backward); `splits` of the
    keys; `order` of launch; `walk` over the keys.
    """

    tile: TileShape
    warps: int
    stages: int = 2
    splits: int = 1
    order: str = "grid"
    walk: str = "forward"

    def __str__(self) -> str:
        parts = [str(self.tile), f"{self.warps} warps", f"{self.stages} stages"]
        parts += [f"{self.splits} splits"] if self.splits > 1 else []
        parts += [self.order] if self.order != "grid" else []
        parts += [self.walk] if self.walk != "forward" else []
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What a design takes on an SM. `blocks_per_sm` is 0 where it does not fit: then `reason_class` (registers, shared
    memory, threads) and `reason` say why. `limited_by`: what allows no more blocks."""

    needs: Needs
    blocks_per_sm: int
    limited_by: str
    reason_class: str = ""
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether a block is ever resident."""
        return self.blocks_per_sm > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the search may choose from; None leaves it to the shapes of the instructions."""

    rows: Sequence[int] | None = None
    cols: Sequence[int] | None = None
    warps: Sequence[int] | None = None
    stages: Sequence[int] = (2,)
    splits: Sequence[int] | None = None
    orders: Sequence[str] | None = None
    walks: Sequence[str] | None = None


def padded(problem: AttentionProblem) -> AttentionProblem:
    """The problem as the matmuls see it."""
    return problem.padded(HEAD_STEP)


def check(problem: AttentionProblem) -> None:
    """`UsageError` for what no design here computes."""
    sizes = {t.itemsize for t in (problem.dtype_q, problem.dtype_k, problem.dtype_v)}
    if sizes != {2} or problem.dtype_acc.itemsize != 4:
        raise UsageError(
            f"tune: knows 16-bit operands with fp32 accumulators, not {problem.dtype_q}/{problem.dtype_k}/"
            f"{problem.dtype_v} with {problem.dtype_acc}; use --dtype fp16 or bf16"
        )


def shapes(problem: AttentionProblem, kernel_class: str, choices: Choices, *, backward: bool) -> list[Design]:
    """Every tile, warps and stages, in multiples of the instruction's shape; `UsageError` where no choice is one."""
    if backward:
        found = list(_backward(choices))
    elif kernel_class.startswith("wgmma"):
        found = list(_wgmma(choices))
    else:
        few = problem.seq_q <= FEW_ROWS
        found = list(_mma((1, 2, 4) if few else (4, 8), choices, FEW_ROWS if few else MOST_ROWS))
    if not found:
        raise UsageError(
            f"tune: no tile of {kernel_class} among the rows, columns and warps asked for; rows are multiples of "
            + (f"{WGMMA_ROWS}" if kernel_class.startswith("wgmma") else f"{MMA_ROWS} a warp")
            + f", columns of {MMA_COLS}"
        )
    return found


def _mma(warps: Sequence[int], choices: Choices, most_rows: int) -> Iterator[Design]:
    for w in choices.warps or warps:
        unit = MMA_ROWS * w
        for rows in choices.rows or range(unit, most_rows + 1, unit):
            if rows % unit == 0:
                yield from _widths(rows, w, choices, MOST_COLS)


def _backward(choices: Choices) -> Iterator[Design]:
    """Eight warps divide both sides of a tile, so that either may be short (FlashAttention-2's layouts)."""
    for w in choices.warps or (8,):
        for rows in choices.rows or range(BACKWARD_STEP, MOST_ROWS + 1, BACKWARD_STEP):
            for cols in choices.cols or range(BACKWARD_STEP, MOST_COLS + 1, BACKWARD_STEP):
                if rows % BACKWARD_STEP == 0 and cols % BACKWARD_STEP == 0:
                    for stages in choices.stages:
                        yield Design(tile=TileShape(rows=rows, cols=cols), warps=w, stages=stages)


def _wgmma(choices: Choices) -> Iterator[Design]:
    for rows in choices.rows or range(WGMMA_ROWS, MOST_ROWS + 1, WGMMA_ROWS):
        warps = 4 * rows // WGMMA_ROWS
        if rows % WGMMA_ROWS == 0 and (choices.warps is None or warps in choices.warps):
            yield from _widths(rows, warps, choices, WGMMA_KEYS)


def _widths(rows: int, warps: int, choices: Choices, most: int) -> Iterator[Design]:
    for cols in choices.cols or range(MMA_COLS, most + 1, MMA_COLS):
        if cols % MMA_COLS == 0 and cols <= most:
            for stages in choices.stages:
                yield Design(tile=TileShape(rows=rows, cols=cols), warps=warps, stages=stages)


def fit(
    design: Design, problem: AttentionProblem, kernel_class: str, gpu: HardwareProfile, *, backward: bool
) -> Fit:
    """Registers, shared memory and occupancy of a design; `problem` with head dimensions as the matmuls see them."""
    if backward:
        needs = backward_needs(problem, design.tile, design.warps, design.stages)
    elif kernel_class.startswith("wgmma"):
        needs = wgmma_needs(problem, design.tile, design.stages)
    else:
        needs = mma_needs(problem, design.tile, design.warps, design.stages)
    limits = SmLimits.of(gpu)
    kind, why = _refusal(needs, limits)
    if kind:
        return Fit(needs=needs, blocks_per_sm=0, limited_by=kind, reason_class=kind, reason=why)
    asked = BlockNeeds(
        threads=needs.threads, registers_per_thread=needs.launch_registers, shared_bytes=needs.shared_bytes
    )
    try:
        found = occupancy(asked, limits)
    except SimulationError as error:
        # every other limit was asked for above: what is left is the register file of all threads together
        return Fit(
            needs=needs, blocks_per_sm=0, limited_by="registers", reason_class="registers", reason=str(error)
        )
    return Fit(needs=needs, blocks_per_sm=found.blocks_per_sm, limited_by=found.limited_by)


def _refusal(needs: Needs, limits: SmLimits) -> tuple[str, str]:
    """Class and sentence of what a single block lacks; empty where it has all."""
    file_bytes = limits.registers
    if needs.threads > limits.threads_per_block:
        return "threads", f"{needs.threads} threads, a block has at most {limits.threads_per_block}"
    if needs.registers > needs.register_limit:
        parts = " + ".join(f"{name} {n}" for name, n in needs.parts)
        return "registers", f"{needs.registers} registers a thread ({parts}), at most {needs.register_limit}"
    if needs.launch_registers * needs.threads > file_bytes:
        return (
            "registers",
            f"{needs.threads} threads of {needs.launch_registers} registers at launch, an SM has {file_bytes:,}",
        )
    if needs.shared_bytes > limits.shared_bytes_per_block:
        return (
            "shared memory",
            f"{needs.shared_bytes:,} B of shared memory, a block has {limits.shared_bytes_per_block:,}",
        )
    return "", ""


def variants(
    design: Design, orders: Sequence[str], walks: Sequence[str], splits: Sequence[int]
) -> list[Design]:
    """The design in every order, walk and number of splits."""
    return [replace(design, order=o, walk=w, splits=s) for o in orders for w in walks for s in splits]


def design_dict(design: Design) -> dict[str, Any]:
    """Plain values."""
    return {
        "rows": design.tile.rows,
        "cols": design.tile.cols,
        "warps": design.warps,
        "stages": design.stages,
        "splits": design.splits,
        "order": design.order,
        "walk": design.walk,
    }
