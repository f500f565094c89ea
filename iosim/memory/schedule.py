"""Which thread block runs on which slot, and when. Pure functions over block numbers; nothing here knows
an attention.

A slot is the place of one resident block: `slots = SMs × blocks per SM`, slot s sitting on SM s modulo the
SMs. Blocks are launched in a named order; the next one goes to the first slot that falls free. A block is
a row of phases (a piece of its trace each) that take one time unit, but for a few at its two ends that
take none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError

Ints = NDArray[np.int64]

Order = Literal["grid", "reverse", "longest-first", "shortest-first"]
ORDERS: tuple[Order, ...] = ("grid", "reverse", "longest-first", "shortest-first")
Walk = Literal["forward", "backward", "sawtooth"]
WALKS: tuple[Walk, ...] = ("forward", "backward", "sawtooth")


def launch_order(lengths: Any, order: str = "grid") -> Ints:
    """Block numbers in the order of their launch.

    `lengths` [blocks]: the work of each block in grid order, used by longest-first and shortest-first,
    which keep grid order among equals. Raises `SimulationError` for an unknown order.
    """
    work = np.asarray(lengths, dtype=np.int64)
    if order == "grid":
        return np.arange(work.size)
    if order == "reverse":
        return np.arange(work.size)[::-1].copy()
    if order == "longest-first":
        return np.argsort(-work, kind="stable")
    if order == "shortest-first":
        return np.argsort(work, kind="stable")
    raise SimulationError(f"schedule: unknown order {order!r}; allowed: {', '.join(ORDERS)}")


def grid_transposed(shape: tuple[int, ...], axes: tuple[int, ...]) -> Ints:
    """Launch order of a grid walked with its axes permuted: block numbers of the original, C-ordered grid.

    `shape`: sizes of the grid's axes, the last one fastest. `axes`: the axes in the new order, slowest first.
    """
    if sorted(axes) != list(range(len(shape))):
        raise SimulationError(f"schedule: axes {axes} are not an order of the {len(shape)} axes of the grid")
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).transpose(axes).ravel()


def walk_step(steps: Any, position: Any, block: Any, walk: str = "forward") -> Ints:
    """The K/V step that a block does at a position of its inner loop; arrays broadcast.

    `steps`: inner steps of the block. `block`: its place in the launch order; sawtooth turns round at odd
    ones, so that a block begins with what the one before it read last. Raises `SimulationError` for an
    unknown walk.
    """
    forward = np.asarray(position, dtype=np.int64)
    backward = np.asarray(steps, dtype=np.int64) - 1 - forward
    choices: dict[str, Callable[[], Any]] = {
        "forward": lambda: np.broadcast_arrays(forward, backward)[0],
        "backward": lambda: backward,
        "sawtooth": lambda: np.where(np.asarray(block) % 2 == 1, backward, forward),
    }
    if walk not in choices:
        raise SimulationError(f"schedule: unknown K/V walk {walk!r}; allowed: {', '.join(WALKS)}")
    return np.asarray(choices[walk](), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How blocks are placed and drift.

    `slots`: blocks running at once. `skew`: standard deviation of one phase's duration, as a share of it;
    0 is lock step. `free_first`, `free_last`: phases at the two ends of a block that take no time.
    """

    slots: int
    skew: float = 0.0
    free_first: int = 0
    free_last: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise SimulationError(f"schedule: slots must be at least 1, got {self.slots}")
        if not 0 <= self.skew <= 1:
            raise SimulationError(f"schedule: skew must lie between 0 and 1, got {self.skew}")
        if self.free_first < 0 or self.free_last < 0:
            raise SimulationError("schedule: free_first and free_last must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """A piece of the merged order: at each entry, `slot` does phase `phase` of block `block`."""

    slot: Ints
    block: Ints
    phase: Ints

    def __len__(self) -> int:
        return int(self.slot.size)


def interleave(phases: Any, order: Any, schedule: Schedule, *, piece: int = 2**20) -> Iterator[Events]:
    """Every phase of every block in the order of time, in pieces of at most `piece` events.

    `phases` [blocks]: phases of each block, at least one. `order`: block numbers in launch order, each at
    most once. In lock step, slots take turns by number. Memory: a few words a slot and one piece.
    """
    from iosim.memory import schedule_kernels  # numba is loaded by the first simulation only

    count, launched = np.asarray(phases, dtype=np.int64), np.asarray(order, dtype=np.int64)
    _check_blocks(count, launched, piece)
    size = min(schedule.slots, launched.size)
    time, slot = np.zeros(size), np.arange(size)
    block, phase = launched[:size].copy(), np.zeros(size, np.int64)
    state = np.array([size, size, 0, 0], np.int64)
    free, even = (schedule.free_first, schedule.free_last), schedule.skew == 0
    while True:
        out = tuple(np.empty(piece, np.int64) for _ in range(3))
        running = (slot, block, phase, state, *out)
        if even and free == (0, 0):
            n = schedule_kernels.advance_in_step(launched, count, *running)
        else:
            spread, seed = schedule.skew, schedule.seed
            n = schedule_kernels.advance(launched, count, *free, spread, seed, time, *running)
        if n == 0:
            return
        yield Events(slot=out[0][:n], block=out[1][:n], phase=out[2][:n])


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """How evenly the blocks load the slots when nothing drifts."""

    full: int
    """Waves in which every slot has a block, if all blocks were alike."""
    tail_blocks: int
    """Blocks of the last, partly filled wave; 0 if it is full."""
    makespan: int
    """Time units from the first phase to the last, first free slot first."""
    mean_load: float
    """Work a slot, in time units: makespan − mean_load is what the tail costs."""


def waves(lengths: Any, order: Any, slots: int) -> Waves:
    """Place blocks of the given lengths (time units) on slots in launch order, the first free slot next."""
    import heapq

    work = np.asarray(lengths, dtype=np.int64)[np.asarray(order, dtype=np.int64)]
    if slots < 1:
        raise SimulationError(f"schedule: slots must be at least 1, got {slots}")
    busy = [0] * slots
    for length in work.tolist():
        heapq.heapreplace(busy, busy[0] + length)
    return Waves(
        full=work.size // slots,
        tail_blocks=work.size % slots,
        makespan=max(busy),
        mean_load=float(work.sum()) / slots,
    )


def _check_blocks(phases: Ints, order: Ints, piece: int) -> None:
    if phases.size and phases.min() < 1:
        raise SimulationError(
            f"schedule: block {int(np.argmin(phases))} has no phase; leave it out of the grid"
        )
    if order.size and (order.min() < 0 or order.max() >= phases.size or np.unique(order).size < order.size):
        raise SimulationError(f"schedule: the order must name each of {phases.size} blocks at most once")
    if piece < 1:
        raise SimulationError(f"schedule: piece must be at least 1, got {piece}")
