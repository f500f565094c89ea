"""Expressions: exact on ints and columns, summed without expansion where extents separate, closed to branching."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import ProgramError
from iosim.program import evaluate as evaluation
from iosim.program.evaluate import evaluate
from iosim.program.expr import cdiv, const, extent, index, lift, maximum, minimum, param, sum_over, tile_start

N, B, i, j = param("N"), param("B"), index("i"), index("j")


def test_equal_expressions_are_one_object():
    assert (N + 1) * B is (N + 1) * B


def test_known_parts_fold_away():
    assert (N * 1 + 0) is N
    assert const(7) // 2 is const(3)
    assert cdiv(7, 2) is const(4)
    assert maximum(0, N) is N
    assert maximum(0, N - B).op == "max"  # a difference may be negative


@pytest.mark.parametrize("branch", [lambda: bool(i), lambda: i < 3, lambda: i == j, lambda: range(N)])
def test_python_cannot_branch_or_iterate_on_an_expression(branch):
    with pytest.raises(ProgramError, match=r"has no value while the program is built|no value"):
        branch()


def test_only_whole_numbers_are_sizes():
    with pytest.raises(ProgramError, match="whole numbers"):
        lift(1.5)  # type: ignore[arg-type]


def test_an_unbound_letter_is_named():
    with pytest.raises(ProgramError, match="uses B"):
        evaluate(N * B, {"N": 3})


@given(size=st.integers(0, 60), tile=st.integers(1, 20), lo=st.integers(0, 8), more=st.integers(0, 8))
def test_rows_of_tiles_telescope_to_a_difference(size, tile, lo, more):
    total = sum_over("i", const(lo), const(lo + more), extent(i, B, N))
    assert "sum" not in str(total)
    assert "Σ" not in str(total)
    by_hand = sum(max(0, min((k + 1) * tile, size) - min(k * tile, size)) for k in range(lo, lo + more))
    assert evaluate(total, {"N": size, "B": tile}) == by_hand


def test_the_sum_over_all_tiles_is_the_axis():
    assert sum_over("i", const(0), cdiv(N, B), extent(i, B, N)) is N


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 9))
def test_bounds_that_depend_on_the_outer_loop_expand_that_loop_only(size, rows, cols):
    inner = sum_over("j", const(0), cdiv(minimum((i + 1) * param("R"), N), B), extent(j, B, N))
    total = sum_over("i", const(0), cdiv(N, param("R")), inner * extent(i, param("R"), N))
    binding = {"N": size, "B": cols, "R": rows}
    by_hand = 0
    for a in range(-(-size // rows)):
        height = min((a + 1) * rows, size) - a * rows
        stop = -(-min((a + 1) * rows, size) // cols)
        by_hand += height * min(stop * cols, size)
    assert evaluate(total, binding) == by_hand
    column = evaluate(total, {k: np.array([v, v]) for k, v in binding.items()})
    assert np.asarray(column).tolist() == [by_hand, by_hand]


def test_an_empty_loop_sums_to_zero():
    assert evaluate(sum_over("i", const(5), const(2), i * i), {}) == 0
    assert evaluate(sum_over("i", param("a"), const(2), const(3)), {"a": 5}) == 0


def test_long_loops_are_summed_in_pieces(monkeypatch):
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    total = sum_over("i", const(3), N, i * i)
    assert evaluate(total, {"N": 100}) == sum(k * k for k in range(3, 100))
    column = evaluate(total, {"N": np.array([3, 4, 50, 11, 0, 9])})
    assert np.asarray(column).tolist() == [sum(k * k for k in range(3, n)) for n in (3, 4, 50, 11, 0, 9)]


def test_values_past_64_bits_stay_exact():
    huge = np.array([2**40, 3], dtype=np.int64)
    assert np.asarray(evaluate(N * N * 8, {"N": huge})).tolist() == [2**83, 72]
    squares = sum_over("i", const(0), param("T"), i * N)
    assert np.asarray(evaluate(squares, {"N": huge, "T": 2**20})).tolist() == [
        2**40 * sum(range(2**20)),
        3 * sum(range(2**20)),
    ]


def test_text_is_how_a_person_writes_it():
    assert str((N + 1) * B - i) == "(N + 1)·B - i"
    assert str(cdiv(N, B)) == "ceil(N / B)"
    assert str(tile_start(i, B, N)) == "min(i·B, N)"


def test_a_sum_between_fixed_bounds_still_differs_from_row_to_row() -> None:
    i, s = index("i"), index("s")
    # Σ_i Σ_{s<2} ((s + 1)·i // 2): the inner bounds are the same for every i, its terms are not
    inner = sum_over("s", const(0), const(2), (s + 1) * i // 2)
    total = sum_over("i", const(0), param("N"), inner)
    assert evaluate(total, {"N": 5}) == sum((t + 1) * n // 2 for n in range(5) for t in range(2))
    by_column = sum_over("s", const(0), const(2), (s + 1) * param("d") // 2)
    got = evaluate(by_column, {"d": np.array([3, 8, 5])})
    assert np.asarray(got).tolist() == [d // 2 + d for d in (3, 8, 5)]
