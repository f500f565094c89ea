"""Which GPU is meant, and what-if numbers on top of it."""

from __future__ import annotations

import re

import pytest

from iosim.errors import ProfileError
from iosim.hardware import load_profile, profile_names
from iosim.hardware.names import choose


@pytest.mark.parametrize(
    ("request_text", "name"),
    [
        ("h100-sxm", "h100-sxm"),
        ("H100-SXM", "h100-sxm"),
        (" h100_sxm ", "h100-sxm"),
        ("h100 sxm", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("nvidia h200", "h200-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
    ],
)
def test_names_in_any_case_and_driver_names(request_text: str, name: str) -> None:
    profile = load_profile(request_text)
    assert (profile.name, profile.warnings) == (name, ())


@pytest.mark.parametrize(
    ("request_text", "variants"),
    [
        ("h100", ["h100-nvl", "h100-pcie", "h100-sxm"]),
        ("H100", ["h100-nvl", "h100-pcie", "h100-sxm"]),
        ("NVIDIA H100", ["h100-nvl", "h100-pcie", "h100-sxm"]),
        ("a100", ["a100-pcie-80gb", "a100-sxm-40gb", "a100-sxm-80gb"]),
        ("a100-sxm", ["a100-sxm-40gb", "a100-sxm-80gb"]),
        ("a100-80gb", ["a100-pcie-80gb", "a100-sxm-80gb"]),
    ],
)
def test_several_variants_are_refused_with_the_list(request_text: str, variants: list[str]) -> None:
    with pytest.raises(ProfileError, match=f"^{re.escape(request_text)}: say which: {', '.join(variants)}$"):
        load_profile(request_text)


def test_the_only_variant_is_taken_and_said() -> None:
    profile = load_profile("h200")
    assert profile.name == "h200-sxm"
    assert profile.warnings == ("h200: taken as h200-sxm, the only such profile here",)


@pytest.mark.parametrize("request_text", ["h100-sxn", "h10", "mi300x", "", "nvidia", "-", "h100-sxm.yml2"])
def test_unknown_names_list_what_is_known(request_text: str) -> None:
    with pytest.raises(ProfileError, match="no such hardware profile") as caught:
        load_profile(request_text)
    assert "h100-pcie" in str(caught.value)


def test_near_miss_is_suggested() -> None:
    with pytest.raises(ProfileError, match="did you mean h100-sxm"):
        load_profile("h100-sxn")


def test_aliases_name_one_profile_each() -> None:
    owner: dict[str, str] = {}
    for name in profile_names():
        for alias in load_profile(name).aliases:
            assert owner.setdefault(alias.lower(), name) == name


def test_alias_in_two_profiles_is_refused() -> None:
    with pytest.raises(ProfileError, match="say which: one, two"):
        choose("Same GPU", {"two": ["same gpu"], "one": ["Same_GPU"]})


def test_override_replaces_one_number_and_names_itself_as_source() -> None:
    base = load_profile("h100-sxm")
    changed = load_profile("h100-sxm", ["memory.l2.capacity=100MiB", "compute.tensor_dense.fp16=2e15"])
    assert changed.l2_capacity_bytes == 100 * 2**20
    assert changed.peak_flops_per_s("fp16") == 2 * 10**15
    assert changed.compute_unit("fp16").clock_hz == 1_830_000_000  # the clock of the entry stays
    assert changed.quantity("memory.l2.capacity").source == "override: memory.l2.capacity=100MiB"
    same = [key for key in base.quantities if base.quantities[key] == changed.quantities[key]]
    assert len(same) == len(base.quantities) - 2
    assert changed.warnings == ()


def test_last_override_wins() -> None:
    twice = ["compute.sm_count=8", "compute.sm_count=16"]
    assert load_profile("toy", twice).sm_count == 16


def test_override_can_add_a_number_the_profile_lacks() -> None:
    assert load_profile("toy", ["compute.tensor_dense.int8=2 TOP/s"]).peak_flops_per_s("int8") == 2 * 10**12


def test_override_without_effect_says_so_and_keeps_the_hash() -> None:
    base, same = load_profile("toy"), load_profile("toy", ["memory.l2.capacity=65536 B"])
    assert same.warnings == ("--set memory.l2.capacity=65536 B: changes nothing, toy has 64 KiB already",)
    assert same.sha256 == base.sha256


def test_override_that_contradicts_another_number_warns_but_is_a_what_if() -> None:
    profile = load_profile("h100-sxm", ["memory.sram.per_block=454KiB"])
    assert profile.sram_per_block_bytes == 454 * 1024
    assert profile.warnings == (
        "--set: memory.sram.per_block: 454 KiB is more than memory.sram.per_sm (228 KiB)",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("measured.hbm_read_bandwidth=9 TB/s", "9 TB/s is more than memory.hbm.bandwidth (4.8 TB/s)"),
        ("measured.tensor_clock=3 GHz", "3 GHz is more than compute.clocks.boost (1.98 GHz)"),
    ],
)
def test_a_measurement_beyond_what_the_gpu_can_do_warns(given: str, said: str) -> None:
    """A prediction from it would beat the lower bound."""
    (warning,) = load_profile("h200-sxm", [given]).warnings
    assert warning == f"--set: {given.partition('=')[0]}: {said}"


@pytest.mark.parametrize("given", ["memory.hbm.bandwidth=2 TB/s", "compute.clocks.boost=1 GHz"])
def test_what_was_measured_of_the_real_gpu_does_not_contradict_a_what_if(given: str) -> None:
    assert load_profile("h200-sxm", [given]).warnings == ()


def test_override_in_decimal_kilobytes_warns() -> None:
    (warning,) = load_profile("toy", ["memory.sram.per_block=3KB"]).warnings
    assert "'3KiB'" in warning
    assert warning.startswith("--set memory.sram.per_block: ")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "memory.l2.capcity=3MiB",
            "--set memory.l2.capcity: unknown key, did you mean 'memory.l2.capacity'?",
        ),
        ("l2.capacity=3MiB", "did you mean 'memory.l2.capacity'?"),
        ("memory.l2=3MiB", "unknown key"),
        ("zzz=3", "see `iosim hw show NAME`"),
        ("memory.l2.capacity", "write key=value"),
        ("=3", "write key=value"),
        ("memory.l2.capacity=", "write key=value"),
        ("memory.l2.capacity=100", "--set memory.l2.capacity: '100' has no unit; allowed: B, KiB"),
        ("memory.hbm.bandwidth=3 TB", "unknown unit 'TB'; allowed: GB/s"),
        ("compute.sm_count=0", "must be above zero"),
        ("name=other", "unknown key"),
    ],
)
def test_bad_overrides(override: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load_profile("toy", [override])
    assert message in str(caught.value)
