"""A user's own program: the example of the docs, and files that are wrong in every way a file can be."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLE = DOCS / "examples" / "mine.py"


def test_the_example_gets_numerics_bytes_exponents_and_gap(iosim: Run) -> None:
    words = ["--seq", "1024", "--head-dim", "64", "--tiles", "128x64", "--json"]
    record = iosim("simulate", "--algorithm", f"{EXAMPLE}:program", *words).json
    tensors = {t["tensor"]: t for t in record["traffic_by_tensor"]}
    one_pass = 1024 * 64 * 2
    assert tensors["K"]["read_bytes"] == 2 * 8 * one_pass  # two passes a row tile, 1024/128 row tiles
    assert tensors["V"]["read_bytes"] == 8 * one_pass
    assert record["theory"]["closed_form_bytes"] is None
    assert record["theory"]["lower_bound_bytes"] > 0
    assert record["proof"]["max_abs_error"] < 1e-12
    (fit,) = record["exponents"]
    found = [fit[f"exponent_{letter}"] for letter in "ndm"]
    assert found == pytest.approx([2, 2, -1], abs=0.02)


def test_the_example_beside_a_shipped_algorithm(iosim: Run) -> None:
    outcome = iosim("simulate", "--algorithm", f"{EXAMPLE},flash2", "--seq", "1024", "--mask", "causal")
    assert outcome.code == 0
    assert "mine: verified and equal to attention" in outcome.out
    assert re.search(r"mine: matrix elements grow as N\^2.00 d\^2.00 M\^-1.00", outcome.out)
    mine, flash2 = iosim("simulate", "--algorithm", f"{EXAMPLE},flash2", "--seq", "1024", "--json").json
    assert "proof" in mine
    assert "proof" not in flash2


def test_the_example_is_short_and_the_docs_show_it_whole() -> None:
    source = EXAMPLE.read_text(encoding="utf-8")
    body = source[source.index("def program") :]
    assert len(source.splitlines()) <= 35
    assert body in (DOCS / "your-own-program.md").read_text(encoding="utf-8")


HEAD = """
def program(p):
    Q, K, V, O = p.tensors("Q K V O")
    for i in p.blocks(Q):
        q = p.load("Q_i", Q.tile(i))
"""
WRONG = {
    "stores a row twice": (HEAD + "        p.store(O.tile(i), q)\n" * 2, "stored twice"),
    "unknown op": (HEAD + "        p.store(O.tile(i), p.op('sigmoid', q))\n", "unknown op 'sigmoid'"),
    "syntax error": ("def program(p)\n    pass\n", "SyntaxError"),
    "fails on import": ("import no_such_module_here\n", "ModuleNotFoundError"),
    "other name": ("def attention(p):\n    pass\n", "it has: attention"),
    "no kernel": ("def program(p):\n    pass\n", "no kernel"),
    "branches on an index": (HEAD + "        if i > 3:\n            pass\n", "branches on i"),
    "raises": (HEAD + "        raise ValueError('two\\nlines')\n", "ValueError: two lines"),
    "is not attention": (
        HEAD
        + "        p.store(O.tile(i), p.matmul(q, p.load('V_j', V.tile(i)).T) @ p.load('V_k', V.tile(i)))\n",
        "mine.py",
    ),
}


@pytest.mark.parametrize("fault", list(WRONG))
@pytest.mark.parametrize(
    "command", ["simulate --algorithm", "show", "bound --algorithm", "report --algorithm"]
)
def test_a_wrong_program_is_one_line(iosim: Run, tmp_path: Path, fault: str, command: str) -> None:
    source, said = WRONG[fault]
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")
    outcome = iosim(*command.split(), str(path))
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("iosim: ")
    assert said in line or fault == "is not attention"
    assert "internal error" not in line


def test_a_program_that_prints_does_not_spoil_the_json(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    source = EXAMPLE.read_text(encoding="utf-8").replace(
        "    Q, K, V, O", "    print('building')\n    Q, K, V, O"
    )
    path.write_text("print('loading')\n" + source, encoding="utf-8")
    for number, words in enumerate((["simulate", "--algorithm", str(path)], ["show", str(path)])):
        outcome = iosim(*words, "--seq", "256", "--json")
        assert outcome.json["algorithm"] == "loud"
        if number == 0:  # a file is run once for each state of it
            assert "loading" in outcome.err
            assert "building" in outcome.err


def test_a_program_that_prints_does_not_spoil_the_json_of_a_study(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text("print('loading')\n" + EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    outcome = iosim("bound", "--algorithm", str(path), "--seq", "256", "--json")
    assert "loud" in {fit["algorithm"] for fit in outcome.json["exponents"]}
    assert "loading" in outcome.err


def test_a_program_that_overflows_is_told_so(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "naive.py"
    path.write_text(
        HEAD
        + """
        acc = p.fill("O_i", 0, q.rows, V.tile(i).cols, of=O)
        l = p.fill("l", 0, q.rows)
        for j in p.loop("j", *p.key_tiles(q.rows)):
            P = p.let("P", p.exp(p.mask(p.scale(q @ p.load("K_j", K.tile(j)).T))))
            p.set(l, l + p.row_sum(P))
            p.set(acc, p.matmul(P, p.load("V_j", V.tile(j)), plus=acc))
        p.store(O.tile(i), acc * p.reciprocal(l))
""",
        encoding="utf-8",
    )
    outcome = iosim("simulate", "--algorithm", str(path), "--seq", "256")
    assert outcome.code == 0
    assert "overflows where scores are large" in outcome.err
