"""The on-chip level: shared memory by how warps divide a tile, and special functions, held against counters."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.interpret.listing import costed_listing
from iosim.kernels import load_kernel
from iosim.onchip import (
    GENERAL,
    SCHEMES,
    on_chip,
    on_chip_report,
    schemes_of,
    shared_wavefronts,
    special_ops,
    tile_cycles,
)
from iosim.problem import AttentionProblem, TileShape

SQUARE = TileShape(rows=128, cols=128)
ONE_HEAD = AttentionProblem.of(seq=128, head_dim=128)
KIB = 1024


def test_two_consumer_warpgroups_read_160_kib_a_tile_and_copies_fill_64() -> None:
    step = on_chip(ONE_HEAD, SQUARE, "wgmma").step
    assert step.operand_read_bytes == 160 * KIB
    assert step.fill_bytes == 64 * KIB
    assert step.q_read_bytes == 32 * KIB
    assert step.block_barriers == 0


def test_split_q_reads_keys_and_values_once_a_warp_and_exchanges_nothing() -> None:
    step = on_chip(ONE_HEAD, SQUARE, "split-q", warps=4).step
    assert (step.q_read_bytes, step.k_read_bytes, step.v_read_bytes) == (32 * KIB, 128 * KIB, 128 * KIB)
    assert step.exchange_read_bytes == step.exchange_write_bytes == 0
    assert step.exchange_barriers == 0


def test_split_k_sums_partial_outputs_through_shared_memory() -> None:
    step = on_chip(ONE_HEAD, SQUARE, "split-k", warps=4).step
    assert (step.q_read_bytes, step.k_read_bytes, step.v_read_bytes) == (128 * KIB, 32 * KIB, 32 * KIB)
    outputs = sum(128 * 128 * 4 for _warp in range(4))
    maxima = sums = sum(128 * 4 for _warp in range(4))
    assert step.exchange_write_bytes == outputs + maxima + sums
    assert step.exchange_read_bytes == outputs + sums + 4 * maxima  # every warp needs all maxima
    assert step.exchange_barriers == 2


def test_one_warp_has_nobody_to_exchange_with_but_itself() -> None:
    alone = on_chip(ONE_HEAD, SQUARE, "split-q", warps=1).step
    assert alone.operand_read_bytes == 3 * 32 * KIB


@given(
    rows=st.sampled_from([64, 128, 192]),
    cols=st.sampled_from([32, 64, 128]),
    warps=st.sampled_from([2, 4, 8]),
    d=st.integers(1, 256),
    dv=st.integers(1, 256),
)
def test_dividing_queries_never_moves_more_than_dividing_keys_at_square_tiles_or_wider(
    rows: int, cols: int, warps: int, d: int, dv: int
) -> None:
    """Split-K saves reads of K and V and pays with Q and with the outputs of every warp, written and read in fp32."""
    p = AttentionProblem.of(seq=rows, head_dim=d, value_dim=dv)
    tiles = TileShape(rows=rows, cols=min(rows, cols))
    keys, queries = (on_chip(p, tiles, s, warps=warps).step for s in ("split-k", "split-q"))
    assert queries.operand_read_bytes <= keys.operand_read_bytes + keys.exchange_read_bytes
    assert queries.block_barriers < keys.block_barriers


def test_fp8_keys_and_values_halve_their_reads_alone() -> None:
    half = AttentionProblem.of(seq=128, head_dim=128, dtype_k="fp8", dtype_v="fp8")
    for scheme in SCHEMES:
        full, less = (on_chip(p, SQUARE, scheme).step for p in (ONE_HEAD, half))
        assert less.q_read_bytes == full.q_read_bytes
        assert 2 * less.k_read_bytes == full.k_read_bytes
        assert 2 * less.v_read_bytes == full.v_read_bytes


@pytest.mark.parametrize(
    ("tiles", "scheme", "warps", "says"),
    [
        ("128x128", "split-v", 4, "allowed: split-k, split-q, wgmma"),
        ("128x128", "split-q", 0, "1 to 32 warps"),
        ("100x128", "split-q", 8, "the rows among 8 warps, and 100 does not divide"),
        ("128x100", "split-k", 8, "the cols among 8 warps, and 100 does not divide"),
        ("96x128", "wgmma", 4, "warpgroups of 64 rows, and 96 does not divide"),
    ],
)
def test_what_cannot_be_divided_is_refused(tiles: str, scheme: str, warps: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        on_chip(ONE_HEAD, TileShape.parse(tiles), scheme, warps=warps)


@pytest.mark.parametrize(("gpu", "tensor"), [("h100-sxm", 2048), ("h200-sxm", 2048), ("b200", 1024)])
def test_a_tile_takes_the_cycles_that_flash_attention_4_prints(gpu: str, tensor: int) -> None:
    """FlashAttention-4: 2048 and 1024 tensor cycles for a 128 x 128 x 128 tile, 1024 for its exponentials."""
    cycles = tile_cycles(ONE_HEAD, on_chip(ONE_HEAD, SQUARE, "wgmma"), load_profile(gpu))
    assert cycles.tensor_cycles == pytest.approx(tensor, rel=0.005)
    assert cycles.special_cycles == 1024 * (1 + 4 / 128)
    assert cycles.shared_cycles == (160 + 64) * KIB / 128


def test_the_report_names_schemes_that_do_not_divide_a_tile() -> None:
    found = on_chip_report(ONE_HEAD, TileShape(rows=96, cols=128), SCHEMES)
    assert [s["scheme"] for s in found["schemes"]] == ["split-k", "split-q"]
    assert "warpgroups of 64 rows" in found["refused"]["wgmma"]


def test_special_operations_are_not_claimed_for_a_kernel_that_was_not_measured() -> None:
    assert schemes_of("flash1") == ("split-k",)
    assert on_chip_report(ONE_HEAD, SQUARE, schemes_of("flash1"))["special_ops"] is None
    assert schemes_of("standard") == schemes_of("flash2", {"pass": "bwd"}) == ()
    assert schemes_of("flash2", {"block-mask": "strided:2"}) == ()


# rescaling: the tile programs are the second route ------------------------------------------------------------------


def _vector_flops(algorithm: str, problem: AttentionProblem, tiles: TileShape, line: str) -> int:
    chosen = find_algorithm(algorithm)
    program = chosen.program("none", chosen.resolve({}))
    rows = costed_listing(program, bind(problem, tiles))
    numbers, now = [], ""
    for row in rows:
        now = row.row.line or now
        numbers.append(row.vector_flops if now == line else 0)
    return sum(numbers)


def test_rescaling_every_step_costs_what_line_12_of_flash_attention_1_costs() -> None:
    p = AttentionProblem.of(seq=256, head_dim=32, value_dim=64, heads=3)
    tiles = TileShape(rows=64, cols=128)
    use = on_chip(p, tiles, "split-k")
    assert use.steps == 4 * 2 * 3
    assert use.steps * use.rescale_flops_per_step == _vector_flops("flash1", p, tiles, "12")


def test_rescaling_once_costs_what_lines_10_and_12_of_flash_attention_2_cost() -> None:
    p = AttentionProblem.of(seq=256, head_dim=32, value_dim=64, heads=3)
    tiles = TileShape(rows=64, cols=128)
    use = on_chip(p, tiles, "split-q")
    assert use.steps * use.rescale_flops_per_step == _vector_flops("flash2", p, tiles, "10")
    assert 4 * 3 * use.final_flops_per_row_tile == _vector_flops("flash2", p, tiles, "12")


# counters of an H200 ------------------------------------------------------------------------------------------------

CSV = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "attention.csv"
CARDS = {card.measured_as[0]: card for card in map(load_kernel, ("torch-flash2", "cudnn-sdpa"))}
SMS = 132


def _forward_rows() -> list[tuple[str, str, AttentionProblem, TileShape, dict[str, int]]]:
    """Dense forward rows whose tile is known; the decode kernels of cuDNN show none."""
    out = []
    with CSV.open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["kernel"] != "flash_fwd" or not row["block_rows"]:
                continue
            problem = AttentionProblem.of(
                **{k: int(row[k]) for k in ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim")},
                mask="causal" if row["causal"] == "1" else "none",
                dtype=row["dtype"],
            )
            tiles = TileShape(rows=int(row["block_rows"]), cols=int(row["block_cols"]))
            measured = {k: int(row[k]) for k in ("special_ops", "shared_wavefronts")}
            out.append((row["case"], row["impl"], problem, tiles, measured))
    return out


ROWS = _forward_rows()


def test_there_are_rows_of_both_kernels_to_compare_with() -> None:
    assert {impl for _, impl, *_ in ROWS} == set(CARDS)
    assert len(ROWS) > 60


def test_special_operations_by_the_general_rule() -> None:
    errors = [
        abs(special_ops(p, tiles, GENERAL, pack="flash2" in impl) / seen["special_ops"] - 1)
        for _, impl, p, tiles, seen in ROWS
    ]
    assert mean(errors) < 0.001
    assert max(errors) < 0.003


@pytest.mark.parametrize(("impl", "p", "tiles", "seen"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_special_operations_are_exact_with_the_facts_of_the_kernel(
    impl: str, p: AttentionProblem, tiles: TileShape, seen: dict[str, int]
) -> None:
    card = CARDS[impl]
    assert card.special is not None
    most = SMS if card.persistent else None
    found = special_ops(p, tiles, card.special, pack=card.pack_heads_at_single_query, most_blocks=most)
    assert found == seen["special_ops"]


def test_wavefronts_of_the_mma_kernel() -> None:
    errors = [
        shared_wavefronts(p, tiles, "split-q").total / seen["shared_wavefronts"] - 1
        for _, impl, p, tiles, seen in ROWS
        if "flash2" in impl
    ]
    assert -0.04 < min(errors) <= max(errors) < 0  # what is not modelled (conflicts, copies) only adds
    assert abs(mean(errors)) < 0.03


def test_wavefronts_of_the_wgmma_kernel() -> None:
    errors = [
        shared_wavefronts(p.padded(64), tiles, "wgmma", pack=False).total / seen["shared_wavefronts"] - 1
        for _, impl, p, tiles, seen in ROWS
        if "cudnn" in impl
    ]
    assert -0.035 < min(errors) <= max(errors) < 0
    assert abs(mean(errors)) < 0.015
