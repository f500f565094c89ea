"""The parts of the harness one by one: suites, items, verdicts, peers, compiling, a card without a driver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_gpu import FACTS, FAKES, Sparse

from iosim.block_mask import pattern
from iosim.errors import UsageError
from iosim.hardware import load_profile, profile_names
from iosim_validation import nvrtc, reference
from iosim_validation.build_all import build_all
from iosim_validation.cases import PAPER, SUITES, Case, attention, by_name, find_case, find_suite
from iosim_validation.check import judge
from iosim_validation.cupy_gpu import MARKER
from iosim_validation.gpu import Answer, Errors
from iosim_validation.items import find_work, tensor_bytes
from iosim_validation.nvml import Nvml
from iosim_validation.peers import CUDNN, EFFICIENT, FLASH2, UNFUSED, does
from iosim_validation.rungs import RUNGS
from iosim_validation.validate import facts_of, match_profile

SMALL = Case(problem=attention((1, 2, 2, 100, 70), 16), peers=False)


def test_the_paper_suite_is_that_of_the_paper() -> None:
    assert len(PAPER) == 24
    for case in PAPER:
        p = case.problem
        assert p.batch * p.seq_q == 16 * 1024
        assert p.heads * p.head_dim == 2048
        assert p.seq_q == p.seq_k


def test_a_name_means_one_attention() -> None:
    for cases in by_name(case for suite in SUITES.values() for case in suite.cases).values():
        assert len({(case.problem, case.block_mask) for case in cases}) == 1


def test_full_holds_the_others() -> None:
    full = {case.name for case in SUITES["full"].cases}
    for name in ("checks", "paper", "tiles", "families"):
        assert {case.name for case in SUITES[name].cases} <= full


def test_every_rung_is_in_some_suite_timed_and_checked() -> None:
    work = find_work(SUITES["full"].cases, RUNGS, FACTS)
    timed = {item.impl for item in work.all_items if item.case.timed}
    assert {f"iosim_{name}" for name in RUNGS} <= timed
    names = [item.key for item in work.all_items]
    assert len(names) == len(set(names))


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known: quick"):
        find_suite("slow")
    with pytest.raises(UsageError, match="no suite has a case"):
        find_case("b1")


def test_a_block_mask_is_written_out_tile_by_tile() -> None:
    causal = attention((1, 2, 2, 100, 70), 16, causal=True)
    cases = [
        replace(SMALL, problem=p, block_mask="local:1+global:1", only=("block_sparse",), every_tile=True)
        for p in (SMALL.problem, causal)
    ]
    for item in find_work(cases, {"block_sparse": Sparse()}, FACTS).all_items:
        mask, tile = item.mask(), item.tile
        assert mask is not None
        assert tile is not None
        blocks = pattern("local:1+global:1", -(-100 // tile.rows), -(-70 // tile.cols))
        assert mask.shape == (100, 70)
        for r in range(100):
            for c in range(70):
                below = item.case.problem is SMALL.problem or c <= r + 70 - 100
                assert mask[r, c] == (blocks[r // tile.rows, c // tile.cols] and below)


@pytest.mark.usefixtures("numpy_for_cupy")
def test_the_bytes_of_the_tensors_are_those_of_the_arrays() -> None:
    for problem in (SMALL.problem, attention((2, 6, 2, 5, 9), 32, dtype="bf16")):
        arrays = reference.fresh_arrays(problem, 0)
        assert tensor_bytes(problem) == sum(array.nbytes for array in arrays.values())


def test_scratch_counts_against_the_memory() -> None:
    (item, *_) = find_work([SMALL], FAKES, FACTS).all_items
    assert item.scratch_bytes() == 16 * 2


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_a_verdict_turns_at_its_limit(dtype: str) -> None:
    problem = attention((1, 1, 1, 8, 8), 16, dtype=dtype)
    plain = Errors(output=1e-3, worst=2e-3, lse=1e-3)
    answer = Answer(o=np.zeros(1), lse=np.zeros(1), plain=plain, largest=4.0)
    allowed = judge(plain, answer, problem).allowed
    assert allowed.output > 2 * plain.output
    assert allowed.lse is not None
    assert judge(allowed, answer, problem).fault == ""
    for name in ("output", "worst", "lse"):
        over = replace(allowed, **{name: getattr(allowed, name) * 1.01})
        assert "off by" in judge(over, answer, problem).fault
        assert "NaN" in judge(replace(allowed, **{name: np.inf}), answer, problem).fault
    assert judge(replace(allowed, lse=None), answer, problem).fault == ""


def test_peers_do_what_they_can() -> None:
    square, causal = attention((1, 4, 4, 64, 64), 64), attention((1, 4, 4, 64, 64), 64, causal=True)
    uneven = attention((1, 4, 4, 32, 64), 64, causal=True)  # torch aligns it at the other end
    grouped, one = attention((1, 4, 2, 64, 64), 64), attention((1, 4, 4, 1, 64), 64, causal=True)
    all_of_them = (FLASH2, CUDNN, EFFICIENT, UNFUSED)
    assert [does(name, square) for name in all_of_them] == [True, True, True, True]
    assert [does(name, causal) for name in all_of_them] == [True, True, True, False]
    assert [does(name, uneven) for name in all_of_them] == [False, False, False, False]
    assert [does(name, grouped) for name in all_of_them] == [True, True, False, False]
    assert [does(name, one) for name in all_of_them] == [True, True, True, False]


def test_builds_are_compiled_in_parallel_and_faults_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IOSIM_CACHE_DIR", str(tmp_path))
    good = [
        replace(MARKER, architecture="sm_90a", prelude=MARKER.prelude + "//" * n + "\n") for n in range(4)
    ]
    bad = replace(good[0], prelude='extern "C" __global__ void iosim_item() { nothing; }')
    steps: list[tuple[int, int]] = []
    failed = build_all([*good, bad], lambda done, total: steps.append((done, total)))
    assert list(failed) == [bad]
    assert "nothing" in failed[bad]
    assert steps == [(n, 5) for n in range(1, 6)]
    assert len(list(tmp_path.glob("*.cubin"))) == 4
    assert build_all([bad]).keys() == {bad}
    _, made = nvrtc.cached_cubin(good[0].source(), "sm_90a", "iosim_item")
    assert "iosim_item" in made.resources


def test_a_card_without_a_driver_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    card = Nvml("0000:01:00.0")
    assert (card.sm_clock_hz(), card.power_w(), card.power_limit_w(), card.driver()) == (None,) * 4
    with card.watch() as samples:
        pass
    assert samples.sm_clock_hz == samples.power_w == []


def test_plans_can_be_made_for_any_profile() -> None:
    for name in profile_names():
        profile = load_profile(name)
        if profile.aliases and profile.quantities["memory.l2.capacity"].value is not None:
            facts = facts_of(profile)
            assert facts.architecture.startswith("sm_")
            assert match_profile(facts.name, name, force=False) is not None
    with pytest.raises(UsageError, match=r"memory\.l2\.capacity is unknown"):
        facts_of(load_profile("h100-nvl"))
    hopper = facts_of(load_profile("h100-sxm"))
    assert (hopper.architecture, hopper.sms, hopper.shared_bytes_per_block) == ("sm_90a", 132, 227 * 1024)
