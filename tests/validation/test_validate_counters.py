"""Counters: launches of a profiler's CSV find their rows; without the tool or the right to it, a sentence says so."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_gpu import FACTS, FAKES, FakeGpu

from iosim.errors import InterruptedRun
from iosim.profiler.export import parse_export
from iosim_validation import counters
from iosim_validation.cases import Case, Suite, attention
from iosim_validation.counters import NO_RIGHT, NO_TOOL, Outcome, kernel_names, pending
from iosim_validation.harness import Settings, measure
from iosim_validation.items import Item, Key, Work, find_work
from iosim_validation.peers import CUDNN, FLASH2, PEERS, UNFUSED
from iosim_validation.profiled import Ran, find_item, run_items, write_ran
from iosim_validation.results import Table

pytestmark = pytest.mark.usefixtures("numpy_for_cupy")

CASES = (
    Case(problem=attention((1, 2, 2, 24, 24), 16)),
    Case(problem=attention((1, 2, 2, 9, 17), 16, causal=True), timed=False, peers=False),
)
METRICS = {
    "dram__bytes_read.sum": "byte",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "byte",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sector",
    "gpu__time_duration.sum": "ns",
    "launch__registers_per_thread": "register/thread",
}
NAMES = {
    "iosim_fake": ["flash_fwd"],
    "iosim_three": ["qk_gemm", "softmax", "pv_gemm"],
    FLASH2: ["void pytorch_flash::flash_fwd_splitkv_kernel<T>", "flash_fwd_splitkv_combine_kernel"],
    CUDNN: ["cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16"],
    "torch_sdpa_efficient": ["fmha_cutlassF_f16_aligned_64x64_rf_sm80"],
    UNFUSED: ["nvjet_hsh_128x256", "void softmax_warp_forward<half>", "nvjet_hsh_64x128"],
}


@pytest.fixture
def timed(tmp_path: Path) -> tuple[Work, Table]:
    """Rows of two rungs and four peers, timed but not counted."""
    work = find_work(CASES, FAKES, FACTS)
    table = Table(tmp_path)
    measure(FakeGpu(), work, table, Settings(run_s=0.01, pause_s=0))
    return work, table


def csv_of(launches: Sequence[tuple[str, str]]) -> str:
    """What ncu prints of some (kernel, grid), with values that grow from launch to launch."""
    fixed = [
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
    ]
    head = [*fixed, "Grid Size", "Device", "CC", *METRICS]
    lines = [head, [""] * (len(fixed) + 3) + list(METRICS.values())]
    for n, (name, grid) in enumerate(launches):
        values = [f"{1000 * (n + 1):,}", str(2000 + n), "8", str(5000 + n), "96"]
        lines.append([str(n), "7", "python", "h", name, "1", "7", "(128, 1, 1)", grid, "0", "9.0", *values])
    return "==PROF== Connected\n" + "\n".join(",".join(f'"{word}"' for word in line) for line in lines) + "\n"


class Profiler:
    """Stands for ncu: reads the items that it is given, answers with a CSV or a fault."""

    def __init__(self, fault: str = "", unknown: str = "", skip: str = "") -> None:
        self.fault, self.unknown, self.skip = fault, unknown, skip
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> Outcome:
        self.commands.append(command)
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault:
            return Outcome(code=1, text=self.fault)
        if self.unknown and any(self.unknown in word for word in command):
            return Outcome(code=1, text=f"==ERROR== Failed to find metric {self.unknown}\n")
        launches: list[tuple[str, str]] = []
        ran, marked = [], False
        for number, (_, impl, _) in enumerate(json.loads(Path(command[-1]).read_text())):
            if marked or impl in PEERS:
                launches.append(("iosim_item", f"({number + 1}, 1, 1)"))
            if impl == self.skip:  # fails after its first launch
                launches.append((NAMES[impl][0], "(4, 32, 2)"))
                marked = True
                continue
            ran.append(Ran(number, marked or impl in PEERS))
            launches += [(name, "(4, 32, 2)") for name in NAMES[impl]]
            marked = impl in PEERS
        write_ran(Path(command[-1]), ran)
        log = command[list(command).index("--log-file") + 1]
        Path(log).write_text(csv_of(launches))
        return Outcome(code=0, text="")


def rows_of(table: Table) -> dict[tuple[str, str], dict[str, str]]:
    with table.path.open(newline="") as file:
        return {(row["impl"], row["kernel"]): row for row in csv.DictReader(file)}


def test_counters_find_their_rows(timed: tuple[Work, Table]) -> None:
    work, table = timed
    before = rows_of(table)
    assert counters.count(work, table, run=Profiler(), tool="ncu") == []
    after = rows_of(table)
    assert set(after) == {
        ("iosim_fake", "flash_fwd"),
        *(("iosim_three", name) for name in ("qk_gemm", "softmax", "pv_gemm")),
        (FLASH2, "flash_fwd_splitkv"),
        (FLASH2, "splitkv_combine"),
        (CUDNN, "flash_fwd"),
        ("torch_sdpa_efficient", "flash_fwd"),
        *((UNFUSED, name) for name in ("qk_gemm", "softmax", "pv_gemm")),
    }
    softmax = after["iosim_three", "softmax"]
    # launches in order: fake, scores, softmax: the third, without markers
    assert softmax["hbm_read_bytes"] == "3000"
    assert softmax["l2_read_bytes"] == "256"
    assert float(softmax["profiled_time_s"]) == pytest.approx(5002e-9)
    assert (softmax["grid"], softmax["registers_per_thread"]) == ("4x32x2", "96")
    assert softmax["hbm_write_bytes"] == ""
    assert softmax["median_time_s"] == before["iosim_three", "softmax"]["median_time_s"]
    assert pending(work, Table(table.folder)) == []


def test_only_timed_items_are_counted_and_each_once(timed: tuple[Work, Table]) -> None:
    work, table = timed
    assert {item.case.name for item in pending(work, table)} == {CASES[0].name}
    counters.count(work, table, run=Profiler(), tool="ncu")
    again = Profiler()
    assert counters.count(work, table, run=again, tool="ncu") == []
    assert again.commands == []


def test_clocks_are_left_alone_and_caches_start_empty(timed: tuple[Work, Table]) -> None:
    profiler = Profiler()
    counters.count(*timed, run=profiler, tool="ncu")
    text = " ".join(profiler.commands[0]).replace("=", " ")
    for words in (
        "--clock-control none",
        "--cache-control all",
        "--replay-mode kernel",
        "--print-units base",
    ):
        assert words in text


def test_without_the_tool(timed: tuple[Work, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    before = timed[1].path.read_text()
    assert counters.count(*timed, run=Profiler()) == [NO_TOOL]
    assert timed[1].path.read_text() == before


def test_without_the_right(timed: tuple[Work, Table]) -> None:
    said = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
    assert counters.count(*timed, run=Profiler(fault=said), tool="ncu") == [NO_RIGHT]


def test_a_metric_that_this_gpu_lacks_is_left_out(timed: tuple[Work, Table]) -> None:
    lacking = "lts__t_sectors_srcunit_ltcfabric.sum"
    profiler = Profiler(unknown=lacking)
    (note,) = counters.count(*timed, run=profiler, tool="ncu")
    assert lacking in note
    assert lacking not in " ".join(profiler.commands[-1])
    assert rows_of(timed[1])["iosim_fake", "flash_fwd"]["sm_read_bytes"] == "2000"


def test_another_fault_of_the_tool_is_quoted(timed: tuple[Work, Table]) -> None:
    (note,) = counters.count(*timed, run=Profiler(fault="==ERROR== The application crashed"), tool="ncu")
    assert "The application crashed" in note


def test_an_item_without_launches_stays_open(timed: tuple[Work, Table]) -> None:
    work, table = timed
    counters.count(work, table, run=Profiler(skip="iosim_three"), tool="ncu")
    assert [item.impl for item in pending(work, table)] == ["iosim_three"]


@pytest.mark.parametrize(("names", "seen"), [(["qk_gemm"], 1), (["qk_gemm", "surprise", "pv_gemm"], 1)])
def test_launches_that_cannot_be_are_said(
    timed: tuple[Work, Table], monkeypatch: pytest.MonkeyPatch, names: list[str], seen: int
) -> None:
    monkeypatch.setitem(NAMES, "iosim_three", names)
    (note,) = counters.count(*timed, run=Profiler(), tool="ncu")
    assert f"{seen} launches, 3 expected" in note
    assert rows_of(timed[1])[FLASH2, "splitkv_combine"]["hbm_read_bytes"] != ""
    assert rows_of(timed[1])["iosim_three", "softmax"]["hbm_read_bytes"] == ""


def test_an_interrupt_keeps_what_is_there(timed: tuple[Work, Table]) -> None:
    with pytest.raises(InterruptedRun, match="rows are kept"):
        counters.count(*timed, run=Profiler(fault="interrupt"), tool="ncu")


def test_it_stops_by_itself(timed: tuple[Work, Table]) -> None:
    times = iter((0.0, 100.0, 200.0))
    (note,) = counters.count(*timed, run=Profiler(), tool="ncu", stop_after_s=10, clock=lambda: next(times))
    assert "6 items left" in note


def test_a_command_that_hangs_is_stopped() -> None:
    import sys

    outcome = counters.run_command([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)
    assert outcome.code == 124
    assert "stopped" in outcome.text


def test_the_profiled_program_finds_the_same_items_and_marks_each(timed: tuple[Work, Table]) -> None:
    work, _ = timed
    keys = [item.key for item in work.all_items if item.case.timed]
    gpu = FakeGpu(faults={"fake": "raises"})
    with pytest.MonkeyPatch.context() as patch:
        cases = {case.name: case for case in CASES}
        patch.setattr("iosim_validation.profiled.find_case", cases.__getitem__)
        for key in keys:
            assert find_item(key, FAKES, FACTS).key == key
        assert find_item(Key(keys[0].case, "iosim_fake", "64x64"), FAKES, FACTS).tile is not None
        ran, faults = run_items(gpu, keys, FAKES)
    # the first fails, so the second cannot be told from it by number; the others are peers
    assert [marker for marker, _ in gpu.seen] == list(range(1, len(keys)))
    assert ran == [Ran(number, True) for number in range(1, len(keys))]
    assert len(faults) == 1
    assert "CUDA_ERROR_INVALID_VALUE" in faults[0]


def test_ours_need_no_markers(timed: tuple[Work, Table], monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [item.key for item in timed[0].all_items if item.case.timed and item.plan]
    monkeypatch.setattr("iosim_validation.profiled.find_case", lambda name: CASES[0])
    gpu = FakeGpu()
    ran, faults = run_items(gpu, keys, FAKES)
    assert faults == []
    assert ran == [Ran(0, False), Ran(1, False)]
    assert [marker for marker, _ in gpu.seen] == [None, None]


def test_kernels_of_a_peer_have_our_names() -> None:
    items = {item.impl: item for item in find_work(CASES[:1], {}, FACTS).all_items}

    def named(item: Item, names: Sequence[str]) -> list[str]:
        return list(kernel_names(item, parse_export(csv_of([(n, "(1, 1, 1)") for n in names]), "x").launches))

    assert named(items[UNFUSED], ["gemm", "softmax", "gemm", "copy"]) == [
        "qk_gemm",
        "softmax",
        "pv_gemm",
        "other",
    ]
    assert named(items[CUDNN], ["whatever"]) == ["flash_fwd"]
    assert named(items[CUDNN], ["cudnn_sdpa_x", "reshape"]) == ["flash_fwd", "other"]


def test_suites_hold_what_the_profiled_program_looks_up() -> None:
    from iosim_validation.cases import SUITES, find_case

    assert all(isinstance(suite, Suite) for suite in SUITES.values())
    for suite in SUITES.values():
        for case in suite.cases:
            found = find_case(case.name)
            assert (found.problem, found.block_mask) == (case.problem, case.block_mask)
