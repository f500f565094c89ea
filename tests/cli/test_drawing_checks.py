"""Commands that draw say what cannot be drawn before they compute or print anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("gap --seq 1024", "splits --seq-k 4096", "memory --seq 1024", "curve --seq 1024", "bound")
WRONG = (("--formats", "bmp"), ("--style", "loud"), ("--out", "/proc/nowhere"))


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("wrong", WRONG, ids=[option for option, _ in WRONG])
def test_nothing_is_printed_before_what_is_wrong(
    iosim: Callable[..., Any], tmp_path: Path, command: str, wrong: tuple[str, str]
) -> None:
    done = iosim(*command.split(), "--json", "--out", str(tmp_path / "x"), *wrong)
    assert done.code in (1, 2)
    assert done.out == ""
    assert done.err.startswith("iosim: ")
    assert done.err.count("\n") == 1
