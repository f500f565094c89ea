"""How long the busiest SM works when its resident thread blocks share it. Pure functions over block costs.

`schedule.waves` gives every resident block a slot of its own speed. Here the blocks of an SM share its units: k of
them each run at 1/k of the SM, and one that is left alone may not reach full speed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from iosim.errors import SimulationError


@dataclass(slots=True)
class _Sm:
    """One SM: cycles of work left of each resident block."""

    alone: float
    left: list[float] = field(default_factory=list)

    def until_next(self) -> float:
        """Time until the block with the least work left ends."""
        blocks = len(self.left)
        return min(self.left) * blocks / (self.alone if blocks == 1 else 1.0)

    def end_one(self) -> None:
        """The shortest block ends; the others have done as much."""
        done = min(self.left)
        self.left.remove(done)
        self.left = [work - done for work in self.left]


def busiest_sm_cycles(costs: Any, sms: int, residents: int = 1, *, alone: float = 1.0) -> float:
    """Cycles until the last SM is done.

    `costs` [blocks]: cycles of a whole SM that each block takes, in launch order; the next block goes to the SM that
    frees a place first. `residents`: places of an SM. `alone`: speed of an SM that holds one block though it has
    room for more, as a share of full speed. Errors: `SimulationError`.
    """
    work = np.asarray(costs, dtype=np.float64)
    if sms < 1 or residents < 1 or not 0 < alone <= 1:
        raise SimulationError(
            f"schedule: sms and residents must be at least 1 and alone in (0, 1], got {sms}, {residents}, {alone}"
        )
    if not work.size:
        return 0.0
    if residents == 1 or work.size <= sms:  # one block an SM at a time
        return _one_a_time(work, sms) / (alone if residents > 1 else 1.0)
    if work.size >= MANY_BLOCKS:
        return _shared_compiled(work, sms, residents, alone)
    return _shared(work.tolist(), sms, residents, alone)


MANY_BLOCKS = 1 << 13
"""From here on the compiled loops are worth loading."""


def _one_a_time(work: Any, sms: int) -> float:
    if work.size >= MANY_BLOCKS:
        from iosim.memory import sm_time_kernels  # numba is loaded for long lists only

        ends = np.zeros(min(sms, work.size))
        sm_time_kernels.one_a_time(work, ends)
        return float(ends.max())
    busy = [0.0] * min(sms, work.size)
    for cost in work.tolist():
        heapq.heapreplace(busy, busy[0] + cost)
    return max(busy)


def _shared_compiled(work: Any, sms: int, residents: int, alone: float) -> float:
    from iosim.memory import sm_time_kernels

    left, ends = np.zeros((sms, residents)), np.zeros(sms)
    held, taken, heap = (np.zeros(sms, dtype=np.int64) for _ in range(3))
    return float(sm_time_kernels.shared(work, left, held, ends, taken, heap, alone))


def _shared(work: list[float], sms: int, residents: int, alone: float) -> float:
    queue = iter(work)
    chips = [_Sm(alone=alone) for _ in range(sms)]
    for _ in range(residents):
        for sm in chips:
            _fill(sm, queue)
    # (time, blocks taken since the start, SM): on a tie, the SM that took fewer goes first
    events = [(sm.until_next(), 0, i) for i, sm in enumerate(chips) if sm.left]
    heapq.heapify(events)
    now = 0.0
    while events:
        now, taken, i = heapq.heappop(events)
        sm = chips[i]
        sm.end_one()
        _fill(sm, queue)
        if sm.left:
            heapq.heappush(events, (now + sm.until_next(), taken + 1, i))
    return now


def _fill(sm: _Sm, queue: Iterator[float]) -> None:
    cost = next(queue, None)
    if cost is not None:
        sm.left.append(cost)
