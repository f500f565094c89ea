"""Standard attention, FlashAttention-1 and decode without a GPU: plans, refusals, and what the compiler says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import find_algorithm
from iosim.errors import TileError, UsageError
from iosim.interpret.binding import bind
from iosim.interpret.launch import thread_blocks
from iosim.kernels import kernels_by_measurement
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.theory.softmax import SOFTMAX_COSTS
from iosim_validation.launch import Build, GpuFacts, Plan, Pointer
from iosim_validation.nvrtc import compile_cubin
from iosim_validation.rung import Rung
from iosim_validation.rungs import RUNGS
from iosim_validation.rungs.decode import Decode
from iosim_validation.rungs.flash1 import Flash1
from iosim_validation.rungs.standard import Standard

KIB = 1024
H200 = GpuFacts(
    name="NVIDIA H200", architecture="sm_90a", sms=132, shared_bytes_per_block=232448, l2_bytes=60 * 2**20
)
L40S = GpuFacts(
    name="NVIDIA L40S", architecture="sm_89", sms=142, shared_bytes_per_block=101376, l2_bytes=96 * 2**20
)
OURS = ("standard", "standard_naive", "standard_safe", "standard_online", "flash1", "decode")
every_rung = pytest.mark.parametrize("rung", [RUNGS[name] for name in OURS], ids=OURS)


def problem(**changes: object) -> AttentionProblem:
    return AttentionProblem.of(**{"seq": 512, "heads": 4, "batch": 2, "head_dim": 64, **changes})  # type: ignore[arg-type]


def scalars(plan: Plan, launch: int = 0) -> list[float]:
    return [x.item() for x in plan.launches[launch].arguments if isinstance(x, np.generic)]


def names(plan: Plan, launch: int = 0) -> list[str]:
    return [a.array for a in plan.launches[launch].arguments if isinstance(a, Pointer)]


def program_of(rung: Rung, p: AttentionProblem, **options: str) -> Program:
    algorithm = find_algorithm(rung.algorithm)
    return algorithm.program(p.mask.kind, algorithm.resolve({**rung.options, **options}))


shapes = st.builds(
    lambda b, g, kv, q, k, d, causal, dtype: AttentionProblem.of(
        batch=b,
        heads=g * kv,
        kv_heads=kv,
        seq_q=q,
        seq_k=k,
        head_dim=d,
        mask="causal" if causal else "none",
        dtype=dtype,
    ),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 700),
    st.integers(1, 3000),
    st.sampled_from((32, 64, 96, 128)),
    st.booleans(),
    st.sampled_from(("fp16", "bf16")),
)


class TestGrids:
    """One thread block where the tile program has one."""

    @settings(max_examples=40, deadline=None)
    @given(p=shapes)
    def test_standard(self, p: AttentionProblem) -> None:
        plan = RUNGS["standard"].plan(p, H200)
        blocks = thread_blocks(program_of(RUNGS["standard"], p), bind(p, TileShape(rows=128, cols=128)))
        assert [x.grid for x in plan.launches] == [(int(n), 1, 1) for n in blocks.values()]

    @settings(max_examples=40, deadline=None)
    @given(p=shapes)
    def test_flash1(self, p: AttentionProblem) -> None:
        (launch,) = RUNGS["flash1"].plan(p, H200).launches
        blocks = thread_blocks(program_of(RUNGS["flash1"], p), bind(p, TileShape(rows=128, cols=128)))
        assert launch.grid == (int(blocks["flash1"]), 1, 1)

    @settings(max_examples=40, deadline=None)
    @given(p=shapes, splits=st.integers(2, 40))
    def test_decode(self, p: AttentionProblem, splits: int) -> None:
        rung = Decode()
        tile = rung.tiles(p, H200)[0]
        plan = rung.plan(p, H200, splits=splits)
        blocks = thread_blocks(program_of(rung, p, splits=str(splits)), bind(p, tile))
        assert plan.launches[0].grid == (int(blocks["split"]), 1, 1)
        rows = p.batch * p.heads * p.seq_q
        assert plan.launches[1].grid == (-(-rows // 4), 1, 1)  # a warp a row, four of them a block
        (one,) = rung.plan(p, H200, splits=1).launches
        assert one.grid == (int(blocks["split"]) // splits, 1, 1)


class TestStandardPlan:
    def test_three_kernels_hand_s_and_p_on(self) -> None:
        plan = Standard().plan(problem(seq=None, seq_q=100, seq_k=70, scale=0.5), H200)
        assert [names(plan, i) for i in range(3)] == [["q", "k", "s"], ["s", "p"], ["p", "v", "o"]]
        assert plan.outputs == ("o",)
        # rows of S and P begin at multiples of 32 bytes, a sector: 80 values of 16 bits and not 72
        assert {s.shape for s in plan.scratch.values()} == {(2, 4, 100, 80)}
        assert scalars(plan, 0) == [100, 70, 80, 4, 4, 0.5]

    def test_shared_memory_is_both_tiles_or_the_result(self) -> None:
        def shared(d: int) -> list[int]:
            return [x.build.shared_bytes for x in Standard().plan(problem(head_dim=d), H200).launches]

        # Q and K tiles of 128 x d, at least S of 128 x 128; three slots of P 128 x 64 and V 64 x d
        assert shared(32) == [32 * KIB, 0, 3 * (16 + 4) * KIB]
        assert shared(128) == [64 * KIB, 0, 3 * (16 + 16) * KIB]
        assert shared(256) == [128 * KIB, 0, 3 * (16 + 16) * KIB]

    @pytest.mark.parametrize("seq_k", [1, 64, 511, 512, 513, 4096, 8193, 32768])
    def test_a_row_on_chip_has_room_in_the_registers(self, seq_k: int) -> None:
        build = Standard().plan(problem(seq=None, seq_q=8, seq_k=seq_k), H200).launches[1].build
        constants = dict(build.defines)
        pieces = -(-seq_k // 8)
        assert pieces <= build.threads * int(constants["CHUNKS"])
        assert build.threads * int(constants["CHUNKS"]) * 8 < max(2 * seq_k, 64 * 8 + 1) or seq_k % 512

    def test_longer_rows_are_refused_with_their_registers(self) -> None:
        with pytest.raises(UsageError, match=r"131076 of the 262144 bytes of registers.*standard_online"):
            Standard().plan(problem(seq=32769), H200)
        assert RUNGS["standard_online"].plan(problem(seq=32769), H200).launches

    def test_every_way_of_softmax_has_a_rung(self) -> None:
        assert {RUNGS[n].options["softmax"] for n in OURS[:4]} == set(SOFTMAX_COSTS)


class TestFlash1Plan:
    def test_arguments_and_scratch(self) -> None:
        p = problem(heads=8, kv_heads=2, mask="causal", dtype="bf16")
        plan = Flash1().plan(p, H200)
        assert names(plan) == ["q", "k", "v", "o", "lse", "o_between", "m", "l"]
        assert scalars(plan) == [512, 512, 8, 2, 0.125]
        assert plan.scratch["o_between"].shape == (2, 8, 512, 64)
        assert {s.dtype for s in plan.scratch.values()} == {"float32"}
        constants = dict(plan.launches[0].build.defines)
        assert constants == {"BF16": 1, "D": 64, "CAUSAL": 1, "ROWS": 128, "KEYS": 128}

    def test_statistics_of_every_head_begin_on_a_sector(self) -> None:
        scratch = Flash1().plan(problem(seq=3333), H200).scratch
        assert {scratch[name].shape for name in ("m", "l")} == {
            (2, 4, 3336)
        }  # 8 values of 32 bits are 32 bytes
        assert scratch["o_between"].shape == (2, 4, 3333, 64)

    def test_smaller_gpus_get_smaller_tiles(self) -> None:
        p = problem(head_dim=128)
        assert str(Flash1().tiles(p, H200)[0]) == "128x128"
        # 16-bit K, V and two Q of 128 columns, O in fp32: 4 * 128 * (2 * rows + cols) bytes
        assert [str(t) for t in Flash1().tiles(p, L40S)] == ["64x64"]
        with pytest.raises(TileError, match=r"128x128 is not built .* 101376 bytes .* built: 64x64"):
            Flash1().plan(p, L40S, TileShape(rows=128, cols=128))


class TestDecodePlan:
    def test_the_splits_are_those_of_iosim(self) -> None:
        few = problem(batch=1, heads=32, kv_heads=8, seq=None, seq_q=1, seq_k=65536, head_dim=128)
        plan = Decode().plan(few, H200)
        first, second = plan.launches
        splits = first.grid[0] // 8
        assert first.grid[0] >= 132
        assert scalars(plan)[:5] == [1, 65536, 8, 4, splits]
        assert plan.scratch["o_parts"].shape == (1, 8, splits, 4, 128)
        assert second.build.entry == "decode_combine"
        full = problem(batch=33, heads=32, kv_heads=8, seq=None, seq_q=1, seq_k=8192, head_dim=128)
        assert len(Decode().plan(full, H200).launches) == 1

    def test_heads_of_a_group_share_a_tile(self) -> None:
        assert (
            str(Decode().tiles(problem(heads=16, kv_heads=1, seq_q=1, seq_k=99, seq=None), H200)[0])
            == "16x64"
        )
        assert (
            str(Decode().tiles(problem(heads=17, kv_heads=1, seq_q=1, seq_k=99, seq=None), H200)[0])
            == "32x64"
        )

    def test_two_blocks_fit_an_sm_where_they_can(self) -> None:
        build = Decode().plan(problem(head_dim=128), H200).launches[0].build
        assert 2 * (build.shared_bytes + KIB) <= 228 * KIB
        assert dict(build.defines)["STAGES"] == 3

    def test_refusals(self) -> None:
        with pytest.raises(UsageError, match="splits must be 1 to 512, got 600"):
            Decode().plan(problem(), H200, splits=600)
        with pytest.raises(
            TileError, match="needs 139264 bytes of shared memory a block, NVIDIA L40S has 101376"
        ):
            Decode().plan(problem(head_dim=256), L40S)


@every_rung
class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"head_dim": 80}, "head_dim 80 and value_dim 80; built for 32, 64"),
            ({"value_dim": 128}, "head_dim 64 and value_dim 128"),
            ({"mask": "window:64"}, "mask window:64; built for none and causal"),
            ({"dtype": "fp32"}, "all be fp16 or all bf16, got fp32"),
            ({"dtype_v": "bf16"}, "all be fp16 or all bf16, got bf16, fp16"),
            ({"seq": 2**31}, "rows are numbered in 32 bits"),
        ],
    )
    def test_problems(self, rung: Rung, changes: dict[str, object], complaint: str) -> None:
        with pytest.raises(UsageError, match=complaint) as caught:
            rung.plan(problem(**changes), H200)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(rung.name)

    def test_older_gpus(self, rung: Rung) -> None:
        old = GpuFacts(
            name="T4", architecture="sm_75", sms=40, shared_bytes_per_block=65536, l2_bytes=4 << 20
        )
        with pytest.raises(UsageError, match="built for sm_80 and later, T4 is sm_75"):
            rung.plan(problem(), old)

    def test_tiles_that_are_not_built(self, rung: Rung) -> None:
        with pytest.raises(TileError, match="tile 48x48 is not built for head_dim 64"):
            rung.plan(problem(), H200, TileShape(rows=48, cols=48))

    def test_too_many_blocks(self, rung: Rung) -> None:
        with pytest.raises(UsageError, match="thread blocks, one launch has at most 2147483647"):
            rung.plan(problem(batch=2**16, heads=2**16, seq=64), H200)


@every_rung
def test_the_card_is_the_rung(rung: Rung) -> None:
    card = kernels_by_measurement()[f"iosim_{rung.name}"]
    assert card.name == f"iosim-{rung.name}"
    assert card.algorithm == rung.algorithm
    own = {**rung.options} | ({"splits": "1"} if rung.name == "decode" else {})
    assert {k: card.options[k] for k in own} == own
    p = problem(head_dim=128)
    assert card.tile(128) == TileShape(rows=16, cols=64) if rung.name == "decode" else rung.tiles(p, H200)[0]
    builds = [x.build for x in rung.plan(p, H200).launches if x.build.entry != "softmax"]
    assert {b.threads for b in builds} == {card.threads_per_block}


def _cases() -> list[object]:
    found = []
    for name in OURS:
        for build in RUNGS[name].builds():
            marks = [] if build.architecture == "sm_90a" else [pytest.mark.slow]
            found.append(pytest.param(build, id=f"{build.entry}-{build.name}", marks=marks))
    return found


@pytest.mark.parametrize("build", _cases())
def test_builds_are_clean(build: Build) -> None:
    found = compile_cubin(build.source(), build.architecture, build.entry).resources[build.entry]
    assert (found.spill_store_bytes, found.spill_load_bytes) == (0, 0)
    assert found.registers_per_thread <= build.registers_at_most
    assert found.registers_per_thread * build.threads <= 65536
    assert found.static_shared_bytes + build.shared_bytes <= 232448
    assert found.notes == ()


def test_names_of_builds_tell_them_apart() -> None:
    builds = [b for name in OURS for b in RUNGS[name].builds()]
    assert len({(b.entry, b.name) for b in builds}) == len({(b.source(), b.architecture) for b in builds})
