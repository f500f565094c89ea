"""The short answer: computed from the terms of the prediction, so it changes with them."""

from __future__ import annotations

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest

from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem
from iosim.report.answers import time_answers
from iosim.report.remedies import remedies
from iosim.report.times import all_terms, find_times
from iosim.timing import time_kernel

H200 = load_profile("h200-sxm")


def answers(problem: AttentionProblem, gpu: str = "h200-sxm", **options: Any) -> list[str]:
    profile = load_profile(gpu)
    part: Any = SimpleNamespace(profile=profile, times=find_times(problem, profile, options))
    return list(time_answers(part))


def test_prefill_is_limited_by_matmuls_and_the_exponentials_are_the_remedy() -> None:
    limit, how_far, what, *_ = answers(AttentionProblem.of(seq=4096, heads=16, head_dim=128))
    assert limit.startswith("On h200-sxm the limit is matmuls: ")
    assert "exponentials that they do not cover" in limit
    assert "HBM works beside that" in limit
    timing = time_kernel(
        load_kernel("cudnn-sdpa"), AttentionProblem.of(seq=4096, heads=16, head_dim=128), H200
    )
    ratio = timing.once_s / timing.bound.seconds if timing.once_s else math.nan
    assert f"{ratio:.3g} times that" in how_far
    assert what.startswith("What to do: run the exponentials behind the matmuls")


def test_decode_is_limited_by_memory_and_fewer_kv_bytes_help() -> None:
    limit, how_far, what, *_ = answers(
        AttentionProblem.of(seq_q=1, seq_k=8192, batch=64, heads=32, kv_heads=8, head_dim=128)
    )
    assert "the limit is bytes from and to HBM" in limit
    assert "set by the compulsory bytes" in how_far
    gain = float(re.search(r"halve K and V.*: ([\d.]+) times as fast", what)[1])  # type: ignore[index]
    assert 1.9 < gain < 2


def test_a_tiny_problem_is_its_launch() -> None:
    limit, _, what, *_ = answers(AttentionProblem.of(seq=256, head_dim=64))
    assert "the limit is the launch" in limit
    assert "launch less often" in what


def test_no_prediction_still_gives_the_bound_where_it_can() -> None:
    said = answers(AttentionProblem.of(seq=1024, head_dim=64), "b200")
    assert said[0].startswith("On b200 no time is predicted: ")
    assert "The least that any kernel needs on b200" in said[1]
    (said_4090,) = answers(AttentionProblem.of(seq=1024, head_dim=64), "rtx-4090")
    assert "special_per_sm" in said_4090


@pytest.mark.parametrize("passes", ["fwd", "bwd"])
def test_a_remedy_is_the_time_without_a_term(passes: str) -> None:
    problem = AttentionProblem.of(seq=2048, heads=16, head_dim=64, mask="causal")
    timing = time_kernel(load_kernel("torch-flash2"), problem, H200, passes=passes)
    assert timing.once_s
    found = remedies(timing, H200.architecture)
    assert [r.seconds for r in found] == sorted(r.seconds for r in found)
    assert all(0 < r.seconds < timing.once_s for r in found)
    tail = next(t.seconds for t in all_terms(timing) if t.name == "waves and tail")
    (even,) = (r for r in found if r.text.startswith("even out the SMs"))
    assert even.seconds == pytest.approx(timing.once_s - tail)


def test_options_that_no_library_kernel_has_are_said() -> None:
    (said,) = answers(AttentionProblem.of(seq=1024, head_dim=64), flash2={"block-mask": "butterfly"})
    assert "block-mask=butterfly" in said
