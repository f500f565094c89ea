"""Pages of keys and values: what the page table adds, and what partly used pages and sectors add."""

from __future__ import annotations

import pytest

from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.problem import AttentionProblem

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
