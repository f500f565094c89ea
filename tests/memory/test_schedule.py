"""Launch orders, walks, waves and the merged order of events, against a plain simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import SimulationError
from iosim.memory.schedule import (
    ORDERS,
    Schedule,
    grid_transposed,
    interleave,
    launch_order,
    walk_step,
    waves,
)

lengths_lists = st.lists(st.integers(1, 9), min_size=1, max_size=30)


def events_of(
    phases: list[int], order: list[int], schedule: Schedule, piece: int = 7
) -> list[tuple[int, int, int]]:
    return [
        event
        for events in interleave(phases, order, schedule, piece=piece)
        for event in zip(events.slot.tolist(), events.block.tolist(), events.phase.tolist(), strict=True)
    ]


def plain_lock_step(phases: list[int], order: list[int], slots: int) -> list[tuple[int, int, int]]:
    """Time goes in ticks; in each one every busy slot, by number, does one phase."""
    waiting, running, out = list(order), {}, []
    for slot in range(min(slots, len(order))):
        running[slot] = [waiting.pop(0), 0]
    while running:
        for slot in sorted(running):
            block, phase = running[slot]
            out.append((slot, block, phase))
            running[slot][1] += 1
            if phase + 1 == phases[block]:
                if waiting:
                    running[slot] = [waiting.pop(0), 0]
                else:
                    del running[slot]
    return out


@settings(max_examples=60, deadline=None)
@given(lengths_lists, st.integers(1, 8), st.sampled_from(ORDERS))
def test_lock_step_equals_ticks(phases: list[int], slots: int, name: str) -> None:
    order = launch_order(phases, name).tolist()
    assert events_of(phases, order, Schedule(slots=slots)) == plain_lock_step(phases, order, slots)


@settings(max_examples=60, deadline=None)
@given(lengths_lists, st.integers(1, 8), st.floats(0, 1), st.integers(0, 5), st.integers(0, 2))
def test_every_phase_runs_once_and_in_order(
    phases: list[int], slots: int, skew: float, seed: int, free: int
) -> None:
    schedule = Schedule(slots=slots, skew=skew, seed=seed, free_first=free, free_last=free)
    events = events_of(phases, list(range(len(phases))), schedule)
    assert sorted(e[1:] for e in events) == [(b, p) for b, n in enumerate(phases) for p in range(n)]
    for block in range(len(phases)):
        mine = [(slot, phase) for slot, b, phase in events if b == block]
        assert [phase for _, phase in mine] == list(range(phases[block]))
        assert len({slot for slot, _ in mine}) == 1  # a block stays where it started
    assert max(slot for slot, _, _ in events) < slots


@settings(max_examples=60, deadline=None)
@given(lengths_lists, st.integers(1, 8), st.integers(0, 2), st.integers(0, 2))
def test_the_earliest_slot_goes_next(phases: list[int], slots: int, first: int, last: int) -> None:
    waiting = list(range(len(phases)))
    running = {slot: (0, waiting.pop(0), 0) for slot in range(min(slots, len(phases)))}
    expected = []
    while running:
        slot = min(running, key=lambda s: (running[s][0], s))
        time, block, phase = running.pop(slot)
        expected.append((slot, block, phase))
        time += first <= phase < phases[block] - last
        if phase + 1 < phases[block]:
            running[slot] = (time, block, phase + 1)
        elif waiting:
            running[slot] = (time, waiting.pop(0), 0)
    schedule = Schedule(slots=slots, free_first=first, free_last=last)
    assert events_of(phases, list(range(len(phases))), schedule) == expected


def test_pieces_and_seeds() -> None:
    phases, schedule = [5] * 40, Schedule(slots=8, skew=0.5, seed=1)
    order = list(range(40))
    assert events_of(phases, order, schedule, piece=3) == events_of(phases, order, schedule, piece=1000)
    assert events_of(phases, order, schedule) != events_of(phases, order, Schedule(slots=8, skew=0.5, seed=2))
    assert list(interleave([], [], schedule)) == []


def test_skew_has_the_asked_standard_deviation() -> None:
    # 400 slots in blocks without an end: after 100 phases on average, the phases reached spread like skew * sqrt(100).
    schedule = Schedule(slots=400, skew=0.2)
    events = next(interleave([10_000] * 400, np.arange(400), schedule, piece=40_000))
    reached = np.bincount(events.slot, minlength=400)
    assert 2 * 0.85 < reached.std() < 2 * 1.15


def test_free_phases_take_no_time() -> None:
    # Both blocks do their free first phase, then the one that takes time, in turn by slot.
    events = events_of([3, 3], [0, 1], Schedule(slots=2, free_first=1, free_last=1))
    assert events == [(0, 0, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1), (0, 0, 2), (1, 1, 2)]


def test_orders_by_hand() -> None:
    lengths = [1, 3, 2, 3]
    assert launch_order(lengths, "grid").tolist() == [0, 1, 2, 3]
    assert launch_order(lengths, "reverse").tolist() == [3, 2, 1, 0]
    assert launch_order(lengths, "longest-first").tolist() == [1, 3, 2, 0]
    assert launch_order(lengths, "shortest-first").tolist() == [0, 2, 1, 3]
    assert grid_transposed((2, 3), (1, 0)).tolist() == [0, 3, 1, 4, 2, 5]


def test_walks_by_hand() -> None:
    at = np.arange(3)
    assert walk_step(3, at, 0).tolist() == [0, 1, 2]
    assert walk_step(3, at, 0, "backward").tolist() == [2, 1, 0]
    assert walk_step(3, at, 0, "sawtooth").tolist() == [0, 1, 2]
    assert walk_step(3, at, 1, "sawtooth").tolist() == [2, 1, 0]


@given(lengths_lists, st.integers(1, 8))
def test_waves(lengths: list[int], slots: int) -> None:
    result = waves(lengths, launch_order(lengths), slots)
    assert result.full * slots + result.tail_blocks == len(lengths)
    assert result.mean_load <= result.makespan <= sum(lengths)
    longest = waves(lengths, launch_order(lengths, "longest-first"), slots)
    assert 3 * longest.makespan <= 4 * max(result.makespan, max(lengths)) + max(lengths)  # Graham's 4/3 rule
    assert waves(lengths, launch_order(lengths), len(lengths)).makespan == max(lengths)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: launch_order([1], "zigzag"), "allowed: grid"),
        (lambda: walk_step(1, 0, 0, "spiral"), "allowed: forward"),
        (lambda: grid_transposed((2, 3), (0, 0)), "axes"),
        (lambda: Schedule(slots=0), "slots"),
        (lambda: Schedule(slots=1, skew=2), "skew"),
        (lambda: Schedule(slots=1, free_first=-1), "free_first"),
        (lambda: list(interleave([1, 0], [0, 1], Schedule(slots=1))), "block 1 has no phase"),
        (lambda: list(interleave([1, 1], [0, 0], Schedule(slots=1))), "at most once"),
        (lambda: list(interleave([1], [0], Schedule(slots=1), piece=0)), "piece"),
        (lambda: waves([1], [0], 0), "slots"),
    ],
)
def test_impossible_input_is_named(make: object, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        make()  # type: ignore[operator]
