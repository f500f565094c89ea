"""Listings: golden texts of the two FlashAttention programs, and costs that add up to the program's."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.listing import CostedRow, costed_listing
from iosim.problem import AttentionProblem, TileShape
from iosim.program.builder import Builder, build
from iosim.program.pretty import listing


def text(algorithm: str, mask: str = "none", **options: str) -> str:
    chosen = ALGORITHMS[algorithm]
    rows = listing(chosen.program(mask, chosen.resolve(options)))
    return "\n".join(f"{row.line:>2} {row}" for row in rows)


FLASH2 = """\
   kernel flash2
     grid batch in [0, B)
       grid head in [0, H)
         grid i in [0, ceil(N / Br))
 4         load Q_i <- Q[i]
 5         O_i = 0
 5         l = 0
 5         m = -∞
 6         for j in [0, ceil(Nk / Bc))
 7           load K_j <- K[j]
 7           load V_j <- V[j]
 8           S = scale(Q_i @ K_jᵀ)
 9           m_new = max(m, rowmax(S))
 9           P = exp(S - m_new)
 9           α = exp(m - m_new)
 9           l = α · l + rowsum(P)
10           O_i = α · O_i + P @ V_j
10           m = m_new
12         store O[i] <- O_i · 1/l
13         store LSE[i] <- m + log(l)"""

FLASH1 = """\
   kernel flash1
     grid batch in [0, B)
       grid head in [0, H)
 2       for i in [0, ceil(N / Br))
 2         O_i = 0
 2         store O[i] <- O_i
 2         m_i = -∞
 2         store M[i] <- m_i
 2         l_i = 0
 2         store L[i] <- l_i
 5       for j in [0, ceil(Nk / Bc))
 6         load K_j <- K[j]
 6         load V_j <- V[j]
 7         for i in [0, ceil(N / Br))
 8           load Q_i <- Q[i]
 8           load O_i <- O[i]
 8           load m_i <- M[i]
 8           load l_i <- L[i]
 9           S = scale(Q_i @ K_jᵀ)
10           m~ = rowmax(S)
10           P~ = exp(S - m~)
10           l~ = rowsum(P~)
11           m_new = max(m_i, m~)
11           α = exp(m_i - m_new)
11           β = exp(m~ - m_new)
11           l_new = α · l_i + β · l~
12           O~ = α · l_i · O_i
12           store O[i] <- (O~ + β · P~ @ V_j) · 1/l_new
13           store L[i] <- l_new
13           store M[i] <- m_new"""


def test_flash2_reads_like_the_paper() -> None:
    assert text("flash2", lse="on") == FLASH2


def test_flash1_reads_like_the_paper() -> None:
    assert text("flash1") == FLASH1


def test_a_causal_mask_shows_in_the_loop_and_in_the_scores() -> None:
    shown = text("flash2", "causal")
    assert "for j in [0, ceil(max(0, min((i + 1)·Br, N) + Nk - N) / Bc))" in shown
    assert "S = mask(scale(Q_i @ K_jᵀ))" in shown


def rows_of(function: object) -> list[str]:
    program = build(function, "mine", "none", {})  # type: ignore[arg-type]
    return [row.text for row in listing(program)]


def test_brackets_keep_the_meaning() -> None:
    def program(p: Builder) -> None:
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            a, b, c = (p.load(name, Q.tile(i)) for name in "abc")
            p.let("x", a - (b - c))
            p.let("y", (a - b) * c)
            p.let("z", p.exp(a - b) * c)
            p.let("u", (a + b) @ c.T)
            p.let("w", a - b + c)
            p.store(O.tile(i), p.fill("O_i", -inf, a.rows, a.cols))

    shown = rows_of(program)
    for line in (
        "x = a - (b - c)",
        "y = (a - b) · c",
        "z = exp(a - b) · c",
        "u = (a + b) @ cᵀ",
        "w = a - b + c",
    ):
        assert line in shown


def test_work_that_nothing_reads_is_shown() -> None:
    def program(p: Builder) -> None:
        Q, O = p.tensors("Q O")
        for i in p.blocks(Q):
            q = p.load("q", Q.tile(i))
            p.exp(q)
            p.store(O.tile(i), q)

    assert rows_of(program)[-1] == "unused: exp(q)"


def costs(name: str, problem: AttentionProblem, tiles: TileShape) -> list[CostedRow]:
    chosen = ALGORITHMS[name]
    program = chosen.program(problem.mask.kind, chosen.resolve({}))
    return costed_listing(program, bind(problem, tiles))


def test_a_temporary_is_paid_by_the_line_that_uses_it() -> None:
    """flash2, line 9: m_new = max(m, rowmax(S)): 8 x 4 comparisons for rowmax and 8 for max, in each of 2 tiles."""
    problem = AttentionProblem.of(seq_q=8, seq_k=8, head_dim=2)
    (row,) = [
        r
        for r in costs("flash2", problem, TileShape(rows=8, cols=4))
        if r.row.text == "m_new = max(m, rowmax(S))"
    ]
    assert row.vector_flops == 2 * (8 * 4 + 8)
    assert (row.read_bytes, row.write_bytes, row.tensor_flops, row.special_ops) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", list(ALGORITHMS))
@given(
    seq_q=st.integers(1, 70),
    seq_k=st.integers(1, 70),
    mask=st.sampled_from(["none", "causal", "window:5"]),
    rows=st.integers(1, 20),
    cols=st.integers(1, 20),
)
def test_every_statement_stands_in_one_row(
    name: str, seq_q: int, seq_k: int, mask: str, rows: int, cols: int
) -> None:
    chosen = ALGORITHMS[name]
    mask = mask if mask.partition(":")[0] in chosen.masks else "none"
    problem = AttentionProblem.of(seq_q=seq_q, seq_k=seq_k, head_dim=3, value_dim=2, heads=2, mask=mask)
    tiles = TileShape(rows=rows, cols=cols)
    tally = count(chosen.program(problem.mask.kind, chosen.resolve({})), bind(problem, tiles))
    found = costs(name, problem, tiles)
    assert sum(r.read_bytes for r in found) == sum(tally.read_bytes.values())
    assert sum(r.write_bytes for r in found) == sum(tally.write_bytes.values())
    assert sum(r.tensor_flops for r in found) == tally.tensor_flops
    assert sum(r.vector_flops for r in found) == tally.vector_flops
    assert sum(r.special_ops for r in found) == tally.special_ops
    parts = [part for r in found for part in r.row.parts]
    assert sorted(parts) == list(range(len(parts)))
