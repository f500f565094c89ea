"""Measurements beside predictions: what is drawn is what was measured, on equal axes, and nothing is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from iosim.audit.compare import Comparison
from iosim.audit.measurements import read_measurements
from iosim.audit.predict import COLUMNS
from iosim.hardware import load_profile
from iosim.plots.files import csv_text, rendered
from iosim.plots.measured import bytes_by_block_rows, comparable, predicted_against_measured
from iosim.plots.measured_roofline import measured_roofline
from iosim.plots.measured_time import case_times, times_by_seq
from iosim.plots.style import PAPER, SCREEN
from iosim.problem import TileShape

FILE = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"


@pytest.fixture(scope="module")
def items() -> list[Comparison]:
    """Every measured row, with a prediction that is 5 % too high (no simulation: these are tests of figures)."""
    rows = read_measurements(FILE).rows
    return [
        Comparison(row=row, predicted={c: row.measured[c] * 1.05 for c in COLUMNS if c in row.measured})
        for row in rows
    ]


@pytest.fixture(scope="module")
def tiled(items: list[Comparison]) -> list[Comparison]:
    """One problem with six tiles: reads as 1/Br, as they are with K and V read once a row tile."""
    base = next(i for i in items if i.row.case == "49")
    out = []
    for rows in (32, 64, 128):
        for cols in (32, 64):
            size = 1e9 * 128 / rows
            row = replace(base.row, tile=TileShape(rows=rows, cols=cols), measured={"sm_read_bytes": size})
            out.append(Comparison(row=row, predicted={"sm_read_bytes": size * 1.02}))
    return out


@pytest.mark.parametrize("style", [SCREEN, PAPER], ids=lambda s: s.name)
@pytest.mark.parametrize("column", ["hbm_read_bytes", "profiled_time_s", "special_ops"])
def test_the_line_is_the_diagonal_of_equal_axes(items: list[Comparison], column: str, style: object) -> None:
    kept = comparable(items, column)
    plot = predicted_against_measured(kept, column, style, gpu="h200-sxm")  # type: ignore[arg-type]
    lower, upper = plot.figure.axes
    assert upper.get_xlim() == upper.get_ylim() == lower.get_xlim()
    drawn = sum(
        len(line.get_xdata()) for line in upper.get_lines() if line.get_marker() not in ("None", None)
    )
    assert drawn == len(kept) == len(plot.data)
    assert plot.data["error"].to_list() == pytest.approx([0.05] * len(kept))
    assert "5.0% on average" in plot.caption
    assert rendered(plot, "svg") == rendered(plot, "svg")


def test_small_amounts_do_not_count(items: list[Comparison]) -> None:
    kept = comparable(items, "median_time_s")
    assert kept
    assert min(i.row.measured["median_time_s"] for i in kept) >= 60e-6
    assert any(i.row.measured.get("median_time_s", 1.0) < 60e-6 for i in items)


def test_bytes_against_the_rows_of_a_tile(items: list[Comparison], tiled: list[Comparison]) -> None:
    assert bytes_by_block_rows(items, SCREEN, gpu="h200-sxm") is None  # one tile a problem in this file
    plot = bytes_by_block_rows(tiled, SCREEN, gpu="h200-sxm")
    assert plot is not None
    assert plot.name == "sm_read_bytes_by_block_rows"
    assert sorted(set(zip(plot.data["rows"], plot.data["cols"], strict=True))) == [
        (r, c) for r in (32, 64, 128) for c in (32, 64)
    ]
    (law,) = (line for line in plot.figure.axes[0].get_lines() if line.get_label() == "falls as 1/Br")
    y = law.get_ydata()
    assert y[0] / y[-1] == pytest.approx(128 / 32)
    assert "2.00% apart" in plot.caption


def test_the_times_of_a_case_are_those_of_its_kernels_together(items: list[Comparison]) -> None:
    table = case_times(items)
    unfused = table[(table["implementation"] == "torch_unfused") & (table["case"] == "14")]
    alone = [i.row.measured["profiled_time_s"] for i in items if i.row.case == "14"]
    assert len(alone) == 3
    assert unfused["measured_s"].to_list() == pytest.approx([sum(alone)])
    assert len(table) == len({(i.row.implementation, i.row.case) for i in items})


def test_a_figure_a_family_of_lengths(items: list[Comparison]) -> None:
    bounds = {i.row.case: 1e-6 for i in items}
    plots = times_by_seq(items, SCREEN, gpu="h200-sxm", bounds=bounds)
    assert len(plots) == 4  # d = 64 and 128, with and without a mask, at 16,384 tokens
    for plot in plots:
        assert (plot.data["batch"] * plot.data["seq_q"] == 16384).all()
        assert plot.data["seq_q"].nunique() >= 5
        assert (plot.data["bound_s"] == 1e-6).all()
        assert csv_text(plot.data)
    assert len({plot.name for plot in plots}) == 4
    assert times_by_seq([], SCREEN, gpu="h200-sxm") == []


def test_measured_kernels_lie_under_the_roofs(items: list[Comparison]) -> None:
    gpu = load_profile("h200-sxm")
    plots = measured_roofline(items, gpu, SCREEN)
    assert [plot.name for plot in plots][:2] == ["measured_roofline_fp16_d64", "measured_roofline_fp16_d128"]
    peak = 4096 * 132 * 1.98e9
    for plot in plots:
        assert (
            plot.data["flops_per_s"] < peak
        ).all()  # not so where a kernel that only combines counted flops
        assert set(plot.data["level"]) <= {"sram", "l2", "hbm"}
    assert measured_roofline([], gpu, SCREEN) == []
