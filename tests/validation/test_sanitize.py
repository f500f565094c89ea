"""Runs under compute-sanitizer: what is launched, and how its words are read."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from iosim.errors import RunError
from iosim.problem import AttentionProblem
from iosim_validation.counters import Outcome
from iosim_validation.gpu import Arrays
from iosim_validation.launch import GpuFacts, Plan
from iosim_validation.rungs import RUNGS
from iosim_validation.sanitize import (
    FEW_SMS,
    SMALL,
    launch_small,
    read_summary,
    sanitize,
    small_plans,
    write_findings,
)

H200 = GpuFacts(
    name="NVIDIA H200",
    architecture="sm_90a",
    sms=132,
    shared_bytes_per_block=232_448,
    l2_bytes=62_914_560,
)
CLEAN = "launched 8\n========= ERROR SUMMARY: 0 errors\n"
RECORD = Path("validation/measurements/h200/rungs/sanitizer.csv")


@pytest.mark.parametrize("name", RUNGS)
def test_every_tile_is_launched_with_several_tiles_a_block(name: str) -> None:
    plans = list(small_plans(RUNGS[name], H200))
    assert len(plans) >= 2 * len(SMALL)
    tiles = {
        t
        for problem, _ in plans
        for t in (RUNGS[name].masked("butterfly") or RUNGS[name]).tiles(problem, H200)
    }
    builds = {launch.build.defines for _, plan in plans for launch in plan.launches}
    assert len(builds) >= len(tiles)
    if name == "flash2_wgmma":  # the one that deals tiles to as many blocks as there are SMs
        assert {launch.grid[0] for _, plan in plans for launch in plan.launches} <= {1, FEW_SMS}


def test_an_output_that_is_not_written_is_an_error() -> None:
    def ready(value: float) -> Callable[[AttentionProblem, Plan], tuple[Callable[[], None], Arrays]]:
        return lambda problem, plan: (lambda: None, {"o": np.full(3, value)})

    launches = sum(len(plan.launches) for _, plan in small_plans(RUNGS["decode"], H200))
    assert launch_small(RUNGS["decode"], H200, ready(0.0)) == 2 * launches
    with pytest.raises(RunError, match=r"decode: .* o has NaN or was not written"):
        launch_small(RUNGS["decode"], H200, ready(float("nan")))


@pytest.mark.parametrize(
    ("tool", "code", "text", "found"),
    [
        ("memcheck", 0, CLEAN, 0),
        ("memcheck", 4, "launched 8\n========= ERROR SUMMARY: 3 errors\n", 3),
        ("racecheck", 0, "launched 8\n= RACECHECK SUMMARY: 2 hazards displayed (0 errors, 2 warnings)\n", 2),
        ("memcheck", 1, CLEAN, None),  # it ended badly behind a clean summary
        ("memcheck", 0, "========= ERROR SUMMARY: 0 errors\n", None),  # nothing was launched
        ("memcheck", 124, "stopped after 240 s", None),
        (
            "memcheck",
            0,
            "========= Error: Target application terminated before first instrumented API call",
            None,
        ),
    ],
)
def test_only_a_run_that_launched_and_says_zero_is_clean(
    tool: str, code: int, text: str, found: int | None
) -> None:
    finding = read_summary("flash2", tool, code, text, 1.0)
    assert finding.found == found
    assert bool(finding.words) == (found != 0)


def test_one_process_a_tool_and_kernel(tmp_path: Path) -> None:
    commands: list[Sequence[str]] = []

    def run(command: Sequence[str], timeout_s: float) -> Outcome:
        commands.append(command)
        return Outcome(code=0, text=CLEAN)

    findings = sanitize({n: RUNGS[n] for n in ("flash2", "decode")}, ("memcheck", "synccheck"), run=run)
    assert [(f.rung, f.tool) for f in findings] == [
        ("flash2", "memcheck"),
        ("flash2", "synccheck"),
        ("decode", "memcheck"),
        ("decode", "synccheck"),
    ]
    assert all(c[:2] == ["compute-sanitizer", "--tool"] and c[-2] == "--launch" for c in commands)
    write_findings(tmp_path / "f.csv", findings)
    with (tmp_path / "f.csv").open(newline="") as file:
        assert [row["found"] for row in csv.DictReader(file)] == ["0"] * 4


def test_the_record_is_clean_and_complete() -> None:
    with RECORD.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(r["rung"], r["tool"]) for r in rows} == {
        (name, tool) for name in RUNGS for tool in ("memcheck", "synccheck", "racecheck")
    }
    assert all(row["found"] == "0" and int(row["launches"]) > 0 for row in rows)
