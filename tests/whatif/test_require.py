"""The inverse question: answers by brute force, ceilings by hand, and never less with more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.curves.capacity import Run, merged_curve
from iosim.errors import SimulationError, TileError, UsageError
from iosim.hardware import HardwareProfile, load_profile
from iosim.levels import generic_policies
from iosim.problem import AttentionProblem, TileShape
from iosim.whatif import Answer, Requirement, require
from iosim.whatif.answer import points_of
from iosim.whatif.reach import check_monotone

H200, A100 = load_profile("h200-sxm"), load_profile("a100-sxm-80gb")
PROBLEM = AttentionProblem.of(seq=2048, heads=16, head_dim=128)
FLASH2 = find_algorithm("flash2")


def asked(problem: AttentionProblem = PROBLEM, gpu: HardwareProfile = H200, **more: object) -> Requirement:
    return require(problem, FLASH2, gpu, **more)  # type: ignore[arg-type]


def reading(found: Requirement, name: str) -> Answer:
    return next(a for a in found.answers if a.reading == name)


def test_the_least_sram_is_the_first_at_which_the_best_tile_reaches_the_share() -> None:
    found = asked(solve="sram", footprint_model="paper", reach=0.5)
    answer = reading(found, "no L2")
    assert answer.value is not None
    seconds = found.compute_s / 0.5

    def memory_s(sram_bytes: int) -> float:
        record = analyze(PROBLEM, "flash2", profile=H200, sram_bytes=sram_bytes)
        return record.traffic.total_bytes / 4.8e12

    assert memory_s(int(answer.value)) <= seconds < memory_s(int(answer.value) - 1)


def test_bandwidth_is_bytes_over_time() -> None:
    found = asked(solve="hbm", tile=TileShape(rows=128, cols=64), reach=0.8)
    answer = reading(found, "no L2")
    moved = analyze(PROBLEM, "flash2", tiles="128x64", profile=H200).traffic.total_bytes
    flops = 4 * 128 * 2048**2 * 16
    assert found.compute_s == pytest.approx(flops / (4096 * 132 * 1.98e9))
    assert answer.value == pytest.approx(moved / (found.compute_s / 0.8))
    assert reading(found, "behind the L2").value < answer.value  # type: ignore[operator]


def test_the_least_l2_is_a_step_of_the_curve() -> None:
    gpu = load_profile("h200-sxm", ["memory.hbm.bandwidth=1TB/s"])
    problem = AttentionProblem.of(seq=4096, heads=16, head_dim=128)
    tile = TileShape(rows=64, cols=64)
    found = require(problem, FLASH2, gpu, solve="l2", reach=0.5, tile=tile)
    value = found.answers[0].value
    assert value
    run = Run.of(FLASH2, problem, FLASH2.resolve({}), tile)
    curve = merged_curve(run, generic_policies(gpu, run.live_bytes))
    seconds = found.compute_s / 0.5
    below, at = curve.total_bytes([int(value) - 1, int(value)]) / 1e12
    assert at <= seconds < below


def test_exponentials_set_a_ceiling() -> None:
    # a score takes 4 d flops at 4096 a clock and one exponential at 16: at d = 32 half of the matmul peak is lost
    found = asked(AttentionProblem.of(seq=2048, heads=16, head_dim=32), solve="sram")
    for answer in found.answers:
        assert answer.value is None
        assert answer.ceiling == pytest.approx(0.5)
        assert answer.reason.startswith("special-function units limit at 50.0%")
    b200 = require(
        AttentionProblem.of(seq=2048, heads=16, head_dim=96), FLASH2, load_profile("b200"), solve="hbm"
    )
    assert b200.answers[0].ceiling == pytest.approx(0.75, abs=0.01)


def test_masked_tiles_set_a_ceiling() -> None:
    found = asked(
        AttentionProblem.of(seq=2048, heads=16, head_dim=128, mask="causal"),
        solve="hbm",
        tile=TileShape(rows=128, cols=128),
        reach=0.95,
    )
    # of 16 x 17 / 2 tiles of 128 x 128, the pairs are (N + 1) / 2 a row
    executed, useful = 16 * 17 / 2 * 128 * 128, 2048 * 2049 / 2
    assert found.answers[0].value is None
    assert found.answers[0].ceiling == pytest.approx(useful / executed)
    assert "whole tiles" in found.answers[0].reason


def test_decode_never_reaches_it_by_sram() -> None:
    decode = AttentionProblem.of(seq_q=1, seq_k=8192, heads=16, head_dim=128)
    found = asked(decode, solve="sram", reach=0.5)
    assert [a.value for a in found.answers] == [None, None]
    assert "HBM's compulsory bytes limit" in reading(found, "behind the L2").reason


@settings(max_examples=20, deadline=None)
@given(
    solve=st.sampled_from(["sram", "hbm"]),
    reach=st.floats(0.05, 1.0),
    d=st.sampled_from([64, 128]),
    mask=st.sampled_from(["none", "causal"]),
    gpu=st.sampled_from([H200, A100]),
)
def test_what_is_answered_is_reached_and_curves_rise(
    solve: str, reach: float, d: int, mask: str, gpu: HardwareProfile
) -> None:
    problem = AttentionProblem.of(seq=1024, heads=8, head_dim=d, mask=mask)
    for answer in asked(problem, gpu, solve=solve, reach=reach).answers:
        reached = [p.reached for p in points_of(answer)]
        assert reached == sorted(reached)
        assert all(r <= answer.ceiling * (1 + 1e-9) for r in reached)
        if answer.at is not None:
            assert answer.at.reached >= reach * (1 - 1e-9)
        else:
            assert answer.ceiling < reach


def test_a_model_that_falls_is_a_bug() -> None:
    check_monotone([1, 2, 3], [0.1, 0.1, 0.2])
    with pytest.raises(SimulationError, match="this is a bug"):
        check_monotone([1, 2, 3], [0.1, 0.3, 0.2])


@pytest.mark.parametrize(
    ("arguments", "error", "complaint"),
    [
        ({"solve": "l1"}, UsageError, "--solve: unknown memory 'l1'; allowed: sram, l2, hbm"),
        ({"solve": "sram", "reach": 1.5}, UsageError, "--reach"),
        ({"solve": "sram", "tile": TileShape(rows=64, cols=64)}, UsageError, "--tiles"),
        ({"solve": "sram", "sram_bytes": 65536}, UsageError, "--sram"),
        ({"solve": "hbm", "sram_bytes": 100}, TileError, "the smallest tile needs"),
        ({"solve": "hbm", "options": {"pass": "bwd"}}, UsageError, "--pass"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], error: type[Exception], complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        asked(**arguments)


def test_an_algorithm_without_tiles_is_refused() -> None:
    with pytest.raises(UsageError, match="standard has no tiles"):
        require(PROBLEM, find_algorithm("standard"), H200, solve="sram")
