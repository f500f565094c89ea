"""The search: every design of a kernel class on a problem and a GPU, the whole table, the winner first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from iosim.errors import ProfileError, TileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.kernels import CLASSES
from iosim.problem import AttentionProblem
from iosim.roofline import Machine
from iosim.tune.cost import Workload, blocks_of, check_blocks, sm_bytes, times
from iosim.tune.design import (
    FEW_ROWS,
    ORDERS,
    WALKS,
    Choices,
    Design,
    Fit,
    check,
    fit,
    padded,
    shapes,
    variants,
)

if TYPE_CHECKING:
    pass
from iosim.tune.hbm import hbm_estimate, simulated_hbm
from iosim.tune.table import TuneRow, TuneTable, score_of

OBJECTIVES = ("time", "bytes")
LEVELS = ("sm", "hbm")
DEFAULT_CLASS = {"hopper": "wgmma"}
SIMULATED = 6
"""Designs whose HBM bytes are simulated, the best by the estimate; the others keep the estimate."""
ALIKE = 0.02
"""Predicted times that the model does not tell apart."""
SPLIT_WAVES = 2
"""Blocks an SM place up to which keys are split further."""
Progress = Callable[[int, int], None]


def default_class(gpu: HardwareProfile) -> str:
    """The class of kernel that suits a GPU's tensor cores."""
    return DEFAULT_CLASS.get(gpu.architecture, "mma-sync")


def tune(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    *,
    kernel_class: str | None = None,
    objective: str = "time",
    level: str = "sm",
    passes: str = "fwd",
    choices: Choices | None = None,
    progress: Progress | None = None,
) -> TuneTable:
    """Every design, best first.

    `kernel_class`: mma-sync, wgmma or wgmma-ping-pong, by default what suits the GPU. `objective`: time (of one run) or
    bytes, at the SMs (exact) or at HBM (`level`; simulated for the best SIMULATED by the estimate). `passes`: fwd, bwd.
    `choices`: what to choose from. Errors: `UsageError` for an unknown name or a problem outside the model, `TileError`
    where no design fits.
    """
    check(problem)
    chosen = choices or Choices()
    load = workload(problem, gpu, kernel_class or default_class(gpu), passes)
    _known(objective, level, load, chosen)
    if chosen.stages == () or any(s < 1 for s in chosen.stages):
        raise UsageError(f"stages: must be at least 1, got {chosen.stages}")
    found = shapes(padded(load.seen), load.kernel_class, chosen, backward=load.backward)
    held = [(d, fit(d, padded(problem), load.kernel_class, gpu, backward=load.backward)) for d in found]
    refused = [TuneRow(design=d, fit=f) for d, f in held if not f.fits]
    asked = [(v, f) for d, f in held if f.fits for v in _variants(load, d, f, chosen)]
    if not asked:
        raise TileError(_nothing(load, refused))
    check_blocks(load, [d for d, _ in asked])
    machine, no_time = _machine(load)
    if objective == "time" and machine is None:
        raise UsageError(f"--objective time: {no_time}; --objective bytes needs no time")
    notes = list(machine.assumed) if machine else []
    rows = _priced(load, machine, asked)
    rows.sort(key=lambda r: _order(r, objective, level))
    if objective == "time" and not load.packed:
        rows = _winner_first(rows, load)
    if objective == "bytes" and level == "hbm":
        rows = _with_simulated(load, machine, rows, notes, progress)
        rows[:SIMULATED] = sorted(rows[:SIMULATED], key=lambda r: _order(r, objective, level))
    notes += _notes(load, chosen)
    return TuneTable(
        problem=problem,
        profile=gpu.name,
        kernel_class=load.kernel_class,
        passes=passes,
        objective=objective,
        level=level,
        rows=(
            *rows,
            *sorted(refused, key=lambda r: (r.design.tile.rows, r.design.tile.cols, r.design.warps)),
        ),
        no_time=no_time,
        notes=tuple(notes),
    )


