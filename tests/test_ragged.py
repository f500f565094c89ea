"""Ragged batches: sums of single sequences, what padding adds, and what bad lists are told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.lengths import parse_lengths
from iosim.problem import AttentionProblem
from iosim.ragged import analyze_ragged

H100 = load_profile("h100-sxm")


def ragged(lengths, name="flash2", *, tiles="128x128", options=None, queries=None, **shape):
    shape = {"heads": 2, "head_dim": 32, **shape}
    longest = max(lengths)
    seq_q = longest if queries is None else queries
    padded = AttentionProblem.of(batch=len(lengths), seq_q=seq_q, seq_k=longest, **shape)
    return analyze_ragged(
        padded,
        lengths,
        ALGORITHMS[name],
        tiles=tiles,
        profile=H100,
        options=options or {},
        fixed_queries=queries is not None,
    )


def alone(length, name, options, tiles="128x128", queries=None, **shape):
    problem = AttentionProblem.of(
        seq_q=queries or length, seq_k=length, **{"heads": 2, "head_dim": 32, **shape}
    )
    return analyze(problem, name, tiles=tiles, profile=H100, options=options)


@settings(max_examples=15)
@given(
    lengths=st.lists(st.integers(1, 700), min_size=1, max_size=8),
    case=st.sampled_from(
        [
            ("flash2", {}, None),
            ("flash1", {"variant": "skip-first-read"}, None),
            ("standard", {}, None),
            ("flash2", {"pass": "fwd+bwd"}, None),
            ("flash2", {"block-mask": "local:1+global:1"}, None),
            ("decode", {"splits": "3", "page": "16"}, 2),
        ]
    ),
    mask=st.sampled_from(["none", "causal", "window:100"]),
)
def test_a_batch_moves_what_its_sequences_move(lengths, case, mask):
    name, options, queries = case
    whole = ragged(lengths, name, options=options, queries=queries, mask=mask)
    parts = [alone(n, name, options, queries=queries, mask=mask) for n in lengths]
    for tensor in whole.traffic_by_tensor:
        same = [t for p in parts for t in p.traffic_by_tensor if t.tensor == tensor.tensor]
        assert tensor.read_bytes == sum(t.read_bytes for t in same)
        assert tensor.write_bytes == sum(t.write_bytes for t in same)
    for unit in ("useful_flops", "executed_flops", "vector_flops", "special_ops"):
        assert getattr(whole.work, unit) == sum(getattr(p.work, unit) for p in parts)
    assert whole.theory.closed_form_bytes == whole.traffic.total_bytes
    assert whole.theory.compulsory_bytes == sum(p.theory.compulsory_bytes for p in parts)
    launched = whole.notes["launch"]["thread_blocks"]
    assert launched == {k: sum(p.notes["launch"]["thread_blocks"][k] for p in parts) for k in launched}


def test_equal_lengths_are_a_batch_without_padding():
    even = ragged([512] * 4)
    batch = analyze(
        AttentionProblem.of(batch=4, heads=2, seq=512, head_dim=32), tiles="128x128", profile=H100
    )
    assert even.traffic == batch.traffic
    assert even.notes["ragged"]["padding_bytes"] == even.notes["ragged"]["padding_executed_flops"] == 0


def test_padding_is_the_padded_batch_less_the_ragged_one():
    lengths = [512, 1024, 37]
    record = ragged(lengths)
    padded = analyze(
        AttentionProblem.of(batch=3, heads=2, seq=1024, head_dim=32), tiles="128x128", profile=H100
    )
    note = record.notes["ragged"]
    assert note["tokens"] == 1573
    assert note["padded_tokens"] == 3072
    assert note["padded_bytes"] == padded.traffic.total_bytes
    assert note["padding_bytes"] == padded.traffic.total_bytes - record.traffic.total_bytes > 0
    # three heads' worth of square matmuls: Σ n² against 3·1024²
    squares = sum(n * n for n in lengths)
    assert record.work.executed_flops == 2 * 2 * 2 * 32 * squares
    assert note["padding_executed_flops"] == 2 * 2 * 2 * 32 * (3 * 1024**2 - squares)


def test_the_best_tile_is_one_for_all_and_no_worse_than_any_sequences_own():
    lengths = [100, 700, 3000]
    best = ragged(lengths, tiles="best")
    for length in lengths:
        own = alone(length, "flash2", {}, tiles="best").tiles
        assert best.traffic.total_bytes <= ragged(lengths, tiles=str(own)).traffic.total_bytes


def test_a_decode_step_has_as_many_queries_in_every_sequence():
    record = ragged([4000, 100], "decode", tiles="16x64", queries=1, heads=8, kv_heads=2)
    moved = {t.tensor: t.read_bytes + t.write_bytes for t in record.traffic_by_tensor}
    assert moved["Q"] == moved["O"] == 2 * 8 * 32 * 2
    assert moved["K"] == 2 * 4100 * 32 * 2


def test_best_splits_are_one_number_for_the_whole_batch():
    lengths, shape = [2000, 150, 900, 150], {"queries": 1, "tiles": "16x64", "heads": 8, "kv_heads": 4}
    best = ragged(lengths, "decode", options={"splits": "best"}, **shape)
    note = best.notes["splits"]
    tried = {
        s: ragged(lengths, "decode", options={"splits": str(s)}, **shape)
        for s in range(1, len(note["table"]) + 1)
    }
    for row in note["table"]:
        run = tried[row["splits"]]
        launch = run.notes["launch"]
        assert row["total_bytes"] == run.traffic.total_bytes
        assert row["thread_blocks"] == next(iter(launch["thread_blocks"].values()))
        assert row["bytes_per_busy_share"] == run.traffic.total_bytes / launch["sm_share"]
    assert len(tried) == 32  # of the longest: 2000 keys in tiles of 64
    least = min(tried, key=lambda s: (tried[s].traffic.total_bytes / tried[s].notes["launch"]["sm_share"], s))
    assert note["chosen"] == note["best"] == least
    assert best.traffic == tried[least].traffic
    assert best.options["splits"] == str(least)
    assert best.theory.closed_form_bytes == best.traffic.total_bytes


def test_lists_files_and_offsets(tmp_path):
    assert parse_lengths("512, 1024,37") == (512, 1024, 37)
    path = tmp_path / "lengths.txt"
    path.write_text("512\n1024\n37\n")
    assert parse_lengths(str(path)) == (512, 1024, 37)
    assert parse_lengths("0,512,1536,1573") == (512, 1024, 37)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the list is empty"),
        ("5,0,3", "entry 2 is 0; lengths are from 1"),
        ("5,-3", "entry 2 is '-3', not a whole number"),
        ("0,5,3", "offsets, which must rise, but entry 3 is 3 after 5; sort them"),
        ("0,5,5", "leave out empty sequences"),
        ("0", "need an end"),
        ("missing.txt", "missing.txt: No such file"),
        ("5,99999999999999999999", "lengths are from 1"),
    ],
)
def test_bad_lists(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_lengths(text)


def test_a_file_that_is_no_list(tmp_path):
    path = tmp_path / "lengths.bin"
    path.write_bytes(b"\x80\xff\x00")
    with pytest.raises(UsageError, match="not a text file"):
        parse_lengths(str(path))
    path.write_text("5\n1.5\n")
    with pytest.raises(UsageError, match=r"entry 2 is '1\.5'"):
        parse_lengths(str(path))
