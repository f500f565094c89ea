"""Exports of the profiler: both layouts, units, noise between the lines, several kernels, broken rows."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_text import GPU, Launched, long, wide

from iosim.errors import IosimError, RunError, UsageError
from iosim.profiler import is_export, ncu_command, ncu_metrics, read_export
from iosim.profiler.export import parse_export
from iosim.profiler.metrics import KNOWN, in_base_units

METRICS = {
    "dram__bytes_read.sum": 201_406_464,
    "dram__bytes_write.sum": 62_574_592,
    "l1tex__m_xbar2l1tex_read_bytes.sum": 605_216_128,
    "lts__t_sectors_srcunit_tex_op_read.sum": 14_439_932,
    "smsp__inst_executed_pipe_xu.sum": 8_765_440,
    "gpu__time_duration.sum": 0.00026272,
    "launch__registers_per_thread": 255,
    "launch__shared_mem_per_block_dynamic": 49_152,
    "launch__shared_mem_per_block_driver": 1_024,
    "sm__cycles_elapsed.avg.per_second": 1_755_000_000,
    GPU: "NVIDIA H200",
}
ONE = Launched(kernel="void fwd<128, 64>(Params)", grid=(4, 32, 32), block=(128, 1, 1), metrics=METRICS)


@pytest.mark.parametrize("scaled", [False, True], ids=["base units", "chosen units"])
@pytest.mark.parametrize("layout", [wide, long])
def test_both_layouts_give_the_same_launch(layout: Callable[..., str], scaled: bool) -> None:
    (found,) = parse_export(layout([ONE], scaled=scaled), "export.csv").launches
    assert found.kernel == "void fwd<128, 64>(Params)"
    assert (found.grid, found.block, found.blocks, found.threads_per_block) == (
        (4, 32, 32),
        (128, 1, 1),
        4096,
        128,
    )
    assert (found.gpu, found.compute_capability) == ("NVIDIA H200", "9.0")
    assert found.registers_per_thread == 255
    assert found.shared_bytes_per_block == 49_152 + 1_024
    assert found.clock_hz == pytest.approx(1.755e9)
    assert found.measured == pytest.approx(
        {
            "hbm_read_bytes": 201_406_464,
            "hbm_write_bytes": 62_574_592,
            "sm_read_bytes": 605_216_128,
            "l2_read_bytes": 14_439_932 * 32,
            "special_ops": 8_765_440 * 32,
            "profiled_time_s": 0.00026272,
        }
    )


def test_base_units_lose_nothing() -> None:
    (found,) = parse_export(wide([ONE]), "export.csv").launches
    assert found.measured["hbm_read_bytes"] == 201_406_464
    assert found.measured["sm_read_bytes"] == 605_216_128


def test_several_kernels_launches_and_tables() -> None:
    other = Launched(kernel="softmax", metrics={"dram__bytes_read.sum": 5})
    text = wide([ONE, other, ONE]) + long([other])
    found = parse_export(text, "export.csv")
    assert [launch.kernel for launch in found.launches] == [ONE.kernel, "softmax", ONE.kernel, "softmax"]
    assert [launch.number for launch in found.launches] == ["0", "1", "2", "0"]
    assert found.launches[1].measured == {"hbm_read_bytes": 5}  # the others are n/a there
    assert found.faults == ()
    lines = text.splitlines()
    for launch in found.launches:
        assert launch.kernel in lines[launch.line - 1]


def test_what_a_program_prints_between_the_lines_is_not_a_launch() -> None:
    header, units, *rows = wide([ONE, ONE]).splitlines()[2:]
    noise = ["step 1, loss 3.2", 'a "quote', "", "==PROF== Disconnected from process 4711", "done"]
    text = "\n".join(["hello, world", header, units, noise[0], rows[0], *noise, rows[1]])
    found = parse_export(text, "export.csv")
    assert len(found.launches) == 2
    assert found.launches[0].measured == found.launches[1].measured


def test_metrics_that_the_gpu_does_not_have_are_not_measured() -> None:
    for word in ("n/a", "nan", "", "(!) n/a"):
        metrics = METRICS | {"dram__bytes_read.sum": word}
        found = parse_export(wide([Launched(metrics=metrics)]), "export.csv")
        assert "hbm_read_bytes" not in found.launches[0].measured
        assert found.faults == ()


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        ("many", "byte", "must be a number"),
        ("-5", "byte", "at least 0"),
        ("5", "furlong", "--print-units base"),
    ],
)
def test_a_value_that_cannot_be_is_a_fault_with_its_line(value: str, unit: str, said: str) -> None:
    text = long([ONE]).replace('"byte","201,406,464"', f'"{unit}","{value}"')
    found = parse_export(text, "export.csv")
    (fault,) = found.faults
    assert fault.startswith("export.csv:4: dram__bytes_read.sum: ")
    assert said in fault
    assert "hbm_read_bytes" not in found.launches[0].measured
    assert found.launches[0].measured["hbm_write_bytes"] == 62_574_592


def test_a_row_of_another_length_is_a_fault() -> None:
    text = wide([ONE, ONE])
    found = parse_export(text.rstrip("\n") + ',"more"\n', "export.csv")
    assert len(found.launches) == 1
    assert "export.csv:6" in found.faults[0]


def test_a_clock_that_cannot_be_was_not_measured() -> None:
    metrics = METRICS | {"sm__cycles_elapsed.avg.per_second": 1.7}  # GHz, but said to be Hz
    (found,) = parse_export(wide([Launched(metrics=metrics)]), "export.csv").launches
    assert found.clock_hz is None


def test_the_details_page_in_words() -> None:
    text = (
        long([ONE])
        .replace('"gpu__time_duration.sum"', '"Duration"')
        .replace('"launch__registers_per_thread"', '"Registers Per Thread"')
    )
    (found,) = parse_export(text, "export.csv").launches
    assert found.measured["profiled_time_s"] == pytest.approx(0.00026272)
    assert found.registers_per_thread == 255


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *(("byte", 1), ("Kbyte", 1e3), ("Mbyte", 1e6), ("Gbyte", 1e9), ("Tbyte", 1e12), ("Kbyte/block", 1e3)),
        *(("ns", 1e-9), ("nsecond", 1e-9), ("us", 1e-6), ("usecond", 1e-6), ("ms", 1e-3), ("msecond", 1e-3)),
        *(("s", 1), ("second", 1), ("hz", 1), ("Ghz", 1e9), ("Mhz", 1e6), ("cycle/nsecond", 1e9)),
        *(("cycle/second", 1), ("cycle/usecond", 1e6), ("sector", 1), ("Ksector", 1e3), ("inst", 1), ("", 1)),
        ("register/thread", 1),
    ],
)
def test_units(unit: str, factor: float) -> None:
    assert in_base_units(3.0, unit) == pytest.approx(3.0 * factor)


@pytest.mark.parametrize("unit", ["%", "byte/second", "parsec"])
def test_a_unit_of_something_else(unit: str) -> None:
    if unit == "byte/second":  # a rate is not an amount; no metric that is read has it
        assert not any("per_second" in name and "bytes" in name for name in KNOWN)
        return
    with pytest.raises(UsageError, match="unknown unit"):
        in_base_units(3.0, unit)


@pytest.mark.parametrize("text", ["", "nothing here\n", wide([ONE]).splitlines()[2] + "\n"])
def test_a_file_without_a_launch_says_how_to_make_one(text: str) -> None:
    with pytest.raises(UsageError, match="--print-ncu-command"):
        parse_export(text, "export.csv")


@given(st.text(max_size=200), st.integers(0, 400))
def test_noise_anywhere_is_read_or_refused(noise: str, where: int) -> None:
    text = wide([ONE])
    try:
        found = parse_export(text[:where] + noise + text[where:], "export.csv")
    except IosimError as error:
        assert "\n" not in str(error)  # noqa: PT017
        return
    assert all(value >= 0 for launch in found.launches for value in launch.measured.values())


def test_which_files_are_exports(tmp_path: Path) -> None:
    export, other, binary = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv"
    export.write_text(wide([ONE]))
    other.write_text("case,gpu,impl\n1,NVIDIA H200,x\n")
    binary.write_bytes(b"\0\xff\xfe" * 100)
    assert is_export(export)
    assert is_export(tmp_path / "x.ncu-rep")
    assert not is_export(other)
    assert not is_export(binary)
    assert not is_export(tmp_path / "missing.csv")
    binary.write_bytes(b"\xff\xfeKernel Name,x\n")
    with pytest.raises(UsageError, match="not a CSV file of UTF-8 text"):
        read_export(binary)
    with pytest.raises(RunError, match="cannot read"):
        read_export(tmp_path / "missing.csv")


def _fake_ncu(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = folder / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")


def test_a_report_is_read_through_the_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "mine.ncu-rep"
    report.write_bytes(b"\0")
    raw = tmp_path / "raw.csv"
    raw.write_text(wide([ONE]))
    script = f'case "$*" in *"--import {report}"*"--page raw"*"--print-units base"*) cat {raw};;'
    script += ' *"--page session"*) echo "Cache Control: All";; *) exit 3;; esac'
    _fake_ncu(tmp_path, script, monkeypatch)
    found = read_export(report)
    assert found.launches[0].measured["hbm_read_bytes"] == 201_406_464
    assert found.cold is True


def test_a_report_without_the_profiler_says_how_to_export_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "mine.ncu-rep"
    report.write_bytes(b"\0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"ncu --import mine\.ncu-rep --csv --page raw") as caught:
        read_export(report)
    assert "\n" not in str(caught.value)


def test_a_report_that_the_profiler_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "mine.ncu-rep"
    report.write_bytes(b"\0")
    _fake_ncu(tmp_path, "echo '==ERROR== Failed to open report' >&2; exit 1", monkeypatch)
    with pytest.raises(RunError, match="exit code 1: ==ERROR== Failed to open report"):
        read_export(report)


@pytest.mark.parametrize(
    ("said", "cold"), [("--cache-control none", False), ("Cache Control: All", True), ("", None)]
)
def test_cache_control_where_the_file_tells_it(said: str, cold: bool | None) -> None:
    assert parse_export(f"== {said}\n{wide([ONE])}", "export.csv").cold is cold


def test_the_command_collects_every_column() -> None:
    command = ncu_command()
    collected = command.partition("--metrics ")[2].partition(" ")[0].split(",")
    assert set(ncu_metrics().values()) <= set(collected)
    assert set(collected) <= KNOWN
    assert GPU in collected
    for word in ("--csv", "--page raw", "--print-units base", "--clock-control none", "--cache-control all"):
        assert word in command
    assert "'regex:it'\"'\"'s'" in ncu_command("it's")  # a name cannot break out of its quotes


def test_the_page_has_the_table_of_metrics() -> None:
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for column, metric in ncu_metrics().items():
        assert any(f"`{column}`" in row and f"`{metric}`" in row for row in rows), column
