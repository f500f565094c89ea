"""Kernels that load, store or wait in ways of their own: every term by hand, and times that nothing was fitted to."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_cases import MEASUREMENTS, TINY

from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.errors import ProfileError
from iosim.hardware import load_profile
from iosim.kernels import CLASSES, Constant, load_kernel
from iosim.kernels.facts import InstructionFact
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline import Machine, Prediction, predict, predict_both
from iosim.roofline.combine import combine_time
from iosim.roofline.lower_bound import attention_bound
from iosim.roofline.outer import outer_work
from iosim.roofline.tiled_gemm import TiledGemm, predict_tiled_gemm, tiled_gemm
from iosim.roofline.unfused import unfused_bound

TILE = TileShape(rows=128, cols=128)
FULL = Constant(value=1.0, spread=0.0, unit="of the bandwidth", source="test")
SLOW = replace(
    TINY,
    hbm_latency_clk=600,
    l2_latency_clk=300,
    block_turn_clk=400,
    store_alone_bytes_per_clk=32,
    store_all_bytes_per_clk=16,
    l2_bytes_per_clk_sm=32,
    hbm_read_bytes_per_s=16e9,
    hbm_write_bytes_per_s=8e9,
)
"""One SM at 1 GHz: seconds are cycles / 1e9."""


def cycles(found: Prediction) -> dict[str, int]:
    return {t.name: round(t.seconds * 1e9) for t in found.terms if t.seconds and not t.hidden}


# the kernel that joins splits ---------------------------------------------------------------------------------------
def test_a_load_for_every_split_and_one_for_32_logarithms() -> None:
    assert cycles(combine_time(SLOW, 2, again=False)) == {"loads": 2 * 600}
    assert cycles(combine_time(SLOW, 33, again=True)) == {"loads": (2 + 33 - 1) * 300}
    found = combine_time(replace(SLOW, start_s=1e-6), 8, again=True)
    assert found.seconds == pytest.approx(1e-6 + 8 * 300e-9)
    assert found.low_s < found.seconds < found.high_s


# flash1 -------------------------------------------------------------------------------------------------------------
def test_what_the_loop_of_flash1_waits_for() -> None:
    facts = replace(load_kernel("iosim-flash1"), instructions={})
    problem = AttentionProblem.of(heads=2, seq_q=256, seq_k=384, head_dim=64)
    work = outer_work(facts, problem, TILE, residents=1, hbm_read_bytes=0, hbm_write_bytes=0)
    assert work.steps.tolist() == [6, 6]  # two row tiles, three key tiles
    o, kv, q = 128 * (64 + 2) * 4, 2 * 128 * 64 * 2, 128 * 64 * 2
    assert (work.store_bytes, work.rounds, work.first_bytes) == (o, 3, 3 * (kv + q + o))
    assert (work.again_rounds, work.again_bytes) == (256 * 64 * 4 / (256 * 16), 256 * 64 * 4)
    # eight warps of 16 rows: Q once, K and V by each; O into the registers
    assert work.operand_bytes == q + 8 * kv + 128 * 64 * 4
    found = cycles(predict(work, SLOW, CLASSES["mma-sync"]))
    assert found["stores"] == 2 * 6 * o // 32
    assert found["loads"] == 2 * (
        3 * 600 + 16 * 600 + 3 * (kv + q + o) // 32
    )  # nothing fits an L2 of 0 bytes


def test_flash1_of_one_query_stores_one_row_and_of_a_causal_mask_visits_fewer() -> None:
    facts = load_kernel("iosim-flash1")
    one = outer_work(
        facts,
        AttentionProblem.of(seq_q=1, seq_k=256, head_dim=64),
        TILE,
        residents=1,
        hbm_read_bytes=0,
        hbm_write_bytes=0,
    )
    assert (one.steps.tolist(), one.store_bytes) == ([2], (64 + 2) * 4)
    causal = AttentionProblem.of(seq=512, head_dim=64, mask="causal")
    work = outer_work(facts, causal, TILE, residents=1, hbm_read_bytes=0, hbm_write_bytes=0)
    assert (work.steps.tolist(), work.masked_tiles) == ([4 + 3 + 2 + 1], 4)
    ragged = outer_work(
        facts,
        AttentionProblem.of(seq=500, head_dim=64),
        TILE,
        residents=1,
        hbm_read_bytes=0,
        hbm_write_bytes=0,
    )
    assert ragged.masked_tiles == 4


def test_instructions_lie_on_a_line_through_the_head_dimensions_counted() -> None:
    two = (
        InstructionFact(head_dim=128, step=300, block=10),
        InstructionFact(head_dim=64, step=100, block=30),
    )
    facts = replace(load_kernel("iosim-flash1"), instructions={"loop": two, "output": two[:1]})
    assert facts.instructions_of("loop", 96) == (200, 20)
    assert facts.instructions_of("loop", 32) == (0, 40)
    assert facts.instructions_of("output", 64) == (300, 10)
    assert facts.instructions_of("scores", 64) == (0, 0)


# the GEMMs of standard ----------------------------------------------------------------------------------------------
def gemm(**changes: object) -> TiledGemm:
    """1000 cycles of matmul at the nominal rate, 100 of operands that one other block half hides, 400 of the rest."""
    work = TiledGemm(
        blocks=8,
        residents=2,
        warps=4,
        flops=0.667 * 4096 * 1000,
        operand_bytes=25_600,
        staged_bytes=0,
        instructions=128 * 400,
        first_bytes=3200,
        out_bytes=1600,
        blocks_a_head=8,
    )
    return replace(work, **changes)  # type: ignore[arg-type]


def test_two_blocks_hide_what_each_waits_for() -> None:
    """C = 1500; M = 400 turn + 300 latency + 100 loads + 200 stores = 1000: two blocks leave nothing of it to wait."""
    found = cycles(predict_tiled_gemm(gemm(), SLOW, None, hbm_read_bytes=0, hbm_write_bytes=0))
    assert found == {"tensor": 8000, "shared memory": 800, "vector": 3200}
    # stores of 16000 bytes take 2000 at 8 a clock: (1500 + 2800) / 2 a block, 650 more than it computes
    slow = cycles(predict_tiled_gemm(gemm(out_bytes=16_000), SLOW, None, hbm_read_bytes=0, hbm_write_bytes=0))
    assert slow["waits"] == 8 * 650
    share = replace(FULL, value=0.5)
    slower = cycles(
        predict_tiled_gemm(gemm(out_bytes=8000), SLOW, share, hbm_read_bytes=0, hbm_write_bytes=0)
    )
    assert slower["waits"] == 8 * 650  # half the bytes at half the bandwidth


def test_where_all_blocks_of_a_head_are_at_work_hbm_answers_their_loads() -> None:
    work = gemm(out_bytes=16_000, blocks_a_head=2)
    found = cycles(predict_tiled_gemm(work, SLOW, None, hbm_read_bytes=0, hbm_write_bytes=0))
    assert found["waits"] == 8 * ((1500 + 400 + 600 + 100 + 2000) // 2 - 1500)


def test_a_gemm_that_moves_much_takes_the_time_of_memory() -> None:
    found = predict_tiled_gemm(gemm(), SLOW, None, hbm_read_bytes=16e5, hbm_write_bytes=0.0)
    assert found.limit == "HBM"
    assert found.seconds == pytest.approx(1e-4)
    with pytest.raises(ProfileError):
        predict_tiled_gemm(
            gemm(), replace(SLOW, architecture="volta"), None, hbm_read_bytes=0, hbm_write_bytes=0
        )


def test_tiles_of_both_gemms_by_hand() -> None:
    facts = load_kernel("iosim-standard")
    problem = AttentionProblem.of(heads=3, seq_q=300, seq_k=500, head_dim=64)
    scores = tiled_gemm("qk_gemm", problem, facts, TILE, residents=2)
    assert scores is not None
    assert (scores.blocks, scores.blocks_a_head) == (3 * 3 * 4, 3 * 4)
    assert scores.flops == 2 * 128 * 128 * 64
    # warps of 64 x 32 scores: four side by side read Q, two below one another K
    assert scores.operand_bytes == 64 * 2 * (128 * 4 + 128 * 2)
    assert (scores.first_bytes, scores.out_bytes) == ((100 + 125) * 64 * 2, 100 * 125 * 2)
    output = tiled_gemm("pv_gemm", problem, facts, TILE, residents=2)
    assert output is not None
    assert (output.blocks, output.flops) == (3 * 3, 2 * 128 * 64 * 500)
    # 64 columns: two warps side by side read P, four below one another V
    assert output.operand_bytes == 500 * 2 * (128 * 2 + 64 * 4)
    step, block = facts.instructions_of("output", 64)
    assert output.instructions == 256 * (block + 8 * step)
    assert tiled_gemm("qk_gemm", problem, load_kernel("torch-unfused"), TILE, residents=2) is None


@given(
    residents=st.integers(1, 4),
    blocks=st.integers(1, 400),
    sms=st.integers(1, 8),
    out=st.integers(0, 10**5),
    first=st.integers(0, 10**5),
)
def test_terms_of_a_gemm_add_up_and_no_block_is_faster_than_its_matmuls(
    residents: int, blocks: int, sms: int, out: int, first: int
) -> None:
    machine = replace(SLOW, sms=sms)
    work = gemm(blocks=blocks, residents=residents, out_bytes=out, first_bytes=first)
    found = predict_tiled_gemm(work, machine, None, hbm_read_bytes=0, hbm_write_bytes=0)
    assert found.seconds == pytest.approx(sum(t.seconds for t in found.terms if not t.hidden))
    assert found.seconds >= blocks * 1000 / sms / 1e9


# measured -----------------------------------------------------------------------------------------------------------
def rungs(implementation: str) -> list[MeasuredRow]:
    rows = read_measurements(MEASUREMENTS / "h200" / "rungs" / "attention.csv").rows
    return [r for r in rows if r.implementation == implementation and r.tile is not None]


def test_flash1_on_the_h200() -> None:
    """Its compute side alone: HBM never binds. One block an SM: its registers leave room for no second."""
    facts = load_kernel("iosim-flash1")
    once: list[float] = []
    many: list[float] = []
    for row in rungs("iosim_flash1"):
        assert row.tile is not None
        machine = Machine.of(load_profile("h200-sxm"), str(row.problem.dtype_k))
        work = outer_work(facts, row.problem, row.tile, residents=1, hbm_read_bytes=0, hbm_write_bytes=0)
        one, each = predict_both(work, machine, CLASSES[facts.kernel_class])
        assert attention_bound(row.problem, machine).seconds < one.seconds
        if "profiled_time_s" in row.measured:
            once.append(one.seconds / row.measured["profiled_time_s"] - 1)
        many.append(each.seconds / row.measured["median_time_s"] - 1)
    assert len(once) >= 18
    assert mean(abs(e) for e in once) < 0.08
    assert mean(abs(e) for e in many) < 0.08
    assert max(abs(e) for e in [*once, *many]) < 0.2


def test_gemms_of_standard_on_the_h200() -> None:
    """With the compulsory bytes: S out and in once."""
    facts = load_kernel("iosim-standard")
    errors: dict[str, list[float]] = {"qk_gemm": [], "pv_gemm": []}
    for row in rungs("iosim_standard"):
        p, measured = row.problem, row.measured.get("profiled_time_s")
        if row.kernel not in errors or not measured or row.tile is None:
            continue
        machine = Machine.of(load_profile("h200-sxm"), str(p.dtype_k))
        scores = p.batch * p.heads * p.seq_q * p.seq_k * 2
        rows = 2 * p.batch * p.head_dim * (p.heads * p.seq_q + p.kv_heads * p.seq_k)
        o = 2 * p.batch * p.heads * p.seq_q * p.value_dim
        read, written = (rows, scores) if row.kernel == "qk_gemm" else (scores + rows - o, o)
        work = tiled_gemm(row.kernel, p, facts, row.tile, residents=2)
        assert work is not None
        stream = CLASSES["unfused"].stream_share
        found = predict_tiled_gemm(work, machine, stream, hbm_read_bytes=read, hbm_write_bytes=written)
        assert unfused_bound(row.kernel, p, machine).seconds < measured
        errors[row.kernel].append(found.seconds / measured - 1)
    for sizes in ([abs(e) for e in found] for found in errors.values()):
        assert len(sizes) >= 17
        assert mean(sizes) < 0.08
        assert max(sizes) < 0.2
