"""`iosim validate` as a command: on a machine without a GPU, and with a fake one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FAKES, FakeGpu

from iosim.cli import main
from iosim_validation.cases import Case, Suite, attention

SMALL = Suite(
    name="small",
    title="",
    cases=(Case(problem=attention((1, 2, 2, 24, 24), 16), peers=False),),
    run_s=0.01,
    pause_s=0.0,
)


class Out:
    """What a command left."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def iosim(capsys: pytest.CaptureFixture[str]) -> Callable[..., Out]:
    def run(*words: str) -> Out:
        capsys.readouterr()
        code = main(list(words))
        streams = capsys.readouterr()
        return Out(code, streams.out, streams.err)

    return run


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, numpy_for_cupy: None) -> Callable[[FakeGpu], None]:
    """Put a fake GPU, two fake rungs and a small suite in the place of the real ones."""

    def install(gpu: FakeGpu) -> None:
        case = SMALL.cases[0]
        monkeypatch.setattr("iosim_validation.cases.SUITES", {"small": SMALL})
        monkeypatch.setattr("iosim_validation.cupy_gpu.CupyGpu", lambda: gpu)
        monkeypatch.setattr("iosim_validation.rungs.RUNGS", FAKES)
        monkeypatch.setattr("iosim_validation.validate.find_case", lambda name: case)
        monkeypatch.setattr("iosim_validation.build_all.ALONE", 99)
        monkeypatch.setattr("iosim_validation.build_all.cached_cubin", lambda *words: None)

    return install


def test_without_cupy_it_says_how_to_get_it(
    iosim: Callable[..., Out], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    done = iosim("validate", "--out", str(tmp_path / "new"))
    assert done.code == 3
    assert "pip install 'iosim[gpu]'" in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_without_a_compiler_it_says_so_as_well(
    iosim: Callable[..., Out], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from iosim_validation import nvrtc

    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc.version.cache_clear()
    done = iosim("validate", "--out", str(tmp_path))
    nvrtc.version.cache_clear()
    assert done.code == 3
    assert "NVRTC" in done.err


def test_what_would_be_measured_needs_no_gpu(iosim: Callable[..., Out]) -> None:
    done = iosim("validate", "--suite", "quick", "--list", "--json")
    assert done.code == 0
    items = json.loads(done.out)["items"]
    assert {"case", "impl", "tile", "timed", "ours"} == set(items[0])
    assert {"torch_sdpa_flash2", "torch_sdpa_cudnn", "iosim_decode"} <= {item["impl"] for item in items}
    fewer = json.loads(iosim("validate", "--list", "--json", "--no-peers", "--rungs", "decode").out)["items"]
    assert {item["impl"] for item in fewer} == {"iosim_decode"}
    ampere = json.loads(iosim("validate", "--list", "--json", "--hw", "a100-sxm-80gb").out)["items"]
    assert "iosim_flash2_wgmma" not in {item["impl"] for item in ampere}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--suite", "slow"), "known: quick, checks, paper"),
        (("--list", "--rungs", "flash9"), "'flash9'; known: standard"),
        (("--list", "--rungs", "decode,"), "empty name"),
        (("--stop-after", "-1"), "stop-after"),
    ],
)
def test_wrong_usage_is_one_line(iosim: Callable[..., Out], words: tuple[str, ...], said: str) -> None:
    done = iosim("validate", *words)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_run_prints_a_table_and_keeps_its_files(
    iosim: Callable[..., Out], fake: Callable[[FakeGpu], None], tmp_path: Path
) -> None:
    fake(FakeGpu())
    done = iosim("validate", "--suite", "small", "--out", str(tmp_path), "--no-compare")
    assert done.code == 0, done.err
    assert "iosim_three" in done.out
    assert "2 measured, 0 were there, 0 left" in done.out
    assert {path.name for path in tmp_path.iterdir()} == {"attention.csv", "environment.json"}


def test_json_is_alone_on_stdout(
    iosim: Callable[..., Out], fake: Callable[[FakeGpu], None], tmp_path: Path
) -> None:
    fake(FakeGpu())
    done = iosim("validate", "--suite", "small", "--out", str(tmp_path), "--no-compare", "--json")
    report: dict[str, Any] = json.loads(done.out)
    assert report["profile"] == "h200-sxm"
    assert report["measured"] == 2
    assert report["failed"] == {}
    assert {line["impl"] for line in report["timed"]} == {"iosim_fake", "iosim_three"}
    assert all(line["median_s"] > 0 and line["flop_per_s"] > 0 for line in report["timed"])


def test_a_wrong_kernel_exits_with_four(
    iosim: Callable[..., Out], fake: Callable[[FakeGpu], None], tmp_path: Path
) -> None:
    fake(FakeGpu(faults={"fake": "nan"}))
    done = iosim("validate", "--suite", "small", "--out", str(tmp_path), "--no-compare")
    assert done.code == 4
    assert "iosim_fake" in done.out
    assert "NaN" in done.out


def test_an_interrupt_exits_with_130(
    iosim: Callable[..., Out], fake: Callable[[FakeGpu], None], tmp_path: Path
) -> None:
    fake(FakeGpu(faults={"three": "interrupt"}))
    done = iosim("validate", "--suite", "small", "--out", str(tmp_path))
    assert done.code == 130
    assert "rows are kept" in done.err


def test_the_rows_are_held_against_the_model(
    iosim: Callable[..., Out], fake: Callable[[FakeGpu], None], tmp_path: Path
) -> None:
    fake(FakeGpu())
    done = iosim("validate", "--suite", "small", "--out", str(tmp_path), "--json")
    report = json.loads(done.out)
    assert set(report["audit"]) == {
        "iosim_fake/flash_fwd",
        "iosim_three/qk_gemm",
        "iosim_three/softmax",
        "iosim_three/pv_gemm",
    }
