"""Proving: right programs pass with an error near rounding, wrong ones are told apart with the case that shows it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from iosim.algorithms.registry import ALGORITHMS, Algorithm
from iosim.errors import ProgramError, VerificationError
from iosim.problem import AttentionProblem
from iosim.program.builder import Builder
from iosim.program.ir import Span
from iosim.proving import prove, small_problems

PLAIN = AttentionProblem.of(seq=1024, head_dim=64)
ATTENTION = [name for name, a in ALGORITHMS.items() if a.computes == "attention"]


def mine(function: Callable[[Builder], None]) -> Algorithm:
    return Algorithm(name="mine", function=function, summary="", source="", user_defined=True)


def flash(
    p: Builder, *, masked: bool = True, rescaled: bool = True, divided: bool = True, scaled: bool = True
) -> None:
    """FlashAttention-2 with one step left out at will."""
    Q, K, V, O = p.tensors("Q K V O")
    for i in p.blocks(Q):
        q = p.load("Q_i", Q.tile(i))
        acc = p.fill("O_i", 0, q.rows, V.tile(i).cols, of=O)
        l, m = p.fill("l", 0, q.rows), p.fill("m", -inf, q.rows)
        for j in p.loop("j", *p.key_tiles(q.rows)):
            k, v = p.load("K_j", K.tile(j)), p.load("V_j", V.tile(j))
            s = p.scale(q @ k.T) if scaled else q @ k.T
            s = p.let("S", p.mask(s) if masked else p.scale(s, 1.0))
            m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
            P, alpha = p.let("P", p.exp(s - m_new)), p.let("alpha", p.exp(m - m_new))
            p.set(l, alpha * l + p.row_sum(P))
            p.set(acc, p.matmul(P, v, plus=alpha * acc if rescaled else acc))
            p.set(m, m_new)
        p.store(O.tile(i), acc * p.reciprocal(l) if divided else acc)


@pytest.mark.parametrize("mask", ["none", "causal", "window:64", "prefix:64"])
@pytest.mark.parametrize("name", ATTENTION)
def test_shipped_algorithms_are_proved(name: str, mask: str) -> None:
    problem = AttentionProblem.of(seq=1024, head_dim=64, heads=8, kv_heads=2, mask=mask)
    proof = prove(ALGORITHMS[name], problem)
    assert proof.max_abs_error < 1e-12
    assert proof.survives_large_scores
    assert proof.cases >= 3


@pytest.mark.parametrize("missing", ["rescaled", "divided", "scaled"])
def test_a_step_left_out_is_noticed(missing: str) -> None:
    with pytest.raises(VerificationError, match=r"^mine: O differs from attention by .* at batch 1, heads 1"):
        prove(mine(lambda p: flash(p, **{missing: False})), PLAIN)


def test_a_forgotten_mask_is_noticed_only_under_a_mask() -> None:
    forgetful = mine(lambda p: flash(p, masked=False))
    assert prove(forgetful, PLAIN).max_abs_error < 1e-12
    with pytest.raises(VerificationError, match="mask causal"):
        prove(forgetful, AttentionProblem.of(seq=1024, head_dim=64, mask="causal"))


def test_naive_softmax_is_right_but_does_not_survive_large_scores() -> None:
    proof = prove(ALGORITHMS["standard"], PLAIN, {"softmax": "naive"})
    assert proof.max_abs_error < 1e-12
    assert not proof.survives_large_scores


def test_an_absurd_scale_does_not_drown_the_check() -> None:
    assert prove(mine(flash), AttentionProblem.of(seq=64, head_dim=8, scale=1e12)).max_abs_error < 1e-12


def test_shapes_that_do_not_belong_together_are_told_with_the_case() -> None:
    def program(p: Builder) -> None:
        Q, _, _, O = p.tensors("Q K V O")
        for i in p.blocks(Q):
            q = p.load("Q_i", Q.tile(i))
            p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match=r"cannot be run at .* head-dim 3, value-dim 5"):
        prove(mine(program), PLAIN)


def test_rows_left_out_are_noticed_before_any_number_is() -> None:
    def program(p: Builder) -> None:
        Q, O = p.tensors("Q O")
        for _ in p.kernel("k"):
            for _ in p.heads():
                for i in p.grid("i", 1, 2):
                    q = p.load("Q_i", Q.tile(i))
                    p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match="never stored"):
        prove(mine(program), PLAIN)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [("gemm", {}, "no output O"), ("standard", {"additive-mask": "on"}, "only be checked on Q, K and V")],
)
def test_what_is_not_plain_attention_is_refused(name: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(ProgramError, match=said):
        prove(ALGORITHMS[name], PLAIN, options)


@pytest.mark.parametrize(("heads", "kv_heads", "ratio"), [(32, 8, 3), (32, 32, 1), (64, 1, 3), (6, 3, 2)])
def test_small_problems_keep_mask_kind_and_shared_heads(heads: int, kv_heads: int, ratio: int) -> None:
    problem = AttentionProblem.of(seq=8192, head_dim=128, heads=heads, kv_heads=kv_heads, mask="window:1024")
    for case, _ in small_problems(problem):
        assert case.group_size == ratio
        assert case.mask.kind == "window"
        assert case.seq_q <= 16
        assert case.dtype_q == problem.dtype_q


def _bad(body: Callable[[Builder, Any, Any, Any], None]) -> Algorithm:
    def program(p: Builder) -> None:
        Q, K, _, O = p.tensors("Q K V O")
        for i in p.blocks(Q):
            q, k = p.load("Q_i", Q.tile(i)), p.load("K_i", K.tile(i))
            body(p, q, k, O.tile(i))

    return mine(program)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            lambda p, q, k, o: p.store(o, p.let("S", q @ k)),
            r"S = Q_i @ K_i: the shapes 3 x 3 and 4 x 3 do not",
        ),
        (lambda p, q, k, o: p.store(o, p.let("T", q @ k.T + q)), r"the shapes 3 x 4 and 3 x 3 do not belong"),
        (
            lambda p, q, k, o: p.store(o, p.let("S", q @ k.T)),
            r"a value of 3 x 4 is stored into O\[0:3, 0:5\]",
        ),
        (
            lambda p, q, k, o: (p.set(p.fill("m", 0, q.rows), p.let("S", q @ k.T)), p.store(o, q)),
            r"a value of . x 1 is set to one of",
        ),
    ],
    ids=["matmul", "add", "store", "set"],
)
def test_shapes_that_do_not_belong_together_are_named_in_the_programs_words(
    body: Callable[[Builder, Any, Any, Any], None], said: str
) -> None:
    with pytest.raises(VerificationError, match=said) as caught:
        prove(_bad(body), PLAIN)
    assert "mine: cannot be run at batch 1" in str(caught.value)
    assert "broadcast" not in str(caught.value)
    assert "operand" not in str(caught.value)


def test_a_row_by_number_beyond_the_tensor_is_named() -> None:
    def far(p: Builder) -> None:
        Q, K, _, O = p.tensors("Q K V O")
        for i in p.blocks(Q):
            q = p.load("Q_i", Q.tile(i))
            p.load("k", K.part(Span.one(10_000)))
            p.store(O.tile(i), q)

    with pytest.raises(VerificationError, match=r"K\[10000:10001, .* leaves the tensor, which is 8 x 4"):
        prove(mine(far), PLAIN)
