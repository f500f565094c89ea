"""The busiest SM: hand-worked schedules, the plain schedule as a special case, and a slow simulation in small steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import SimulationError
from iosim.memory.schedule import waves
from iosim.memory.sm_time import busiest_sm_cycles

COSTS = st.lists(st.integers(1, 9), min_size=1, max_size=40)


def test_two_blocks_share_an_sm() -> None:
    # 1 and 3 together: the short one ends at 2, having had half of the SM; the long one has 2 left and runs alone
    assert busiest_sm_cycles([1, 3], 1, 2) == 4
    assert busiest_sm_cycles([1, 3], 1, 2, alone=0.5) == 2 + 2 / 0.5


def test_a_lone_block_is_slower_where_there_is_room_for_two() -> None:
    assert busiest_sm_cycles([6], 4, 2, alone=0.75) == 8
    assert busiest_sm_cycles([6], 4, 1) == 6


def test_no_block_takes_no_time() -> None:
    assert busiest_sm_cycles([], 4) == 0


@given(costs=COSTS, sms=st.integers(1, 8))
def test_one_block_an_sm_is_the_plain_schedule(costs: list[int], sms: int) -> None:
    assert busiest_sm_cycles(costs, sms) == waves(costs, np.arange(len(costs)), sms).makespan


@given(costs=COSTS, sms=st.integers(1, 8), residents=st.integers(1, 4))
def test_bounds_of_any_schedule(costs: list[int], sms: int, residents: int) -> None:
    found = busiest_sm_cycles(costs, sms, residents)
    assert max(sum(costs) / sms, max(costs)) - 1e-9 <= found <= sum(costs) + 1e-9


@given(rounds=st.integers(1, 5), sms=st.integers(1, 8), residents=st.integers(1, 4), cost=st.integers(1, 9))
def test_equal_blocks_in_full_waves(rounds: int, sms: int, residents: int, cost: int) -> None:
    blocks = rounds * sms * residents
    assert busiest_sm_cycles([cost] * blocks, sms, residents) == pytest.approx(rounds * residents * cost)


@settings(max_examples=60, deadline=None)
@given(
    costs=st.lists(st.sampled_from([1.0, 2.5, 4.25]), min_size=1, max_size=9),
    alone=st.sampled_from([1.0, 0.5]),
)
def test_equals_a_simulation_in_small_steps(costs: list[float], alone: float) -> None:
    tick = 1 / 1024
    queue, left, time = list(costs), [], 0.0
    while queue or left:
        while queue and len(left) < 2:
            left.append(queue.pop(0))
        speed = alone if len(left) == 1 else 1 / len(left)
        left = [x - speed * tick for x in left]
        left = [x for x in left if x > 1e-9]
        time += tick
    assert busiest_sm_cycles(costs, 1, 2, alone=alone) == pytest.approx(time, abs=0.05)


@pytest.mark.parametrize(("sms", "residents", "alone"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1.5)])
def test_impossible_machines(sms: int, residents: int, alone: float) -> None:
    with pytest.raises(SimulationError, match="schedule: sms and residents must be at least 1"):
        busiest_sm_cycles([1], sms, residents, alone=alone)
