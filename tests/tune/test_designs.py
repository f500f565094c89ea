"""What fits on an SM: kernels that are known to compile must, tiles that are known to spill must not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem, TileShape
from iosim.tune import Choices, Design, Fit
from iosim.tune.design import fit, padded, shapes

H200, A100 = load_profile("h200-sxm"), load_profile("a100-sxm-80gb")


def held(
    kind: str, tile: str, d: int, warps: int, stages: int = 2, gpu: object = H200, *, backward: bool = False
) -> Fit:
    design = Design(tile=TileShape.parse(tile), warps=warps, stages=stages)
    problem = AttentionProblem.of(seq=4096, head_dim=d)
    return fit(design, padded(problem), kind, gpu, backward=backward)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", [H200, A100], ids=["h200", "a100"])
@pytest.mark.parametrize("d", [32, 64, 96, 128, 256])
def test_flash_attention_2_fits_as_its_card_says(d: int, gpu: object) -> None:
    card = load_kernel("torch-flash2")
    tile = card.tile(d)
    assert tile is not None
    found = held("mma-sync", str(tile), d, card.threads_per_block // 32, 1, gpu)
    assert found.fits
    assert found.needs.registers <= card.registers_per_thread


def test_what_a_profiler_read_of_its_launches() -> None:
    # shared_bytes_per_block of attention.csv, with the 1 KiB that the driver reserves
    for d, tile, shared in (
        (64, "128x128", 50176),
        (96, "128x64", 50176),
        (128, "128x64", 66560),
        (256, "64x64", 99328),
    ):
        assert held("mma-sync", tile, d, 4, 1).needs.shared_bytes + 1024 == shared
    assert held("wgmma", "128x128", 128, 8).needs.launch_registers <= 168  # cuDNN's launch
    # two blocks an SM: 255 registers and 128 threads, as FlashAttention-2 runs
    assert held("mma-sync", "128x64", 128, 4, 1).blocks_per_sm == 2


def test_its_backward_tiles_fit_and_take_the_shared_memory_that_its_source_states() -> None:
    card = load_kernel("torch-flash2")
    for d, shared in ((64, 144), (128, 144), (256, 176)):
        found = held("mma-sync", str(card.backward_tile(d)), d, 8, backward=True)
        assert found.fits
        assert found.needs.shared_bytes == shared * 1024
    assert held("mma-sync", "64x64", 256, 8, gpu=A100, backward=True).reason_class == "shared memory"


@pytest.mark.parametrize(
    ("kind", "tile", "d", "warps"),
    [
        ("mma-sync", "128x128", 128, 4),  # O and S alone are 256 registers a thread
        ("mma-sync", "128x64", 256, 4),
        ("wgmma", "192x144", 128, 12),  # 1,028 bytes of spills at 160 registers
        ("wgmma", "192x160", 128, 12),
    ],
)
def test_known_spills_do_not_fit(kind: str, tile: str, d: int, warps: int) -> None:
    found = held(kind, tile, d, warps)
    assert not found.fits
    assert found.reason_class == "registers"
    assert "registers" in found.reason


@pytest.mark.parametrize(
    ("tile", "d", "warps"),
    [("192x128", 128, 12), ("128x176", 128, 8), ("128x80", 256, 8), ("192x128", 64, 12), ("128x192", 128, 8)],
)
def test_known_hopper_kernels_fit(tile: str, d: int, warps: int) -> None:
    # FlashAttention-3's tiles, and kernels of three warpgroups that compile without a spill
    assert held("wgmma", tile, d, warps).fits


@given(
    d=st.sampled_from([32, 64, 96, 128, 192, 256]),
    rows=st.sampled_from([64, 128, 192, 256]),
    cols=st.integers(1, 15),
    warps=st.sampled_from([4, 8]),
    stages=st.integers(1, 3),
    kind=st.sampled_from(["mma-sync", "wgmma"]),
)
def test_a_larger_tile_never_needs_less(
    d: int, rows: int, cols: int, warps: int, stages: int, kind: str
) -> None:
    if kind == "mma-sync" and rows % (16 * warps):
        return
    small = held(kind, f"{rows}x{16 * cols}", d, warps, stages)
    wide = held(kind, f"{rows}x{16 * cols + 16}", d, warps, stages)
    deep = held(kind, f"{rows}x{16 * cols}", d, warps, stages + 1)
    assert small.needs.registers <= wide.needs.registers
    assert small.needs.shared_bytes < min(wide.needs.shared_bytes, deep.needs.shared_bytes)
    assert wide.blocks_per_sm <= small.blocks_per_sm
    assert deep.blocks_per_sm <= small.blocks_per_sm


def test_shapes_are_multiples_of_the_instruction() -> None:
    problem = AttentionProblem.of(seq=4096, head_dim=64)
    for design in shapes(problem, "mma-sync", Choices(), backward=False):
        assert design.tile.rows % (16 * design.warps) == 0
        assert design.tile.cols % 16 == 0
    for design in shapes(problem, "wgmma", Choices(), backward=False):
        assert design.tile.rows == 16 * design.warps
        assert design.tile.rows % 64 == 0
    with pytest.raises(UsageError, match="multiples of 64"):
        shapes(problem, "wgmma", Choices(rows=(96,)), backward=False)
