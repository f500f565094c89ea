"""Standard attention (Dao et al. 2022), forward (Algorithm 0): three kernels, with S and P in slow memory.

    Q, K ──[scores]──> S ──[softmax]──> P ──[output]──> O        N x Nk each for S and P

Idealised by default: each matmul reads each operand once, as if one operand and a row of scores stayed on chip
(what a real chip cannot do once N·d passes M: `fits` says so). `gemm-tiles` counts the re-reads of real tiles.
`softmax` chooses how often a row of S is read: fused once, naive and online twice, safe three times.
Slow memory a head: N·d + Nk(d + dv) + N·dv + (2 + reads + 1) N·Nk elements. A mask skips nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from iosim.algorithms.extras import DROPOUT_RATE, add_bias, bias_tensor
from iosim.algorithms.standard_backward import standard_backward
from iosim.program.builder import Builder, Value
from iosim.program.expr import Expr, cdiv, const
from iosim.program.ir import Span, Tensor


def standard(p: Builder) -> None:
    """Standard attention; options softmax, gemm-tiles, scale-pass, additive-mask, bias, dropout, pass."""
    if p.options["pass"] != "bwd":
        _forward(p)
    if p.options["pass"] != "fwd":
        standard_backward(p)


def _forward(p: Builder) -> None:
    Q, K, V, O, P = p.tensors("Q K V O P")
    S, bias = p.scratch("S"), bias_tensor(p)
    p.line("1")
    scores = _tiled_scores if p.options["gemm-tiles"] != "off" else _ideal_scores
    scores(p, Q, K, S, bias)
    if p.options["scale-pass"] == "on":
        for row in _rows(p, "scale"):
            s = p.scale(p.load("S_r", S.part(row)))
            p.store(S.part(row), add_bias(p, s, bias, s.rows, s.cols))
    if p.options["additive-mask"] == "on":
        MASK = p.scratch("MASK", role="input")
        for row in _rows(p, "add mask"):
            p.store(S.part(row), p.load("S_r", S.part(row)) + p.load("mask_r", MASK.part(row)))
    p.line("2")
    for row in _rows(p, "softmax"):
        _SOFTMAX[p.options["softmax"]](p, row, S, P)
    if p.options["dropout"] == "on":
        _dropout(p, P)
    p.line("3")
    output = _tiled_output if p.options["gemm-tiles"] != "off" else _ideal_output
    output(p, P, V, O)


def _rows(p: Builder, kernel: str) -> Iterator[Span]:
    """A kernel with one thread block a row of scores."""
    for _ in p.kernel(kernel):
        for _ in p.heads():
            for r in p.grid("r", 0, cdiv(p.N, 1)):
                yield Span.one(r)


def _scaled(p: Builder, scores: Value, bias: Tensor | None) -> Value:
    """Scores as the first kernel stores them; a bias is added in it, or after the scale in the scale pass."""
    if p.options["scale-pass"] == "on":
        return scores
    return add_bias(p, p.scale(scores), bias, scores.rows, scores.cols)


def _ideal_scores(p: Builder, Q: Tensor, K: Tensor, S: Tensor, bias: Tensor | None) -> None:
    for _ in p.kernel("scores"):
        for _ in p.heads():
            k = p.load("K", K.part())
            for r in p.loop("r", 0, p.N):
                q = p.load("q_r", Q.part(Span.one(r)))
                p.store(S.part(q.rows), p.let("s_r", _scaled(p, q @ k.T, bias)))


def _tiled_scores(p: Builder, Q: Tensor, K: Tensor, S: Tensor, bias: Tensor | None) -> None:
    for _ in p.kernel("scores"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                for j in p.grid("j", 0, cdiv(p.Nk, p.Bc)):
                    q, k = p.load("Q_i", Q.tile(i)), p.load("K_j", K.tile(j))
                    p.store(S.tile(i, j), p.let("S_ij", _scaled(p, q @ k.T, bias)))


def _ideal_output(p: Builder, P: Tensor, V: Tensor, O: Tensor) -> None:
    for _ in p.kernel("output"):
        for _ in p.heads():
            v = p.load("V", V.part())
            for r in p.loop("r", 0, p.N):
                row = p.load("p_r", P.part(Span.one(r)))
                p.store(O.part(row.rows), p.let("o_r", row @ v))


def _tiled_output(p: Builder, P: Tensor, V: Tensor, O: Tensor) -> None:
    for _ in p.kernel("output"):
        for _ in p.heads():
            for i in p.grid("i", 0, cdiv(p.N, p.Br)):
                for e in p.grid("e", 0, cdiv(p.dv, p.Bc)):
                    tile = O.tile(i, e)
                    acc = p.fill("O_ie", 0, tile.rows, tile.cols, of=O)
                    for j in p.loop("j", 0, cdiv(p.Nk, p.Bc)):
                        a = p.load("P_ij", P.tile(i, j))
                        v = p.load("V_je", V.tile(j, e))
                        p.set(acc, p.matmul(a, v, plus=acc))
                    p.store(tile, acc)


def _pieces(p: Builder, index: str, row: Span, S: Tensor) -> Iterator[tuple[Expr, Value]]:
    """One pass over a row of S in pieces of Bc; yields the piece's number and its masked scores."""
    for j in p.loop(index, 0, cdiv(p.Nk, p.Bc)):
        yield j, p.mask(p.load("S_rj", S.part(row, Span.tile(j, p.Bc, p.Nk))))


