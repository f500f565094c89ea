"""The FlashAttention-2 rungs on mma.sync without a GPU: plans, refusals, tile lists, and what the compiler says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.block_mask import pattern
from iosim.errors import IosimError, UsageError
from iosim.kernels import load_kernel
from iosim.onchip import GENERAL, special_ops
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.designs import ARCHITECTURES, build, designs, head_dims
from iosim_validation.launch import Build, GpuFacts, Pointer
from iosim_validation.nvrtc import compile_cubin
from iosim_validation.rungs import RUNGS
from iosim_validation.rungs.block_sparse import tile_lists

H200 = GpuFacts(
    name="NVIDIA H200", architecture="sm_90a", sms=132, shared_bytes_per_block=232448, l2_bytes=60 * 2**20
)
A100 = GpuFacts(
    name="NVIDIA A100", architecture="sm_80", sms=108, shared_bytes_per_block=166912, l2_bytes=40 * 2**20
)
ADA = GpuFacts(
    name="NVIDIA L40S", architecture="sm_89", sms=142, shared_bytes_per_block=101376, l2_bytes=96 * 2**20
)
OURS = ("flash2", "split_k_warps", "block_sparse")
SM_REGISTERS = 65536


def problem(**changes: object) -> AttentionProblem:
    return AttentionProblem.of(**{"seq": 1000, "heads": 16, "batch": 4, "head_dim": 128, **changes})  # type: ignore[arg-type]


def tile(text: str) -> TileShape:
    return TileShape.parse(text)


def numbers(rung: str, p: AttentionProblem) -> list[float]:
    (launch,) = RUNGS[rung].plan(p, H200).launches
    return [float(a) for a in launch.arguments if isinstance(a, np.generic)]


class TestPlan:
    def test_row_tiles_then_heads_then_batch(self) -> None:
        for rung in ("flash2", "block_sparse"):
            (launch,) = RUNGS[rung].plan(problem(), H200).launches
            assert launch.grid == (8, 16, 4)
        (launch,) = RUNGS["split_k_warps"].plan(problem(head_dim=64), H200).launches
        assert launch.grid == (16, 16, 4)

    def test_shared_memory_of_a_tile(self) -> None:
        (launch,) = RUNGS["flash2"].plan(problem(), H200, tile("128x64")).launches
        assert launch.build.shared_bytes == 2 * (128 * 128 + 2 * 64 * 128 + 2 * 64 * 128)
        (launch,) = RUNGS["split_k_warps"].plan(problem(head_dim=64), H200, tile("64x64")).launches
        tiles = 2 * (64 * 64 + 4 * 64 * 64)
        exchange = 4 * 4 * (64 * 64 + 64 + 64)  # every warp's part of O, maximum and sum of every row, fp32
        assert launch.build.shared_bytes == tiles + exchange

    def test_a_causal_mask_is_a_diagonal_and_no_mask_one_that_hides_nothing(self) -> None:
        assert numbers("flash2", problem(seq=None, seq_q=300, seq_k=500, mask="causal"))[3] == 200
        assert numbers("flash2", problem(seq=None, seq_q=500, seq_k=300, mask="causal"))[3] == -200
        full = problem(seq=None, seq_q=300, seq_k=500)
        assert 0 + numbers("flash2", full)[3] >= full.seq_k - 1  # row 0 sees the last key

    def test_the_scale_is_in_powers_of_two(self) -> None:
        scale = numbers("flash2", problem(scale=0.25))[4]
        assert 2.0 ** (scale * 3) == pytest.approx(math.exp(0.25 * 3), rel=1e-6)

    def test_grouped_heads_are_told_by_the_number_of_kv_heads(self) -> None:
        assert numbers("flash2", problem(kv_heads=2))[2] == 2

    def test_the_default_is_first_and_what_does_not_fit_is_gone(self) -> None:
        assert RUNGS["flash2"].tiles(problem(), H200)[0] == tile("128x64")
        on_ada = RUNGS["flash2"].tiles(problem(), ADA)
        assert tile("128x64") in on_ada
        assert tile("128x128") not in on_ada
        assert RUNGS["split_k_warps"].tiles(problem(), A100) == ()

    def test_bf16_is_another_build(self) -> None:
        builds = [
            RUNGS["flash2"].plan(problem(dtype=d), H200).launches[0].build.defines for d in ("fp16", "bf16")
        ]
        assert [dict(b)["BF16"] for b in builds] == [0, 1]

    @pytest.mark.parametrize("rung", OURS)
    def test_the_card_has_the_launch(self, rung: str) -> None:
        card = load_kernel(f"iosim-{rung}")
        assert card.measured_as == (f"iosim_{rung}",)
        for d in head_dims(rung):
            default = RUNGS[rung].tiles(problem(head_dim=d), H200)[0]
            assert card.tile(d) == default
            assert build(rung, d, default, 0, "sm_90a").threads == (
                256 if d == 256 else card.threads_per_block
            )


REFUSALS = {
    "seven": ({"head_dim": 80}, H200, None, "head_dim 80"),
    "dtype": ({"dtype": "fp32"}, H200, None, "fp16"),
    "window": ({"mask": "window:64"}, H200, None, "window:64"),
    "value": ({"value_dim": 64}, H200, None, "value_dim 64"),
    "scale": ({"scale": -0.5}, H200, None, "-0.5"),
    "tile": ({}, H200, "96x64", "96x64"),
    "bytes": ({}, ADA, "128x128", "163840"),
    "heads": ({"heads": 70000}, H200, None, "70000"),
    "rows": ({"seq": 2**24, "batch": 8}, H200, None, str(2**31)),
}


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSALS)
    @pytest.mark.parametrize("rung", ["flash2", "block_sparse"])
    def test_one_line_that_names_it(self, name: str, rung: str) -> None:
        changes, gpu, asked, word = REFUSALS[name]
        with pytest.raises(UsageError) as caught:
            RUNGS[rung].plan(problem(**changes), gpu, tile(asked) if asked else None)
        assert word in str(caught.value)
        assert str(caught.value).startswith(f"{rung}:")
        assert "\n" not in str(caught.value)

    def test_an_exchange_that_does_not_fit_says_its_bytes(self) -> None:
        needed = 2 * (64 * 128 + 4 * 64 * 128) + 4 * 4 * 64 * (128 + 2)
        with pytest.raises(UsageError, match=str(needed)):
            RUNGS["split_k_warps"].plan(problem(), A100)

    def test_an_old_gpu(self) -> None:
        old = GpuFacts(
            name="Tesla T4", architecture="sm_75", sms=40, shared_bytes_per_block=65536, l2_bytes=4 * 2**20
        )
        with pytest.raises(UsageError, match="sm_80"):
            RUNGS["flash2"].plan(problem(), old)

    def test_a_mask_that_cannot_be_read(self) -> None:
        masked = RUNGS["block_sparse"].masked("checkers")
        assert masked is not None
        with pytest.raises(IosimError, match="checkers"):
            masked.plan(problem(), H200)

    def test_others_take_no_block_mask(self) -> None:
        assert RUNGS["flash2"].masked("butterfly") is None


PATTERNS = ("local:2+global:1", "butterfly", "random:0.3", "strided:3", "local:999999999")


def lists(p: AttentionProblem, t: TileShape, text: str) -> list[tuple[list[int], int]]:
    """Every row tile's list and the number of its tiles that need the mask."""
    starts, tiles, edges = tile_lists(p, t, text)
    return [(tiles[a:b].tolist(), int(e)) for a, b, e in zip(starts[:-1], starts[1:], edges, strict=True)]


