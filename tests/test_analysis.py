"""The path from a problem to a record: the worked numbers, exactly, and what the record says beside them."""

from __future__ import annotations

import json

import pytest

import iosim
from iosim.errors import UsageError

WIDE = {"seq": 8192, "head_dim": 128, "heads": 32}


def run(algorithm, tiles="best", options=None, sram_bytes=None, **problem):
    return iosim.analyze(
        iosim.AttentionProblem.of(**problem), algorithm, tiles=tiles, options=options, sram_bytes=sram_bytes
    )


@pytest.mark.parametrize(
    ("algorithm", "tiles", "want"),
    [
        ("standard", "best", 17_448_304_640),
        ("flash2", "128x64", 8_724_152_320),
        ("flash2", "64x64", 17_314_086_912),
    ],
)
def test_worked_bytes(algorithm, tiles, want):
    record = run(algorithm, tiles, **WIDE)
    assert record.traffic.total_bytes == want
    assert record.theory.closed_form_bytes == want
    assert record.theory.compulsory_bytes == 268_435_456
    assert record.work.useful_flops == record.work.executed_flops == 1_099_511_627_776


def test_causal_executes_whole_diagonal_tiles():
    work = run("flash2", "128x128", mask="causal", **WIDE).work
    assert work.executed_flops == 558_345_748_480
    assert work.useful_flops == 549_822_922_752
    assert work.executed_flops * 4096 == 1_099_511_627_776 * 2080


def test_gqa_decode_reads_keys_once_a_query_head_but_once_a_kv_head_is_compulsory():
    record = run("flash2", seq_q=1, seq_k=8192, heads=32, kv_heads=8, head_dim=128)
    moved = {t.tensor: t.read_bytes for t in record.traffic_by_tensor}
    assert moved["K"] + moved["V"] == 134_217_728
    assert record.theory.compulsory_bytes - 2 * 32 * 128 * 2 == 33_554_432


@pytest.mark.parametrize(
    ("softmax", "passes", "softmax_passes", "accesses"),
    [("fused", 4, 1, 2), ("naive", 5, 2, 3), ("safe", 6, 3, 4), ("online", 5, 2, 3)],
)
def test_softmax_variants_cost_their_passes(softmax, passes, softmax_passes, accesses):
    record = run("standard", options={"softmax": softmax}, seq=512, head_dim=64)
    elements = 512 * 512 * 2
    scores = [t for t in record.traffic_by_tensor if t.tensor in "SP"]
    assert sum(t.read_bytes + t.write_bytes for t in scores) == passes * elements
    assert record.notes["softmax"]["passes"] == softmax_passes
    assert record.notes["softmax"]["accesses_per_element"] == accesses


def test_optional_passes_of_standard_attention():
    plain = run("standard", seq=512, head_dim=64).traffic.total_bytes
    n2 = 512 * 512
    for option, extra in (
        ("scale-pass", 2 * 2 * n2),
        ("additive-mask", 3 * 2 * n2),
        ("dropout", 2 * 2 * n2 + n2),
    ):
        assert (
            run("standard", options={option: "on"}, seq=512, head_dim=64).traffic.total_bytes == plain + extra
        )


def test_gemm_tiles_count_the_real_re_reads():
    record = run("standard", options={"gemm-tiles": "128x128"}, seq=1024, head_dim=256)
    moved = {t.tensor: t for t in record.traffic_by_tensor}
    assert moved["Q"].read_bytes == 1024 * 256 * 2 * 8
    assert moved["K"].read_bytes == 1024 * 256 * 2 * 8
    assert moved["P"].read_bytes == 1024 * 1024 * 2 * 2  # O in two tiles of 128 columns
    assert moved["V"].read_bytes == 1024 * 256 * 2 * 8
    assert record.sram.fits
    assert (record.tiles.rows, record.tiles.cols) == (128, 128)


def test_log_sum_exp_is_four_bytes_a_row():
    off, on = (run("flash2", "128x64", options={"lse": v}, seq=1000, head_dim=64) for v in ("off", "on"))
    assert on.traffic.sm_write_bytes - off.traffic.sm_write_bytes == 4000


def test_idealised_standard_never_fails_on_sram_and_says_what_it_would_need():
    record = run("standard", sram_bytes=1024, **WIDE)
    assert not record.sram.fits
    assert any("idealised" in w and "--gemm-tiles" in w for w in record.warnings)
    assert all(b.bytes is None for b in record.theory.bounds if b.name == "matmul")
    assert record.theory.lower_bound_bytes <= record.traffic.total_bytes


def test_fp8_keys_and_values_halve_only_their_own_bytes():
    fp16, fp8 = (
        run("flash2", "128x64", dtype_k=t, dtype_v=t, **WIDE).traffic_by_tensor for t in ("fp16", "fp8")
    )
    for wide, narrow in zip(fp16, fp8, strict=True):
        halved = 2 if wide.tensor in "KV" else 1
        assert wide.read_bytes == halved * narrow.read_bytes
        assert wide.write_bytes == narrow.write_bytes


def test_a_record_becomes_json_and_a_row():
    record = run("flash1", "paper", **WIDE)
    again = json.loads(json.dumps(record.to_dict()))
    assert again["traffic"]["sm_read_bytes"] == record.traffic.sm_read_bytes
    assert again["tiles"] == {"rows": record.tiles.rows, "cols": record.tiles.cols}
    frame = record.to_frame()
    assert len(frame) == 1
    assert frame.loc[0, "sm_read_bytes"] == record.traffic.sm_read_bytes


def test_unknown_options_list_what_there_is():
    with pytest.raises(UsageError, match="flash2 has no such option; its options: lse"):
        run("flash2", options={"softmax": "safe"}, **WIDE)
    with pytest.raises(UsageError, match="'yes' is not one of off, on"):
        run("flash2", options={"lse": "yes"}, **WIDE)
    with pytest.raises(UsageError, match="unknown algorithm 'flash9'; known: standard"):
        run("flash9", **WIDE)


def test_every_public_name_is_there():
    for name in iosim.__all__:
        assert getattr(iosim, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = iosim.nonsense
