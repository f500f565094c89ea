"""The Hopper kernel without a GPU: its plans, its refusals, and what the compiler says of every build."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import UsageError
from iosim.kernels import kernels_by_measurement, load_kernel
from iosim.onchip import SpecialFacts, special_ops
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.launch import GpuFacts, Pointer, Stride, TensorMap
from iosim_validation.nvrtc import Resources, compile_cubin
from iosim_validation.rungs import RUNGS
from iosim_validation.rungs.flash2_wgmma import (
    BARRIERS,
    REGISTERS,
    STAGES,
    Flash2Wgmma,
    build,
    heads_together,
    shared_bytes,
)

H200 = GpuFacts(
    name="NVIDIA H200", architecture="sm_90a", sms=132, shared_bytes_per_block=232448, l2_bytes=60 * 2**20
)
RUNG = Flash2Wgmma()
DEFAULT = TileShape(rows=192, cols=128)
SM_REGISTERS = 65536
ENTRY = "flash2_wgmma"


def problem(**changes: object) -> AttentionProblem:
    return AttentionProblem.of(**{"seq": 4096, "heads": 16, "batch": 4, "head_dim": 128, **changes})  # type: ignore[arg-type]


def compiled(head_dim: int, tile: TileShape, *, causal: bool, bf16: bool) -> Resources:
    made = build(head_dim, tile, causal=causal, bf16=bf16)
    return compile_cubin(made.source(), made.architecture, made.entry).resources[ENTRY]


def assert_clean(resources: Resources, tile: TileShape) -> None:
    assert resources.registers_per_thread <= REGISTERS[tile.rows // 64].launch
    assert (resources.spill_store_bytes, resources.spill_load_bytes) == (0, 0)
    assert resources.static_shared_bytes == 0
    assert resources.notes == ()  # no product serialised, no move of registers ignored


class TestPlan:
    def test_one_block_an_sm_and_the_default_tile(self) -> None:
        (launch,) = RUNG.plan(problem(), H200).launches
        assert launch.grid == (132, 1, 1)
        assert launch.build.threads == 4 * 128
        # Q 192 x 128, two rings of two slots of 128 x 128, ten barriers of 8 bytes, the mailbox
        assert launch.build.shared_bytes == 2 * 192 * 128 + 4 * 2 * 128 * 128 + 10 * 8 + 16

    def test_no_more_blocks_than_tiles(self) -> None:
        (launch,) = RUNG.plan(
            problem(seq=400, heads=5, batch=1), H200, TileShape(rows=192, cols=128)
        ).launches
        assert launch.grid == (3 * 5, 1, 1)

    @pytest.mark.parametrize(
        ("rows", "changes"),
        [
            (192, {}),
            (192, {"batch": 1, "seq": 16384}),
            (128, {"batch": 16, "seq": 1024}),  # 192 rows cut 1024 into 5.3
            (128, {"batch": 1, "seq": 1024}),  # all tiles at once: the shorter one is done first
            (192, {"batch": 16, "seq": 768}),
            (64, {"batch": 64, "seq_q": 1, "seq_k": 8192}),
        ],
    )
    def test_the_default_leaves_the_busiest_sm_the_least(self, rows: int, changes: dict[str, Any]) -> None:
        sizes = {"seq": 4096} | changes
        if "seq_q" in sizes:
            del sizes["seq"]
        asked = AttentionProblem.of(**{"heads": 16, "batch": 4, "head_dim": 128, **sizes})
        assert RUNG.tiles(asked, H200)[0] == TileShape(rows=rows, cols=128)

    def test_boxes_are_the_tile(self) -> None:
        (launch,) = RUNG.plan(problem(), H200, TileShape(rows=128, cols=160)).launches
        maps = {a.array: a.box_rows for a in launch.arguments if isinstance(a, TensorMap)}
        assert maps == {"q": 128, "k": 160, "v": 160}

    def test_any_layout_of_the_output(self) -> None:
        (launch,) = RUNG.plan(problem(), H200).launches
        strides = [a for a in launch.arguments if isinstance(a, Stride)]
        assert [(s.array, s.axis) for s in strides] == [("o", 0), ("o", 1), ("o", 2)]

    def test_every_plan_has_a_counter_of_its_own_that_starts_at_zero(self) -> None:
        one, other = RUNG.plan(problem(), H200), RUNG.plan(problem(), H200)
        assert Pointer("counter") in one.launches[0].arguments
        first, second = one.scratch["counter"].data, other.scratch["counter"].data
        assert first is not None
        assert second is not None
        assert first is not second
        assert first.tolist() == second.tolist() == [0]

    def test_the_scale_is_folded_into_base_two(self) -> None:
        (launch,) = RUNG.plan(problem(scale=0.25), H200).launches
        assert launch.arguments[-1] == np.float32(0.25 / math.log(2))

    def test_registered(self) -> None:
        assert isinstance(RUNGS["flash2_wgmma"], Flash2Wgmma)

    @given(
        heads=st.integers(1, 64),
        batch=st.integers(1, 8),
        seq_q=st.integers(1, 40_000),
        seq_k=st.integers(1, 40_000),
        head_dim=st.sampled_from([64, 128]),
    )
    def test_groups_of_heads_are_equal_but_for_the_last(
        self, heads: int, batch: int, seq_q: int, seq_k: int, head_dim: int
    ) -> None:
        p = AttentionProblem.of(
            seq_q=seq_q, seq_k=seq_k, heads=heads, batch=batch, head_dim=head_dim, mask="causal"
        )
        row_tiles = -(-seq_q // 192)
        together = heads_together(p, row_tiles, H200)
        planes = heads * batch
        groups = -(-planes // together)
        assert 1 <= together <= planes
        assert groups * together - planes < together
        # several groups only where each has 2.5 tiles an SM or fills the cache
        if groups > 1:
            kept = together * 4 * seq_k * head_dim
            assert 2 * together * row_tiles >= 5 * 132 or kept > H200.l2_bytes // 2 - 4 * seq_k * head_dim


def visits(p: AttentionProblem, tile: TileShape) -> tuple[int, int]:
    """Blocks of keys that the kernel's tiles load, and that its warpgroups compute, of one head: its own arithmetic."""
    loaded = computed = 0
    for first_row in range(0, p.seq_q, tile.rows):
        blocks = -(-p.seq_k // tile.cols)
        if p.mask.is_causal:
            first_sees = first_row + p.seq_k - p.seq_q + 1
            blocks = max(1, min(blocks, -(-(first_sees + tile.rows - 1) // tile.cols)))
        loaded += blocks
        for warpgroup in range(tile.rows // 64):
            block = blocks - 1
            last_key = first_row + warpgroup * 64 + 63 + p.seq_k - p.seq_q
            while p.mask.is_causal and block > 0 and block * tile.cols > last_key:
                block -= 1
            computed += block + 1
    return loaded, computed


class TestAgainstTheTileProgram:
    """What the kernel's index arithmetic visits, and what iosim says of its card."""

    @given(
        seq_q=st.integers(1, 3000),
        more=st.integers(0, 3000),
        mask=st.sampled_from(["none", "causal"]),
        tile=st.sampled_from(RUNG.tiles(problem(), H200)),
    )
    def test_visits(self, seq_q: int, more: int, mask: str, tile: TileShape) -> None:
        p = AttentionProblem.of(seq_q=seq_q, seq_k=seq_q + more, head_dim=128, mask=mask)
        loaded, computed = visits(p, tile)
        assert loaded == tile_steps(p, tile)
        # every score is 128 columns wide: what is left of the sum are the four lanes of a row, and what ends it
        facts = SpecialFacts(per_row=0, step_rows=64)
        assert special_ops(p, tile, facts) == computed * 64 * (tile.cols + 4)

    def test_the_card_is_the_launch(self) -> None:
        card = load_kernel("iosim-flash2_wgmma")
        (launch,) = RUNG.plan(problem(), H200).launches
        assert card.tile(64) == card.tile(128) == DEFAULT
        assert card.threads_per_block == launch.build.threads
        assert card.registers_per_thread == launch.build.registers_at_most
        assert card.shared_bytes(problem(), DEFAULT) == launch.build.shared_bytes - 8 * BARRIERS - 16
        assert kernels_by_measurement()["iosim_flash2_wgmma"] == card


class TestTakesTheTilesOnce:
    """The counter's rule, in Python: a block's first tile is its index, the others come from a counter that wraps."""

    @given(tiles=st.integers(1, 200), sms=st.integers(1, 20), order=st.randoms(use_true_random=False))
    def test_every_tile_once_and_the_counter_back_at_zero(self, tiles: int, sms: int, order: object) -> None:
        grid, counter, taken = min(tiles, sms), 0, []
        running = {block: block for block in range(grid)}
        while running:
            block = order.choice(sorted(running))  # type: ignore[attr-defined]
            taken.append(running[block])
            fetched, counter = grid + counter, 0 if counter >= tiles - 1 else counter + 1
            if fetched < tiles:
                running[block] = fetched
            else:
                del running[block]
        assert sorted(taken) == list(range(tiles))
        assert counter == 0


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"head_dim": 96}, "head_dim 96"),
            ({"value_dim": 64}, "value_dim 64"),
            ({"dtype": "fp32"}, "fp16 or all bf16"),
            ({"dtype_k": "bf16"}, "fp16 or all bf16"),
            ({"mask": "window:512"}, "window:512"),
            ({"scale": -1.0}, "scale must be positive"),
            ({"scale": 0.0}, "scale must be positive"),
            ({"heads": 2**24, "seq": 2**18}, "thread blocks"),
        ],
    )
    def test_problems(self, changes: dict[str, object], words: str) -> None:
        with pytest.raises(UsageError, match=words) as caught:
            RUNG.plan(problem(**changes), H200)
        assert "\n" not in str(caught.value)

    def test_another_gpu(self) -> None:
        a100 = GpuFacts(
            name="A100", architecture="sm_80", sms=108, shared_bytes_per_block=166912, l2_bytes=40 << 20
        )
        with pytest.raises(UsageError, match="built for sm_90a, A100 is sm_80"):
            RUNG.plan(problem(), a100)
        assert RUNG.tiles(problem(), a100) == ()

    @pytest.mark.parametrize(
        ("rows", "cols", "words"),
        [
            # 2 * 128 * (192 + 4 * 192) and 96 bytes of barriers and mailbox
            (192, 192, "needs 245856 bytes of shared memory a block, NVIDIA H200 has 232448"),
            (192, 144, "S and O take 136 of a consumer's 160 registers"),
            (96, 128, "rows 64, 128 or 192"),
            (256, 64, "rows 64, 128 or 192"),
        ],
    )
    def test_tiles(self, rows: int, cols: int, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            RUNG.plan(problem(), H200, TileShape(rows=rows, cols=cols))

    def test_no_tile_past_the_shared_memory(self) -> None:
        small = GpuFacts(
            name="small", architecture="sm_90a", sms=4, shared_bytes_per_block=100_000, l2_bytes=2**20
        )
        tiles = RUNG.tiles(problem(), small)
        assert tiles
        assert all(2 * 128 * (t.rows + 4 * t.cols) + 96 <= 100_000 for t in tiles)


class TestBuilds:
    def test_the_default_comes_first_and_all_names_differ(self) -> None:
        builds = RUNG.builds()
        assert dict(builds[0].defines)["BLOCK_COLS"] == 128
        assert dict(builds[0].defines)["CONSUMERS"] == 3
        assert len({b.name for b in builds}) == len(builds)

    def test_registers_of_an_sm(self) -> None:
        for consumers, r in REGISTERS.items():
            assert 128 * (1 + consumers) * r.launch <= SM_REGISTERS
            # what the consumers take must lie in what the block got at launch, or setmaxnreg waits for ever
            assert r.producer + consumers * r.consumer <= (1 + consumers) * r.launch
            assert r.producer <= r.launch <= r.consumer
            assert all(n % 8 == 0 for n in (r.producer, r.consumer))  # what setmaxnreg takes

    def test_every_build_fits_and_its_boxes_too(self) -> None:
        for b in RUNG.builds():
            d = dict(b.defines)
            assert b.shared_bytes <= H200.shared_bytes_per_block
            assert int(d["BLOCK_COLS"]) % 16 == 0  # a product takes 16 rows of V
            assert max(int(d["BLOCK_COLS"]), 64 * int(d["CONSUMERS"])) <= 256  # the copy engine's largest box

    def test_shared_memory_is_what_the_picture_says(self) -> None:
        assert BARRIERS == 2 * (1 + 2 * STAGES)  # full and empty: Q, and a slot of K and of V
        assert shared_bytes(64, DEFAULT) == 64 * 2 * (192 + 2 * 2 * 128) + 80 + 16

    @pytest.mark.parametrize("head_dim", [64, 128])
    @pytest.mark.parametrize("causal", [False, True])
    def test_the_default_compiles_clean(self, head_dim: int, causal: bool) -> None:
        assert_clean(compiled(head_dim, DEFAULT, causal=causal, bf16=False), DEFAULT)

    def test_bf16_compiles_clean(self) -> None:
        assert_clean(compiled(128, DEFAULT, causal=True, bf16=True), DEFAULT)

    def test_a_wrong_sum_of_shared_memory_does_not_compile(self) -> None:
        made = build(64, DEFAULT, causal=False, bf16=False)
        source = made.source().replace(
            f"SHARED_BYTES {made.shared_bytes}", f"SHARED_BYTES {made.shared_bytes + 16}"
        )
        with pytest.raises(Exception, match="host and kernel disagree"):
            compile_cubin(source, made.architecture, made.entry)

    @pytest.mark.slow
    @pytest.mark.parametrize("head_dim", [64, 128])
    @pytest.mark.parametrize("tile", RUNG.tiles(problem(), H200)[1:], ids=str)
    def test_every_other_tile_compiles_clean(self, head_dim: int, tile: TileShape) -> None:
        for causal in (False, True):
            assert_clean(compiled(head_dim, tile, causal=causal, bf16=False), tile)


class TestQuadTurn:
    """The epilogue's exchanges, in Python: what `turn_quad` does to the words of four lanes."""

    def test_a_transpose(self) -> None:
        before = [[(word, lane) for word in range(4)] for lane in range(4)]

        def exchange(values: list[object], distance: int) -> list[object]:
            return [values[lane ^ distance] for lane in range(4)]

        odd, upper = [0, 1, 0, 1], [0, 0, 1, 1]
        y0 = exchange([x[0] if o else x[1] for x, o in zip(before, odd, strict=True)], 1)
        y1 = exchange([x[2] if o else x[3] for x, o in zip(before, odd, strict=True)], 1)
        a0 = [y0[i] if odd[i] else before[i][0] for i in range(4)]
        a1 = [before[i][1] if odd[i] else y0[i] for i in range(4)]
        b0 = [y1[i] if odd[i] else before[i][2] for i in range(4)]
        b1 = [before[i][3] if odd[i] else y1[i] for i in range(4)]
        z0 = exchange([a0[i] if upper[i] else b0[i] for i in range(4)], 2)
        z1 = exchange([a1[i] if upper[i] else b1[i] for i in range(4)], 2)
        after = [[z0[i], z1[i], b0[i], b1[i]] if upper[i] else [a0[i], a1[i], z0[i], z1[i]] for i in range(4)]
        assert after == [[(lane, word) for word in range(4)] for lane in range(4)]


@pytest.mark.parametrize("shape", [(1, 16, 16, 16384), (4, 32, 8, 4096), (16, 32, 32, 1024), (2, 3, 3, 700)])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_the_card_takes_heads_together_as_the_kernel_does(
    shape: tuple[int, int, int, int], head_dim: int
) -> None:
    batch, heads, kv_heads, seq = shape
    asked = AttentionProblem.of(
        batch=batch, heads=heads, kv_heads=kv_heads, seq=seq, head_dim=head_dim, mask="causal"
    )
    groups = load_kernel("iosim-flash2_wgmma").causal_groups
    assert groups is not None
    tile = TileShape(rows=192, cols=128)
    row_tiles = -(-seq // 192)
    assert groups.heads(asked, tile, H200.l2_bytes, H200.sms) == heads_together(asked, row_tiles, H200)
