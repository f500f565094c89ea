"""`validate` from suite to folder on a fake GPU: rows, resuming, refusals, and everything that can go wrong."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FACTS, FAKES, FakeGpu, FakeRung, Sparse

from iosim.audit.measurements import read_measurements
from iosim.errors import InterruptedRun, RunError, UsageError
from iosim_validation.cases import Case, Suite, attention
from iosim_validation.harness import Settings, measure
from iosim_validation.items import find_work
from iosim_validation.launch import Build
from iosim_validation.peers import FLASH2, UNFUSED
from iosim_validation.results import Table
from iosim_validation.rung import Rung
from iosim_validation.validate import Asked, Report, validate

pytestmark = pytest.mark.usefixtures("numpy_for_cupy")

SMALL = Case(problem=attention((1, 2, 2, 40, 40), 16), peers=False)
CHECK = Case(problem=attention((1, 2, 1, 9, 17), 16, causal=True), timed=False, peers=False)
BOTH = Suite(name="both", title="", cases=(SMALL, CHECK), run_s=0.1, pause_s=0.05)


@pytest.fixture(autouse=True)
def known_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {case.name: case for case in (SMALL, CHECK, PEERED, REFUSED, MASKED)}
    monkeypatch.setattr("iosim_validation.validate.find_case", cases.__getitem__)


PEERED = Case(problem=attention((1, 2, 2, 24, 24), 16))
REFUSED = Case(problem=attention((1, 1, 1, 8, 8), 96), peers=False)
MASKED = Case(
    problem=attention((1, 1, 1, 256, 256), 16), block_mask="local:1", peers=False, only=("block_sparse",)
)


def run(
    gpu: FakeGpu,
    out: Path,
    suite: Suite = BOTH,
    rungs: Mapping[str, Rung] = FAKES,
    *,
    broken: Mapping[Build, str] | None = None,
    **asked: Any,
) -> Report:
    def compile_all(builds: Sequence[Build], progress: Any) -> dict[Build, str]:
        return dict(broken or {})

    return validate(Asked(suite=suite, out=out, **asked), gpu, rungs, compile_all=compile_all)


def suite_of(*cases: Case) -> Suite:
    return replace(BOTH, cases=cases)


def rows_of(out: Path, name: str = "attention.csv") -> list[dict[str, str]]:
    with (out / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_timed_rows_are_what_audit_reads(tmp_path: Path) -> None:
    report = run(FakeGpu(seconds={"fake": 1e-3}, settles_to=1), tmp_path)
    rows = rows_of(tmp_path)
    assert [(row["impl"], row["kernel"]) for row in rows] == [
        ("iosim_fake", "flash_fwd"),
        ("iosim_three", "qk_gemm"),
        ("iosim_three", "softmax"),
        ("iosim_three", "pv_gemm"),
    ]
    first = rows[0]
    assert float(first["median_time_s"]) == pytest.approx(1e-3)
    assert float(first["cold_time_s"]) == pytest.approx(1.5e-3)
    assert (first["block_rows"], first["block_cols"], first["grid"], first["block"]) == (
        "128",
        "64",
        "3x2x1",
        "128x1x1",
    )
    # dynamic, static and the driver's kilobyte, as a profiler counts them
    assert int(first["shared_bytes_per_block"]) == 4096 + 16 + 1024
    assert first["rung"] == "fake"
    read = read_measurements(tmp_path / "attention.csv")
    assert not read.faults
    assert read.rows[0].problem == SMALL.problem
    assert read.rows[0].measured["median_time_s"] == pytest.approx(1e-3)
    assert report.done.failed == {}
    assert report.lines[0].flop_per_s == pytest.approx(SMALL.problem.useful_flops / 1e-3)


def test_what_is_only_checked_goes_into_a_file_of_its_own(tmp_path: Path) -> None:
    run(FakeGpu(), tmp_path)
    checks = rows_of(tmp_path, "checks.csv")
    assert {row["case"] for row in checks} == {CHECK.name}
    assert all(float(row["output_error"]) <= float(row["allowed_error"]) for row in checks)
    assert all(row["flags"] == "" for row in checks)
    assert CHECK.name not in {row["case"] for row in rows_of(tmp_path)}


def test_the_environment_stands_beside_the_rows(tmp_path: Path) -> None:
    run(FakeGpu(), tmp_path, command="iosim validate --suite both")
    kept = json.loads((tmp_path / "environment.json").read_text())
    assert kept["gpu"] == "NVIDIA H200"
    assert kept["profile"]["name"] == "h200-sxm"
    assert kept["runs"][0]["command"] == "iosim validate --suite both"
    assert len(kept["kernels_sha256"]) == 64


def test_the_same_command_goes_on(tmp_path: Path) -> None:
    run(FakeGpu(), tmp_path, rungs={"fake": FAKES["fake"]})
    again = FakeGpu()
    report = run(again, tmp_path)
    assert (report.done.kept, report.done.measured, report.done.left) == (2, 2, 0)
    assert set(again.launched) == {"three"}


def test_a_kernel_that_changed_is_measured_again(tmp_path: Path) -> None:
    class Changed(FakeRung):
        def _build(self, kernel: str) -> Build:
            return replace(super()._build(kernel), prelude="another text")

    run(FakeGpu(faults={"fake": "nan"}), tmp_path)
    report = run(FakeGpu(), tmp_path, rungs={**FAKES, "fake": Changed()})
    assert (report.done.measured, report.done.kept) == (2, 2)
    assert report.done.failed == {}
    assert len(rows_of(tmp_path)) == 4
    assert all(row["flags"] == "" for row in rows_of(tmp_path, "checks.csv"))


def test_an_interrupt_keeps_its_rows(tmp_path: Path) -> None:
    with pytest.raises(InterruptedRun, match="rows are kept") as caught:
        run(FakeGpu(faults={"three": "interrupt"}), tmp_path)
    assert caught.value.exit_code == 130
    assert [row["impl"] for row in rows_of(tmp_path)] == ["iosim_fake"]
    assert run(FakeGpu(), tmp_path).done.kept == 1


def test_it_stops_by_itself(tmp_path: Path) -> None:
    report = run(FakeGpu(), tmp_path, stop_after_s=0)
    assert report.done.measured == 0
    assert report.done.left == 4


@pytest.mark.parametrize(
    ("fault", "said"), [("wrong", "wrong: o is off"), ("nan", "NaN"), ("raises", "CUDA_ERROR_INVALID_VALUE")]
)
def test_a_faulty_kernel_is_said_and_the_others_go_on(tmp_path: Path, fault: str, said: str) -> None:
    report = run(FakeGpu(faults={"fake": fault}), tmp_path)
    assert len(report.done.failed) == 2
    assert all(said in reason for reason in report.done.failed.values())
    assert {row["impl"] for row in rows_of(tmp_path)} == {"iosim_three"}
    failed = [row for row in rows_of(tmp_path, "checks.csv") if row["impl"] == "iosim_fake"]
    assert all(row["flags"].startswith("failed: ") for row in failed)


def test_what_failed_is_tried_again_only_when_asked(tmp_path: Path) -> None:
    run(FakeGpu(faults={"fake": "nan"}), tmp_path)
    assert len(run(FakeGpu(), tmp_path).done.failed) == 2
    report = run(FakeGpu(), tmp_path, retry=True)
    assert report.done.failed == {}
    assert report.done.measured == 2
    assert run(FakeGpu(), tmp_path).done.failed == {}


def test_a_lost_gpu_ends_the_run_behind_its_row(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be used any more"):
        run(FakeGpu(faults={"fake": "sticky"}), tmp_path)
    report = run(FakeGpu(), tmp_path)
    assert report.done.kept == 1
    assert list(report.done.failed) == [f"{SMALL.name} iosim_fake 128x64"]


def test_a_kernel_that_hangs_ends_the_process_behind_its_row(tmp_path: Path) -> None:
    gpu, said, kept = FakeGpu(faults={"fake": "hangs"}), [], []

    def end(message: str) -> None:
        said.append(message)
        kept.extend(rows_of(tmp_path, "checks.csv"))
        gpu.woken.set()  # in the place of the end of the process

    work = find_work([SMALL], {"fake": FAKES["fake"]}, FACTS)
    measure(gpu, work, Table(tmp_path), Settings(hang_s=0.05), end=end)
    assert "goes on behind this one" in said[0]
    assert [row["flags"] for row in kept] == ["failed: did not finish within 0 s"]


def test_too_little_memory_is_said_before_it_is_asked_for(tmp_path: Path) -> None:
    report = run(FakeGpu(free=1 << 20), tmp_path)
    assert all("GB" in reason and "are free" in reason for reason in report.done.failed.values())
    assert len(report.done.failed) == 4


def test_a_kernel_that_does_not_compile_is_a_failed_row(tmp_path: Path) -> None:
    build = FAKES["fake"].builds()[0]
    report = run(FakeGpu(), tmp_path, broken={build: "fake.cu(3): error: expected a ;"})
    assert sorted(name.split()[1] for name in report.done.failed) == ["iosim_fake", "iosim_fake"]
    assert "expected a ;" in next(iter(report.done.failed.values()))


def test_what_a_rung_is_not_built_for_is_no_failure(tmp_path: Path) -> None:
    report = run(FakeGpu(), tmp_path, suite_of(REFUSED))
    assert report.done.failed == {}
    assert {r.impl for r in report.refusals} == {"iosim_fake", "iosim_three"}
    assert "head_dim 96" in report.refusals[0].reason


def test_peers_run_on_the_same_inputs(tmp_path: Path) -> None:
    report = run(FakeGpu(), tmp_path, suite_of(PEERED), {"fake": FAKES["fake"]})
    by_impl = {line.impl: line for line in report.lines}
    assert {FLASH2, UNFUSED, "iosim_fake"} <= set(by_impl)
    assert by_impl[FLASH2].tile == "128x128"  # of its kernel card
    assert by_impl[UNFUSED].tile == ""
    assert [row["kernel"] for row in rows_of(tmp_path) if row["impl"] == UNFUSED] == [
        "qk_gemm",
        "softmax",
        "pv_gemm",
    ]


def test_without_torch_there_are_no_peers_and_it_is_said(tmp_path: Path) -> None:
    report = run(FakeGpu(torch=None), tmp_path, suite_of(PEERED))
    assert {line.impl for line in report.lines} == {"iosim_fake", "iosim_three"}
    assert any("torch is not installed" in note for note in report.notes)
    assert not run(FakeGpu(torch=None), tmp_path / "b", suite_of(PEERED), peers=False).notes


def test_every_tile_where_it_is_asked_for(tmp_path: Path) -> None:
    report = run(FakeGpu(), tmp_path, suite_of(replace(SMALL, every_tile=True)), {"fake": FAKES["fake"]})
    assert [line.tile for line in report.lines] == ["128x64", "64x64"]


def test_a_block_mask_is_checked_on_the_grid_of_its_tile(tmp_path: Path) -> None:
    suite = suite_of(replace(MASKED, every_tile=True))
    report = run(FakeGpu(), tmp_path, suite, {"block_sparse": Sparse(), **FAKES})
    assert report.done.failed == {}
    assert [(line.impl, line.tile) for line in report.lines] == [
        ("iosim_block_sparse", "128x64"),
        ("iosim_block_sparse", "64x64"),
    ]
    assert rows_of(tmp_path)[0]["block_mask"] == "local:1"


def test_rows_of_another_driver_are_not_mixed_in(tmp_path: Path) -> None:
    run(FakeGpu(), tmp_path)
    with pytest.raises(UsageError, match=r"driver 580\.0, now 590\.0.*--force"):
        run(FakeGpu(driver="590.0"), tmp_path)
    report = run(FakeGpu(driver="590.0"), tmp_path, force=True)
    assert any("mixed" in note for note in report.notes)
    runs = json.loads((tmp_path / "environment.json").read_text())["runs"]
    assert runs[-1]["changed"] == {"driver": "590.0"}


def test_another_suite_is_added_and_noted(tmp_path: Path) -> None:
    run(FakeGpu(), tmp_path)
    report = run(FakeGpu(), tmp_path, replace(suite_of(PEERED), name="more"))
    assert any("more is added" in note for note in report.notes)


def test_the_profile_of_another_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a100-sxm-80gb is not the profile of NVIDIA H200.*--force"):
        run(FakeGpu(), tmp_path, profile="a100-sxm-80gb")
    assert not (tmp_path / "environment.json").exists()
    assert run(FakeGpu(), tmp_path, profile="a100-sxm-80gb", force=True).profile == "a100-sxm-80gb"


def test_a_gpu_that_nobody_described_is_measured_all_the_same(tmp_path: Path) -> None:
    gpu = FakeGpu()
    gpu.facts = replace(gpu.facts, name="NVIDIA Imaginary 9000")
    report = run(gpu, tmp_path)
    assert report.profile is None
    assert any("no profile" in note for note in report.notes)
    assert rows_of(tmp_path)


def test_unknown_rungs_are_listed(tmp_path: Path) -> None:
    asked = Asked(suite=BOTH, out=tmp_path, rungs=("flash9",))
    with pytest.raises(UsageError, match="'flash9'; known: fake, three"):
        validate(asked, FakeGpu(), FAKES)


def test_a_file_of_another_version_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "attention.csv").write_text("case,gpu\n1,x\n")
    with pytest.raises(RunError, match="not a file of this version"):
        run(FakeGpu(), tmp_path)
    assert (tmp_path / "attention.csv").read_text() == "case,gpu\n1,x\n"


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        run(FakeGpu(), tmp_path / "file")
