"""Pages of keys and values: what the page table adds, and what partly used pages and sectors add."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.algorithms.paging import declare_pages, look_up
from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import ProgramError, UsageError
from iosim.interpret.numeric import run
from iosim.problem import AttentionProblem, TileShape
from iosim.program.builder import Builder, build
from iosim.program.expr import const
from iosim.program.pretty import listing
from iosim.theory.reference import reference_attention

DECODE = AttentionProblem.of(batch=2, heads=32, kv_heads=8, seq_q=1, seq_k=1000, head_dim=128)


def table_bytes(record) -> int:
    return sum(t.read_bytes for t in record.traffic_by_tensor if t.tensor == "PAGES")


@pytest.mark.parametrize(
    ("page", "tile", "entries"),
    [
        (16, "16x64", 63),  # 1000 keys are 63 pages of 16, four to a tile
        (64, "16x64", 16),
        (256, "16x64", 16),  # a page spans four tiles: looked up for each
        (48, "16x64", 2 * 16 - 1 - 1000 // 192),  # tiles of 64 on pages of 48: two each, but for aligned ends
    ],
)
def test_entries_of_a_decode_step(page, tile, entries):
    if page == 48:
        ends = [(64 * j, min(64 * j + 64, 1000)) for j in range(16)]
        entries = sum(len({t // 48 for t in range(*span)}) for span in ends)
    paged = analyze(DECODE, "decode", tiles=tile, options={"page": str(page)})
    plain = analyze(DECODE, "decode", tiles=tile)
    assert table_bytes(paged) == 2 * 8 * entries * 4
    assert paged.traffic.total_bytes - plain.traffic.total_bytes == table_bytes(paged)
    assert paged.theory.closed_form_bytes == paged.traffic.total_bytes
    assert paged.work == plain.work


def test_query_heads_that_are_not_packed_look_up_for_themselves():
    packed, apart = (
        analyze(DECODE, "decode", tiles="16x64", options={"page": "16", "pack-gqa": pack})
        for pack in ("on", "off")
    )
    assert table_bytes(apart) == 4 * table_bytes(packed)


def test_what_partly_used_pages_hold():
    note = analyze(DECODE, "decode", options={"page": "256"}).notes["pages"]
    assert note["pages_a_sequence"] == 4
    assert note["table_bytes"] == 2 * 4 * 4
    assert note["unused_tokens_a_sequence"] == 24
    assert note["unused_cache_bytes"] == 2 * 8 * 24 * 2 * 128 * 2
    assert note["row_bytes"] == note["row_bytes_in_whole_sectors"] == 512


def test_rows_that_do_not_fill_sectors_fetch_more():
    # rows of 80 bytes at 0, 80, 160 ...: sectors of 32 from 0-95, 64-159, 160-255 ...: 3, 3 and so on
    problem = AttentionProblem.of(seq_q=1, seq_k=64, head_dim=40, value_dim=16)
    note = analyze(problem, "decode", options={"page": "16"}).notes["pages"]
    touched = [(80 * r + 79) // 32 - 80 * r // 32 + 1 for r in range(64)]
    assert note["row_bytes"] == 80 + 32
    assert note["row_bytes_in_whole_sectors"] == 32 * sum(touched) / 64 + 32


def test_paged_prefill_under_a_mask_and_a_block_mask():
    problem = AttentionProblem.of(seq=1000, head_dim=64, mask="causal")
    whole = analyze(problem, "flash2", tiles="128x64", options={"page": "16"})
    entries = sum(
        len({t // 16 for t in range(64 * j, min(64 * j + 64, 1000))})
        for i in range(8)
        for j in range(-(-min(128 * (i + 1), 1000) // 64))
    )
    assert table_bytes(whole) == 4 * entries
    sparse = analyze(problem, "flash2", tiles="128x64", options={"page": "16", "block-mask": "local:1"})
    assert 0 < table_bytes(sparse) < table_bytes(whole)
    assert sparse.theory.closed_form_bytes == sparse.traffic.total_bytes


def test_four_million_look_ups_are_summed():
    problem = AttentionProblem.of(seq=131072, head_dim=128)
    record = analyze(problem, "flash2", tiles="64x64", options={"page": "16"})
    assert table_bytes(record) == 2048 * 2048 * 4 * 4  # row tiles, key tiles, pages a tile, bytes


@pytest.mark.parametrize("page", ["0", "-16", "x", "16.5"])
def test_a_page_is_a_whole_number_of_tokens(page):
    with pytest.raises(UsageError, match="whole number from 1"):
        analyze(DECODE, "decode", options={"page": page})


SMALL = AttentionProblem.of(batch=2, heads=4, kv_heads=2, seq_q=3, seq_k=10, head_dim=4, mask="causal")
TILES = TileShape(rows=2, cols=3)  # tiles of 3 on pages of 4: most tiles lie on two pages


def small_inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    shapes = {"Q": (2, 4, 3, 4), "K": (2, 2, 10, 4), "V": (2, 2, 10, 4)}
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def pages(*numbers: int) -> np.ndarray:
    return np.array(numbers).reshape(2, 1, 3, 1)


def paged(name: str, **options: str):
    chosen = ALGORITHMS[name]
    return chosen.program("causal", chosen.resolve({"page": "4", **options}))


@pytest.mark.parametrize(
    ("name", "options"), [("flash2", {}), ("decode", {}), ("decode", {"splits": "2", "pack-gqa": "off"})]
)
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3, 4, 5), (5, 0, 3, 2, 4, 1), (90, 7, 31, 2, 55, 8)])
def test_scattered_pages_give_what_contiguous_keys_give(name, options, numbers):
    inputs = small_inputs()
    got = run(paged(name, **options), SMALL, TILES, inputs | {"PAGES": pages(*numbers)})
    want = reference_attention(inputs["Q"], inputs["K"], inputs["V"], mask="causal")
    assert np.abs(got["O"] - want).max() < 1e-13


def test_the_listing_says_by_which_entries():
    rows = [row.text for row in listing(paged("flash2"))]
    assert "load K_j <- K[j] by pages_j" in rows
    assert "load V_j <- V[j] by pages_j" in rows


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [((0, 1, 2, 3, 4, 4), "no two pages lie in one place"), ((0, 1, 2, 3, 4, -1), "0 or more")],
)
def test_tables_that_hold_no_batch(numbers, complaint):
    with pytest.raises(ProgramError, match=complaint):
        run(paged("flash2"), SMALL, TILES, small_inputs() | {"PAGES": pages(*numbers)})
    short = np.array([[0], [1]]).reshape(2, 1, 1, 1)
    with pytest.raises(ProgramError, match="do not hold 10 rows"):
        run(paged("flash2"), SMALL, TILES, small_inputs() | {"PAGES": short})


def copying_keys(p: Builder, *, through: str) -> None:
    """Loads every key tile through its own page entries, through those of the first tile, or past the table."""
    Q, K, O = p.tensors("Q K O")
    table = declare_pages(p)
    for i in p.blocks(Q):
        q = p.load("Q_i", Q.tile(i))
        acc = p.fill("O_i", 0, q.rows, O.tile(i).cols, of=O)
        for j in p.loop("j", *p.key_tiles(q.rows)):
            entries = look_up(p, table, const(0) if through == "first" else j)
            p.load("K_j", K.tile(j), through=entries)
            if through == "none":
                p.load("K_again", K.tile(j))
        p.store(O.tile(i), acc)


@pytest.mark.parametrize(
    ("through", "complaint"),
    [
        ("own", None),
        ("first", "rows 3:6 lie on pages 0 to 1, and the entries on chip are those of 0 to 0"),
        ("none", "every load of it goes through"),
    ],
)
def test_wrong_look_ups_are_caught(through, complaint):
    program = build(lambda p: copying_keys(p, through=through), "careless", "causal", {"page": "4"})
    inputs = small_inputs() | {"PAGES": pages(0, 1, 2, 3, 4, 5)}
    if complaint is None:
        run(program, SMALL, TILES, inputs)
        return
    with pytest.raises(ProgramError, match=complaint):
        run(program, SMALL, TILES, inputs)
