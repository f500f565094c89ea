"""`iosim audit`: its JSON contract and its exit codes, on a case that takes no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ATTENTION = Path(__file__).parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
COLUMNS = (
    "sm_read_bytes",
    "l2_read_bytes",
    "l2_fabric_bytes",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "special_ops",
)
STATISTICS = {"n", "mean_abs_error", "median_abs_error", "p90_abs_error", "max_abs_error", "bias"}


@pytest.fixture
def small(tmp_path: Path) -> str:
    header, *lines = ATTENTION.read_text().splitlines()
    path = tmp_path / "mine.csv"
    path.write_text(
        "\n".join([header, *(line for line in lines if line.startswith(("80,", "81,", "82,")))]) + "\n"
    )
    return str(path)


def test_json_contract(iosim: Callable[..., Any], small: str) -> None:
    done = iosim("audit", small, "--json")
    assert done.code == 0
    assert {"summary", "by_kernel", "rows"} <= done.json.keys()
    for group in (done.json["summary"], *done.json["by_kernel"].values()):
        assert set(COLUMNS) <= group.keys()
        assert all(set(found) == STATISTICS for found in group.values())
    assert any(name.endswith("/flash_fwd") for name in done.json["by_kernel"])
    for row in done.json["rows"]:
        assert {"predicted", "measured", "error", "line", "case", "implementation", "kernel"} <= row.keys()
        for column in COLUMNS:
            predicted, measured = row["predicted"][column], row["measured"][column]
            if predicted is not None and measured:
                assert row["error"][column] == pytest.approx(predicted / measured - 1)


def test_rows_come_worst_first(iosim: Callable[..., Any], small: str) -> None:
    rows = iosim("audit", small, "--json").json["rows"]
    worst = [max((abs(e) for e in row["error"].values() if e is not None), default=0.0) for row in rows]
    assert len(rows) > 1
    assert worst == sorted(worst, reverse=True)


def test_passing_a_limit_exits_with_four(iosim: Callable[..., Any], small: str) -> None:
    assert iosim("audit", small, "--max-error", "hbm_read_bytes=0.1").code == 0
    done = iosim("audit", small, "--max-error", "hbm_read_bytes=0.1", "--max-error", "l2_read_bytes=0.0001")
    assert done.code == 4
    assert "l2_read_bytes" in done.err
    assert "hbm_read_bytes is off" not in done.err


@pytest.mark.parametrize(
    "limit", ["hbm_read=0.1", "hbm_read_bytes", "hbm_read_bytes=-1", "hbm_read_bytes=nan"]
)
def test_a_limit_that_cannot_be(iosim: Callable[..., Any], small: str, limit: str) -> None:
    done = iosim("audit", small, "--max-error", limit)
    assert done.code == 2
    assert "--max-error" in done.err


def test_a_broken_row_is_said_and_the_rest_audited(iosim: Callable[..., Any], small: str) -> None:
    path = Path(small)
    lines = path.read_text().splitlines()
    broken = lines[1].split(",")
    broken[18] = "many"  # hbm_read_bytes
    path.write_text("\n".join([*lines, ",".join(broken)]) + "\n")
    done = iosim("audit", small, "--json")
    assert done.code == 0
    assert f"mine.csv:{len(lines) + 1}" in done.err
    assert len(done.json["rows"]) == len(lines) - 1
