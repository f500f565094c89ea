"""Bytes at every level: by hand on the toy GPU, by bounds everywhere, and what is said where nothing was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.errors import ProfileError, SimulationError
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.levels import LevelTraffic, add_levels, generic_policies, kernel_policies, simulate_levels
from iosim.problem import AttentionProblem, TileShape

LINE = 128


def levels(
    gpu: str,
    problem: AttentionProblem,
    *,
    algorithm: str = "flash2",
    tile: int = 16,
    blocks_per_sm: int = 2,
    skew: float = 0.2,
    **chosen: int,
) -> LevelTraffic:
    profile, made = load_profile(gpu), find_algorithm(algorithm)
    policies = generic_policies(profile, 0, blocks_per_sm=blocks_per_sm, skew=skew)
    options = made.resolve({})
    return simulate_levels(
        made, problem, options, TileShape(rows=tile, cols=tile), profile, policies, **chosen
    )


def test_toy_where_everything_fits() -> None:
    # Q, K, V, O of 64 x 16 halves: 2 KiB each, 8 in a 64 KiB L2. Four blocks read K and V each.
    found = levels("toy", AttentionProblem.of(seq=64, head_dim=16))
    assert found.sm_read_bytes == 2048 + 4 * 4096
    assert found.hbm_read_bytes == 3 * 2048
    assert (found.hbm_write_bytes, found.dirty_bytes) == (0, 2048)  # O is still in the L2
    assert found.l2_fabric_bytes == 0  # one partition
    assert found.hit_rate == pytest.approx(2 / 3)  # 12 of 18 KiB


def test_toy_where_k_and_v_are_twice_the_l2() -> None:
    # K and V of 2048 x 16 halves are 128 KiB. 128 blocks, 8 at once and in step: 16 waves, and LRU keeps nothing of a
    # cyclic walk from one to the next.
    found = levels("toy", AttentionProblem.of(seq=2048, head_dim=16), skew=0.0)
    assert found.hbm_read_bytes == 65536 + 16 * 131072
    assert found.sm_read_bytes == 65536 + 128 * 131072
    assert found.kernels[0].waves.full == 16


@settings(max_examples=15, deadline=None)
@given(
    gpu=st.sampled_from(["toy", "a100-sxm-80gb", "h200-sxm"]),
    algorithm=st.sampled_from(["flash1", "flash2"]),
    seq=st.integers(1, 18).map(lambda n: 16 * n),  # every tile ends on a sector
    heads=st.integers(1, 3),
    head_dim=st.sampled_from([16, 64]),
    mask=st.sampled_from(["none", "causal"]),
    tile=st.sampled_from([16, 64]),
)
def test_each_level_passes_on_no_more_than_it_gets(
    gpu: str, algorithm: str, seq: int, heads: int, head_dim: int, mask: str, tile: int
) -> None:
    problem = AttentionProblem.of(seq=seq, heads=heads, head_dim=head_dim, mask=mask)
    found = levels(gpu, problem, algorithm=algorithm, tile=tile, sampled_slices=0)
    one = seq * heads * head_dim * 2  # Q, K, V are all visible and read from a cold L2, at least once
    assert found.hbm_read_bytes >= 3 * one
    assert found.hbm_read_bytes <= found.sm_read_bytes
    assert found.l2_read_bytes <= found.sm_read_bytes
    assert found.hbm_write_bytes + found.dirty_bytes >= one
    assert 0 <= found.hit_rate <= 1
    if not load_profile(gpu).l2_coalescer:
        assert found.l2_read_bytes == found.sm_read_bytes
        assert found.in_step is None
    if load_profile(gpu).l2_partitions == 1:
        assert found.l2_fabric_bytes == 0


def test_the_coalescer_is_hoppers() -> None:
    problem = AttentionProblem.of(seq=2048, heads=4, head_dim=64)
    hopper, ampere = (levels(g, problem, tile=64) for g in ("h200-sxm", "a100-sxm-80gb"))
    assert hopper.l2_read_bytes < hopper.sm_read_bytes == ampere.sm_read_bytes == ampere.l2_read_bytes


@pytest.mark.parametrize(("gpu", "extrapolated"), [("h200-sxm", False), ("h100-sxm", True), ("toy", True)])
def test_only_the_h200_was_compared(gpu: str, extrapolated: bool) -> None:
    found = levels(gpu, AttentionProblem.of(seq=64, head_dim=16))
    assert found.extrapolated is extrapolated
    assert found.to_dict()["extrapolated"] is extrapolated
    assert found.to_dict()["policies"]["skew"] == 0.2


def test_unfused_attention_runs_through_one_l2() -> None:
    problem = AttentionProblem.of(seq=64, head_dim=16)
    found = levels("toy", problem, algorithm="standard")
    assert len(found.kernels) == 3
    # S and P stay in the L2 between kernels, so nothing but Q, K and V comes from HBM
    assert found.hbm_read_bytes == 3 * 2048
    assert sum(k.sm_read_bytes for k in found.kernels) == found.sm_read_bytes


def test_a_kernel_that_cannot_be_resident() -> None:
    facts, profile = load_kernel("torch-flash2"), load_profile("h200-sxm")
    problem, tile = AttentionProblem.of(seq=512, head_dim=64), TileShape(rows=128, cols=128)
    with pytest.raises(SimulationError, match="shared"):
        kernel_policies(facts, problem, tile, profile, shared_bytes=400 * 1024)
    with pytest.raises(SimulationError, match="thread"):
        kernel_policies(facts, problem, tile, profile, threads=4096)


def test_a_profile_without_l2() -> None:
    with pytest.raises(ProfileError, match=r"h100-nvl: memory\.l2\.capacity: unknown"):
        levels("h100-nvl", AttentionProblem.of(seq=64, head_dim=16))


def test_sampled_slices_are_near_all_of_them() -> None:
    problem = AttentionProblem.of(seq=4096, heads=16, head_dim=128)
    some, every = (levels("h200-sxm", problem, tile=128, sampled_slices=n) for n in (2, 0))
    assert some.sm_read_bytes == every.sm_read_bytes
    assert some.hbm_read_bytes == pytest.approx(every.hbm_read_bytes, rel=0.02)
    assert some.l2_fabric_bytes == pytest.approx(every.l2_fabric_bytes, rel=0.05)


def test_spills_are_written_and_counted_apart() -> None:
    profile, made = load_profile("h200-sxm"), find_algorithm("flash2")
    problem, tile = AttentionProblem.of(seq=512, head_dim=64), TileShape(rows=128, cols=128)
    plain = generic_policies(profile, 0, blocks_per_sm=1)
    spilling = replace(plain, spill_bytes_per_step=1024, spill_bytes_per_block=512)
    options = made.resolve({})
    without, found = (simulate_levels(made, problem, options, tile, profile, p) for p in (plain, spilling))
    assert found.spill_write_bytes == 4 * (4 * 1024 + 512)  # 4 row tiles of 4 steps
    assert found.sm_write_bytes == without.sm_write_bytes + found.spill_write_bytes
    assert found.hbm_read_bytes == without.hbm_read_bytes


def test_progress_counts_every_access_of_every_kernel_and_changes_nothing() -> None:
    problem, gpu = AttentionProblem.of(seq=2048, head_dim=64, heads=4), load_profile("h200-sxm")
    chosen = find_algorithm("standard")
    record = analyze(problem, chosen, options={"gemm-tiles": "128x128"}, profile=gpu)
    told: list[tuple[int, int]] = []
    watched = add_levels(record, chosen, gpu, progress=lambda done, total: told.append((done, total)))
    assert watched.level_bytes == add_levels(record, chosen, gpu).level_bytes
    assert sum(done == total for done, total in told) == 3  # S, softmax, O
    assert all(0 < done <= total for done, total in told)
