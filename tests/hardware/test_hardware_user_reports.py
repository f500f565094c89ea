"""Mistakes that users of other tools reported in public, each with the value that is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from iosim.errors import ProfileError
from iosim.hardware import check_file, load_profile, profile_names
from iosim.resources import data_dir


def test_b16_sparse_peak_is_not_the_dense_one() -> None:
    """deepseek-ai/FlashMLA#75, stas00/ml-engineering#100, fms-fsdp#89, Megatron-LM#1276: 1979 taken for H100 bf16."""
    h100 = load_profile("h100-sxm")
    assert h100.peak_flops_per_s("bf16") == 989_400_000_000_000
    assert h100.peak_flops_per_s("fp8") == 1_978_900_000_000_000
    assert h100.number("compute.tensor_sparse_2to4.bf16") == 1_978_900_000_000_000
    ridge = h100.peak_flops_per_s("bf16") / h100.hbm_bandwidth_bytes_per_s
    assert ridge == pytest.approx(295.2, abs=0.1)


def test_b17_h100_pcie_is_756_dense() -> None:
    """qoofyk/LLM_Sizing_Guide#3: 1513 is the sparse figure."""
    pcie = load_profile("h100-pcie")
    assert pcie.peak_flops_per_s("fp16") == 756_500_000_000_000
    assert pcie.hbm_bandwidth_bytes_per_s == pytest.approx(2.0e12, rel=0.02)
    assert pcie.sm_count == 114
    assert pcie.l2_capacity_bytes == 50 * 2**20


def test_b18_a_bare_h100_is_refused() -> None:
    """meta-pytorch/tritonbench#78, LLMs-from-scratch#482, modded-nanogpt#116: one entry for PCIe, SXM and NVL."""
    with pytest.raises(ProfileError, match="say which: h100-nvl, h100-pcie, h100-sxm"):
        load_profile("h100")
    variants = [load_profile(name) for name in ("h100-sxm", "h100-pcie", "h100-nvl")]
    for quantity in ("peak", "bandwidth"):
        values = {
            p.peak_flops_per_s("fp16") if quantity == "peak" else p.hbm_bandwidth_bytes_per_s
            for p in variants
        }
        assert len(values) == 3
    h200, sxm = load_profile("h200-sxm"), variants[0]
    for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"):
        assert h200.peak_flops_per_s(dtype) == sxm.peak_flops_per_s(dtype)
    assert h200.hbm_bandwidth_bytes_per_s == 4_800_000_000_000


def test_b20_each_dtype_has_its_own_peak_and_an_unknown_one_none() -> None:
    """pytorch/torchtitan#668: the TF32 peak used for bf16."""
    h100 = load_profile("h100-sxm")
    peaks = {dtype: h100.peak_flops_per_s(dtype) for dtype in ("fp32", "tf32", "bf16")}
    assert peaks == {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12}
    for dtype in ("fp4", "bfloat16", ""):
        with pytest.raises(ProfileError, match="no peak for dtype"):
            h100.peak_flops_per_s(dtype)
    with pytest.raises(ProfileError, match="this GPU has no fp8 peak"):
        load_profile("a100-sxm-80gb").peak_flops_per_s("fp8")


def test_b22_every_number_carries_a_source(tmp_path: Path) -> None:
    """zartbot/shallowsim#3, Raskoll2/LLMcalc#4: bandwidths guessed or mistyped."""
    for name in profile_names():
        assert all(q.source or q.unknown for q in load_profile(name).quantities.values())
    text = data_dir("hwprofiles").joinpath("h100-sxm.yaml").read_text()
    path = tmp_path / "guess.yaml"
    path.write_text(re.sub(r"(bandwidth: \{value: 3\.352 TB/s), source: [\w-]+", r"\1", text))
    assert path.read_text() != text
    with pytest.raises(ProfileError, match=r"memory\.hbm\.bandwidth: no source"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("name", "per_block", "per_sm_kib"),
    [("a100-sxm-80gb", 166_912, 164), ("h100-sxm", 232_448, 228), ("rtx-4090", 101_376, 100)],
)
def test_b34_per_block_limit_is_the_opt_in(name: str, per_block: int, per_sm_kib: int) -> None:
    """JuliaGPU/CUDA.jl#3135, NVIDIA/Fuser#4465, NVlabs/curobo#705: 48 KiB or the SM's size used for a block's."""
    profile = load_profile(name)
    assert profile.sram_per_block_bytes == per_block
    assert profile.sram_per_sm_bytes == per_sm_kib * 1024
    assert profile.sram_reserved_per_block_bytes == 1024


@pytest.mark.parametrize("text", ["1e12", "3.35e12", "1.0e10"])
def test_b39_exponents_without_sign_or_dot_are_numbers(tmp_path: Path, text: str) -> None:
    """yaml/pyyaml#173, calliope#57, confuse#91, TileOPs#661: 1e12 read as a string, a TypeError far away."""
    path = tmp_path / "mine.yaml"
    toy = data_dir("hwprofiles").joinpath("toy.yaml").read_text()
    path.write_text(toy.replace("bandwidth: 100 GB/s", f"bandwidth: {text}"))
    assert load_profile(str(path)).hbm_bandwidth_bytes_per_s == float(text)


def test_b40_misspelt_and_missing_keys_fail_at_load(tmp_path: Path) -> None:
    """skypilot#674, paninski-lab/yass#159: an unknown key ignored, a missing one found only in mid-run."""
    path = tmp_path / "mine.yaml"
    toy = data_dir("hwprofiles").joinpath("toy.yaml").read_text()
    path.write_text(
        toy.replace("    bandwidth: 100", "    bandwith: 100").replace("    capacity: 64 KiB\n", "")
    )
    assert [re.sub(r"^.*mine\.yaml:\d+: ", "", fault) for fault in check_file(str(path))] == [
        "memory.l2.capacity: missing; give a value (B) with its source, or {unknown: reason}",
        "memory.hbm.bandwith: unknown key, did you mean 'bandwidth'?",
    ]
    with pytest.raises(ProfileError, match=r"mine\.yaml:\d+: memory\.l2\.capacity: missing"):
        load_profile(str(path))


def test_b41_bandwidth_is_decimal_and_caches_are_binary() -> None:
    """lattice/quda#39, hpcg#62, torchcomms#141, GenZ's units: 2**30 applied to a vendor's decimal number."""
    profile = load_profile("h100-sxm", ["memory.hbm.bandwidth=3350 GB/s"])
    assert profile.hbm_bandwidth_bytes_per_s == 3_350_000_000_000
    assert profile.l2_capacity_bytes == 52_428_800
    assert profile.hbm_capacity_bytes == 80_000_000_000
    shown = {key: str(profile.quantity(key)) for key in ("memory.hbm.capacity", "memory.l2.capacity")}
    assert shown == {"memory.hbm.capacity": "80 GB", "memory.l2.capacity": "50 MiB"}
