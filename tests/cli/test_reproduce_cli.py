"""`iosim reproduce` from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_table_and_json_agree(iosim: Run) -> None:
    shown = iosim("reproduce --only memory,softmax")
    assert shown.code == 0
    assert "31 of 31 within their limit" in shown.out
    data = iosim("reproduce --only memory,softmax --json").json
    assert [g["name"] for g in data["groups"]] == ["memory", "softmax"]
    assert all(c["holds"] for g in data["groups"] for c in g["checks"])


def test_max_error_decides_the_exit_code(iosim: Run) -> None:
    assert iosim("reproduce --only runtime --max-error 0.06").code == 0
    failed = iosim("reproduce --only runtime --max-error 0.02")
    assert failed.code == 4
    assert "N = 2,048" in failed.err


def test_bad_words(iosim: Run) -> None:
    for words in ("reproduce --only nothing", "reproduce --max-error much", "reproduce --max-error -1"):
        done = iosim(words)
        assert done.code == 2
        assert done.err.count("\n") == 1
