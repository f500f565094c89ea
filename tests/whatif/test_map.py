"""The map of SRAM by HBM bandwidth: more never costs time, and at a GPU's own point it is the search's answer."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.errors import ProfileError
from iosim.hardware import load_profile
from iosim.problem import AttentionProblem
from iosim.tune import Choices, tune
from iosim.whatif import Map, what_if

H200 = load_profile("h200-sxm")
PROBLEM = AttentionProblem.of(seq=2048, heads=16, batch=4, head_dim=128)


@pytest.fixture(scope="module")
def found() -> Map:
    return what_if(PROBLEM, H200)


def test_more_of_either_memory_never_costs_time(found: Map) -> None:
    for seconds in found.seconds.values():
        known = np.where(np.isfinite(seconds), seconds, 1e9)
        assert (np.diff(known, axis=0) <= 1e-15).all()
        assert (np.diff(known, axis=1) <= 1e-15).all()


def test_an_l2_never_costs_time_and_saves_most_where_memory_is_slow(found: Map) -> None:
    bare, helped = found.seconds["no L2"], found.seconds["behind the L2"]
    fits = np.isfinite(bare)
    assert (helped[fits] <= bare[fits]).all()
    assert bare[-1, 0] / helped[-1, 0] > bare[-1, -1] / helped[-1, -1]


def test_the_gpus_own_point_is_what_the_search_finds(found: Map) -> None:
    best = tune(PROBLEM, H200, choices=Choices(orders=("grid",))).winner
    assert best.times is not None
    assert found.own_s["behind the L2"] == pytest.approx(best.times.seconds, rel=0.01)


def test_slow_memory_is_bytes_over_bandwidth() -> None:
    slow = what_if(PROBLEM, H200, sram_bytes=(2**18, 2**19), hbm_bytes_per_s=(1e10, 2e10))
    compulsory = 4 * PROBLEM.batch * PROBLEM.heads * PROBLEM.seq_q * PROBLEM.head_dim * 2
    # a read share of 4.64 / 4.8, and what a copy leaves for writes
    seconds = slow.seconds["behind the L2"][0, 0]
    assert compulsory / 1e10 < seconds < 1.25 * compulsory / 1e10


def test_real_gpus_lie_where_their_profiles_say(found: Map) -> None:
    dots = {d.name: d for d in found.dots}
    assert dots["a100-sxm-80gb"].sram_bytes == 163 * 1024
    assert dots["b200"].hbm_bytes_per_s == 7.7e12
    assert [d.name for d in found.dots if d.own] == ["h200-sxm"]
    assert "toy" not in dots


def test_what_stays_fixed_is_said(found: Map) -> None:
    said = "; ".join(found.fixed)
    for part in ("132 SMs at 1.98 GHz", "L2 60 MiB", "constants of wgmma"):
        assert part in said
    assert "HBM" not in said


def test_a_gpu_without_constants_is_refused() -> None:
    with pytest.raises(ProfileError, match="not known on blackwell"):
        what_if(PROBLEM, load_profile("b200"))
