"""Rows that are one kernel of several: standard attention's three, and the two of a split decode, by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from iosim.audit import audit_file
from iosim.audit.compare import Comparison
from iosim.audit.unfused import unfused_bytes
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem
from iosim.roofline.machine import HBM_LATENCY_CLK, L2_LATENCY_CLK
from iosim.timing.kernel import time_kernel


def audited(tmp_path: Path, impl: str, kernel: str, **shape: Any) -> Comparison:
    """The comparison of one row that measured one byte."""
    row = {
        "case": "0",
        "gpu": "NVIDIA H200",
        "impl": impl,
        "batch": 1,
        "heads": 4,
        "kv_heads": 4,
        "seq_q": 300,
        "seq_k": 500,
        "head_dim": 64,
        "causal": 0,
        "dtype": "fp16",
        "kernel": kernel,
        "block_rows": 128,
        "block_cols": 128,
        "block": "256x1x1",
        "registers_per_thread": 128,
        "shared_bytes_per_block": 33792,
        "sm_read_bytes": 1,
        **shape,
    }
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    (item,) = audit_file(path, "h200-sxm").items
    return item


def decoded(tmp_path: Path, kernel: str, **shape: Any) -> Comparison:
    tile = {"block_rows": 16, "block_cols": 64, "block": "128x1x1", "shared_bytes_per_block": 103424}
    own = {"heads": 32, "kv_heads": 8, "seq_q": 1, "head_dim": 128, **tile, **shape}
    return audited(tmp_path, "iosim_decode", kernel, **own)


def test_the_gemms_read_an_operand_for_every_tile_of_the_other(tmp_path: Path) -> None:
    rows, columns = 3, 4  # tiles of 128
    scores = audited(tmp_path, "iosim_standard", "qk_gemm").predicted["sm_read_bytes"]
    assert scores == 4 * (columns * 300 + rows * 500) * 64 * 2
    output = audited(tmp_path, "iosim_standard", "pv_gemm").predicted["sm_read_bytes"]
    assert output == 4 * (300 * 500 + rows * 500 * 64) * 2


@pytest.mark.parametrize(("variant", "reads"), [("", 1), ("_naive", 2), ("_online", 2), ("_safe", 3)])
def test_the_softmax_reads_its_row_once_a_pass(tmp_path: Path, variant: str, reads: int) -> None:
    found = audited(tmp_path, f"iosim_standard{variant}", "softmax").predicted["sm_read_bytes"]
    assert found == reads * 4 * 300 * 500 * 2


def test_without_a_tile_the_gemms_of_a_library_stay_unknown(tmp_path: Path) -> None:
    item = audited(tmp_path, "torch_unfused", "qk_gemm", block_rows="", block_cols="")
    assert item.predicted["sm_read_bytes"] is None
    assert item.predicted["hbm_read_bytes"]


def test_a_full_gpu_decodes_in_one_kernel(tmp_path: Path) -> None:
    shape = {"batch": 33, "seq_k": 8192}
    item = decoded(tmp_path, "decode_split", **shape)
    cache = 33 * 8 * 8192 * 2 * 128 * 2
    q = 33 * 32 * 128 * 2
    assert item.predicted["sm_read_bytes"] == cache + q
    assert item.predicted["hbm_read_bytes"] == cache + q  # everything once
    # 16 rows are computed for the four that are there: an exponential a score, and for every tile of 64 keys a
    # rescale of each row on 16 lanes, that is four warps of four lanes; at the end a reciprocal of each row
    tiles = 33 * 8 * 8192 // 64
    assert item.predicted["special_ops"] == pytest.approx(tiles * 16 * (64 + 16), rel=0.01)
    assert decoded(tmp_path, "decode_combine", **shape).predicted["sm_read_bytes"] is None


def test_split_keys_cost_q_again_and_partial_results(tmp_path: Path) -> None:
    shape = {"batch": 1, "seq_k": 65536}
    first = decoded(tmp_path, "decode_split", **shape).predicted
    second = decoded(tmp_path, "decode_combine", **shape).predicted
    cache, q = 8 * 65536 * 2 * 128 * 2, 32 * 128 * 2
    assert first["sm_read_bytes"] is not None
    splits, left = divmod(first["sm_read_bytes"] - cache, q)
    assert left == 0
    assert 8 * splits >= 132
    assert second["sm_read_bytes"] == splits * 32 * 4 * (128 + 1)
    # one run is of one kernel: K and V at the read bandwidth; a load a split and one more for 32 logarithms, from HBM
    assert first["profiled_time_s"] == pytest.approx(cache / 4.64e12 + 5.5e-6, rel=0.02)
    joined = (splits - 1 + -(-splits // 32)) / 1.98e9
    assert second["profiled_time_s"] == pytest.approx(5.5e-6 + joined * HBM_LATENCY_CLK)
    # of many runs there is one time of both, the parts still in the L2
    assert first["median_time_s"] == second["median_time_s"]
    assert first["median_time_s"] == pytest.approx(
        cache / 4.64e12 + 11e-6 + joined * L2_LATENCY_CLK, rel=0.02
    )


def test_flash1_has_exact_bytes_special_functions_and_a_time_where_its_card_counts_instructions(
    tmp_path: Path,
) -> None:
    shape = {"heads": 132, "kv_heads": 132, "registers_per_thread": 247, "shared_bytes_per_block": 66560}
    found = audited(tmp_path, "iosim_flash1", "flash_fwd", **shape).predicted
    visits = 4  # of every row, one a key tile of 128
    q, between = 64 * 2, 64 * 4 + 8
    assert found["sm_read_bytes"] == 132 * (500 * 2 * 64 * 2 + 300 * visits * (q + between))
    assert found["profiled_time_s"] is not None
    uncounted = replace(load_kernel("iosim-flash1"), instructions={})
    problem = AttentionProblem.of(heads=4, seq=512, head_dim=64)
    timing = time_kernel(uncounted, problem, load_profile("h200-sxm"))
    assert timing.once_s is None
    assert "does not count the instructions" in str(timing.reason)
    assert found["special_ops"] == 132 * 384 * (512 + 4 * (3 * visits + 1))


def test_query_heads_share_a_key_head_in_l2_unless_the_kernel_copies_it() -> None:
    problem = AttentionProblem.of(batch=4, heads=32, kv_heads=8, seq_q=1, seq_k=8192, head_dim=128)
    gpu = load_profile("h200-sxm")
    ours = load_kernel("iosim-standard")
    shared = unfused_bytes("qk_gemm", problem, ours, gpu).hbm_read_bytes
    alone = unfused_bytes("qk_gemm", replace(problem, heads=8), ours, gpu).hbm_read_bytes
    copied = unfused_bytes("qk_gemm", problem, load_kernel("torch-unfused"), gpu).hbm_read_bytes
    assert shared == pytest.approx(alone, rel=0.01)
    assert copied == pytest.approx(4 * alone, rel=0.01)


def test_a_launch_of_few_blocks_is_not_the_kernel_of_the_card() -> None:
    facts = load_kernel("torch-flash2")
    few = AttentionProblem.of(batch=1, heads=32, kv_heads=8, seq_q=1, seq_k=65536, head_dim=128)
    many = AttentionProblem.of(batch=64, heads=32, kv_heads=8, seq_q=1, seq_k=8192, head_dim=128)
    assert facts.divides_keys(few, 132)
    assert not facts.divides_keys(many, 132)
    timing = time_kernel(facts, few, load_profile("h200-sxm"))
    assert timing.once_s is None
    assert "divides their keys" in str(timing.reason)
