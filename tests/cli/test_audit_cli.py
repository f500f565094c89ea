"""`iosim audit` as a user meets it: lines that fit a terminal, the same numbers as its JSON, an exit code."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
WIDEST = 100


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """The smallest fused row, one of a matmul kernel, and one of which nothing can be predicted."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names, rows = list(reader.fieldnames or ()), list(reader)
    fused = min(
        (r for r in rows if r["kernel"] == "flash_fwd"), key=lambda r: int(r["seq_k"]) * int(r["heads"])
    )
    kinds = [next(r for r in rows if r["kernel"] == kind) for kind in ("softmax", "splitkv_combine")]
    path = tmp_path / "few.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows([fused, *kinds])
    return path


def test_rows_fit_a_terminal_and_say_what_the_json_says(iosim: Run, few: Path) -> None:
    done = iosim("audit", str(few))
    assert done.code == 0
    assert max(map(len, done.out.splitlines())) <= WIDEST
    shown = re.findall(r"(\w+(?:_bytes|_ops|_s)) +[\d.,]+(?:M|us) / [\d.,]+(?:M|us) +([-+][\d.]+)%", done.out)
    rows = iosim("audit", str(few), "--json").json["rows"]
    told = [
        (column, f"{error:+.1%}".rstrip("%"))
        for row in rows
        for column, error in row["error"].items()
        if error is not None and row["predicted"][column] is not None
    ]
    assert shown == told
    assert len(told) >= 5
    assert done.out.count("nothing predicted\n") >= 1


def test_a_passed_limit_is_exit_code_4(iosim: Run, few: Path) -> None:
    done = iosim("audit", str(few), "--max-error", "hbm_read_bytes=0")
    assert done.code == 4
    assert "hbm_read_bytes is off by" in done.err
