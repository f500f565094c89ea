"""What is done to scores and probabilities on chip besides the softmax: ALiBi, a bias matrix, dropout."""

from __future__ import annotations

from iosim.program.builder import Builder, Value
from iosim.program.ir import Span, Tensor

DROPOUT_RATE = 0.1
"""Share of P dropped by `dropout=on`; it changes values, not bytes."""


def bias_tensor(p: Builder) -> Tensor | None:
    """The bias as a matrix of queries x keys a head, where the option asks for one."""
    return p.scratch("BIAS", role="input") if p.options["bias"] == "matrix" else None


def add_bias(p: Builder, scores: Value, bias: Tensor | None, rows: Span, cols: Span) -> Value:
    """The scores with ALiBi (flops alone) or with a tile of the bias matrix (its bytes too)."""
    if p.options["bias"] == "alibi":
        return p.op("alibi", scores)
    if bias is None:
        return scores
    return scores + p.load("B", bias.part(rows, cols))


def drop(p: Builder, probabilities: Value) -> Value:
    """P with entries dropped and the others scaled up; the pattern is made on chip, and made again in a backward."""
    if p.options["dropout"] == "off":
        return probabilities
    kept = p.op("keep", probabilities)
    return p.let("P_kept", p.scale(probabilities * kept, 1 / (1 - DROPOUT_RATE)))