@given(
    seq_q=st.integers(1, 400),
    seq_k=st.integers(1, 400),
    causal=st.booleans(),
    text=st.sampled_from(PATTERNS),
    rows=st.sampled_from((64, 128)),
    cols=st.sampled_from((32, 64, 128)),
)
def test_lists_are_the_tiles_of_the_mask(
    seq_q: int, seq_k: int, causal: bool, text: str, rows: int, cols: int
) -> None:
    p = problem(seq=None, seq_q=seq_q, seq_k=seq_k, mask="causal" if causal else "none")
    t = TileShape(rows=rows, cols=cols)
    blocks = pattern(text, -(-seq_q // rows), -(-seq_k // cols))
    hidden = np.arange(seq_k)[None, :] > np.arange(seq_q)[:, None] + (seq_k - seq_q if causal else seq_k)
    for i, (found, masked) in enumerate(lists(p, t, text)):
        wanted, needing = [], []
        for j in reversed(range(blocks.shape[1])):
            part = hidden[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols]
            if blocks[i, j] and not part.all():
                wanted.append(j)
                if part.any() or part.shape[1] < cols:
                    needing.append(j)
        assert found == wanted
        assert set(needing) <= set(found[:masked])  # a mask where none is needed costs time alone


def test_lists_are_scratch_that_a_launch_reads() -> None:
    masked = RUNGS["block_sparse"].masked("butterfly")
    assert masked is not None
    plan = masked.plan(problem(), H200)
    assert set(plan.scratch) == {"starts", "tiles", "edges"}
    assert {Pointer(name) for name in plan.scratch} <= set(plan.launches[0].arguments)
    for scratch in plan.scratch.values():
        assert scratch.data is not None
        assert scratch.data.shape == scratch.shape
        assert str(scratch.data.dtype) == scratch.dtype


def test_a_mask_of_no_tile_has_a_list_to_point_at() -> None:
    # 100 rows of 10 keys: the first 90 rows see nothing, and only their tile is in the mask
    p = problem(seq=None, seq_q=128 + 100, seq_k=10, mask="causal")
    starts, tiles, edges = tile_lists(p, tile("128x64"), "global:1")
    assert starts.tolist() == [0, 0, 1]
    assert tiles.tolist() == [0]
    assert edges.tolist() == [0, 1]


def test_special_functions_under_a_block_mask_are_those_of_its_tiles() -> None:
    p, t = problem(seq=1024, heads=1, batch=1), tile("128x64")
    visited = int(pattern("butterfly", 8, 16).sum())
    ends = GENERAL.per_row * 1024
    assert special_ops(p, t, GENERAL, block_mask="butterfly") == visited * 128 * (64 + 4) + ends


def some_builds() -> list[Build]:
    """One build a tile on the H200, and the default tiles elsewhere: text that differs."""
    here = [build("flash2", d, t, 0, "sm_90a") for d in (64, 128) for t in designs("flash2", "sm_90a", d)]
    defaults = [
        build(rung, d, next(iter(designs(rung, a, d))), 1, a)
        for rung, d, a in (
            ("flash2", 128, "sm_80"),
            ("flash2", 64, "sm_89"),
            ("flash2", 128, "sm_100"),
            ("flash2", 256, "sm_90a"),
            ("split_k_warps", 64, "sm_90a"),
            ("split_k_warps", 128, "sm_100"),
            ("block_sparse", 64, "sm_90a"),
            ("block_sparse", 128, "sm_90a"),
            ("block_sparse", 128, "sm_80"),
        )
    ]
    return here + defaults


def assert_clean(made: Build) -> None:
    found = compile_cubin(made.source(), made.architecture, made.entry).resources[made.entry]
    assert found.registers_per_thread <= made.registers_at_most
    assert (found.spill_store_bytes, found.spill_load_bytes) == (0, 0)
    assert found.static_shared_bytes == 0
    assert found.notes == ()


@pytest.mark.parametrize("made", some_builds(), ids=lambda b: b.name)
def test_the_compiler_spills_nothing(made: Build) -> None:
    assert_clean(made)


@pytest.mark.slow
@pytest.mark.parametrize("rung", OURS)
def test_every_tile_spills_nothing(rung: str) -> None:
    for d in head_dims(rung):
        for t in designs(rung, "sm_90a", d):
            assert_clean(build(rung, d, t, 0, "sm_90a"))


@pytest.mark.parametrize("rung", OURS)
def test_every_build_is_a_launch_that_an_sm_holds(rung: str) -> None:
    builds = RUNGS[rung].builds()
    assert len({b.name for b in builds}) == len(builds)
    assert {b.architecture for b in builds} == set(ARCHITECTURES)
    for made in builds:
        blocks = int(dict(made.defines)["BLOCKS"])
        assert made.registers_at_most * made.threads * blocks <= SM_REGISTERS
        assert made.shared_bytes <= H200.shared_bytes_per_block
        if made.architecture == "sm_90a":  # 1 KiB of every block is the driver's
            assert blocks * (made.shared_bytes + 1024) <= 233472
