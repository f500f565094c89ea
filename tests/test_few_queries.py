"""Few queries: a kernel that has no other one for them runs itself, mostly empty; and no prediction beats the bound."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem
from iosim.timing.kernel import DECODE_NOTE, time_kernel

RUNGS = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "rungs" / "attention.csv"
ONE_QUERY = AttentionProblem.of(batch=1, heads=32, kv_heads=8, seq_q=1, seq_k=65536, head_dim=128)
H200 = load_profile("h200-sxm")


def _measured_s(implementation: str) -> float:
    with RUNGS.open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["case"] == "b1h32kv8-q1k65536-d128-fp16"]
    return next(float(r["median_time_s"]) for r in rows if r["impl"] == implementation)


@pytest.mark.parametrize(
    ("card", "implementation"),
    [
        ("iosim-flash1", "iosim_flash1"),
        ("iosim-flash2", "iosim_flash2"),
        ("iosim-split_k_warps", "iosim_split_k_warps"),
        ("iosim-flash2_wgmma_64", "iosim_flash2_wgmma"),
    ],
)
def test_one_query_of_our_own_kernels_takes_as_long_as_measured(card: str, implementation: str) -> None:
    """32 blocks walk all keys, so that the bandwidth of the memory is no guide: 8 to 47 times too fast."""
    found = time_kernel(load_kernel(card), ONE_QUERY, H200)
    assert found.repeated_s == pytest.approx(_measured_s(implementation), rel=0.08)
    assert found.launches[0].note is None


@pytest.mark.parametrize("card", ["iosim-flash1", "iosim-flash2", "iosim-flash2_wgmma", "torch-flash2"])
def test_the_eighth_query_costs_next_to_nothing(card: str) -> None:
    """A tile has far more rows than that."""
    base = AttentionProblem.of(batch=8, heads=32, seq_q=7, seq_k=2048, head_dim=64)
    seven, eight = (time_kernel(load_kernel(card), replace(base, seq_q=n), H200).once_s for n in (7, 8))
    assert seven is not None
    assert seven == pytest.approx(eight, rel=0.02)


def test_a_library_with_another_kernel_for_them_is_timed_by_its_bytes() -> None:
    found = time_kernel(load_kernel("cudnn-sdpa"), ONE_QUERY, H200)
    assert found.launches[0].note == DECODE_NOTE
    assert found.once_s == pytest.approx(_measured_s("torch_sdpa_cudnn"), rel=0.08)


@pytest.mark.parametrize("card", ["cudnn-sdpa", "iosim-decode"])
def test_many_heads_that_share_their_keys_are_no_longer_limited_by_bytes(card: str) -> None:
    """128 heads on one: 7 x 128 rows a key, 896 FLOP a byte of K and V; an H200 does 221."""
    shared = AttentionProblem.of(batch=64, heads=128, kv_heads=1, seq_q=7, seq_k=8192, head_dim=128)
    found = time_kernel(load_kernel(card), shared, H200)
    assert found.bound.limit == "tensor"
    assert found.once_s is not None
    assert found.once_s > found.bound.seconds
    assert found.launches[0].once.limit == "tensor"
