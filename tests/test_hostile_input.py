"""Numbers, files and combinations that no one should give, and what becomes of them."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from iosim.audit.measurements import read_measurements
from iosim.cli import main
from iosim.errors import RunError, UsageError
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.lengths import parse_lengths
from iosim.problem import AttentionProblem
from iosim.report import write_folder
from iosim.timing import time_kernel
from iosim.tune import Choices, tune

RECORD = Path(__file__).resolve().parents[1] / "validation" / "measurements" / "h200" / "attention.csv"
H200 = load_profile("h200-sxm")


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "internal error" not in err
    return err


@pytest.mark.parametrize(
    "option",
    [
        ("--mask", "window:٣"),
        ("--tiles", "٦٤x٦٤"),
        ("--sram", "١٦٣KiB"),
        ("--sram", "٩٩٩el"),
        ("--page", "١٦"),
        ("--block-mask", "local:٣"),
        ("--set", "compute.sm_count=١٣٢"),
    ],
)
def test_digits_are_those_of_ascii(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seq", "64", *option]) == UsageError.exit_code
    one_line(capsys)


def test_a_share_in_other_digits_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["require", "--reach", "٩٠%"]) == UsageError.exit_code
    assert "--reach" in one_line(capsys)


@pytest.mark.parametrize("option", [("--mask", "window:{}"), ("--tiles", "{}x64"), ("--sram", "{}el")])
def test_numbers_of_thousands_of_digits(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    name, value = option
    assert main(["simulate", name, value.format("9" * 6000)]) == UsageError.exit_code
    one_line(capsys)


def test_lengths_from_a_file_without_an_end() -> None:
    with pytest.raises(UsageError, match="is larger than"):
        parse_lengths("/dev/zero")


def test_lengths_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "lengths"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("3\n5\n",))
    writer.start()
    assert parse_lengths(str(pipe)) == (3, 5)
    writer.join()


def with_cell(path: Path, column: str, value: str) -> Path:
    header, row = RECORD.read_text(encoding="utf-8").splitlines()[:2]
    cells = row.split(",")
    cells[header.split(",").index(column)] = value
    path.write_text(f"{header}\n{','.join(cells)}\n", encoding="utf-8")
    return path


def test_times_whose_ratio_overflows_are_faults_of_their_row(tmp_path: Path) -> None:
    path = with_cell(tmp_path / "tiny.csv", "profiled_time_s", "1e-320")
    with pytest.raises(UsageError, match=r"tiny\.csv:2: profiled_time_s: must be 0, or between"):
        read_measurements(path)


def test_a_header_of_many_columns_takes_no_time(tmp_path: Path) -> None:
    header, row = RECORD.read_text(encoding="utf-8").splitlines()[:2]
    more = 200_000
    names = ",".join(f"x{i}" for i in range(more))
    path = tmp_path / "wide.csv"
    path.write_text(f"{header},{names}\n{row}{',' * more}\n", encoding="utf-8")
    assert (
        len(read_measurements(path).rows) == 1
    )  # minutes where every name is looked for among all before it


def test_measurements_from_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "/dev/zero"]) == UsageError.exit_code
    assert "/dev/zero: a pipe or a device" in one_line(capsys)


@pytest.mark.parametrize(
    "option", [("--heads", "4"), ("--tiles", "64x64"), ("--pass", "bwd"), ("--hw", "b200")]
)
def test_a_row_of_a_file_takes_no_problem(
    option: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gap", "--row", "0", "--file", str(RECORD), *option]) == UsageError.exit_code
    assert f"{option[0]}: with --row the file says what ran" in one_line(capsys)


@pytest.mark.parametrize("kernel", ["torch-flash2", "cudnn-sdpa", "iosim-flash2_wgmma"])
def test_the_roofline_of_rows_that_see_no_key(
    kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ["--seq-q", "4096", "--seq-k", "128", "--mask", "causal"]
    drawn = ["--out", str(tmp_path), "--formats", "png"]
    assert main(["roofline", "--hw", "h200-sxm", *shape, "--kernel", kernel, "--json", *drawn]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kernel_class", ["mma-sync", "wgmma"])
@pytest.mark.parametrize("seq", [8, 64, 128])
def test_a_lone_block_takes_about_as_long_in_tune_as_in_explain(kernel_class: str, seq: int) -> None:
    problem = AttentionProblem.of(seq=seq, head_dim=128)
    card = {"mma-sync": "torch-flash2", "wgmma": "cudnn-sdpa"}[kernel_class]
    best = tune(problem, H200, kernel_class=kernel_class, choices=Choices()).winner
    assert best.times is not None
    seconds = time_kernel(load_kernel(card), problem, H200).once_s
    assert seconds is not None
    assert best.times.seconds == pytest.approx(seconds, rel=0.5)


@pytest.mark.parametrize(
    ("blocked", "complaint"),
    [("tables", "is a file where a folder"), ("report.html/old", "is a folder where a file")],
)
def test_what_stands_in_a_reports_way_leaves_an_older_one_whole(
    blocked: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("old")
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("in the way")
    with pytest.raises(RunError, match=complaint):
        write_folder(tmp_path, {"a.md": b"new", "report.html": b"new", "tables/a.csv": b"new"})
    assert (tmp_path / "a.md").read_text() == "old"


@pytest.mark.parametrize("below", ["", "sub"])
def test_a_file_in_the_place_of_a_folder_is_named(
    below: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["require", "--json", "--out", str(tmp_path / "file" / below)]) == RunError.exit_code
    assert f"{tmp_path / 'file'} is not a folder" in one_line(capsys)


def test_a_row_that_cannot_be_simulated_is_named_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_cell(tmp_path / "huge.csv", "seq_q", "1000000007")
    assert main(["audit", str(path)]) == UsageError.exit_code
    assert "huge.csv:2: kernel flash2: more than" in one_line(capsys)
    good = RECORD.read_text(encoding="utf-8").splitlines()[2]
    path.write_text(f"{path.read_text(encoding='utf-8')}{good}\n", encoding="utf-8")
    assert main(["audit", str(path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["line"] for row in json.loads(out)["rows"]] == [3]
    assert "huge.csv:2: kernel flash2: more than" in err
