"""Split-KV attention and latent attention: the bytes of a decode step, splits, and the SMs they keep busy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import ProblemError, UsageError
from iosim.grid import Grid
from iosim.interpret.binding import bind
from iosim.interpret.launch import busy_share, thread_blocks
from iosim.interpret.trace import blocks
from iosim.problem import AttentionProblem, TileShape
from iosim.splits import best_split, split_table
from iosim.sweep import sweep

LLAMA = AttentionProblem.of(heads=32, kv_heads=8, seq_q=1, seq_k=8192, head_dim=128)


def bytes_of(record, tensor: str) -> int:
    return sum(t.read_bytes + t.write_bytes for t in record.traffic_by_tensor if t.tensor == tensor)


def test_keys_and_values_are_read_once_a_kv_head_when_packed():
    packed = analyze(LLAMA, "decode")
    apart = analyze(LLAMA, "decode", options={"pack-gqa": "off"})
    assert bytes_of(packed, "K") + bytes_of(packed, "V") == 33_554_432
    assert bytes_of(apart, "K") + bytes_of(apart, "V") == 4 * 33_554_432
    assert packed.traffic.total_bytes == packed.theory.compulsory_bytes == packed.theory.lower_bound_bytes
    assert packed.work.executed_flops == packed.work.useful_flops


@pytest.mark.parametrize("splits", [2, 7, 64])
@pytest.mark.parametrize("queries", [1, 3])
def test_partial_results_cost_what_flash_decoding_writes(splits, queries):
    B, H, Hk, Nk, d, dv, s = 2, 8, 2, 4096, 64, 32, 2
    problem = AttentionProblem.of(
        batch=B, heads=H, kv_heads=Hk, seq_q=queries, seq_k=Nk, head_dim=d, value_dim=dv
    )
    record = analyze(problem, "decode", tiles="16x64", options={"splits": str(splits)})
    rows = B * H * queries
    assert bytes_of(record, "K") + bytes_of(record, "V") == B * Hk * Nk * (d + dv) * s
    assert bytes_of(record, "Q") == rows * d * s * splits
    assert bytes_of(record, "O_parts") == 2 * 4 * rows * dv * splits
    assert bytes_of(record, "LSE_parts") == 2 * 4 * rows * splits
    assert bytes_of(record, "O") == rows * dv * s


def test_twelve_blocks_on_an_a100_are_eleven_percent():
    problem = AttentionProblem.of(heads=12, seq_q=1, seq_k=8192, head_dim=128)
    record = analyze(problem, "decode", profile="a100-sxm-40gb")
    launch = record.notes["launch"]
    assert launch["thread_blocks"] == {"decode": 12}
    assert launch["sm_count"] == 108
    assert round(launch["sm_share"], 2) == 0.11
    best = analyze(problem, "decode", profile="a100-sxm-40gb", options={"splits": "best"})
    assert best.notes["launch"]["sm_share"] == 1.0
    assert best.options["splits"] == str(best.notes["splits"]["best"]) == "9"  # 12 · 9 = 108


@given(
    heads=st.integers(1, 3),
    group=st.integers(1, 4),
    seq_q=st.integers(1, 6),
    rows=st.integers(1, 9),
    splits=st.sampled_from(["1", "2", "5"]),
    pack=st.sampled_from(["on", "off"]),
)
def test_thread_blocks_are_those_that_can_be_enumerated(heads, group, seq_q, rows, splits, pack):
    problem = AttentionProblem.of(heads=heads * group, kv_heads=heads, seq_q=seq_q, seq_k=9, head_dim=2)
    algorithm = ALGORITHMS["decode"]
    program = algorithm.program("none", algorithm.resolve({"splits": splits, "pack-gqa": pack}))
    binding = bind(problem, TileShape(rows=rows, cols=3))
    launched = thread_blocks(program, binding)
    assert launched == {kernel.name: len(list(blocks(kernel, binding))) for kernel in program.kernels}


@pytest.mark.parametrize(("blocks_", "sms", "share"), [(1, 4, 0.25), (4, 4, 1.0), (5, 4, 0.625), (8, 4, 1.0)])
def test_busy_share_counts_whole_waves(blocks_, sms, share):
    assert busy_share(blocks_, sms) == share


def test_the_table_of_splits_is_what_single_runs_give():
    tiles = TileShape(rows=16, cols=128)
    table = split_table(LLAMA, ALGORITHMS["decode"], ALGORITHMS["decode"].resolve({}), tiles, 132)
    assert [row.splits for row in table] == list(range(1, 8192 // 128 + 1))
    for row in (table[0], table[1], table[16], table[-1]):
        record = analyze(LLAMA, "decode", tiles="16x128", options={"splits": str(row.splits)})
        assert record.traffic.total_bytes == row.total_bytes
        assert next(iter(record.notes["launch"]["thread_blocks"].values())) == row.thread_blocks
    best = best_split(table)
    assert best.thread_blocks == 8 * best.splits
    assert all(best.total_bytes / best.sm_share <= row.total_bytes / row.sm_share for row in table)
    assert math.isclose(best.sm_share, 1.0)  # 33 splits are two full waves


def test_chunked_prefill_reads_keys_once_a_row_tile_of_packed_rows():
    problem = AttentionProblem.of(heads=8, kv_heads=2, seq_q=256, seq_k=4096, head_dim=64, mask="causal")
    record = analyze(problem, "decode", tiles="128x64")
    # 256 · 4 packed rows in tiles of 128 rows, 32 queries each; tile i sees 3840 + 32(i + 1) keys, in tiles of 64
    keys = sum(-(-(3840 + 32 * (i + 1)) // 64) * 64 for i in range(8))
    assert bytes_of(record, "K") == 2 * keys * 64 * 2


def test_splits_must_be_counts():
    with pytest.raises(UsageError, match="whole number from 1"):
        analyze(LLAMA, "decode", options={"splits": "0"})
    grid = Grid(algorithm=("decode",), seq_q=(1,), seq_k=(4096, 8192), options={"decode": {"splits": "8"}})
    table = sweep(grid)
    assert (table["O_parts_read_bytes"] == 8 * 128 * 4).all()


def test_a_sweep_finds_the_best_splits_of_each_point_for_itself():
    axes = {"heads": (8,), "kv_heads": (2,), "seq_q": (1,), "seq_k": (100, 4096), "head_dim": (64,)}
    table = sweep(Grid(algorithm=("decode", "flash2"), options={"decode": {"splits": "best"}}, **axes))
    assert table["splits"].dtype == "Int64"
    for row in table.to_dict("records"):
        problem = AttentionProblem.of(heads=8, kv_heads=2, seq_q=1, seq_k=row["seq_k"], head_dim=64)
        options = {"splits": "best"} if row["algorithm"] == "decode" else {}
        alone = analyze(problem, row["algorithm"], options=options)
        assert row["sm_read_bytes"] == alone.traffic.sm_read_bytes
        assert row["O_parts_write_bytes"] == sum(
            t.write_bytes for t in alone.traffic_by_tensor if t.tensor == "O_parts"
        )
        assert row["closed_form_bytes"] == alone.theory.closed_form_bytes
        assert row["useful_flops"] == alone.work.useful_flops
        if options:
            assert row["splits"] == alone.notes["splits"]["best"]
    short, long = table.loc[table["algorithm"] == "decode", "splits"]
    assert short < long


DEEPSEEK = AttentionProblem.of(heads=128, kv_heads=1, seq_q=1, seq_k=4096, head_dim=576, value_dim=512)


def test_latent_rows_are_read_once_a_sequence():
    record = analyze(DEEPSEEK, "mla", sram_bytes=1 << 20)
    assert bytes_of(record, "K") == 4096 * 1152
    assert "V" not in {t.tensor for t in record.traffic_by_tensor}
    assert record.traffic.total_bytes == record.theory.compulsory_bytes == record.theory.lower_bound_bytes
    # 2·H·(2·512 + 64) flops for every 1152 bytes of cache
    assert round(record.work.useful_flops / bytes_of(record, "K"), 1) == 241.8


def test_the_rows_of_128_heads_do_not_fit_on_one_sm_so_the_cache_is_read_twice():
    record = analyze(DEEPSEEK, "mla")  # 128·(576 + 512)·2 bytes of Q and O alone are 272 KiB, M is 227
    assert record.tiles is not None
    assert bytes_of(record, "K") == -(-128 // record.tiles.rows) * 4096 * 1152 == 2 * 4096 * 1152


def test_the_same_cache_as_keys_and_values_apart_costs_the_values_again():
    latent, apart = (analyze(DEEPSEEK, name, sram_bytes=1 << 20) for name in ("mla", "decode"))
    assert apart.traffic.total_bytes - latent.traffic.total_bytes == 4096 * 512 * 2
    assert apart.work.executed_flops == latent.work.executed_flops


def test_a_problem_without_one_latent_row_is_refused():
    with pytest.raises(ProblemError, match="kv_heads: mla has one latent row for all heads"):
        analyze(AttentionProblem.of(heads=2, seq=64, head_dim=16), "mla")
    with pytest.raises(ProblemError, match="value_dim: in mla values are the first columns"):
        analyze(AttentionProblem.of(seq=64, head_dim=16, value_dim=32), "mla")
