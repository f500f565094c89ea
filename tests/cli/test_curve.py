"""`iosim curve`: JSON, table, figure and bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

Run = Callable[..., Any]
SMALL = "--seq 512 --head-dim 64 --heads 2 --tiles 64x64"


def points(document: dict[str, Any], stream: str) -> list[dict[str, int]]:
    (found,) = [c for c in document["curves"] if c["stream"] == stream]
    return list(found["points"])


def test_no_lru_moves_what_simulate_counts(iosim: Run) -> None:
    counted = iosim(f"simulate --json {SMALL}").json["traffic"]
    document = iosim(f"curve --json {SMALL}").json
    for stream in ("in turn", "alone"):
        first = points(document, stream)[0]
        assert first["lru_bytes"] == 0
        assert first["read_bytes"] == counted["sm_read_bytes"]
        assert first["write_bytes"] == counted["sm_write_bytes"]
    assert document["level"] == "sram"
    assert document["policies"] is None


def test_a_large_lru_moves_each_tensor_once(iosim: Run) -> None:
    compulsory = iosim(f"simulate --json {SMALL}").json["theory"]["compulsory_bytes"]
    for level, stream in (("sram", "in turn"), ("l2", "merged")):
        last = points(iosim(f"curve --json --level {level} {SMALL}").json, stream)[-1]
        assert last["total_bytes"] == compulsory == last["read_bytes"] + last["write_bytes"]
    assert points(iosim(f"curve --json {SMALL}").json, "alone")[-1]["total_bytes"] > compulsory


def test_capacities_steps_and_bounds(iosim: Run) -> None:
    document = iosim(f"curve --json {SMALL} --sram 100KiB").json
    (block,) = document["gpu_capacities"]
    assert block["capacity_bytes"] == 100 * 1024
    assert block["lru_bytes"] == 100 * 1024 - document["live_bytes"]
    (step,) = document["curves"][0]["steps"]
    # between two reads of a key tile: K and V of a head, a tile of Q and one of O, 64 x 64 fp16 each
    assert step["capacity_bytes"] == (16 + 2) * 64 * 64 * 2
    assert [p["tensor"] for p in step["passes"]] == ["K", "V"]
    assert {b["bound"] for b in document["bounds"]} == {"compulsory", "fused"}
    capacities = [p["lru_bytes"] for p in document["curves"][0]["points"]]
    assert capacities == sorted(set(capacities))
    assert step["capacity_bytes"] in capacities


def test_the_schedule_is_named_and_extrapolation_said(iosim: Run) -> None:
    words = f"curve --json --level l2 {SMALL} --order longest-first --kv-walk sawtooth --blocks-per-sm 2"
    document = iosim(f"{words} --hw h100-sxm").json
    policies = document["policies"]
    assert (policies["launch"], policies["kv_walk"], policies["blocks_per_sm"]) == (
        "longest-first",
        "sawtooth",
        2,
    )
    assert any("extrapolated" in line for line in document["warnings"])
    measured = iosim(f"{words} --hw h200-sxm").json
    assert not any("extrapolated" in line for line in measured["warnings"])
    assert [c["capacity_bytes"] for c in measured["gpu_capacities"]] == [60 * 2**20, 30 * 2**20]


@pytest.mark.parametrize(("level", "style"), [("sram", "screen"), ("l2", "paper")])
def test_the_figure_and_its_data(iosim: Run, tmp_path: Path, level: str, style: str) -> None:
    words = f"curve --level {level} {SMALL} --style {style} --formats png --out {tmp_path}"
    outcome = iosim(words)
    assert outcome.code == 0
    assert "The program's tile is fixed" in outcome.err
    assert (tmp_path / f"{level}_curve.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / f"{level}_curve.csv")
    assert {"capacity_bytes", "total_bytes", "stream", "K_read_bytes"} <= set(table.columns)
    assert "compulsory (bound)" in set(table["stream"])
    before = (tmp_path / f"{level}_curve.png").read_bytes()
    assert iosim(words).code == 0
    assert (tmp_path / f"{level}_curve.png").read_bytes() == before


def test_the_table_names_the_step(iosim: Run) -> None:
    out = iosim(f"curve {SMALL}").out
    assert "in turn: K, V read 8 → 1×" in out
    assert "h100-sxm: SRAM of a thread block" in out
    assert "lower bounds at 227 KiB" in out


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        ("--level hbm", "--level: unknown level 'hbm'; allowed: sram, l2", 2),
        ("--order grid", "with --level l2 only", 2),
        ("--level l2 --order zigzag", "--order: unknown order 'zigzag'", 2),
        ("--level l2 --blocks-per-sm 0", "--blocks-per-sm", 2),
        ("--algorithm flash1,flash2", "one at a time", 2),
        ("--algorithm nope", "unknown algorithm 'nope'", 2),
        ("--style loud", "style", 2),
        ("--formats gif", "format", 2),
        ("--seq 0", "--seq", 2),
        ("--algorithm flash1 --seq 1M --tiles 16x16", "too many to follow", 2),
        ("--out /proc/none", "cannot write", 1),
    ],
)
def test_bad_input_is_one_line(iosim: Run, words: str, says: str, code: int) -> None:
    outcome = iosim(f"curve {words}")
    assert (outcome.code, outcome.out) == (code, "")
    (line,) = outcome.err.splitlines()
    assert says in line
