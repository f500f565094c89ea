"""`iosim on-chip` and `simulate --on-chip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
KIB = 1024


def scheme(found: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = [s for s in found["schemes"] if s["scheme"] == name]
    return dict(one)


def test_the_three_ways_to_divide_a_tile(iosim: Run) -> None:
    found = iosim("on-chip --json").json
    assert [s["scheme"] for s in found["schemes"]] == ["split-k", "split-q", "wgmma"]
    assert scheme(found, "wgmma")["step"]["operand_read_bytes"] == 160 * KIB
    assert scheme(found, "wgmma")["step"]["fill_bytes"] == 64 * KIB
    assert scheme(found, "split-q")["step"]["exchange_barriers"] == 0
    assert scheme(found, "split-k")["step"]["exchange_write_bytes"] > 4 * 128 * 128 * 4
    for words in ("split-k", "163,840", "block-wide barriers", "special-function operations"):
        assert words in iosim("on-chip").out


def test_simulate_adds_the_level_to_its_record_only_when_asked(iosim: Run) -> None:
    words = "simulate --json --head-dim 128 --tiles 128x128 --seq 2K"
    assert "on_chip" not in iosim(words).json
    record = iosim(f"{words} --on-chip --heads 2").json
    found = record["on_chip"]
    assert [s["scheme"] for s in found["schemes"]] == ["split-q", "wgmma"]
    assert scheme(found, "wgmma")["steps"] == 2 * 16 * 16
    assert found["special_ops"] == 2 * 16 * (16 * 128 * (128 + 4) + 7 * 128)


def test_algorithms_without_such_kernels_say_so(iosim: Run) -> None:
    standard, flash1 = iosim("simulate --json --on-chip --algorithm standard,flash1 --tiles 64x64").json
    assert standard["on_chip"] is None
    assert [s["scheme"] for s in flash1["on_chip"]["schemes"]] == ["split-k"]
    assert "standard: no on-chip level" in iosim("simulate --on-chip --algorithm standard").out


def test_a_rate_that_is_not_known_leaves_the_bytes(iosim: Run) -> None:
    found = iosim("on-chip --json --hw l40s").json
    assert scheme(found, "split-q")["cycles"] is None
    assert scheme(found, "split-q")["step"]["k_read_bytes"] == 128 * KIB


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("on-chip --tiles best", "write rows x cols"),
        ("on-chip --warps 0", "1 to 32 warps"),
        ("on-chip --tiles 3x3", "does not divide"),
        ("simulate --on-chip --warps 99", "1 to 32 warps"),
        ("on-chip --hw h100", "say which"),
    ],
)
def test_bad_input_is_one_line(iosim: Run, words: str, says: str) -> None:
    outcome = iosim(words)
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    "command", ["simulate --seq 1024", "simulate --seq 1024 --on-chip", "on-chip --seq 1024"]
)
@pytest.mark.parametrize("warps", ["0", "-4"])
def test_no_warps_divide_nothing(iosim: Callable[..., Any], command: str, warps: str) -> None:
    done = iosim(*command.split(), "--warps", warps)
    assert (done.code, done.out) == (2, "")
    assert "warps" in done.err
