"""Times: what is reported of a run, on a GPU whose every launch is known."""

from __future__ import annotations

import pytest
from fake_gpu import FakeGpu

from iosim_validation.gpu import Job
from iosim_validation.timing import MOST_SETS, Times, percentile, sets_needed, time_jobs

RUN_S, PAUSE_S = 0.4, 0.2


def timed(gpu: FakeGpu, name: str, sets: int = 1) -> Times:
    jobs: list[Job] = [gpu._registered(name, 1, lambda: None) for _ in range(sets)]
    return time_jobs(gpu, jobs, run_s=RUN_S, pause_s=PAUSE_S)


def test_the_beginning_and_the_settled_half_are_told_apart() -> None:
    found = timed(FakeGpu(seconds={"k": 1e-3}, settles_to=1.25), "k")
    assert found.first_s == pytest.approx(1e-3)
    assert found.median_s == pytest.approx(1.25e-3)
    assert found.p10_s <= found.median_s <= found.p90_s
    assert found.drift == pytest.approx(0)
    assert (found.timed_by, found.cache_state, found.input_sets) == ("events", "repeated", 1)
    assert found.flags == ()


def test_a_run_takes_about_the_time_that_was_asked_for_and_rests_before() -> None:
    gpu = FakeGpu(seconds={"k": 1e-3})
    found = timed(gpu, "k")
    assert found.launches == 400
    assert sum(gpu.rests) >= PAUSE_S


def test_cold_launches_are_flushed_each() -> None:
    gpu = FakeGpu(seconds={"k": 1e-3})
    found = timed(gpu, "k")
    assert found.cold_s == pytest.approx(1.5e-3)
    assert gpu.flushed >= 3


def test_a_slow_kernel_is_launched_a_few_times_only() -> None:
    gpu = FakeGpu(seconds={"k": 0.5}, settles_to=1)
    assert timed(gpu, "k").launches < 10
    assert gpu.now < 12


def test_short_kernels_go_into_a_graph_and_the_shortest_are_flagged() -> None:
    gpu = FakeGpu(seconds={"k": 50e-6, "tiny": 5e-6}, settles_to=1)
    short, tiny = timed(gpu, "k"), timed(gpu, "tiny")
    assert short.timed_by == tiny.timed_by == "graph"
    assert short.median_s == pytest.approx(50e-6)
    assert tiny.median_s == pytest.approx(5e-6)
    assert (short.flags, tiny.flags) == ((), ("under 20 us",))
    assert gpu.graphs == [40, 400]


def test_input_sets_go_round() -> None:
    gpu = FakeGpu(seconds={"k": 50e-6}, settles_to=1)
    found = timed(gpu, "k", sets=7)
    assert (found.cache_state, found.input_sets) == ("rotated", 7)
    assert gpu.graphs[0] % 7 == 0


class Jumping(FakeGpu):
    """A card that slows down near the end of a run, or whose times scatter."""

    def intervals(self, jobs, launches, *, flush):  # type: ignore[no-untyped-def]
        took = super().intervals(jobs, launches, flush=flush)
        if self.driver == "drifts":
            return [t * (1 if n < 0.8 * len(took) else 1.2) for n, t in enumerate(took)]
        return [t * (1.3 if n % 2 else 1) for n, t in enumerate(took)]


def test_what_has_not_settled_is_flagged() -> None:
    assert "drift" in timed(Jumping(seconds={"k": 1e-3}, driver="drifts"), "k").flags
    assert "spread" in timed(Jumping(seconds={"k": 1e-3}, driver="scatters"), "k").flags


def test_clock_and_power_are_those_of_the_second_half() -> None:
    found = timed(FakeGpu(seconds={"k": 1e-3}), "k")
    assert found.sm_clock_hz == pytest.approx(1.5e9)  # samples at 0, 1, 2 s; the mean of the last two
    assert found.power_w is None


@pytest.mark.parametrize(
    ("bytes_of_one", "sets"), [(61, 1), (60, 2), (31, 4), (40, 3), (1, MOST_SETS), (120, 1)]
)
def test_sets_fill_twice_the_l2(bytes_of_one: int, sets: int) -> None:
    assert sets_needed(bytes_of_one, 60) == sets


def test_percentiles_interpolate() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([0.0, 10.0], 0.9) == pytest.approx(9)
    assert percentile([5.0], 0.1) == 5
