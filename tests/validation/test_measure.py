"""`iosim hw measure` on a stand-in for a GPU that obeys simple laws: what it finds must be those laws."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner

from iosim.errors import DeviceError, ProfileError
from iosim.hardware import check_file, load_profile
from iosim.roofline import Machine
from iosim_validation import measure_device
from iosim_validation.launch import GpuFacts
from iosim_validation.measure import Figure, Measured, measure, plateau_and_knee, quantity_text
from iosim_validation.measured_profile import profile_for, profile_text, write_profile
from iosim_validation.microbenchmarks import Micro, builds
from iosim_validation.nvrtc import compile_cubin
from iosim_validation.waits import HAND_OVERS, HOPS, STEPS, TURN_RESIDENTS, wait_builds

MIB = 2**20


class FakeBench:
    """A GPU of constant rates: HBM 4.5 TB/s, L2 9 TB/s up to 40 MiB apart and 25 MiB in step, 90 % on chip."""

    def __init__(self, architecture: str = "sm_90a", tensor_share: float = 0.9) -> None:
        self.facts = GpuFacts(
            name="NVIDIA H200",
            architecture=architecture,
            sms=132,
            shared_bytes_per_block=232448,
            l2_bytes=60 * MIB,
        )
        self.tensor_share = tensor_share

    def seconds(self, micro: Micro) -> float:
        if micro.launch.build.entry == "turn":  # 400 clocks of 1.98 GHz a block and place
            return micro.launch.grid[0] / 132 / TURN_RESIDENTS * 400 / 1.98e9
        if micro.launch.build.entry != "read_tiles":
            return micro.bytes_moved / 4.5e12
        count, first = (int(a) for a in micro.launch.arguments[1:3])  # type: ignore[arg-type]
        in_step = first == 0
        footprint = 16 * count * (1 if in_step else micro.launch.grid[0])
        fits = footprint <= (25 if in_step else 40) * MIB
        return micro.bytes_moved / (9e12 if fits else 4.5e12)

    def clocks(self, micro: Micro) -> float:
        entry = micro.launch.build.entry
        if entry == "read_shared":
            return micro.bytes_moved / (0.9 * 128)
        if entry == "chase":
            sweep = int(micro.launch.arguments[2])  # type: ignore[arg-type]
            return HOPS * (700.0 if sweep else 280.0)
        if entry == "exchange":
            return STEPS * HAND_OVERS * 45.0
        if entry == "store_pairs":
            return micro.bytes_moved / (30 if micro.launch.grid[0] == 1 else 12)
        peak = {"exp_rate": 16, "fma_rate": 256, "mma_rate": 4096, "wgmma_rate": 4096}[entry]
        return micro.operations_per_sm / (peak * (self.tensor_share if peak == 4096 else 0.9))

    def launch_seconds(self, *, graph: bool) -> float:
        return 1.2e-6 if graph else 2.4e-6

    def rested_clock(self, micro: Micro) -> float:
        return 1.8e9

    def sustained_clock(self, micro: Micro, seconds: float) -> float:
        return 1.6e9


def by_key(found: Measured) -> dict[str, Figure]:
    return {figure.key.removeprefix("measured."): figure for figure in found.figures}


def measured(**how: float) -> Measured:
    return measure(FakeBench(**how), load_profile("h200-sxm"), lambda _: None)  # type: ignore[arg-type]


def test_it_finds_the_rates_that_the_gpu_has() -> None:
    found = by_key(measured())
    for way in ("read", "write", "copy"):
        assert found[f"hbm_{way}_bandwidth"].measured == pytest.approx(4.5e12)
        assert found[f"hbm_{way}_bandwidth"].share == pytest.approx(4.5 / 4.8)
    assert found["l2_read_bandwidth"].measured == pytest.approx(9e12)
    assert found["l2_own_read_capacity"].measured == 38 * MIB  # the last footprint tried that fits in 40
    assert found["l2_shared_read_capacity"].measured == 24 * MIB
    assert found["sram_read_bandwidth_per_sm"].share == pytest.approx(0.9)
    assert found["special_per_sm"].measured == pytest.approx(0.9 * 16)
    for name in ("fp32_per_sm", "mma_fp16_per_sm", "wgmma_bf16_per_sm"):
        assert found[name].share == pytest.approx(0.9, rel=0.002), name  # printed peaks are rounded
    for name, value in {
        "hbm_latency": 700,
        "l2_latency": 280,
        "exchange_latency": 45,
        "store_bandwidth_per_sm": 30,
        "store_bandwidth_per_sm_all": 12,
        "block_turnover": 400,
    }.items():
        assert found[name].measured == pytest.approx(value), name
    assert found["tensor_clock"].share == pytest.approx(1.8 / 1.98)
    assert found["matrix_clock"].share == pytest.approx(1.6 / 1.98)
    assert not any(figure.flag for figure in found.values())


@pytest.mark.parametrize(("share", "word"), [(0.5, "under 60%"), (1.2, "over 100%")])
def test_what_cannot_be_is_flagged_and_not_stored(share: float, word: str) -> None:
    result = measured(tensor_share=share)
    found = by_key(result)
    assert found["mma_fp16_per_sm"].flag.startswith(word)
    text = profile_text("h200-sxm", result, date(2026, 1, 2))
    kept = next(line for line in text.splitlines() if line.strip().startswith("mma_fp16_per_sm"))
    assert "source: iosim-measure" not in kept  # what the profile knew before stays
    assert "special_per_sm: {value: 14.4 op/clk" in text


def test_the_profile_it_writes_is_a_profile(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    write_profile(path, profile_text("h200-sxm", measured(), date(2026, 1, 2)))
    assert check_file(str(path)) == []
    profile, base = load_profile(str(path)), load_profile("h200-sxm")
    assert profile.number("measured.hbm_read_bandwidth") == pytest.approx(4.5e12)
    machine = Machine.of(profile, "fp16")
    assert (machine.hbm_latency_clk, machine.exchange_clk) == pytest.approx((700, 45))
    assert (machine.block_turn_clk, machine.store_alone_bytes_per_clk) == pytest.approx((400, 30))
    assert profile.number("measured.energy_per_flop") == base.number("measured.energy_per_flop")
    assert "2026-01-02" in profile.quantities["measured.hbm_read_bandwidth"].source
    assert list(tmp_path.iterdir()) == [path]


def test_a_gpu_without_wgmma_is_measured_with_mma_sync_alone() -> None:
    found = by_key(measure(FakeBench("sm_80"), None, lambda _: None))
    assert not any(name.startswith("wgmma") for name in found)
    assert found["mma_fp16_per_sm"].theory is None
    assert not found["mma_fp16_per_sm"].flag


def test_a_curve_that_never_falls_has_no_knee() -> None:
    assert plateau_and_knee([(mib * MIB, 9e12) for mib in (4, 8, 16, 32)]) == (9e12, None)


def test_only_the_gpu_of_a_profile_gets_it() -> None:
    found = profile_for("NVIDIA H200", None)
    assert found is not None
    assert found.name == "h200-sxm"
    assert profile_for("NVIDIA RTX 9999", None) is None
    with pytest.raises(ProfileError):
        profile_for("NVIDIA H200", "no-such-gpu")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.64e12, "B/s", "4.64 TB/s"),
        (30 * MIB, "B", "30 MiB"),
        (1.312e-6, "s", "1.312 us"),
        (14.4, "op/clk", "14.4 op/clk"),
    ],
)
def test_quantities_read_well(value: float, unit: str, text: str) -> None:
    assert quantity_text(value, unit) == text


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from iosim.cli import app

    monkeypatch.setattr(measure_device, "GpuBench", FakeBench)
    out = tmp_path / "mine.yaml"
    result = CliRunner().invoke(app, ["hw", "measure", "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert {f["title"] for f in json.loads(result.stdout)["figures"]} >= {"HBM read", "exponentials"}
    assert out.is_file()
    shown = CliRunner().invoke(app, ["hw", "measure"])
    assert "4.5 TB/s" in shown.stdout


def test_without_a_gpu_it_says_what_is_missing() -> None:
    with pytest.raises(DeviceError, match=r"pip install 'iosim\[gpu\]'|no usable NVIDIA GPU"):
        measure_device.GpuBench()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_89", "sm_90a", "sm_100"])
def test_every_micro_benchmark_compiles_without_spills(architecture: str) -> None:
    gpu = GpuFacts(name="", architecture=architecture, sms=1, shared_bytes_per_block=101376, l2_bytes=MIB)
    for build in (*builds(gpu), *wait_builds(gpu)):
        found = compile_cubin(build.source(), architecture, build.entry).resources[build.entry]
        assert found.registers_per_thread <= build.registers_at_most
        assert (found.spill_store_bytes, found.spill_load_bytes, found.notes) == (0, 0, ())
