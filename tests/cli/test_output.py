"""Tables: plain and aligned in a pipe, drawn on a terminal, and never numbers broken over lines."""

from __future__ import annotations

import sys

import pytest

from iosim.cli.output import plain_table, print_table, progress_bar, quiet_stdout

HEADERS = ["name", "bytes"]
ROWS = [["flash2", "8"], ["standard", "17,448,304,640"]]


def pretend_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Make the stdout that this test sees a terminal of that width."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))


def test_plain_table_aligns_its_columns() -> None:
    assert plain_table(HEADERS, ROWS, right=[1]) == [
        "name               bytes",
        "flash2                 8",
        "standard  17,448,304,640",
    ]


def test_a_pipe_gets_the_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADERS, ROWS)
    assert capsys.readouterr().out.splitlines() == plain_table(HEADERS, ROWS)


def test_a_terminal_gets_a_rule_and_no_colour_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_terminal(monkeypatch, 80)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(HEADERS, ROWS, right=[1])
    out = capsys.readouterr().out
    assert "───" in out
    assert "17,448,304,640" in out
    assert "\x1b[3" not in out


@pytest.mark.parametrize(("wrap", "whole"), [(False, True), (True, False)])
def test_a_narrow_terminal_breaks_prose_but_not_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrap: bool, whole: bool
) -> None:
    pretend_terminal(monkeypatch, 24)
    print_table(HEADERS, [["standard", "a long cell of prose 123"]], wrap=wrap)
    assert ("a long cell of prose 123" in capsys.readouterr().out) is whole


def test_what_foreign_code_prints_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet_stdout():
        print("loud")
    assert capsys.readouterr() == ("", "loud\n")


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_goes_to_a_terminals_stderr_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress_bar("audit", 1) as progress:
        for done in range(1, 5):
            progress(done, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("100%" in err) is terminal  # the total is what the work said, not what the bar began with
    assert ("audit" in err) is terminal
