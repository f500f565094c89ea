"""The busiest SM of a long list of blocks, compiled. `sm_time` is the door and says what is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.jit import kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@kernel
def one_a_time(work: Floats, busy: Floats) -> None:
    """Give each block to the SM that is free first. `busy` [SMs]: when each is free, a heap that starts at 0."""
    size = busy.size
    for cost in work:
        value = busy[0] + cost
        i = 0
        while True:
            child = 2 * i + 1
            if child >= size:
                break
            if child + 1 < size and busy[child + 1] < busy[child]:
                child += 1
            if busy[child] >= value:
                break
            busy[i] = busy[child]
            i = child
        busy[i] = value


@kernel
def shared(
    work: Floats, left: Floats, held: Ints, ends: Floats, taken: Ints, heap: Ints, alone: float
) -> Any:
    """Blocks share their SM; the next one goes where a place falls free first. Returns when the last one ends.

    `left` [SMs, places]: work left of the blocks of each SM, the first `held` of a row. `ends`: when the shortest of
    an SM ends (infinity for an empty one). `taken`: how often an SM was served; on a tie the one served least goes,
    then the lower number. `heap` [SMs]: place for the SMs in that order.
    """
    sms, places = left.shape
    given = 0
    for _ in range(places):
        for i in range(sms):
            if given < work.size:
                left[i, held[i]] = work[given]
                held[i] += 1
                given += 1
    for i in range(sms):
        ends[i] = _span(left, held, i, alone) if held[i] else np.inf
        heap[i] = i
    for i in range(sms // 2 - 1, -1, -1):
        _sink(heap, ends, taken, i)
    now = 0.0
    while True:
        at = heap[0]
        if ends[at] == np.inf:
            return now
        now = ends[at]
        _end_one(left, held, at)
        if given < work.size:
            left[at, held[at]] = work[given]
            held[at] += 1
            given += 1
        taken[at] += 1
        ends[at] = now + _span(left, held, at, alone) if held[at] else np.inf
        _sink(heap, ends, taken, 0)


@kernel
def _earlier(ends: Floats, taken: Ints, a: Any, b: Any) -> Any:
    """Whether SM a is served before SM b."""
    if ends[a] != ends[b]:
        return ends[a] < ends[b]
    return taken[a] < taken[b] if taken[a] != taken[b] else a < b


@kernel
def _sink(heap: Ints, ends: Floats, taken: Ints, i: Any) -> None:
    """Restore the heap after the entry at i grew."""
    one = heap[i]
    while True:
        child = 2 * i + 1
        if child >= heap.size:
            break
        if child + 1 < heap.size and _earlier(ends, taken, heap[child + 1], heap[child]):
            child += 1
        if _earlier(ends, taken, one, heap[child]):
            break
        heap[i] = heap[child]
        i = child
    heap[i] = one


@kernel
def _span(left: Floats, held: Ints, sm: int, alone: float) -> Any:
    """Time until the block with the least work left ends."""
    least = left[sm, 0]
    for k in range(1, held[sm]):
        least = min(least, left[sm, k])
    return least * held[sm] / (alone if held[sm] == 1 else 1.0)


@kernel
def _end_one(left: Floats, held: Ints, sm: int) -> None:
    """The shortest block ends; the others have done as much."""
    at = 0
    for k in range(1, held[sm]):
        if left[sm, k] < left[sm, at]:
            at = k
    least = left[sm, at]
    for k in range(at, held[sm] - 1):
        left[sm, k] = left[sm, k + 1]
    held[sm] -= 1
    for k in range(held[sm]):
        left[sm, k] -= least
