"""The inverse question: how much of one memory a workload needs to reach a share of its compute bound.

The machine here is the roofline's: every unit overlaps every other perfectly, so the time is the longest of

    matmuls of the tiles as executed / tensor peak        exponentials of the executed scores / special-function rate
    other arithmetic of the executed tiles / FP32 peak    bytes between slow memory and the SMs / bandwidth
    compulsory bytes / HBM bandwidth

and the share reached is (useful matmul flops / tensor peak) over that. No constant of a kernel is in it: what a real
kernel reaches is less (`iosim explain`). Bytes, flops and what a tile holds on chip are counted with the tile program.
Each memory is solved for exactly, on the steps where something changes; nothing is interpolated.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.algorithms.registry import Algorithm
from iosim.errors import SimulationError, TileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.footprint import MODELS, live_bytes
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Frame
from iosim.roofline import Machine
from iosim.roofline.lower_bound import compulsory_bytes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
STEP = 16
"""Tiles are multiples of this: the smallest operand of a tensor core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Every tile as columns: what it holds on chip, executes and moves, and its seconds on the units of a machine."""

    rows: Ints
    cols: Ints
    sram_bytes: Ints
    register_bytes: Ints
    sm_bytes: Floats
    tensor_s: Floats
    special_s: Floats
    vector_s: Floats

    def chosen(self, keep: NDArray[np.bool_]) -> Tiles:
        """Some of them."""
        return Tiles(**{name: getattr(self, name)[keep] for name in self.__dataclass_fields__})

    def tile(self, i: int) -> TileShape:
        """One of them."""
        return TileShape(rows=int(self.rows[i]), cols=int(self.cols[i]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A workload, its compute bound in seconds, and the least seconds of HBM."""

    problem: AttentionProblem
    algorithm: Algorithm
    machine: Machine
    compute_s: float
    compulsory_s: float

    @property
    def names(self) -> tuple[str, ...]:
        """Units in the order of `times`."""
        return (
            "matmuls of whole tiles",
            "special-function units",
            "FP32 units",
            "bytes into the SMs",
            "HBM's compulsory bytes",
        )


def target_of(problem: AttentionProblem, algorithm: Algorithm, gpu: HardwareProfile) -> Target:
    """`UsageError` for an algorithm without tiles of one fused kernel."""
    if not algorithm.tiled or algorithm.idealised or algorithm.computes != "attention":
        raise UsageError(
            f"--algorithm: {algorithm.name} has no tiles that a thread block keeps; take flash1, flash2 or your own"
        )
    algorithm.check(problem)
    machine = Machine.of(gpu, str(problem.dtype_k))
    return Target(
        problem=problem,
        algorithm=algorithm,
        machine=machine,
        compute_s=problem.useful_flops / machine.tensor_flops_per_s,
        compulsory_s=sum(compulsory_bytes(problem)) / machine.hbm_peak_bytes_per_s,
    )


def every_tile(
    target: Target, options: Mapping[str, str], model: str, register_bytes: int, only: TileShape | None = None
) -> Tiles:
    """All tiles up to the sequence, or only one, counted; in the `kernel` model those whose registers fit.

    `TileError` where there is none.
    """
    if model not in MODELS:
        raise UsageError(f"footprint: unknown model {model!r}; allowed: {', '.join(MODELS)}")
    p, machine = target.problem, target.machine
    program = target.algorithm.program(p.mask.kind, options)
    sides = [_sides(p.seq_q * (p.group_size if program.packed else 1)), _sides(p.seq_k)]
    sides = [[only.rows], [only.cols]] if only else sides
    rows, cols = (np.array(side, dtype=np.int64) for side in zip(*itertools.product(*sides), strict=True))
    binding: dict[str, Any] = dict(bind(p, TileShape(rows=STEP, cols=STEP))) | {"Br": rows, "Bc": cols}
    frame = Frame(binding)
    shape = rows.shape
    held = np.broadcast_to(np.asarray(frame.value(live_bytes(program, model))), shape)
    registers = np.broadcast_to(np.asarray(frame.value(live_bytes(program, model, "registers"))), shape)
    keep = registers <= register_bytes if model == "kernel" else np.ones(shape, dtype=bool)
    if not keep.any():
        what = f"the registers of {only} do not" if only else "no tile's registers"
        raise TileError(
            f"require: {what} fit in {register_bytes} bytes; use a smaller tile or head dimension"
        )
    rows, cols = rows[keep], cols[keep]
    tally = count(program, binding | {"Br": rows, "Bc": cols})
    shape = rows.shape
    flops = np.broadcast_to(np.asarray(tally.tensor_flops, dtype=np.float64), shape)
    scores = flops / (2 * (p.head_dim + p.value_dim))
    moved = np.broadcast_to(np.asarray(tally.total_bytes, dtype=np.float64), shape)
    return Tiles(
        rows=rows,
        cols=cols,
        sram_bytes=held[keep].astype(np.int64),
        register_bytes=registers[keep].astype(np.int64),
        sm_bytes=moved,
        tensor_s=flops / machine.tensor_flops_per_s,
        special_s=scores / machine.special_ops_per_s,
        vector_s=np.broadcast_to(np.asarray(tally.vector_flops, dtype=np.float64), shape)
        / machine.vector_flops_per_s,
    )


def _sides(length: int) -> list[int]:
    """Multiples of STEP, coarser from 256 and 1024 on, up to the first that covers the axis."""
    most = -(-length // STEP) * STEP
    fine = [*range(STEP, 257, STEP), *range(288, 1025, 32), *range(1152, 8193, 128)]
    return [n for n in fine if n < most] + ([most] if most <= fine[-1] else [])


def times(target: Target, tiles: Tiles, bandwidth: float) -> Floats:
    """Seconds [units, tiles]; `bandwidth`: of the bytes into the SMs (infinity: none is waited for)."""
    compulsory = np.full(tiles.tensor_s.shape, target.compulsory_s)
    return np.stack([tiles.tensor_s, tiles.special_s, tiles.vector_s, tiles.sm_bytes / bandwidth, compulsory])


def check_monotone(values: Sequence[float], reached: Sequence[float]) -> None:
    """More of a memory must never reach less; `SimulationError` where it does, which is a bug."""
    for (a, low), (b, high) in itertools.pairwise(sorted(zip(values, reached, strict=True))):
        if high < low * (1 - 1e-12):
            raise SimulationError(f"require: {b} reaches {high}, less than {a} with {low}; this is a bug")
