"""The event queue of a schedule, compiled: which slot does its next phase next. `schedule` is the door."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.jit import kernel

Int = Any
"""An int64 scalar; mypy does not follow how numba widens them."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# positions in `state`
RUNNING, STARTED, DRAWS, TURN = 0, 1, 2, 3

SHORTEST = 0.05
"""No phase takes less than this share of its usual time, however lucky the draw."""


@kernel
def uniform(state: Ints, seed: Int) -> Any:
    """The next number in [0, 1): a hash of the seed and a counter (SplitMix64), the same on every machine."""
    state[DRAWS] += 1
    x = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(state[DRAWS]) * np.uint64(
        0x9E3779B97F4A7C15
    )
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) / 9007199254740992.0


@kernel
def sink(time: Floats, slot: Ints, running: Int) -> None:
    """Restore the heap after its first entry grew; equal times go by slot number.

    Entries move up all the way to a leaf, and the first one climbs from there: it belongs near the leaves, and which
    of two children is earlier is then the one branch that a processor guesses wrong.
    """
    if running < 2:
        return
    own_time, own_slot = time[0], slot[0]
    i, child = 0, 1
    while child < running:
        right = child + 1
        if right < running:
            earlier = (time[right] < time[child]) | (
                (time[right] == time[child]) & (slot[right] < slot[child])
            )
            child = right if earlier else child
        time[i], slot[i] = time[child], slot[child]
        i = child
        child = 2 * i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if time[parent] < own_time or (time[parent] == own_time and slot[parent] < own_slot):
            break
        time[i], slot[i] = time[parent], slot[parent]
        i = parent
    time[i], slot[i] = own_time, own_slot


@kernel
def advance_in_step(
    order: Ints,
    phases: Ints,
    slot: Ints,
    block: Ints,
    phase: Ints,
    state: Ints,
    out_slot: Ints,
    out_block: Ints,
    out_phase: Ints,
) -> Int:
    """The events of `advance` where every phase takes one time unit: slots take turns, and need no heap."""
    n, at = 0, state[TURN]
    while n < out_slot.size and state[RUNNING] > 0:
        s = slot[at]
        b, k = block[s], phase[s]
        out_slot[n], out_block[n], out_phase[n] = s, b, k
        n += 1
        phase[s] = k + 1
        at += 1
        if k + 1 == phases[b]:
            if state[STARTED] < order.size:
                block[s], phase[s] = order[state[STARTED]], 0
                state[STARTED] += 1
            else:
                for later in range(at, state[RUNNING]):
                    slot[later - 1] = slot[later]
                state[RUNNING] -= 1
                at -= 1
        if at >= state[RUNNING]:
            at = 0
    state[TURN] = at
    return n


@kernel
def advance(
    order: Ints,
    phases: Ints,
    first: Int,
    last: Int,
    spread: Any,
    seed: Int,
    time: Floats,
    slot: Ints,
    block: Ints,
    phase: Ints,
    state: Ints,
    out_slot: Ints,
    out_block: Ints,
    out_phase: Ints,
) -> Int:
    """Write the next events to out_*; returns how many. Call again until it returns 0.

    `order` [blocks]: launch order; `phases` [blocks]: phases of each block, of which the first `first` and
    the last
    `last` take no time. `time`, `slot` [slots]: the heap; `block`, `phase` [slots]: what each slot works on.
    """
    n = 0
    while n < out_slot.size and state[RUNNING] > 0:
        s = slot[0]
        b, k = block[s], phase[s]
        out_slot[n], out_block[n], out_phase[n] = s, b, k
        n += 1
        phase[s] = k + 1
        if first <= k < phases[b] - last:
            wait = 1.0
            if spread > 0:
                # the sum of four uniform numbers is bell-shaped, with standard deviation 1 / sqrt(3)
                bell = (
                    uniform(state, seed)
                    + uniform(state, seed)
                    + uniform(state, seed)
                    + uniform(state, seed)
                    - 2
                )
                wait = max(SHORTEST, 1 + spread * 1.7320508075688772 * bell)
            time[0] += wait
        if k + 1 == phases[b]:
            if state[STARTED] < order.size:
                block[s], phase[s] = order[state[STARTED]], 0
                state[STARTED] += 1
            else:
                state[RUNNING] -= 1
                time[0], slot[0] = time[state[RUNNING]], slot[state[RUNNING]]
        sink(time, slot, state[RUNNING])
    return n
