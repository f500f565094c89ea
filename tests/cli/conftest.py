"""Run the command line inside the test process, with its streams and exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from iosim.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on stdout; fails where anything else stands there too."""
        return json.loads(self.out)


@pytest.fixture
def iosim(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`iosim("simulate", "--seq", "8K")` or `iosim("simulate --seq 8K")`."""

    def run(*words: str) -> Outcome:
        arguments = words[0].split() if len(words) == 1 else list(words)
        capsys.readouterr()
        code = main(arguments)
        streams = capsys.readouterr()
        return Outcome(code=code, out=streams.out, err=streams.err)

    return run
