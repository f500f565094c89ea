"""The time columns of an audit: from the simulated levels, empty where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from time_cases import MEASUREMENTS, h200_rows

from iosim.audit import audit_file
from iosim.audit.compare import Comparison, summary
from iosim.audit.measurements import MeasuredRow
from iosim.audit.predict import COLUMNS, predict
from iosim.hardware import load_profile

H200 = load_profile("h200-sxm")
TIMES = ("profiled_time_s", "median_time_s")


def row_of(implementation: str, kernel: str, **sizes: int) -> MeasuredRow:
    """The first row of an implementation and kernel with these sizes."""
    for row in h200_rows():
        same = all(getattr(row.problem, name) == size for name, size in sizes.items())
        if same and (row.implementation, row.kernel) == (implementation, kernel):
            return row
    raise AssertionError("no such row")


def test_a_fused_kernel_has_both() -> None:
    row = row_of("torch_sdpa_cudnn", "flash_fwd", seq_q=1000)
    found = predict(row, H200)
    assert found["profiled_time_s"] == pytest.approx(row.measured["profiled_time_s"], rel=0.1)
    assert found["median_time_s"] >= found["profiled_time_s"]  # type: ignore[operator]


def test_nothing_measured_is_read() -> None:
    row = row_of("torch_sdpa_flash2", "flash_fwd", seq_q=1000)
    assert predict(replace(row, measured={"profiled_time_s": 1.0}), H200) == predict(row, H200)


def test_a_gemm_has_one_run_and_a_softmax_none() -> None:
    gemm = predict(row_of("torch_unfused", "qk_gemm", seq_q=16384), H200)
    assert gemm["profiled_time_s"] is not None
    assert gemm["median_time_s"] is None  # the file has the median of all three kernels together
    softmax = predict(row_of("torch_unfused", "softmax", seq_q=16384), H200)
    assert [softmax[c] for c in TIMES] == [None, None]


def test_rows_off_16_bytes_have_none() -> None:
    assert predict(row_of("torch_unfused", "qk_gemm", seq_q=3333), H200)["profiled_time_s"] is None


def test_decode_of_unknown_tile_streams_and_the_rest_is_unknown() -> None:
    row = row_of("torch_sdpa_cudnn", "flash_fwd", seq_q=1)
    assert row.tile is None
    found = predict(row, H200)
    assert found["profiled_time_s"] == pytest.approx(row.measured["profiled_time_s"], rel=0.02)
    assert all(found[c] is None for c in COLUMNS if c not in TIMES)


def test_kernels_without_facts_have_none() -> None:
    split = next(r for r in h200_rows() if r.kernel == "flash_fwd_splitkv")
    assert set(predict(split, H200).values()) == {None}


def test_an_architecture_without_constants_has_bytes_but_no_time() -> None:
    row = row_of("torch_sdpa_cudnn", "flash_fwd", seq_q=1000)
    found = predict(row, load_profile("a100-sxm-80gb"))
    assert [found[c] for c in TIMES] == [None, None]
    assert found["hbm_read_bytes"] is not None


def test_short_repeated_runs_are_not_counted() -> None:
    row = row_of("torch_sdpa_cudnn", "flash_fwd", seq_q=1000)
    assert row.measured["median_time_s"] < 60e-6
    item = Comparison(row=row, predicted=dict.fromkeys(TIMES, 1.0))
    assert [summary([item], TIMES)[c].n for c in TIMES] == [1, 0]


@pytest.mark.slow
def test_the_whole_audit_keeps_its_errors() -> None:
    found = audit_file(MEASUREMENTS / "h200" / "attention.csv")
    one, many = (found.summary[c] for c in TIMES)
    assert (one.n, many.n) == (73, 71)
    assert one.mean_abs_error <= 0.025  # type: ignore[operator]
    assert one.p90_abs_error <= 0.05  # type: ignore[operator]
    assert one.max_abs_error <= 0.13  # type: ignore[operator]
    assert many.mean_abs_error <= 0.03  # type: ignore[operator]
    for kernel in ("qk_gemm", "pv_gemm"):
        assert found.by_kernel[f"torch_unfused/{kernel}"]["profiled_time_s"].mean_abs_error <= 0.06  # type: ignore[operator]
