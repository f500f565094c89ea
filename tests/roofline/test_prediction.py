"""The prediction: every term by hand on one SM."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_cases import TINY

from iosim.errors import ProfileError, SimulationError, UsageError
from iosim.hardware import load_profile
from iosim.kernels import CLASSES, Constant, load_kernel
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline import (
    TERMS,
    FusedWork,
    Machine,
    Power,
    Prediction,
    predict,
    predict_both,
)
from iosim.roofline.backward import backward_work
from iosim.roofline.overlap import overlapped
from iosim.roofline.work import STEP_OPS, STEP_OPS_16_ROWS, fused_work, masked_tiles

FULL = Constant(value=1.0, spread=0.0, unit="of peak", source="test")
PLAIN = replace(
    CLASSES["wgmma"],
    tensor_share={"hopper": FULL},
    disorder=None,
    softmax_ops=None,
    hidden_exp=replace(FULL, value=0.0),
)
"""A class at the nominal rate whose units take turns, so that cycles are whole numbers."""
ORDERED = replace(PLAIN, disorder=replace(FULL, value=0.0), softmax_ops=replace(FULL, value=4.0))
AS_CHANCE = replace(ORDERED, disorder=FULL)


def one_block(**changes: object) -> FusedWork:
    """Two 128 x 128 tiles at d = 128: 2048 cycles of matmul and 1024 of exponentials each."""
    work = FusedWork(
        steps=np.array([2]),
        tile_flops=4 * 128**3,
        tile_scores=128**2,
        masked_tiles=0,
        operand_bytes=0,
        edge_bytes=0,
        warps=4,
        residents=1,
        hbm_read_bytes=0,
        hbm_write_bytes=0,
    )
    return replace(work, **changes)  # type: ignore[arg-type]


def by_name(found: Prediction) -> dict[str, int]:
    return {t.name: round(t.seconds * 1e9) for t in found.terms if t.seconds}


def test_matmul_and_exponentials_in_turn() -> None:
    found = predict(one_block(), TINY, PLAIN)
    assert by_name(found) == {"tensor": 4096, "special functions": 2048}
    assert (found.seconds, found.limit) == (pytest.approx(6144e-9), "tensor")


def test_hidden_exponentials() -> None:
    ping_pong = replace(PLAIN, hidden_exp=replace(FULL, value=0.25))
    assert by_name(predict(one_block(), TINY, ping_pong))["special functions"] == 1536


def closed_network(tensor: float, softmax: float, customers: int) -> float:
    """Cycles of a round of all customers between two exponential servers, by mean value analysis."""
    demands, queues = (tensor / customers, softmax / customers), [0.0, 0.0]
    rate = 0.0
    for present in range(1, customers + 1):
        waits = [d * (1 + q) for d, q in zip(demands, queues, strict=True)]
        rate = present / sum(waits)
        queues = [rate * w for w in waits]
    return customers / rate


@given(one=st.integers(1, 10**4), other=st.integers(1, 10**4), customers=st.integers(1, 6))
def test_customers_that_nothing_orders_are_a_closed_network(one: int, other: int, customers: int) -> None:
    found = overlapped(one, other, customers, 1.0)
    assert math.isclose(found, closed_network(one, other, customers), rel_tol=1e-9)
    ordered = overlapped(one, other, customers, 0.0)
    assert ordered == (one + other if customers == 1 else max(one, other))
    assert overlapped(one, other, customers + 1, 1.0) <= found * (1 + 1e-12)
    assert ordered <= found <= (one + other) * (1 + 1e-12)


def test_blocks_of_an_sm_queue_together() -> None:
    """Two blocks of a warpgroup each are the customers that one block of two warpgroups is; a lone one takes turns."""
    two = predict(one_block(warpgroups=1, residents=2, steps=np.array([1, 1])), TINY, AS_CHANCE)
    assert two.seconds == pytest.approx(predict(one_block(warpgroups=2), TINY, AS_CHANCE).seconds)
    assert predict(one_block(warpgroups=1), TINY, ORDERED).seconds == pytest.approx(2 * (2048 + 1536) / 1e9)


def test_softmax_behind_the_tensor_cores() -> None:
    """Exponentials and four instructions a score take 1024 + 512 cycles of a tile, the matmuls 2048."""
    assert by_name(predict(one_block(warpgroups=2), TINY, ORDERED)) == {"tensor": 4096}
    half = one_block(warpgroups=2, tile_flops=2 * 128**3)
    assert by_name(predict(half, TINY, ORDERED)) == {"tensor": 2048, "special functions": 2 * 512}
    ratio = 1536 / 2048
    chance = 2048 * (1 + ratio + ratio**2) / (1 + ratio)
    assert by_name(predict(one_block(warpgroups=2), TINY, AS_CHANCE)) == {
        "tensor": 4096,
        "special functions": round(2 * (chance - 2048)),
    }


def test_the_tensor_cores_hold_the_clock_back() -> None:
    """At rest 1 GHz; with tensor cores 0.9; past 1024 FLOP a clock as the cube root of what they do."""
    warm = replace(TINY, tensor_clock_hz=0.9e9, full_clock_flops=1024.0)
    assert warm.at_work(0.0).clock_hz == warm.at_work(1024.0).clock_hz == 0.9e9
    assert warm.at_work(8 * 1024.0).clock_hz == pytest.approx(0.5e9)
    found = predict(one_block(warpgroups=2), warm, ORDERED)  # 4096 FLOP a clock
    assert found.clock_hz == pytest.approx(1e9 * 4 ** (-1 / 3))
    assert found.seconds == pytest.approx(4096 / found.clock_hz)
    assert predict(one_block(warpgroups=2), warm.at(1e9), ORDERED).clock_hz == 1e9
    assert predict(one_block(warpgroups=2), warm, ORDERED, without=["clock"]).clock_hz == 1e9


def test_every_other_term() -> None:
    work = one_block(masked_tiles=1, operand_bytes=12_800, edge_bytes=7_000, launches=2)
    found = predict(work, replace(TINY, start_s=1e-6), PLAIN)
    assert by_name(found) == {
        "tensor": 4096,
        "special functions": 2048,
        "shared memory": 2 * 12_800 // 128,  # four warps, four schedulers: nothing to hide behind
        "masking": 9 * 128**2 // 128,
        "edge": 7,  # 7000 B at 1e12 B/s are 7 ns
        "start": 2000,
    }


def test_shared_memory_hides_behind_other_warps() -> None:
    work = one_block(operand_bytes=12_800, residents=2, steps=np.array([1, 1]))
    assert by_name(predict(work, TINY, PLAIN))["shared memory"] == 100


def test_nothing_is_faster_than_the_path_of_shared_memory() -> None:
    """3072 cycles of other work a tile: a path of 3000 is beside it, one of 4000 takes 928 more."""
    assert "shared memory" not in by_name(predict(one_block(path_wavefronts=3000), TINY, PLAIN))
    longer = predict(one_block(path_wavefronts=4000, operand_bytes=12_800), TINY, PLAIN)
    assert by_name(longer)["shared memory"] == 2 * (4000 - 3072)


@pytest.mark.parametrize(
    ("residents", "tile"), [(1, 3072 + 4000 + 2 * 50), (2, closed_network(4000, 3072 + 50, 2))]
)
def test_warps_that_exchange_results_do_one_thing_at_a_time(residents: int, tile: float) -> None:
    """Alone a block takes path and others in turn; two hide each other as chance has it."""
    work = one_block(steps=np.array([1] * residents), path_wavefronts=4000, exchanges=2, residents=residents)
    machine = replace(TINY, exchange_clk=50.0)
    assert predict(work, machine, PLAIN).seconds == pytest.approx(residents * tile / 1e9)


def test_stores_and_loads_that_nothing_overlaps() -> None:
    machine = replace(TINY, store_alone_bytes_per_clk=32, store_all_bytes_per_clk=16, l2_bytes_per_clk_sm=32)
    work = one_block(store_bytes=6400, rounds=3, first_bytes=3200)
    found = by_name(predict(work, replace(machine, hbm_latency_clk=500), PLAIN))
    assert found["stores"] == 2 * 6400 // 32
    assert found["loads"] == 3 * 500 + 100
    assert [replace(machine, sms=5).store_bytes_per_clk(n) for n in (1, 3, 5, 9)] == [32, 24, 16, 16]
    assert TINY.sms == 1


@pytest.mark.parametrize(("again_bytes", "latency"), [(1000, 200), (1001, 500)])
def test_what_a_block_wrote_itself_comes_from_the_l2_where_it_fits(again_bytes: int, latency: int) -> None:
    machine = replace(TINY, l2_bytes=1000, l2_latency_clk=200, hbm_latency_clk=500)
    work = one_block(again_rounds=3, again_bytes=again_bytes)
    assert by_name(predict(work, machine, PLAIN))["loads"] == 3 * latency


def test_interleaved_exponentials_take_the_constant_of_their_class() -> None:
    kernel = replace(PLAIN, interleaved_exp=replace(FULL, value=0.5))
    assert by_name(predict(one_block(), TINY, kernel))["special functions"] == 2048
    assert by_name(predict(one_block(interleaved=True), TINY, kernel))["special functions"] == 1024


def test_tail_is_what_the_busiest_sm_has_beyond_the_mean() -> None:
    found = predict(one_block(steps=np.array([1, 1, 1])), replace(TINY, sms=2), PLAIN)
    assert by_name(found)["waves and tail"] == 2 * 3072 - 3 * 3072 // 2
    assert found.seconds == pytest.approx(2 * 3072e-9)


def test_memory_runs_beside_compute() -> None:
    hidden = predict(one_block(hbm_read_bytes=1_000_000), TINY, PLAIN)
    assert hidden.seconds == pytest.approx(6144e-9)
    assert [t.name for t in hidden.terms if t.hidden] == ["HBM"]
    bound = predict(one_block(hbm_read_bytes=9_000_000, hbm_write_bytes=1_000_000), TINY, PLAIN)
    assert (bound.seconds, bound.limit) == (pytest.approx(1e-5), "HBM")
    assert all(t.hidden for t in bound.terms if t.name not in ("HBM", "start"))


def test_power_stretches_compute_of_long_runs_only() -> None:
    hot = replace(TINY, power=Power(limit_w=100, busy_w=800, joule_per_flop=0, joule_per_hbm_byte=0))
    once, repeated = predict_both(one_block(), hot, PLAIN)
    assert once.clock_hz == 1e9
    assert repeated.clock_hz == pytest.approx(
        0.5e9
    )  # eight times the power at the highest clock is half the clock
    assert repeated.seconds == pytest.approx(2 * once.seconds)
    cool = replace(hot, power=Power(limit_w=900, busy_w=800, joule_per_flop=0, joule_per_hbm_byte=0))
    assert predict(one_block(), cool, PLAIN, sustained=True).seconds == once.seconds


@given(
    steps=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    sms=st.integers(1, 9),
    read=st.integers(0, 10**8),
)
def test_terms_add_up_and_the_bound_stays_below(steps: list[int], sms: int, read: int) -> None:
    machine = replace(TINY, sms=sms, start_s=1e-6)
    work = one_block(steps=np.array(steps), hbm_read_bytes=read, edge_bytes=512, masked_tiles=1)
    found = predict(work, machine, PLAIN)
    assert math.isclose(found.seconds, sum(t.seconds for t in found.terms if not t.hidden))
    assert found.low_s <= found.seconds <= found.high_s
    ideal = max(sum(steps) * 2048 / sms / 1e9, read / 1e12)
    assert found.seconds >= ideal


@pytest.mark.parametrize("term", TERMS)
def test_leaving_a_term_out_does_not_add_time(term: str) -> None:
    work = one_block(masked_tiles=1, operand_bytes=99, edge_bytes=99, hbm_read_bytes=10**7)
    machine = replace(TINY, start_s=1e-6)
    assert predict(work, machine, PLAIN, without=[term]).seconds <= predict(work, machine, PLAIN).seconds


def test_unknown_term_and_unknown_architecture() -> None:
    with pytest.raises(UsageError, match="time: unknown term 'magic'; known: in turn, clock"):
        predict(one_block(), TINY, PLAIN, without=["magic"])
    with pytest.raises(
        ProfileError, match="kernel class wgmma: constants not known on ampere; known: hopper"
    ):
        predict(one_block(), replace(TINY, architecture="ampere"), CLASSES["wgmma"])


# work -------------------------------------------------------------------------------------------------------------
def test_masked_tiles() -> None:
    tile = TileShape(rows=128, cols=64)
    sizes = {"none": 0, "causal": 2, "window:300": 4, "prefix:7": 2}
    for mask, expected in sizes.items():
        assert masked_tiles(AttentionProblem.of(seq=1024, head_dim=64, mask=mask), tile) == expected
    assert masked_tiles(AttentionProblem.of(seq=1000, head_dim=64, mask="causal"), tile) == 3


def test_accesses_that_are_no_tiles_are_refused() -> None:
    facts, tile = load_kernel("torch-flash2"), TileShape(rows=128, cols=64)
    problem = AttentionProblem.of(seq=128, head_dim=128)
    with pytest.raises(SimulationError, match="time: 5 accesses of the key loops do not divide into 2 tiles"):
        fused_work(facts, problem, tile, [5], residents=1, hbm_read_bytes=0, hbm_write_bytes=0)


def test_backward_walks_what_the_mask_leaves() -> None:
    full = backward_work(AttentionProblem.of(heads=3, seq=512, head_dim=64), TileShape(rows=64, cols=128))
    assert full.steps.tolist() == [8] * 12
    causal = AttentionProblem.of(seq=512, head_dim=64, mask="causal")
    assert backward_work(causal, TileShape(rows=64, cols=128)).steps.tolist() == [8, 6, 4, 2]
    with pytest.raises(UsageError, match="time: the backward is known for masks none and causal"):
        backward_work(
            AttentionProblem.of(seq=512, head_dim=64, mask="window:9"), TileShape(rows=64, cols=128)
        )


def test_a_kernel_that_rescales_and_spills_less_than_the_fitted_one_is_credited_for_it() -> None:
    problem = AttentionProblem.of(seq=1024, head_dim=128)
    tile = TileShape(rows=128, cols=64)

    def row_ops(card: str, tile: TileShape = tile) -> float:
        steps = np.full(8, 32 * 64 // tile.cols)  # K and V of every key tile
        work = fused_work(
            load_kernel(card), problem, tile, steps, residents=2, hbm_read_bytes=0, hbm_write_bytes=0
        )
        return work.row_ops

    step = 4 * 32 * (STEP_OPS + 2 * STEP_OPS_16_ROWS)  # four warps of 32 rows
    assert row_ops("torch-flash2") == 0
    # 128 x 128 values of O are not rescaled, 7168 bytes do not go out and in
    assert row_ops("iosim-flash2") == -(128 * 128 + 2 * 7168)
    # the same card at twice the keys a tile: the rescale is spread over twice the scores, and so is a step's own work
    assert (
        row_ops("torch-flash2", TileShape(rows=128, cols=128))
        == 128 * 128 - 2 * (128 * 128 + 2 * 7168) - step
    )
    # half the scores a step
    assert row_ops("iosim-flash2", TileShape(rows=128, cols=32)) == step - (128 * 128 + 2 * 7168 + step) / 2
    # four warps with all 64 rows: the owner of a row rescales O and adds up four parts
    split = 4 * 32 * (STEP_OPS + 4 * STEP_OPS_16_ROWS) + 5 * 64 * 128
    fitted = 128 * 128 + 2 * 7168 + step
    assert row_ops("iosim-split_k_warps", TileShape(rows=64, cols=64)) == split - fitted / 2
    assert row_ops("cudnn-sdpa", TileShape(rows=128, cols=128)) == 0


def test_fp8_keeps_the_clock_that_half_its_rate_would() -> None:
    gpu = load_profile("h200-sxm")
    wide, narrow = Machine.of(gpu, "fp16"), Machine.of(gpu, "fp8")
    flops = 0.75 * wide.tensor_flops_per_clk_sm
    assert narrow.at_work(2 * flops).clock_hz == pytest.approx(wide.at_work(flops).clock_hz, rel=1e-3)
    assert wide.at_work(flops).clock_hz < 0.9 * wide.clock_hz
