"""`iosim explain` and `iosim roofline` as a user meets them."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from time_cases import MEASUREMENTS

from iosim.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(words: str) -> Outcome:
        capsys.readouterr()
        code = main(words.split())
        streams = capsys.readouterr()
        return Outcome(code, streams.out, streams.err)

    return call


SMALL = "--hw h200-sxm --seq 1024 --heads 8 --head-dim 64"


@pytest.mark.parametrize("kernel", ["cudnn-sdpa", "torch-flash2", "torch-unfused"])
def test_terms_add_up_and_stand_apart_from_the_bound(run: Any, kernel: str) -> None:
    found = run(f"explain {SMALL} --kernel {kernel} --json").json
    prediction = found["prediction"]
    total = 0.0
    for launch in prediction["launches"]:
        for part in (launch["one_shot"], launch["sustained"]):
            if part is not None:
                parts = [t["seconds"] for t in part["terms"] if not t["hidden"]]
                assert sum(parts) == pytest.approx(part["seconds"])
                assert part["low_s"] < part["seconds"] < part["high_s"]
                assert all(t["formula"] for t in part["terms"])
        total += launch["one_shot"]["seconds"]
    assert total == pytest.approx(prediction["one_shot_s"])
    bound = found["lower_bound"]
    assert bound["seconds"] == max(t["seconds"] for t in bound["terms"])
    assert bound["seconds"] < prediction["one_shot_s"]
    assert len(prediction["launches"]) == (3 if kernel == "torch-unfused" else 1)


def test_text_names_terms_limits_and_assumptions(run: Any) -> None:
    shown = run("explain --hw h100-sxm --seq 2048 --heads 16 --mask causal")
    assert shown.code == 0
    for words in (
        "lower bound",
        "one run",
        "many runs",
        "special functions",
        "waves and tail",
        "limited by",
        "masking",
    ):
        assert words in shown.out
    assert "assumed: kernel start: 5.5 us, as on an H200" in shown.out


def test_shares_are_of_the_whole(run: Any) -> None:
    part = run(f"explain {SMALL} --json").json["prediction"]["launches"][0]["one_shot"]
    assert sum(t["share"] for t in part["terms"] if not t["hidden"]) == pytest.approx(1)


def test_a_gpu_without_constants_has_a_bound_and_a_reason(run: Any) -> None:
    found = run("explain --hw b200 --seq 1024 --json").json
    assert found["lower_bound"]["seconds"] > 0
    assert found["prediction"]["one_shot_s"] is None
    assert found["prediction"]["reason"].startswith("kernel class mma-sync: constants not known on blackwell")


def test_ragged_rows_of_unfused_attention_are_not_predicted(run: Any) -> None:
    found = run("explain --hw h200-sxm --seq 333 --kernel torch-unfused --json").json
    assert found["prediction"]["launches"] == []
    assert "16 bytes" in found["prediction"]["reason"]


def test_a_decode_step_of_cudnn_is_its_bytes(run: Any) -> None:
    words = "explain --hw h200-sxm --batch 64 --heads 32 --kv-heads 8 --seq-q 1 --seq-k 8192"
    found = run(f"{words} --kernel cudnn-sdpa --json").json
    assert found["tiles"] is None
    assert found["prediction"]["launches"][0]["note"].startswith("decode: another kernel")
    assert found["prediction"]["one_shot_s"] == pytest.approx(0.000467584, rel=0.01)  # measured, case 92
    flash2 = run(f"{words} --kernel torch-flash2 --json").json  # computes 128 rows for each of 4
    assert flash2["prediction"]["one_shot_s"] == pytest.approx(0.00077536, rel=0.02)  # measured, case 78


def test_backward(run: Any) -> None:
    found = run("explain --hw a100-sxm-80gb --seq 1024 --heads 32 --pass bwd --json").json
    assert found["tiles"] == {"rows": 64, "cols": 128}
    names = [t["name"] for t in found["prediction"]["launches"][0]["one_shot"]["terms"]]
    assert "side kernels" in names
    forward = run("explain --hw a100-sxm-80gb --seq 1024 --heads 32 --json").json
    assert found["useful_flops"] * 2 == 5 * forward["useful_flops"]


def test_a_longer_pause_cools_the_gpu(run: Any) -> None:
    hot, cool = (
        run(f"explain --hw h200-sxm --seq 4096 --heads 64 --pause {p} --json").json["prediction"][
            "sustained_s"
        ]
        for p in ("0us", "5000us")
    )
    assert cool < hot


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            "explain --kernel nothing",
            "kernel: unknown kernel 'nothing'; known: cudnn-sdpa, ",
        ),
        ("explain --kernel ,", "--kernel: no name given; write one or more"),
        ("explain --pass both", "pass: unknown pass 'both'; allowed: fwd, bwd"),
        ("explain --pause 70", "--pause: '70' has no unit"),
        ("explain --head-dim 512", "--kernel: cudnn-sdpa is not built for head-dim 512"),
        ("explain --pass bwd", "--kernel: cudnn-sdpa has no known backward at head-dim 128"),
        ("explain --hw rtx-4090", "rtx-4090: compute.special_per_sm: unknown"),
        ("roofline --case 3", "--case: needs --measurements FILE"),
        ("roofline --formats gif", "format: unknown format 'gif'"),
    ],
)
def test_errors_are_one_line(run: Any, words: str, complaint: str) -> None:
    shown = run(words)
    assert shown.code == 2
    assert shown.err.startswith(f"iosim: {complaint}")
    assert shown.err.count("\n") == 1


def test_roofline_files_and_numbers(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "roof"
    shown = run(f"roofline {SMALL} --kernel cudnn-sdpa,torch-unfused --formats svg --out {folder} --json")
    found = shown.json
    assert [Path(p) for p in found["files"]] == [folder / "roofline.svg", folder / "roofline.csv"]
    with (folder / "roofline.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["kernel"], r["level"]) for r in rows] == [
        ("cudnn-sdpa", "sram"),
        ("cudnn-sdpa", "l2"),
        ("cudnn-sdpa", "hbm"),
        ("torch-unfused", "hbm"),
    ]
    for r in found["points"]:
        assert r["intensity_flop_per_byte"] == r["flops"] / r["bytes"]
    assert "warning: torch-unfused: no point at sram, its bytes there are unknown" in shown.err


def test_roofline_of_measured_and_predicted(run: Any, tmp_path: Path) -> None:
    file = MEASUREMENTS / "h200" / "attention.csv"
    words = (
        f"roofline --hw h200-sxm --seq 512 --batch 32 --heads 32 --head-dim 64 --measurements {file} --case 2"
    )
    found = run(f"{words} --kernel cudnn-sdpa --formats png --out {tmp_path / 'both'} --json").json
    by_kind = {(p["measured"], p["level"]): p for p in found["points"]}
    assert len(by_kind) == 6
    for level in ("l2", "hbm"):  # the same attention, predicted and measured
        assert by_kind[False, level]["bytes"] == pytest.approx(by_kind[True, level]["bytes"], rel=0.02)
    assert by_kind[False, "hbm"]["seconds"] == pytest.approx(by_kind[True, "hbm"]["seconds"], rel=0.1)


def test_roofline_twice_is_the_same_file(run: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run(f"roofline {SMALL} --formats svg --out {tmp_path / name}")
    drawn = [(tmp_path / name / "roofline.svg").read_bytes() for name in ("one", "two")]
    assert drawn[0] == drawn[1]


def test_a_file_of_a_figure_is_still_its_name(run: Any, tmp_path: Path) -> None:
    found = run(f"roofline {SMALL} --formats svg --out {tmp_path / 'mine.svg'} --json").json
    assert [Path(p).name for p in found["files"]] == ["mine.svg", "mine.csv"]
