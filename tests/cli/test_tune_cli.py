"""`iosim tune`, `iosim require` and `iosim what-if` as a user meets them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]
SMALL = "--hw h200-sxm --seq 1K --heads 16"
MMA = f"tune {SMALL} --kernel mma-sync --rows 64,128 --cols 32,64,128"


def test_tune_prints_the_whole_table_and_marks_the_winner(iosim: Run) -> None:
    done = iosim(f"{MMA} --all")
    assert done.code == 0
    marked = [line for line in done.out.splitlines() if line.startswith("*")]
    assert len(marked) == 1
    assert "at most 255" in done.out  # 128x128 by four warps
    assert "do not: registers" in done.out


def test_tune_sorts_shortens_and_gives_json(iosim: Run) -> None:
    shown = iosim(f"{MMA} --top 3 --sort tile")
    rows = [line for line in shown.out.splitlines() if " 64x" in line or " 128x" in line]
    assert len(rows) == 3
    assert all("64x32" in line or "64x64" in line or "64x128" in line for line in rows)
    found = iosim(f"{MMA} --json").json
    assert found["winner"] == found["rows"][0]
    assert [r["seconds"] for r in found["rows"] if not r["fits"]] == [None] * sum(
        not r["fits"] for r in found["rows"]
    )
    bytes_ = iosim(f"{MMA} --objective bytes --json").json
    fitting = [r["sm_bytes"] for r in bytes_["rows"] if r["fits"]]
    assert fitting == sorted(fitting)


def test_tune_writes_its_table_and_a_map(iosim: Run, tmp_path: Path) -> None:
    done = iosim(*MMA.split(), "--out", str(tmp_path / "new"), "--formats", "svg")
    assert done.code == 0
    names = {p.name for p in (tmp_path / "new").iterdir()}
    assert names == {"tune.csv", "tune_time.svg", "tune_time.csv"}
    table = pd.read_csv(tmp_path / "new" / "tune.csv")
    assert table["winner"].sum() == 1
    cells = pd.read_csv(tmp_path / "new" / "tune_time.csv")
    assert cells["over_best"].min() == 1


def test_a_card_stands_for_its_class(iosim: Run) -> None:
    assert iosim(f"tune {SMALL} --kernel torch-flash2 --json").json["kernel_class"] == "mma-sync"
    assert iosim(f"tune {SMALL} --json").json["kernel_class"] == "wgmma"
    assert iosim("tune --hw a100-sxm-80gb --seq 1K --json").json["kernel_class"] == "mma-sync"


def test_require_answers_in_words_and_json(iosim: Run, tmp_path: Path) -> None:
    done = iosim("require", *SMALL.split(), "--solve", "sram", "--reach", "80%", "--out", str(tmp_path))
    assert done.code == 0
    assert "no L2: SRAM of a thread block" in done.out
    assert "stays fixed: 132 SMs" in done.out
    assert (tmp_path / "require.csv").exists()
    assert iosim(f"require {SMALL} --reach 0.8 --json").json["reach"] == 0.8
    never = iosim(f"require {SMALL} --head-dim 32 --solve hbm")
    assert "90.0% is never reached: special-function units limit at 50.0%" in never.out


def test_what_if_prints_and_draws(iosim: Run, tmp_path: Path) -> None:
    done = iosim("what-if", *SMALL.split(), "--out", str(tmp_path), "--formats", "png")
    assert done.code == 0
    assert "stays fixed: 132 SMs" in done.out
    assert {p.name for p in tmp_path.iterdir()} == {"what_if.png", "what_if.csv"}
    table = pd.read_csv(tmp_path / "what_if.csv")
    assert set(table["reading"]) == {"no L2", "behind the L2"}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("tune --kernel warp", "--kernel: unknown 'warp'"),
        ("tune --sort size", "--sort: unknown column 'size'"),
        ("tune --top 0", "--top"),
        ("tune --rows 64,x", "rows"),
        ("tune --warps ,", "--warps: an empty list"),
        ("tune --hw b200", "--objective bytes"),
        ("tune --dtype fp32", "16-bit"),
        ("tune --formats gif", "unknown format"),
        ("require --reach much", "--reach: cannot read 'much'"),
        ("require --reach 120%", "--reach"),
        ("require --algorithm flash1,flash2", "one at a time"),
        ("require --solve l3", "--solve"),
        ("what-if --hw b200", "not known on blackwell"),
        ("what-if --style wide", "unknown style"),
    ],
)
def test_errors_are_one_line(iosim: Run, words: str, hint: str) -> None:
    done = iosim(words)
    assert done.code == 2
    assert hint in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""
