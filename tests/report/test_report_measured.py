"""A report with measurements: the section is there, its numbers are those of the audit, and faults are one line."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from iosim.audit import audit_file
from iosim.errors import UsageError
from iosim.plots.style import PAPER
from iosim.problem import AttentionProblem
from iosim.report import Report, build_report, report_files
from iosim.report.measured import gpu_of_file

FILE = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
PROBLEM = AttentionProblem.of(seq=512, heads=2, head_dim=64)
CASES = ("0", "2", "4", "5", "7", "10", "12", "81")


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    header, *rows = FILE.read_text(encoding="utf-8").splitlines()
    path = tmp_path_factory.mktemp("measured") / "some.csv"
    path.write_text("\n".join([header, *(r for r in rows if r.split(",")[0] in CASES)]) + "\n")
    return path


@pytest.fixture(scope="module")
def report(some: Path) -> Report:
    return build_report(PROBLEM, [gpu_of_file(some)], PAPER, measurements=some)


@pytest.fixture(scope="module")
def files(report: Report) -> dict[str, bytes]:
    return report_files(report, ["svg"])


def test_the_gpu_is_that_of_the_file(some: Path, report: Report) -> None:
    assert gpu_of_file(some) == "h200-sxm"
    assert [part.profile.name for part in report.parts] == ["h200-sxm"]


def test_the_numbers_are_those_of_the_audit(some: Path, report: Report, files: dict[str, bytes]) -> None:
    alone = audit_file(some).to_dict()
    document = json.loads(files["report.json"])["gpus"][0]["measured"]
    assert document["summary"] == json.loads(json.dumps(alone["summary"]))
    assert document["rows"] == json.loads(json.dumps(alone["rows"]))
    table = pd.read_csv(pd.io.common.BytesIO(files["tables/h200-sxm_measured.csv"]))
    assert len(table) == len(alone["rows"])
    assert table["worst_error"].is_monotonic_decreasing  # worst first
    assert "Predicted against measured" in files["report.md"].decode()


def test_figures_of_every_level_and_of_time(files: dict[str, bytes]) -> None:
    for column in ("sm_read_bytes", "hbm_read_bytes", "special_ops", "profiled_time_s"):
        data = pd.read_csv(pd.io.common.BytesIO(files[f"figures/h200-sxm_measured_{column}.csv"]))
        assert (data["predicted"] / data["measured"] - 1 - data["error"]).abs().max() < 1e-12
    times = pd.read_csv(pd.io.common.BytesIO(files["figures/h200-sxm_measured_time_1.csv"]))
    assert (times["measured_s"] >= times["bound_s"]).all()
    assert "figures/h200-sxm_measured_roofline_fp16_d64.svg" in files


def test_rows_of_no_gpu_asked_for_are_refused(some: Path) -> None:
    with pytest.raises(UsageError, match=r"some\.csv has rows of NVIDIA H200 and none of h100-sxm"):
        build_report(PROBLEM, ["h100-sxm"], PAPER, measurements=some)
