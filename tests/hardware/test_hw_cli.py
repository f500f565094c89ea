"""`iosim hw`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from iosim.cli import hw
from iosim.cli.hw import hw_app
from iosim.errors import ProfileError
from iosim.hardware import load_profile, profile_names
from iosim.resources import data_dir

HEAVY = ("numpy", "pandas", "matplotlib", "ruamel.yaml", "rich.table")


def run(*args: str) -> Result:
    return CliRunner().invoke(hw_app, list(args))


def test_list_has_a_plain_line_for_each_profile() -> None:
    lines = run("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", *profile_names()]
    (h100,) = [line for line in lines if line.startswith("h100-sxm")]
    assert "227 KiB" in h100
    assert "3.352 TB/s" in h100
    assert lines[-1].isascii()


def test_list_as_json() -> None:
    entries = json.loads(run("list", "--json").stdout)
    assert [entry["name"] for entry in entries] == profile_names()
    assert entries[-1]["quantities"]["memory.sram.per_block"] == 4096


def test_show_prints_every_number_with_its_source() -> None:
    result = run("show", "a100-sxm-80gb")
    profile = load_profile("a100-sxm-80gb")
    for key, quantity in profile.quantities.items():
        (line,) = [line for line in result.stdout.splitlines() if line.split()[:1] == [key]]
        assert str(quantity) in line
        assert quantity.kind in line
        assert quantity.source in line


def test_show_says_why_a_number_is_unknown() -> None:
    (line,) = [row for row in run("show", "h100-nvl").stdout.splitlines() if "memory.l2.capacity" in row]
    assert "unknown: not printed by NVIDIA" in line


def test_show_as_json_is_the_profile_and_nothing_else() -> None:
    result = run("show", "h200", "--set", "memory.l2.capacity=100MiB", "--json")
    out = json.loads(result.stdout)
    assert out["quantities"]["memory.l2.capacity"]["value"] == 100 * 2**20
    assert out["warnings"] == ["h200: taken as h200-sxm, the only such profile here"]


def test_show_warns_on_stderr() -> None:
    result = run("show", "toy", "--set", "compute.sm_count=4")
    assert "changes nothing" in result.stderr
    assert "changes nothing" not in result.stdout


def test_check_good_file() -> None:
    result = run("check", "toy")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "toy: good, 27 numbers, 0 of them unknown\n"


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    toy = data_dir("hwprofiles").joinpath("toy.yaml").read_text()
    path = tmp_path / "bad.yaml"
    path.write_text(toy.replace("sm_count: 4", "sm_count: four").replace("100 GB/s", "100"))
    return path


def test_check_lists_all_faults_and_exits_with_2(bad_file: Path) -> None:
    result = run("check", str(bad_file))
    assert result.exit_code == 2
    assert result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith(f"{bad_file}:10: compute.sm_count: 'four' is not a number")
    assert "memory.hbm.bandwidth: '100' has no unit" in second


def test_check_as_json(bad_file: Path) -> None:
    result = run("check", str(bad_file), "--json")
    out = json.loads(result.stdout)
    assert (result.exit_code, out["ok"], len(out["errors"])) == (2, False, 2)
    assert json.loads(run("check", "toy", "--json").stdout)["ok"] is True


def test_diff() -> None:
    lines = run("diff", "h100-sxm", "h200-sxm").stdout.splitlines()
    (l2,) = [line.split("  ") for line in lines if line.startswith("memory.l2.capacity")]
    assert [cell.strip() for cell in l2 if cell.strip()] == ["memory.l2.capacity", "50 MiB", "60 MiB", "1.2"]
    assert run("diff", "toy", "TOY").stdout == "toy and toy have the same numbers\n"
    out = json.loads(run("diff", "h100-sxm", "h200-sxm", "--json").stdout)
    assert {d["key"]: d["ratio"] for d in out["differences"]}["memory.l2.capacity"] == pytest.approx(1.2)


def test_errors_are_left_to_the_main_command() -> None:
    result = run("show", "h100")
    assert isinstance(result.exception, ProfileError)
    assert result.exception.exit_code == 2


def test_importing_the_command_pulls_in_nothing_heavy() -> None:
    code = f"import sys, iosim.cli.hw, iosim.hardware; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_terminal_gets_a_table_with_each_citation_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    hw.show("h100-nvl")
    shown = capsys.readouterr().out
    profile = load_profile("h100-nvl")
    for key, text in profile.sources.items():
        assert shown.count(text) == 1
        assert shown.count(f" {key}") >= 2
    assert all(key in shown for key in profile.quantities)
