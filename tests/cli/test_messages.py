"""Errors say once what is wrong, and of what kind of file they speak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]

FILES = {
    "deep.yaml": "a: " + "[" * 20 + "]" * 20,
    "two.yaml": "name: a\n---\nname: b\n",
    "export.csv": '"ID","Process Name","Kernel Name","Metric Value"\n"0","python","flash","1"\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("simulate --block-mask foo", "iosim: --block-mask: cannot read 'foo'; allowed: local:W,"),
        ("simulate --block-mask random:2", "iosim: --block-mask: random:2: the share of blocks"),
        ("simulate --kernel deep.yaml", "deep.yaml:1: nested deeper than 8 levels, which nothing here is"),
        ("kernels check two.yaml", "two.yaml:2: more than one document; a file holds one"),
        ("simulate --kernel /etc/passwd", "'/etc/passwd' is not a kernel card: a card of your own is a file"),
        ("simulate --kernel card.txt", "'card.txt' is not a kernel card"),
        ("report --measurements export.csv", "export.csv is a profiler's export of one kernel"),
    ],
)
def test_one_line(command: str, said: str, folder: Path, iosim: Run) -> None:
    found = iosim(command)
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
    assert "hardware profile" not in found.err


def test_bytes_of_a_warning_are_grouped(iosim: Run) -> None:
    said = iosim("simulate --algorithm standard --hw a100-sxm-80gb --seq 8192").err
    assert "needs 2,113,536 bytes on chip (V 2,097,152 B, p_r 16,384 B) and M is 166,912;" in said


def test_a_point_too_large_for_its_levels_keeps_its_row(folder: Path, iosim: Run) -> None:
    command = "sweep --levels --seq 256 --heads 1,1M --tiles 16x16 --hw h100-sxm --out s.csv"
    assert iosim(command).code == 0
    small, large = pd.read_csv(folder / "s.csv").to_dict("records")
    assert small["hbm_read_bytes"] > 0
    assert "more than 4,000,000 thread blocks" in large["error"]
    assert large["sm_read_bytes"] == small["sm_read_bytes"] * 2**20
    assert pd.isna(large["hbm_read_bytes"])


@pytest.mark.parametrize("command", ["explain", "tune --rows 64 --cols 64", "require", "what-if"])
def test_what_is_odd_about_a_what_if_is_said_by_every_question_of_time(iosim: Run, command: str) -> None:
    given = "--seq 128 --hw h200-sxm --set measured.hbm_read_bandwidth=9TB/s"
    found = iosim(f"{command} {given}")
    assert found.code == 0
    assert (
        "warning: --set: measured.hbm_read_bandwidth: 9 TB/s is more than memory.hbm.bandwidth" in found.err
    )
