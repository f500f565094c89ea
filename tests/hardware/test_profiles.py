"""The profiles that come with iosim: complete, sourced, and consistent with the arithmetic of the hardware."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re

import pytest

from iosim.errors import ProfileError
from iosim.hardware import HardwareProfile, diff_profiles, load_profile, profile_names
from iosim.hardware.schema import FIELDS
from iosim.problem import DTYPES
from iosim.resources import data_dir

NAMES = profile_names()
REAL = [name for name in NAMES if name != "toy"]
KIB, MIB = 1024, 1024**2


@pytest.fixture(params=NAMES)
def profile(request: pytest.FixtureRequest) -> HardwareProfile:
    return load_profile(request.param)


def test_the_promised_gpus_are_there() -> None:
    a100 = {"a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-80gb"}
    promised = a100 | {"h100-sxm", "h100-pcie", "h100-nvl", "h200-sxm", "b200", "toy"}
    assert promised <= set(NAMES)


def test_name_is_the_file_name_and_nothing_warns(profile: HardwareProfile) -> None:
    assert profile.name in NAMES
    assert profile.warnings == ()


def test_every_number_has_unit_source_and_kind_or_a_reason(profile: HardwareProfile) -> None:
    for key, quantity in profile.quantities.items():
        if quantity.value is None:
            assert quantity.unknown
            continue
        assert quantity.source, key
        assert " " in quantity.source, f"{key}: a citation is more than a key"
        assert quantity.kind in ("theoretical", "measured")
        assert (quantity.kind == "measured") or not key.startswith("measured."), key
        if re.match(r"compute\.(tensor|vector)", key) and key != "compute.tensor_dense.fp64":
            assert quantity.clock, f"{key}: a peak says at which clock"


def test_no_citation_is_left_unused() -> None:
    for name in REAL:
        profile = load_profile(name)
        used = {quantity.source for quantity in profile.quantities.values()}
        assert set(profile.sources.values()) <= used, name


@pytest.mark.parametrize("name", REAL)
def test_dense_fp16_peak_is_a_power_of_two_flops_a_clock_and_sm(name: str) -> None:
    """A sparse peak in its place would fit too, with twice the power of two; so the power is checked."""
    profile = load_profile(name)
    unit = profile.compute_unit("fp16")
    per_clock = unit.peak_flops_per_s / (profile.sm_count * unit.clock_hz)
    expected = {"ampere": 2048, "hopper": 4096, "blackwell": 8192, "ada": 1024}[profile.architecture]
    if name == "rtx-4090":
        expected = 512  # the GeForce part runs FP32 accumulation at half rate
    assert per_clock == pytest.approx(expected, rel=0.015)


@pytest.mark.parametrize("name", REAL)
def test_vector_fp32_peak_is_lanes_times_clock(name: str) -> None:
    profile = load_profile(name)
    lanes = 64 if profile.architecture == "ampere" else 128
    by_hand = 2 * lanes * profile.sm_count * profile.clock_hz
    assert profile.number("compute.vector.fp32") == pytest.approx(by_hand, rel=0.01)


@pytest.mark.parametrize("name", REAL)
def test_sparse_peaks_are_twice_the_dense_ones_and_never_served(name: str) -> None:
    profile = load_profile(name)
    sparse = [key for key in profile.quantities if "sparse" in key]
    for key in sparse:
        dtype = key.rsplit(".", 1)[1]
        assert profile.number(key) == pytest.approx(2 * profile.peak_flops_per_s(dtype), rel=0.005)


def test_peak_of_every_dtype_of_the_model_or_an_error(profile: HardwareProfile) -> None:
    served = [d for d in DTYPES if f"compute.tensor_dense.{d}" in profile.quantities]
    served += [d for d in DTYPES if f"compute.vector.{d}" in profile.quantities and d not in served]
    assert len(served) >= 3
    for dtype in DTYPES:
        if dtype in served:
            assert profile.peak_flops_per_s(dtype) == profile.compute_unit(dtype).peak_flops_per_s > 0
        else:
            with pytest.raises(ProfileError, match=f"has no {dtype} peak; it has: "):
                profile.peak_flops_per_s(dtype)


def test_memory_sizes_nest(profile: HardwareProfile) -> None:
    assert profile.sram_per_block_bytes <= profile.sram_per_sm_bytes <= profile.sram_combined_per_sm_bytes
    assert profile.sram_per_block_bytes + profile.sram_reserved_per_block_bytes <= profile.sram_per_sm_bytes
    assert profile.l2_line_bytes % profile.l2_sector_bytes == 0
    assert profile.registers_per_sm * 4 == profile.register_bytes_per_sm
    assert profile.max_warps_per_sm * 32 == profile.max_threads_per_sm


@pytest.mark.parametrize("name", REAL)
def test_measured_bandwidth_stays_below_the_theoretical(name: str) -> None:
    profile = load_profile(name)
    keys = [key for key in profile.quantities if re.fullmatch(r"measured\.hbm_\w+_bandwidth", key)]
    for key in keys:
        assert 0.75 < profile.number(key) / profile.hbm_bandwidth_bytes_per_s < 1, key


@pytest.mark.parametrize(
    ("name", "combined", "per_sm", "per_block", "l2_mib", "sms", "gb"),
    [
        ("a100-sxm-40gb", 192, 164, 163, 40, 108, 40),
        ("a100-sxm-80gb", 192, 164, 163, 40, 108, 80),
        ("a100-pcie-80gb", 192, 164, 163, 40, 108, 80),
        ("h100-sxm", 256, 228, 227, 50, 132, 80),
        ("h100-pcie", 256, 228, 227, 50, 114, 80),
        ("h200-sxm", 256, 228, 227, 60, 132, 141),
        ("l40s", 128, 100, 99, 96, 142, 48),
    ],
)
def test_sizes(name: str, combined: int, per_sm: int, per_block: int, l2_mib: int, sms: int, gb: int) -> None:
    profile = load_profile(name)
    assert profile.sram_combined_per_sm_bytes == combined * KIB
    assert profile.sram_per_sm_bytes == per_sm * KIB
    assert profile.sram_per_block_bytes == per_block * KIB
    assert profile.l2_capacity_bytes == l2_mib * MIB
    assert profile.sm_count == sms
    assert profile.hbm_capacity_bytes == gb * 10**9


def test_coalescer_and_counters_follow_what_was_measured() -> None:
    assert load_profile("h100-sxm").l2_coalescer
    assert not load_profile("a100-sxm-80gb").l2_coalescer
    assert [name for name in NAMES if load_profile(name).counter_data] == ["h200-sxm"]


def test_h100_nvl_l2_is_unknown_until_someone_gives_it() -> None:
    profile = load_profile("h100-nvl")  # loads: an unknown number hurts only who asks for it
    with pytest.raises(ProfileError, match=r"h100-nvl: memory\.l2\.capacity: unknown: .*--set memory"):
        _ = profile.l2_capacity_bytes
    assert load_profile("h100-nvl", ["memory.l2.capacity=60MiB"]).l2_capacity_bytes == 60 * MIB


def test_toy_can_be_worked_by_hand() -> None:
    toy = load_profile("toy")
    assert toy.sm_count == 4
    assert toy.sram_per_block_bytes == 4096
    assert toy.peak_flops_per_s("fp16") / toy.hbm_bandwidth_bytes_per_s == 10  # the ridge, FLOP/B
    assert toy.level("sram").bandwidth_bytes_per_s == 4 * 64 * 10**9
    assert toy.level("sram").capacity_bytes == 4 * 8192
    assert toy.level("l2").bandwidth_bytes_per_s == 400 * 10**9
    assert toy.level("hbm").capacity_bytes == 10**9
    assert toy.special_ops_per_clk_sm == 1
    with pytest.raises(ProfileError, match="allowed: sram, l2, hbm"):
        toy.level("l3")


def test_aggregate_sram_of_a100_is_not_its_l2() -> None:
    sram = load_profile("a100-sxm-80gb").level("sram")
    assert sram.instances == 108
    assert sram.bandwidth_bytes_per_s == 108 * 128 * 1_410_000_000  # the 19 TB/s of the FlashAttention paper


def test_hash_follows_the_content() -> None:
    hashes = {load_profile(name).sha256 for name in NAMES}
    assert len(hashes) == len(NAMES)
    base, changed = load_profile("toy"), load_profile("toy", ["memory.l2.capacity=128KiB"])
    assert base.sha256 == load_profile("toy").sha256 != changed.sha256
    assert {base, load_profile("toy"), changed} == {base, changed}


def test_profile_is_frozen_and_travels_between_processes() -> None:
    profile = load_profile("h100-sxm")
    assert pickle.loads(pickle.dumps(profile)) == profile
    with pytest.raises(dataclasses.FrozenInstanceError):
        profile.name = "other"  # type: ignore[misc]


def test_to_dict_is_plain_and_complete(profile: HardwareProfile) -> None:
    out = profile.to_dict()
    assert out["sha256"] == profile.sha256
    assert set(out["quantities"]) == set(profile.quantities) <= set(FIELDS)
    for key, entry in out["quantities"].items():
        assert entry["value"] == profile.quantities[key].value
        assert entry["value"] is None or math.isfinite(entry["value"])


def test_diff_shows_what_differs_and_by_how_much() -> None:
    by_key = {d.key: d for d in diff_profiles(load_profile("h100-sxm"), load_profile("h200-sxm"))}
    assert by_key["memory.l2.capacity"].ratio == pytest.approx(60 / 50)
    assert "compute.tensor_dense.fp16" not in by_key  # H200 = H100 SXM compute with other memory
    assert by_key["measured.hbm_read_bandwidth"].first is None
    assert by_key["measured.hbm_read_bandwidth"].ratio is None
    assert diff_profiles(load_profile("toy"), load_profile("toy")) == []


def test_all_files_are_profiles_and_small() -> None:
    files = list(data_dir("hwprofiles").iterdir())
    assert {path.suffix for path in files} == {".yaml"}
    assert all(path.stat().st_size < 16 * KIB for path in files)
