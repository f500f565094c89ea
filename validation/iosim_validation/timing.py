"""Times of one kernel: repeated launches until the clock has settled, and single ones from an empty L2.

Times come from events on the GPU. A launch is first repeated for a fixed time after a rest. Its beginning runs at the
clock of a rested card (`first_s`), its second half at the clock that the power limit leaves (`median_s`). Where the
tensors fit in the L2 the launches go round several sets of them, so that none finds its inputs there; `warm_s` is one
set again and again. `cold_s` is single launches, the L2 emptied before each, outside the interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from iosim_validation.gpu import Gpu, Job, Samples

SHORT_S = 200e-6
"""Below it launches are captured in a graph: the host would not keep up with them."""
GRAPH_S = 2e-3
"""What one replay should take."""
FLAGGED_S = 20e-6
FIRST_S = 25e-3
LEAST_LAUNCHES, MOST_LAUNCHES = 6, 4000
COLD_LAUNCHES, COLD_RUN_S = 12, 0.06
MOST_SETS = 32
DRIFT = 0.05
"""A change of the time within the second half beyond which it is flagged: the card had not settled."""
SPREAD = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds of one launch. `drift`: last quarter of the run over the third, minus one. `launches`: in the run.

    `cache_state`: `rotated` over `input_sets` sets, together at least twice the L2, or `repeated` on one.
    `timed_by`: `events` around each launch, or around each replay of a `graph`.
    """

    median_s: float
    p10_s: float
    p90_s: float
    drift: float
    first_s: float
    warm_s: float
    cold_s: float
    cold_p10_s: float
    cold_p90_s: float
    launches: int
    input_sets: int
    cache_state: str
    timed_by: str
    sm_clock_hz: float | None
    power_w: float | None
    flags: tuple[str, ...] = ()


def sets_needed(bytes_of_one: int, l2_bytes: int) -> int:
    """How many input sets keep a launch from finding its tensors in the L2."""
    if bytes_of_one > l2_bytes:
        return 1
    return min(MOST_SETS, math.ceil(2 * l2_bytes / bytes_of_one))


def time_jobs(gpu: Gpu, jobs: Sequence[Job], *, run_s: float, pause_s: float) -> Times:
    """Time one kernel on some input sets, a job each; it has run once before."""
    once = min(gpu.intervals(jobs, 3, flush=False))
    short = once < SHORT_S
    many = max(len(jobs), round(GRAPH_S / once / len(jobs)) * len(jobs)) if short else 1
    runs = [gpu.graph(jobs, many)] if short else list(jobs)
    launches = _launches(run_s, once * many)
    gpu.pause(pause_s)
    with gpu.watch() as samples:
        took = [t / many for t in gpu.intervals(runs, launches, flush=False)]
    settled = took[len(took) // 2 :]
    cold = gpu.intervals(jobs, max(3, min(COLD_LAUNCHES, int(COLD_RUN_S / once))), flush=True)
    warm = median(settled) if len(jobs) == 1 else _warm(gpu, jobs[0], run_s / 4, once, short)
    drift = median(settled[len(settled) // 2 :]) / median(settled[: (len(settled) + 1) // 2]) - 1
    clock, power = _second_half(samples)
    return Times(
        median_s=median(settled),
        p10_s=percentile(settled, 0.1),
        p90_s=percentile(settled, 0.9),
        drift=drift,
        first_s=median(_first(took, many)),
        warm_s=warm,
        cold_s=median(cold),
        cold_p10_s=percentile(cold, 0.1),
        cold_p90_s=percentile(cold, 0.9),
        launches=launches * many,
        input_sets=len(jobs),
        cache_state="rotated" if len(jobs) > 1 else "repeated",
        timed_by="graph" if short else "events",
        sm_clock_hz=clock,
        power_w=power,
        flags=_flags(settled, drift),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """By linear interpolation."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def _launches(run_s: float, once: float) -> int:
    return max(LEAST_LAUNCHES, min(MOST_LAUNCHES, math.ceil(run_s / once)))


def _first(took: Sequence[float], many: int) -> list[float]:
    """The launches of the first milliseconds, but the very first, and never more than the first half."""
    taken, total = [], took[0] * many
    for t in took[1 : max(3, len(took) // 2)]:
        taken.append(t)
        total += t * many
        if total >= FIRST_S and len(taken) >= 3:
            break
    return taken


def _warm(gpu: Gpu, job: Job, run_s: float, once: float, short: bool) -> float:
    many = max(1, round(GRAPH_S / once)) if short else 1
    run = gpu.graph([job], many) if short else job
    took = gpu.intervals([run], _launches(run_s, once * many), flush=False)
    return median(took[len(took) // 2 :]) / many


def _second_half(samples: Samples) -> tuple[float | None, float | None]:
    def settled(readings: list[tuple[float, float]]) -> float | None:
        if not readings:
            return None
        middle = (readings[0][0] + readings[-1][0]) / 2
        return mean(value for at, value in readings if at >= middle)

    return settled(samples.sm_clock_hz), settled(samples.power_w)


def _flags(settled: Sequence[float], drift: float) -> tuple[str, ...]:
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("under 20 us", lambda: median(settled) < FLAGGED_S),
        ("drift", lambda: abs(drift) > DRIFT),
        ("spread", lambda: percentile(settled, 0.9) > (1 + SPREAD) * percentile(settled, 0.1)),
    )
    return tuple(name for name, holds in checks if holds())
