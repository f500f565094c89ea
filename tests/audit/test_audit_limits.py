"""The whole audit of the H200's measurements against the limits that the model promises (docs/hierarchy.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iosim.audit import Audit, audit_file

ATTENTION = Path(__file__).parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
FUSED_ROWS = 73
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def audit() -> Audit:
    return audit_file(ATTENTION)


# column: largest mean, 90th percentile and worst error; None: no limit is promised
LIMITS = {
    "sm_read_bytes": (0.005, 0.005, 0.005),
    "special_ops": (0.02, None, 0.03),
    "hbm_read_bytes": (0.015, 0.05, 0.10),
    "l2_read_bytes": (0.05, None, None),
    "hbm_write_bytes": (0.05, None, None),
    "l2_fabric_bytes": (0.08, None, None),
}


@pytest.mark.parametrize("column", LIMITS)
def test_fused_kernels(audit: Audit, column: str) -> None:
    found = audit.summary[column]
    assert found.n >= 60
    for value, limit in zip(
        (found.mean_abs_error, found.p90_abs_error, found.max_abs_error), LIMITS[column], strict=True
    ):
        assert value is not None
        if limit is not None:
            assert value <= limit


@pytest.mark.parametrize(("kernel", "limit"), [("qk_gemm", 0.03), ("pv_gemm", 0.03), ("softmax", 0.01)])
def test_unfused_kernels(audit: Audit, kernel: str, limit: float) -> None:
    found = audit.by_kernel[f"torch_unfused/{kernel}"]["hbm_read_bytes"]
    assert found.n == 14
    assert found.mean_abs_error is not None
    assert found.mean_abs_error <= limit


def test_the_hard_rows_are_among_those_held(audit: Audit) -> None:
    # Causal FlashAttention-2 at d = 128, where the schedule decides: up to 5.5 times the compulsory bytes.
    hard = [
        item
        for item in audit.items
        if item.row.implementation == "torch_sdpa_flash2"
        and item.row.kernel == "flash_fwd"
        and item.row.problem.mask.is_causal
        and item.row.problem.head_dim == 128
        and item.row.problem.seq_q >= 1024
    ]
    assert len(hard) >= 5
    for item in hard:
        error = item.error("hbm_read_bytes")
        assert error is not None
        assert abs(error) < 0.10


def test_the_summary_is_that_of_the_rows(audit: Audit) -> None:
    fused = [i for i in audit.items if i.row.kernel == "flash_fwd" and i.row.problem.seq_q >= 8]
    errors = np.array([e for i in fused if (e := i.error("hbm_read_bytes")) is not None])
    found = audit.summary["hbm_read_bytes"]
    assert (found.n, len(errors)) == (FUSED_ROWS, FUSED_ROWS)
    assert found.mean_abs_error == pytest.approx(np.abs(errors).mean())
    assert found.p90_abs_error == pytest.approx(np.percentile(np.abs(errors), 90))
    assert found.bias == pytest.approx(errors.mean())
    large = [i for i in fused if i.row.measured["hbm_write_bytes"] >= 30e6]
    assert audit.summary["hbm_write_bytes"].n == len(large)


def test_split_kernels_are_not_guessed(audit: Audit) -> None:
    rows = [i for i in audit.items if "splitkv" in i.row.kernel]
    assert rows
    assert all(value is None for item in rows for value in item.predicted.values())