def workload(problem: AttentionProblem, gpu: HardwareProfile, kernel_class: str, passes: str) -> Workload:
    """What the designs are asked to compute; `UsageError` for a class or pass that is not tuned."""
    tunable = [name for name in CLASSES if name != "unfused"]
    if kernel_class not in tunable:
        raise UsageError(
            f"--kernel: class {kernel_class} is not one whose tiles are searched; allowed: {', '.join(tunable)}, or a "
            "card of such a class"
        )
    if passes not in ("fwd", "bwd"):
        raise UsageError(f"--pass: unknown pass {passes!r}; allowed: fwd, bwd")
    if passes == "bwd" and kernel_class != "mma-sync":
        raise UsageError(
            f"--pass bwd: the registers of a {kernel_class} backward are not modelled; use --kernel mma-sync"
        )
    packed = (
        passes == "fwd" and problem.seq_q * problem.group_size <= FEW_ROWS and problem.mask.window is None
    )
    return Workload(problem=problem, kernel_class=kernel_class, gpu=gpu, passes=passes, packed=packed)


def _known(objective: str, level: str, load: Workload, chosen: Choices) -> None:
    for name, value, allowed in (("--objective", objective, OBJECTIVES), ("--level", level, LEVELS)):
        if value not in allowed:
            raise UsageError(f"{name}: unknown {value!r}; allowed: {', '.join(allowed)}")
    for name, values, known in (("--order", chosen.orders, ORDERS), ("--kv-walk", chosen.walks, WALKS)):
        for value in values or ():
            if value not in known:
                raise UsageError(f"{name}: unknown {value!r}; allowed: {', '.join(known)}")
    if chosen.splits is not None and not load.packed and any(s != 1 for s in chosen.splits):
        raise UsageError(
            f"--splits: keys are split where few rows share them, at most {FEW_ROWS} rows of Q a kv-head; here are "
            f"{load.problem.seq_q * load.problem.group_size}"
        )
    if level == "hbm" and load.backward:
        raise UsageError(
            "--level hbm: the backward's launch is not known to the simulated hierarchy; use --level sm"
        )


