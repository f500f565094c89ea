"""`iosim splits`: the table of `simulate --splits best`, printed and drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
STEP = "--heads 32 --kv-heads 8 --seq-q 1 --seq-k 8K"


def test_it_answers_what_simulate_answers(iosim: Run) -> None:
    mine = iosim(f"splits {STEP} --json").json
    assert mine == iosim(f"simulate --algorithm decode --splits best {STEP} --json").json


def test_the_printed_table_names_the_best_and_your_own(iosim: Run) -> None:
    out = iosim(f"splits {STEP} --splits 4").out
    (mine,) = [line for line in out.splitlines() if line.endswith("chosen")]
    assert mine.split()[0] == "4"
    (best,) = [line for line in out.splitlines() if line.endswith("best")]
    assert best.split()[0] == str(iosim(f"splits {STEP} --json").json["splits"]["best"])
    assert "chosen: 4" in out


def test_one_count_serves_a_ragged_batch(iosim: Run) -> None:
    step = "--heads 32 --kv-heads 8 --seq-q 1"
    words = f"{step} --seq-lens 512,37,8192"
    whole = iosim(f"splits {words} --json").json
    assert whole == iosim(f"simulate --algorithm decode --splits best {words} --json").json
    tile = f"{whole['tiles']['rows']}x{whole['tiles']['cols']}"
    row = next(row for row in whole["splits"]["table"] if row["splits"] == 2)
    each = [
        iosim(f"simulate --algorithm decode {step} --seq-k {n} --splits 2 --tiles {tile} --json").json[
            "traffic"
        ]
        for n in (512, 37, 8192)
    ]
    assert row["total_bytes"] == sum(t["sm_read_bytes"] + t["sm_write_bytes"] for t in each)
    assert "3 sequences of 37 to 8,192 keys" in iosim(f"splits {words}").out


def test_the_figure_and_its_data(iosim: Run, tmp_path: Path) -> None:
    assert iosim(*f"splits {STEP} --formats png --out".split(), str(tmp_path)).code == 0
    assert (tmp_path / "splits.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "splits.csv").read_text().startswith("splits,thread_blocks,sm_share,total_bytes")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--algorithm flash2", "--splits: not an option of flash2"),
        ("--algorithm decode,mla", "--algorithm: one at a time here"),
        ("--splits 0", "splits"),
        ("--style poster", "unknown style 'poster'"),
        ("--formats gif", "unknown format 'gif'"),
    ],
)
def test_what_cannot_be_done_is_one_line(iosim: Run, words: str, says: str) -> None:
    outcome = iosim(f"splits {STEP} {words}")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert says in line
