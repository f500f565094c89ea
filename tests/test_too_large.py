"""Requests that would run for hours are refused in a moment, with what is too large and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.levels import generic_policies, simulate_levels
from iosim.memory import hierarchy
from iosim.problem import AttentionProblem, TileShape
from iosim.tune import tune
from iosim.whatif import require, what_if

GPU = load_profile("h100-sxm")
TILE = TileShape(rows=128, cols=64)
MILLION = 1 << 20


def levels(problem: AttentionProblem, **more: Any) -> Any:
    algorithm = find_algorithm("flash2")
    policies = generic_policies(GPU, 0, blocks_per_sm=1)
    return simulate_levels(algorithm, problem, algorithm.resolve({}), TILE, GPU, policies, **more)


def ragged(lengths: list[int]) -> Any:
    alone = [AttentionProblem.of(seq=n, head_dim=128, heads=16) for n in lengths]
    padded = AttentionProblem.of(batch=len(lengths), seq=max(lengths), head_dim=128, heads=16)
    return levels(padded, sequences=alone)


def vast_l2() -> Any:
    gpu, algorithm = load_profile("h200-sxm", ["memory.l2.capacity=1 TiB"]), find_algorithm("flash2")
    return simulate_levels(
        algorithm,
        AttentionProblem.of(seq=128, head_dim=64),
        algorithm.resolve({}),
        TILE,
        gpu,
        generic_policies(gpu, 0, blocks_per_sm=1),
    )


HEADS = AttentionProblem.of(seq=4096, head_dim=128, heads=MILLION)
LONG = AttentionProblem.of(seq=MILLION, head_dim=128, heads=128)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: levels(HEADS), "more than 4,000,000 thread blocks; take larger tiles"),
        # a Q, then K and V of 16,384 tiles, then O, for 128 heads of 8,192 row tiles
        (lambda: levels(LONG), f"{128 * 8192 * (2 + 2 * 16384):,} tile accesses are too many.*fewer heads"),
        (lambda: ragged([MILLION] * 2), f"{2 * 16 * 8192 * (2 + 2 * 16384):,} tile accesses are too many"),
        (lambda: tune(HEADS, GPU), "67,108,864 thread blocks are too many.*fewer heads"),
        (lambda: what_if(HEADS, GPU), "67,108,864 thread blocks are too many.*fewer heads"),
        (lambda: vast_l2(), f"{2**40 // 128:,} lines are too many to simulate.*a smaller capacity"),
        (lambda: require(LONG, find_algorithm("flash2"), GPU, solve="l2"), "too many to follow.*shorter"),
    ],
)
def test_it_is_refused_at_once(ask: Callable[[], Any], words: str) -> None:
    started = time.perf_counter()
    with pytest.raises(UsageError, match=words) as caught:
        ask()
    assert time.perf_counter() - started < 10
    assert "\n" not in str(caught.value)


def test_what_is_allowed_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = AttentionProblem.of(seq=1024, head_dim=128, heads=4)
    accesses = 4 * 8 * (2 + 2 * 16)
    monkeypatch.setattr(hierarchy, "MAX_ACCESSES", accesses)
    told: list[tuple[int, int]] = []
    levels(problem, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (accesses, accesses)
    monkeypatch.setattr(hierarchy, "MAX_ACCESSES", accesses - 1)
    with pytest.raises(UsageError, match="too many"):
        levels(problem)


def test_a_word_while_traces_are_made() -> None:
    told: list[tuple[int, int]] = []
    ragged_like = AttentionProblem.of(batch=1, seq=512, head_dim=128, heads=2)
    levels(ragged_like, sequences=[ragged_like], progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, told[-1][1])
