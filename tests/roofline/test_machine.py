"""The rates of a GPU: from its profile, or assumed and said so."""

from __future__ import annotations

import pytest

from iosim.errors import ProfileError
from iosim.hardware import load_profile
from iosim.roofline import Machine
from iosim.roofline import machine as module


def test_what_is_assumed_elsewhere_is_what_the_h200_has() -> None:
    h200 = load_profile("h200-sxm")
    known = {key: float(h200.number(f"measured.{key}")) for key in ("kernel_start", "busy_power")}
    assert known == {"kernel_start": module.START_S, "busy_power": module.BUSY_W}
    assert h200.number("measured.energy_per_flop") == pytest.approx(module.JOULE_PER_FLOP)
    assert h200.number("measured.energy_per_hbm_byte") == pytest.approx(module.JOULE_PER_HBM_BYTE)
    printed = h200.hbm_bandwidth_bytes_per_s
    assert h200.number("measured.hbm_read_bandwidth") / printed == pytest.approx(module.READ_SHARE, abs=5e-4)
    assert h200.number("measured.hbm_copy_bandwidth") / printed == pytest.approx(module.COPY_SHARE, abs=5e-4)
    assert Machine.of(h200, "fp16").assumed == ()


def test_a_copy_is_half_reads_and_half_writes() -> None:
    found = Machine.of(load_profile("h200-sxm"), "fp16")
    copied = 1e12
    seconds = copied / 2 / found.hbm_read_bytes_per_s + copied / 2 / found.hbm_write_bytes_per_s
    assert copied / seconds == pytest.approx(4.24e12)


def test_the_h100_takes_power_from_the_same_die_and_says_so() -> None:
    found = Machine.of(load_profile("h100-sxm"), "fp16")
    assert found.power is not None
    assert "power of long runs: as on an H200, the same die and limit" in found.assumed
    assert Machine.of(load_profile("h100-pcie"), "fp16").power is None


def test_a_what_if_bandwidth_replaces_what_was_measured() -> None:
    found = Machine.of(load_profile("h200-sxm", ["memory.hbm.bandwidth=8TB/s"]), "fp16")
    assert found.hbm_read_bytes_per_s == pytest.approx(module.READ_SHARE * 8e12)
    assert any(line.startswith("what-if: ") for line in found.assumed)
    own = ["memory.hbm.bandwidth=8TB/s", "measured.hbm_read_bandwidth=7.5TB/s"]
    assert Machine.of(load_profile("h200-sxm", own), "fp16").hbm_read_bytes_per_s == 7.5e12


def test_single_precision_runs_on_the_vector_lanes() -> None:
    found = Machine.of(load_profile("h200-sxm"), "fp32")
    assert (found.unit, found.tensor_flops_per_clk_sm) == ("vector", 256)


def test_the_vector_lanes_keep_the_highest_clock() -> None:
    profile = load_profile("h200-sxm")
    assert Machine.of(profile, "fp32").at_work(256.0).clock_hz == 1.98e9
    assert Machine.of(profile, "fp16").at_work(256.0).clock_hz == 1.797e9


def test_each_clock_of_the_tensor_cores_is_taken_by_itself() -> None:
    """An H100 has neither in its profile; what a what-if gives is used, the other stays assumed."""
    found = Machine.of(load_profile("h100-sxm", ["measured.tensor_clock=1 GHz"]), "fp16")
    assert (found.tensor_clock_hz, found.full_clock_flops) == (1e9, module.FULL_CLOCK_FLOPS)
    assert any(line.startswith("clock under matmuls") for line in found.assumed)
    a100 = Machine.of(load_profile("a100-sxm-80gb", ["measured.tensor_clock=1 GHz"]), "fp16")
    assert (a100.at_work(0.0).clock_hz, a100.at_work(4096.0).clock_hz) == (1e9, 1e9)
    assert not any(line.startswith("clock under matmuls") for line in a100.assumed)


def test_a_what_if_clock_replaces_the_one_measured_below_another() -> None:
    faster = Machine.of(load_profile("h200-sxm", ["compute.clocks.boost=3 GHz"]), "fp16")
    assert faster.tensor_clock_hz == module.TENSOR_CLOCK_SHARE * 3e9
    own = ["compute.clocks.boost=3 GHz", "measured.tensor_clock=2 GHz"]
    assert Machine.of(load_profile("h200-sxm", own), "fp16").tensor_clock_hz == 2e9


def test_a_copy_faster_than_all_reads_is_refused() -> None:
    profile = load_profile("h200-sxm", ["measured.hbm_copy_bandwidth=9.9TB/s"])
    with pytest.raises(
        ProfileError, match=r"measured\.hbm_copy_bandwidth: must be below twice the read bandwidth"
    ):
        Machine.of(profile, "fp16")


def test_a_dtype_without_a_peak() -> None:
    with pytest.raises(ProfileError, match="this GPU has no fp8 peak"):
        Machine.of(load_profile("a100-sxm-80gb"), "fp8")
