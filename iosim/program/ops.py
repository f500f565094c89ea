"""Every operation a tile program may use: what it computes, what it costs and which unit runs it. One table.

Costs are per element: of the result (`out`), of the first operand (`in`), or of the multiplications of a matmul
(`product`, an FMA being 2 flops). An operation that is not here does not exist: `UnknownOp`.
Row vectors are matrices of one column, so NumPy's broadcasting is the field's notation diag(v) · A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import UnknownOp

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation: its NumPy meaning, its cost an element, the unit (tensor, vector, special, none)."""

    name: str
    symbol: str
    function: Callable[..., Array]
    unit: str
    per: str = "out"
    cost: int = 1


def _sub(a: Array, b: Array) -> Array:
    """a − b, with −∞ − (−∞) = −∞: a row that has seen no key yet must stay empty, not become NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(b), -np.inf, a - b)


def _reciprocal(a: Array) -> Array:
    """1 / a, and 0 where a is 0: a query that sees no key gives a row of zeros."""
    with np.errstate(divide="ignore"):
        return np.where(a == 0, 0.0, 1.0 / a)


def _log(a: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(a)


def _plain_exp(a: Array) -> Array:
    """exp that may overflow to infinity, as the hardware's does."""
    with np.errstate(over="ignore"):
        return np.exp(a)


def _matmul(a: Array, b: Array, plus: Array | float = 0.0) -> Array:
    return a @ b + plus


def _phi(a: Array) -> Array:
    """elu(a) + 1, the feature map of linear attention: a + 1 above 0 and exp(a) below."""
    return np.asarray(np.where(a > 0, a + 1, np.exp(np.minimum(a, 0))))


def _row_max(a: Array) -> Array:
    return np.asarray(np.max(a, axis=1, keepdims=True, initial=-np.inf))


_TABLE = [
    Op(name="matmul", symbol="@", function=_matmul, unit="tensor", per="product", cost=2),
    Op(name="add", symbol="+", function=np.add, unit="vector"),
    Op(name="sub", symbol="-", function=_sub, unit="vector"),
    Op(name="mul", symbol="·", function=np.multiply, unit="vector"),
    Op(name="scale", symbol="scale", function=np.multiply, unit="vector"),
    Op(name="maximum", symbol="max", function=np.maximum, unit="vector"),
    Op(name="row_max", symbol="rowmax", function=_row_max, unit="vector", per="in"),
    Op(
        name="row_sum",
        symbol="rowsum",
        function=lambda a: a.sum(axis=1, keepdims=True),
        unit="vector",
        per="in",
    ),
    Op(name="exp", symbol="exp", function=_plain_exp, unit="special"),
    Op(name="log", symbol="log", function=_log, unit="special"),
    Op(name="phi", symbol="φ", function=_phi, unit="special"),
    Op(name="reciprocal", symbol="1/", function=_reciprocal, unit="special"),
    # Selecting, filling and hashing move or compare data; none of them is a floating-point operation.
    Op(name="mask", symbol="mask", function=lambda s, seen: np.where(seen, s, -np.inf), unit="none", cost=0),
    Op(
        name="first_columns",
        symbol="first columns of ",
        function=lambda a, cols: a[:, cols],
        unit="none",
        cost=0,
    ),
    Op(name="fill", symbol="fill", function=np.full, unit="none", cost=0),
    # ALiBi: one multiply-add a score; the distances are those of the indices, and cost no flop
    Op(name="alibi", symbol="alibi", function=np.add, unit="vector", cost=2),
    Op(name="keep", symbol="keep", function=lambda a, kept: kept.astype(a.dtype), unit="none", cost=0),
]

OPS: dict[str, Op] = {op.name: op for op in _TABLE}


def find_op(name: str) -> Op:
    """The rule of an operation; `UnknownOp` lists what is known."""
    try:
        return OPS[name]
    except KeyError:
        raise UnknownOp(f"unknown op {name!r}: known are {', '.join(OPS)}") from None
