"""The search: every design of a kernel class on a problem and a GPU, the whole table, the winner first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from iosim.algorithms.registry import find_algorithm
from iosim.errors import ProfileError, TileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.kernels import CLASSES
from iosim.levels import SKEW, simulate_levels
from iosim.memory.hierarchy import Policies
from iosim.problem import AttentionProblem
from iosim.roofline import Machine
from iosim.tune.cost import Times, Workload, blocks_of, hbm_estimate, sm_bytes, times
from iosim.tune.design import (
    FEW_ROWS,
    ORDERS,
    WALKS,
    Choices,
    Design,
    Fit,
    check,
    design_dict,
    fit,
    padded,
    shapes,
    variants,
)

if TYPE_CHECKING:
    import pandas as pd

OBJECTIVES = ("time", "bytes")
LEVELS = ("sm", "hbm")
DEFAULT_CLASS = {"hopper": "wgmma"}
SIMULATED = 6
"""Designs whose HBM bytes are simulated, the best by the estimate; the others keep the estimate."""
WHOLE_WAVES = 3
"""Waves of blocks that a simulation follows; further heads repeat them."""
SPLIT_WAVES = 2
"""Blocks an SM place up to which keys are split further."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRow:
    """A design with its bytes and times. Infeasible ones have a reason and nothing else.

    `hbm`: compulsory, estimate or simulated. Times are None where the class has no constants, which `TuneTable.no_time`
    explains.
    """

    design: Design
    fit: Fit
    sm_bytes: int | None = None
    hbm_bytes: int | None = None
    hbm: str = ""
    times: Times | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        t, needs = self.times, self.fit.needs
        return {
            **design_dict(self.design),
            "fits": self.fit.fits,
            "reason_class": self.fit.reason_class or None,
            "reason": self.fit.reason or None,
            "registers_per_thread": needs.registers,
            "register_limit": needs.register_limit,
            "registers_tight": needs.tight and self.fit.fits,
            "threads": needs.threads,
            "shared_bytes": needs.shared_bytes,
            "blocks_per_sm": self.fit.blocks_per_sm,
            "limited_by": self.fit.limited_by,
            "sm_bytes": self.sm_bytes,
            "hbm_bytes": self.hbm_bytes,
            "hbm_from": self.hbm or None,
            "seconds": t.seconds if t else None,
            "low_s": t.low_s if t else None,
            "high_s": t.high_s if t else None,
            "sustained_s": t.repeated_s if t else None,
            "limit": t.limit if t else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneTable:
    """All designs: those that fit, best first, then those that do not.

    `no_time`: why there are no times, None where there are. `notes`: what was assumed or left out.
    """

    problem: AttentionProblem
    profile: str
    kernel_class: str
    passes: str
    objective: str
    level: str
    rows: tuple[TuneRow, ...]
    no_time: str | None
    notes: tuple[str, ...] = field(default=())

    @property
    def feasible(self) -> tuple[TuneRow, ...]:
        """Designs that fit, best first."""
        return tuple(r for r in self.rows if r.fit.fits)

    @property
    def winner(self) -> TuneRow:
        """The best design."""
        return self.rows[0]

    @property
    def alike(self) -> int:
        """Designs whose predicted time lies in the range of the winner's, itself among them; 0 without times."""
        best = self.winner.times
        return (
            sum(r.times is not None and r.times.seconds <= best.high_s for r in self.feasible) if best else 0
        )

    def score(self, row: TuneRow) -> float | None:
        """What is minimised: seconds or bytes; None where a design does not fit."""
        return _score(row, self.objective, self.level) if row.fit.fits else None

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim tune`."""
        return {
            "schema_version": 1,
            "problem": self.problem.to_dict(),
            "profile": self.profile,
            "kernel_class": self.kernel_class,
            "pass": self.passes,
            "objective": self.objective,
            "level": self.level,
            "winner": self.winner.to_dict(),
            "designs_within_its_range": self.alike,
            "no_time": self.no_time,
            "notes": list(self.notes),
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_frame(self) -> pd.DataFrame:
        """A row a design."""
        import pandas as pd

        return pd.DataFrame([{"winner": r is self.winner, **r.to_dict()} for r in self.rows])


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
    load = _workload(problem, gpu, kernel_class or default_class(gpu), passes)
    _known(objective, level, load, chosen)
    if chosen.stages == () or any(s < 1 for s in chosen.stages):
        raise UsageError(f"stages: must be at least 1, got {chosen.stages}")
    found = shapes(padded(load.seen), load.kernel_class, chosen, backward=load.backward)
    held = [(d, fit(d, padded(problem), load.kernel_class, gpu, backward=load.backward)) for d in found]
    refused = [TuneRow(design=d, fit=f) for d, f in held if not f.fits]
    asked = [(v, f) for d, f in held if f.fits for v in _variants(load, d, f, chosen)]
    if not asked:
        raise TileError(_nothing(load, refused))
    machine, no_time = _machine(load)
    if objective == "time" and machine is None:
        raise UsageError(f"--objective time: {no_time}; --objective bytes needs no time")
    notes = list(machine.assumed) if machine else []
    rows = _priced(load, machine, asked)
    rows.sort(key=lambda r: _order(r, objective, level))
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


def _workload(problem: AttentionProblem, gpu: HardwareProfile, kernel_class: str, passes: str) -> Workload:
    tunable = [name for name in CLASSES if name != "unfused"]
    if kernel_class not in tunable:
        raise UsageError(f"--class: unknown class {kernel_class!r}; allowed: {', '.join(tunable)}")
    if passes not in ("fwd", "bwd"):
        raise UsageError(f"--pass: unknown pass {passes!r}; allowed: fwd, bwd")
    if passes == "bwd" and kernel_class != "mma-sync":
        raise UsageError(
            f"--pass bwd: the registers of a {kernel_class} backward are not modelled; use --class mma-sync"
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


def _score(row: TuneRow, objective: str, level: str) -> float:
    if objective == "time":
        return row.times.seconds if row.times else math.inf
    amount = row.hbm_bytes if level == "hbm" else row.sm_bytes
    return math.inf if amount is None else float(amount)


def _order(row: TuneRow, objective: str, level: str) -> tuple[Any, ...]:
    """Best first; among equals (to 1/2000) the other objective, two stages, the plain order, the smaller block."""
    score = _score(row, objective, level)
    first = round(math.log(score) * 2000) if objective == "time" else score
    other = row.times.seconds if objective == "bytes" and row.times else row.sm_bytes or 0
    d = row.design
    return (first, other, abs(d.stages - 2), d.order != "grid", d.splits, row.fit.needs.threads, d.tile.cols)


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


def simulated_hbm(load: Workload, design: Design, blocks_per_sm: int) -> tuple[int, int]:
    """(read, written) at HBM by the simulated hierarchy: WHOLE_WAVES of heads, and the rest like them.

    Errors: `ProfileError` for an unknown L2.
    """
    p = load.problem
    slots = load.gpu.sm_count * blocks_per_sm
    heads = p.kv_heads * p.batch if load.packed else p.heads * p.batch
    a_head = max(1, blocks_of(load, design) // heads)
    groups = -(-WHOLE_WAVES * slots // a_head)
    kept, scale = load, 1.0
    if groups < heads:
        size = 1 if load.packed else p.group_size
        kv = max(1, -(-groups // size))
        one = replace(p, batch=1, kv_heads=kv, heads=kv * p.group_size)
        kept, scale = replace(load, problem=one), (p.batch * p.kv_heads) / kv
    algorithm = find_algorithm("decode" if load.packed else "flash2")
    given = {"pack-gqa": "on", "splits": str(design.splits)} if load.packed else {}
    policies = Policies(
        sms=load.gpu.sm_count,
        blocks_per_sm=blocks_per_sm,
        launch=design.order,
        kv_walk=design.walk,
        skew=SKEW,
    )
    found = simulate_levels(
        algorithm, kept.problem, algorithm.resolve(given), design.tile, load.gpu, policies
    )
    return round(found.hbm_read_bytes * scale), round(found.hbm_write_bytes * scale)


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
    if load.packed and load.problem.seq_q > 1:
        said.append("few rows: the query heads of a group are rows of one tile")
    return said


def _nothing(load: Workload, refused: Sequence[TuneRow]) -> str:
    row = min(refused, key=lambda r: (r.design.tile.rows * r.design.tile.cols, r.design.warps))
    return (
        f"tune: no design of {load.kernel_class} fits on {load.gpu.name}; the smallest, {row.design}, needs "
        f"{row.fit.reason}; use fewer stages, smaller tiles or a smaller head dimension"
    )
