"""`iosim bound`, `plot` and `report` as a user meets them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_bound_prints_its_findings_and_writes_figures(iosim: Run, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    done = iosim(
        "bound",
        "--hw",
        "a100-sxm-80gb",
        "--seq",
        "1K",
        "--out",
        str(out),
        "--style",
        "paper",
        "--formats",
        "png",
    )
    assert done.code == 0
    assert "flash2       matrix elements" in done.out
    assert "M / d²" in done.out
    assert "At d = 256 and 192 KiB" in done.out
    assert "No count lies under a valid bound" in done.out
    assert "exponents" in done.err
    names = {p.name for p in out.iterdir()}
    for stem in ("traffic_by_sram", "traffic_by_seq", "traffic_by_head_dim", "gap_by_sram"):
        assert {f"{stem}.png", f"{stem}.csv"} <= names
    assert {"exponents.csv", "gaps.csv"} <= names
    assert not [name for name in names if name.startswith(".")]


def test_bound_of_the_backward(iosim: Run) -> None:
    done = iosim("bound --pass bwd --hw a100-sxm-80gb --seq 1K --json")
    assert done.json["options"] == {name: {"pass": "bwd"} for name in ("flash1", "flash2", "standard")}
    assert {row["algorithm"] for row in done.json["gaps"]} == {"flash1", "flash2", "standard"}
    assert done.json["under_a_bound"] == 0


@pytest.mark.slow  # a masked study searches both sides of every tile
def test_bound_json_is_alone_on_stdout(iosim: Run) -> None:
    done = iosim("bound --seq 512 --head-dim 32 --sram 64KiB --mask window:64 --json")
    assert done.code == 0
    assert done.json["sram_bytes"] == 65536
    assert done.json["under_a_bound"] == 0
    assert {row["algorithm"] for row in done.json["exponents"]} >= {"flash1", "flash2", "standard"}
    assert done.json["problem"]["mask"] == "window:64"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("bound --hw a100", 2, "say which"),
        ("bound --style poster --out x", 2, "unknown style 'poster'"),
        ("bound --formats gif --out x", 2, "unknown format 'gif'"),
        ("bound --algorithm flash9", 2, "unknown algorithm 'flash9'"),
        ("bound --seq 0", 2, "--seq"),
        ("bound --seq-lens 5,6 --seq 8", 2, "leave out --seq, --seq-k and --batch"),
        ("bound --pass bwd --algorithm decode", 2, "decode has a forward pass only"),
        ("bound --splits 4", 2, "--splits: not an option of flash1, flash2"),
        ("bound --sram 0KiB", 2, "sram"),
        ("plot missing.csv", 1, "cannot be read"),
        ("plot table.txt", 2, "only .csv and .parquet"),
        ("report --hw h100-sxm,h100-sxm", 2, "each once"),
        ("report --style poster", 2, "unknown style"),
        ("report --head-dim -1", 2, "--head-dim"),
        ("report --splits 4", 2, "--splits: not an option of standard, flash1"),
        ("report --pass bwd --dropout", 2, "dropout belongs to the forward pass alone"),
    ],
)
def test_mistakes_are_one_line(
    iosim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = iosim(arguments)
    assert done.code == code
    (line,) = done.err.splitlines()
    assert message in line
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_folder_is_found_before_the_work(iosim: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    for command in ("bound", "report"):
        done = iosim(command, "--out", str(tmp_path / "taken"))
        assert done.code == 1
        assert len(done.err.splitlines()) == 1
        assert "taken" in done.err


def test_plot_draws_a_saved_sweep(iosim: Run, tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    made = iosim("sweep", "--seq", "512:4K:x2", "--algorithm", "standard,flash2", "--out", str(table))
    assert made.code == 0
    before = table.read_bytes()
    done = iosim("plot", str(table), "--x", "seq_q", "--y", "sm_bytes", "--by", "algorithm", "--json")
    assert done.code == 0
    files = [Path(name) for name in done.json["files"]]
    assert [p.suffix for p in files] == [".png", ".svg", ".pdf", ".csv"]
    assert all(p.stat().st_size > 0 for p in files)
    assert table.read_bytes() == before  # the data beside the plot never replaces the sweep itself
    wrong = iosim("plot", str(table), "--x", "seqq")
    assert wrong.code == 2
    assert "did you mean 'seq_q'" in wrong.err


def test_plot_reads_parquet_and_conditions(iosim: Run, tmp_path: Path) -> None:
    table = tmp_path / "sweep.parquet"
    iosim("sweep", "--seq", "512:2K:x2", "--head-dim", "64,128", "--out", str(table))
    both = iosim("plot", str(table), "--formats", "png", "--out", str(tmp_path / "both"), "--json")
    assert both.code == 0
    assert "head_dim tells curves apart too" in both.err
    assert both.json["caption"] == "Bytes moved against N, one curve for each d."
    done = iosim(
        "plot", str(table), "--where", "head_dim=64", "--out", str(tmp_path / "f.png"), "--formats", "png"
    )
    assert done.code == 0
    assert {p.name for p in tmp_path.iterdir()} >= {"f.png", "f.csv"}


def test_report_writes_a_folder(iosim: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("report", "--hw", "toy", "--seq", "256", "--head-dim", "16", "--formats", "svg")
    done = iosim(*words, "--out", str(out))
    assert done.code == 0
    first, second = done.out.splitlines()[:2]
    assert "32 heads" in first
    assert "N = 256" in first
    assert second == "Hardware: toy"
    assert "report.html" in done.out.splitlines()[-1]
    assert (out / "report.html").is_file()
    assert json.loads((out / "report.json").read_text())["problem"]["seq_q"] == 256
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_m_in_which_nothing_fits_is_remarked(iosim: Callable[..., Any]) -> None:
    row = 3 * 128 * 2  # of Q, K and V in fp16
    said = f"is less than one row each of Q, K and V ({row} B)"
    assert said in iosim("show", "standard", "--seq", "64", "--sram", f"{row - 1}B").err
    assert said not in iosim("show", "standard", "--seq", "64", "--sram", f"{row}B").err