def _write(p: Builder, row: Span, S: Tensor, P: Tensor, m: Value | None, l: Value) -> None:
    """The last pass: P = exp(S − m) / l, a piece at a time."""
    for j, s in _pieces(p, "j3", row, S):
        shifted = s if m is None else s - m
        P_rj = p.let("P_rj", p.exp(shifted) * p.reciprocal(l))
        p.store(P.part(row, Span.tile(j, p.Bc, p.Nk)), P_rj)


def _fused(p: Builder, row: Span, S: Tensor, P: Tensor) -> None:
    """One pass, two accesses an element: the whole row stays on chip."""
    s = p.mask(p.load("S_r", S.part(row)))
    e = p.let("e", p.exp(s - p.row_max(s)))
    p.store(P.part(row), p.let("P_r", e * p.reciprocal(p.row_sum(e))))


def _naive(p: Builder, row: Span, S: Tensor, P: Tensor) -> None:
    """Two passes, three accesses: no maximum is taken, so large scores overflow."""
    l = p.fill("l", 0, row)
    for _, s in _pieces(p, "j1", row, S):
        p.set(l, l + p.row_sum(p.exp(s)))
    _write(p, row, S, P, None, l)


def _safe(p: Builder, row: Span, S: Tensor, P: Tensor) -> None:
    """Three passes, four accesses: the maximum, the sum, the division."""
    m, l = p.fill("m", -inf, row), p.fill("l", 0, row)
    for _, s in _pieces(p, "j1", row, S):
        p.set(m, p.maximum(m, p.row_max(s)))
    for _, s in _pieces(p, "j2", row, S):
        p.set(l, l + p.row_sum(p.exp(s - m)))
    _write(p, row, S, P, m, l)


def _online(p: Builder, row: Span, S: Tensor, P: Tensor) -> None:
    """Two passes, three accesses: the maximum and the sum in one (Milakov & Gimelshein 2018)."""
    m, l = p.fill("m", -inf, row), p.fill("l", 0, row)
    for _, s in _pieces(p, "j1", row, S):
        m_new = p.let("m_new", p.maximum(m, p.row_max(s)))
        p.set(l, l * p.exp(m - m_new) + p.row_sum(p.exp(s - m_new)))
        p.set(m, m_new)
    _write(p, row, S, P, m, l)


_SOFTMAX = {"fused": _fused, "naive": _naive, "safe": _safe, "online": _online}


def _dropout(p: Builder, P: Tensor) -> None:
    """Reads and rewrites P and writes the mask that the backward pass needs, a byte an element."""
    DROPOUT = p.scratch("DROPOUT", itemsize=const(1), role="output")
    for row in _rows(p, "dropout"):
        a = p.load("P_r", P.part(row))
        kept = p.let("kept", p.op("keep", a))
        p.store(DROPOUT.part(row), kept)
        p.store(P.part(row), p.scale(a * kept, 1 / (1 - DROPOUT_RATE)))