def _variants(load: Workload, design: Design, held: Fit, chosen: Choices) -> list[Design]:
    """Orders where blocks differ in length, walks as asked for, splits where few rows leave SMs idle."""
    uneven = load.problem.mask.is_causal and load.problem.seq_q > design.tile.rows
    orders = chosen.orders or (ORDERS if uneven else ORDERS[:1])
    walks = chosen.walks or WALKS[:1]
    splits = chosen.splits or (1,)
    if chosen.splits is None and load.packed:
        slots = load.gpu.sm_count * held.blocks_per_sm
        most = min(-(-load.problem.seq_k // design.tile.cols), SPLIT_WAVES * slots // blocks_of(load, design))
        splits = [1 << k for k in range(max(1, most).bit_length())]
        even = slots // blocks_of(load, design)  # one wave exactly
        splits = sorted({*splits, *((even,) if 1 < even <= most else ())})
    return variants(design, orders, walks, splits)


def _priced(load: Workload, machine: Machine | None, asked: Sequence[tuple[Design, Fit]]) -> list[TuneRow]:
    moved = sm_bytes(load, [d for d, _ in asked])
    rows = []
    for (design, held), amount in zip(asked, moved, strict=True):
        read, written, least = hbm_estimate(load, design, held.blocks_per_sm)
        found = times(load, machine, design, held, amount, (read, written)) if machine else None
        rows.append(
            TuneRow(
                design=design,
                fit=held,
                sm_bytes=amount,
                hbm_bytes=read + written,
                hbm="compulsory" if least else "estimate",
                times=found,
            )
        )
    return rows


def _machine(load: Workload) -> tuple[Machine | None, str | None]:
    """The GPU's rates, or why times are not predicted: no constants of the class, or a mask the backward has not."""
    try:
        machine = Machine.of(load.gpu, str(load.problem.dtype_k))
        CLASSES[load.kernel_class].share_on(machine.architecture, backward=load.backward)
    except ProfileError as error:
        return None, str(error)
    p = load.problem
    if load.backward and (p.mask.kind not in ("none", "causal") or p.head_dim != p.value_dim):
        return None, "the time of the backward is known for masks none and causal and equal head dimensions"
    return machine, None


def _order(row: TuneRow, objective: str, level: str) -> tuple[Any, ...]:
    """Best first; among equals (times to 1/2000) the other objective, two stages, plain order, the smaller block."""
    score = score_of(row, objective, level)
    first = round(math.log(score) * 2000) if objective == "time" else score
    other = row.times.seconds if objective == "bytes" and row.times else row.sm_bytes or 0
    d = row.design
    return (first, other, abs(d.stages - 2), d.order != "grid", d.splits, row.fit.needs.threads, d.tile.cols)


def _robust(row: TuneRow, backward: bool) -> tuple[int, bool, int]:
    """Rows that a block owns (of Q, backward of K), no spills, warps of an SM."""
    owned = row.design.tile.cols if backward else row.design.tile.rows
    return owned, not row.fit.needs.tight, row.fit.blocks_per_sm * row.fit.needs.threads


def _winner_first(rows: list[TuneRow], load: Workload) -> list[TuneRow]:
    """By time; of the designs within ALIKE of the least first the tallest tile, no spills, the most warps an SM.

    What is that close the model cannot tell apart: fewer bytes and warps that hide each other's waits decide. Only
    where warps compute and load alike; a wgmma kernel has its own that load.
    """
    least = rows[0].times
    if least is None or not CLASSES[load.kernel_class].operands_by_warp:
        return rows
    alike = [r for r in rows if r.times is not None and r.times.seconds <= least.seconds * (1 + ALIKE)]
    best = max(alike, key=lambda r: _robust(r, load.backward))
    return [best, *(r for r in rows if r is not best)]


def _with_simulated(
    load: Workload, machine: Machine | None, rows: list[TuneRow], notes: list[str], progress: Progress | None
) -> list[TuneRow]:
    out = list(rows)
    done: dict[tuple[Any, ...], tuple[int, int]] = {}
    for i, row in enumerate(rows[:SIMULATED]):
        d = row.design
        key = (d.tile, row.fit.blocks_per_sm, d.order, d.walk, d.splits)
        if key not in done:
            done[key] = simulated_hbm(load, d, row.fit.blocks_per_sm)
        read, written = done[key]
        found = times(load, machine, d, row.fit, row.sm_bytes or 0, (read, written)) if machine else None
        out[i] = replace(row, hbm_bytes=read + written, hbm="simulated", times=found)
        if progress:
            progress(i + 1, min(SIMULATED, len(rows)))
    if not load.gpu.counter_data:
        notes.append(f"HBM bytes: extrapolated, {load.gpu.name} has no counter data")
    return out


def _notes(load: Workload, chosen: Choices) -> list[str]:
    said = []
    if 1 in chosen.stages:
        said.append(
            "stages 1: K and V each have one place and arrive in turn, as in FlashAttention-2; no wait is added"
        )
    if load.backward:
        said.append(
            "backward: one share for all tiles, fitted at FlashAttention-2's; registers are those of 8 warps"
        )
    if load.packed and load.problem.group_size > 1:
        said.append("few rows: the query heads of a group are rows of one tile")
    return said


def _nothing(load: Workload, refused: Sequence[TuneRow]) -> str:
    row = min(refused, key=lambda r: (r.design.tile.rows * r.design.tile.cols, r.design.warps))
    return (
        f"tune: no design of {load.kernel_class} fits on {load.gpu.name}; the smallest, {row.design}, needs "
        f"{row.fit.reason}; use fewer stages, smaller tiles or a smaller head dimension"
    )
