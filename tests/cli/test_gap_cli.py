"""`iosim gap` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

H200 = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
MINE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "mine.py"
Run = Callable[..., Any]


def test_json_is_the_waterfall_and_nothing_else(iosim: Run) -> None:
    done = iosim("gap --seq 1K --head-dim 64 --hw h200-sxm --json")
    assert done.code == 0
    entries = done.json["entries"]
    assert [e["name"] for e in entries if e["kind"] == "total"] == ["compulsory", "sm", "hbm"]
    level = 0
    for entry in entries:
        level = entry["bytes"] if entry["kind"] == "total" else level + entry["bytes"]
        assert level == entry["after_bytes"]


def test_the_table_ends_at_the_sms_when_asked(iosim: Run) -> None:
    done = iosim("gap --seq 1K --no-levels --tiles 64x64 --explain")
    assert done.code == 0
    assert "into and out of the SMs" in done.out
    assert "HBM" not in done.out
    assert "Leaves out: mask edges" in done.out


def test_a_measured_row_and_its_figure(iosim: Run, tmp_path: Path) -> None:
    done = iosim("gap", "--row", "95", "--file", str(H200), "--out", str(tmp_path), "--formats", "svg")
    assert done.code == 0
    assert "HBM, measured" in done.out
    assert "residual" in done.out
    assert {p.name for p in tmp_path.iterdir()} == {"waterfall.svg", "waterfall.csv"}


def test_your_own_program(iosim: Run) -> None:
    done = iosim("gap", "--algorithm", f"{MINE}:program", "--seq", "512", "--no-levels", "--json")
    assert done.code == 0
    assert done.json["algorithm"] == "mine"


def test_usage_errors_are_one_line(iosim: Run) -> None:
    for words, hint in (
        ("gap --row 3", "--file"),
        ("gap --algorithm flash1,flash2", "one algorithm"),
        ("gap --algorithm flash1 --kernel cudnn-sdpa", "is flash2, not flash1"),
    ):
        done = iosim(words)
        assert done.code == 2
        assert hint in done.err
        assert done.err.count("\n") == 1
