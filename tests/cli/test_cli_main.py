"""The command line as a whole: help, lazy imports, errors in one line, exit codes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iosim.cli import commands
from iosim.errors import RunError

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numpy", "pandas", "matplotlib", "ruamel", "rich", "numba", "pyarrow")
Run = Callable[..., Any]


def python(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False, **more
    )


def one_line(outcome: Any) -> str:
    """The only line of stderr, which must be an error of ours."""
    (line,) = outcome.err.splitlines()
    assert line.startswith("iosim: ")
    assert outcome.out == ""
    return str(line)


def test_help_lists_every_command_that_exists_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from iosim.cli import main; code = main(['--help']);"
        f"print(code, sorted(set({HEAVY}) & {{m.partition('.')[0] for m in sys.modules}}))"
    )
    result = python("-c", code)
    assert result.stdout.splitlines()[-1] == "0 []"
    for name in ("simulate", "show", "hw", "algorithms"):
        assert f"\n  {name} " in result.stdout


def test_every_command_of_the_table_that_exists_has_a_help_text(iosim: Run) -> None:
    for name, entry in commands.COMMANDS.items():
        if commands._exists(entry):
            outcome = iosim(name, "--help")
            assert outcome.code == 0
            assert outcome.out.startswith(f"Usage: iosim {name}")


def test_no_words_at_all_print_the_help(iosim: Run) -> None:
    from iosim.cli import main

    assert iosim("--help").out.startswith("Usage: iosim")
    assert main([]) == 0


@pytest.mark.parametrize("group", ["hw", "algorithms"])
def test_a_group_without_a_command_shows_its_commands(iosim: Run, group: str) -> None:
    outcome = iosim(group)
    assert outcome.code == 2
    assert "list" in outcome.err


def test_version(iosim: Run) -> None:
    outcome = iosim("--version")
    assert outcome.code == 0
    assert outcome.out.startswith("iosim ")


def test_help_groups_the_options(iosim: Run) -> None:
    out = iosim("simulate --help").out
    places = [out.index(f"\n{heading}:\n") for heading in ("Problem", "Algorithm", "Hardware", "Output")]
    assert places == sorted(places)
    assert "--hw, --gpu NAME" in out


def test_python_dash_m_is_the_command() -> None:
    result = python("-m", "iosim", "simulate", "--seq", "0")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("iosim: --seq:")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nope", "known: simulate, show"),
        ("simulate --nope", "--nope"),
        ("simulate --seq", "--seq"),
        ("simulate 12", "12"),
        ("simulate --scale wide", "--scale"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(iosim: Run, words: str, said: str) -> None:
    outcome = iosim(words)
    assert outcome.code == 2
    assert said in one_line(outcome)


def break_analyze(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    importlib.import_module(
        "iosim.ragged"
    )  # imports analyze by name: not for the first time while it is broken
    monkeypatch.setattr("iosim.analysis.analyze", fail)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyboardInterrupt(), "iosim: interrupted"),
        (ValueError("boom"), "iosim: internal error: ValueError: boom (--debug shows the traceback)"),
        (RunError("out.csv: the disk is full"), "iosim: out.csv: the disk is full"),
        (
            MemoryError("Unable to allocate 9 TiB"),
            "iosim: out of memory (Unable to allocate 9 TiB): ask for a smaller problem or fewer points",
        ),
        (MemoryError(), "iosim: out of memory: ask for a smaller problem or fewer points"),
        (OSError(28, "No space left on device", "out.csv"), "iosim: out.csv: no space left on device"),
    ],
)
def test_failures_while_running_are_one_line_and_exit_1(
    iosim: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, line: str
) -> None:
    break_analyze(monkeypatch, error)
    outcome = iosim("simulate")
    assert outcome.code == 1
    assert one_line(outcome) == line


@pytest.mark.parametrize("words", ["--debug simulate", "simulate --debug", "simulate"])
def test_debug_shows_the_traceback(iosim: Run, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    if "--debug" not in words:
        monkeypatch.setenv("IOSIM_DEBUG", "1")
    break_analyze(monkeypatch, ValueError("boom"))
    outcome = iosim(words)
    assert outcome.code == 1
    assert outcome.err.startswith("Traceback")
    assert outcome.err.splitlines()[-1].startswith("iosim: internal error")


def test_a_reader_that_has_gone_is_not_an_error_message() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        words = [sys.executable, "-m", "iosim", "algorithms", "list"]
        result = subprocess.run(words, stdout=gone, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    assert (result.returncode, result.stderr) == (1, b"")


def shell(command: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"IOSIM": f"{sys.executable} -m iosim"} | more
    return subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )


def test_a_closed_stdout_is_one_line() -> None:
    done = shell("$IOSIM hw list >&-")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "iosim: standard output is closed: there is nowhere to print to\n"


def test_a_closed_stderr_does_not_spoil_stdout() -> None:
    done = shell("$IOSIM simulate --seq 0 2>&-")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_narrow_encoding_is_no_reason_to_fail() -> None:
    done = shell("$IOSIM hw show h100-sxm", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_program_that_writes_to_the_descriptor_does_not_spoil_the_json(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import os\nos.write(1, b'loud')\n" + (ROOT / "docs" / "examples" / "mine.py").read_text()
    )
    done = shell(f"$IOSIM simulate --seq 64 --algorithm {mine}:program --json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["algorithm"]
    assert "loud" in done.stderr


def test_an_interrupt_while_the_command_line_is_imported_is_one_line() -> None:
    code = (
        "import sys, iosim.__main__ as door\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'iosim.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.exit(door.run())\n"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "iosim: interrupted\n")


def test_the_front_door_imports_nothing_that_takes_time() -> None:
    done = python(
        "-S",
        "-c",
        "import sys; before = set(sys.modules); import iosim; print(*sorted(set(sys.modules) - before))",
    )
    assert set(done.stdout.split()) <= {"iosim", "__future__"}
