"""The operations of a builder: what a program computes on chip, from the table of operations, with cost and wording."""

from __future__ import annotations

from abc import ABC, abstractmethod

from iosim.errors import ProgramError
from iosim.program.expr import Expr, const, is_const, product
from iosim.program.ir import Span
from iosim.program.ops import find_op
from iosim.program.value import Value
from iosim.program.wording import apply_text, matmul_text


class Operations(ABC):
    """The part of a builder that knows what operations cost and how a person writes them."""

    mask_kind: str

    @abstractmethod
    def _compute(
        self,
        op: str,
        operands: tuple[Value, ...],
        rows: Span,
        cols: Span,
        cost: Expr,
        text: str,
        *,
        transposed: tuple[bool, bool] = (False, False),
        spans: tuple[Span, Span] | None = None,
        number: float | None = None,
        named: bool = False,
    ) -> Value:
        """Add the statement; the value that it makes."""

    def matmul(self, a: Value, b: Value, plus: Value | None = None) -> Value:
        """a @ b, either of them `.T`; `plus` is accumulated into without extra flops."""
        rows, inner = (a.cols, a.rows) if a.transposed else (a.rows, a.cols)
        cols = b.rows if b.transposed else b.cols
        cost = product([2, rows.length, cols.length, inner.length])
        operands = (a, b) if plus is None else (a, b, plus)
        text = matmul_text(a.text, b.text, None if plus is None else plus.text)
        transposed = (a.transposed, b.transposed)
        return self._compute("matmul", operands, rows, cols, cost, text, transposed=transposed)

    def op(self, name: str, *operands: Value, number: float | None = None) -> Value:
        """Any other operation of the table, element by element or along rows."""
        rule = find_op(name)
        if not operands:
            raise ProgramError(f"op {name}: needs at least one operand")
        shapes = [o for o in operands if not is_const(o.cols.length, 1)]
        widest = shapes[0] if shapes else operands[0]
        rows = widest.rows
        cols = Span.whole(const(1)) if rule.per == "in" else widest.cols
        counted = operands[0].cols if rule.per == "in" else cols
        cost = product([rule.cost, rows.length, counted.length])
        text = apply_text(rule.symbol, [o.text for o in operands])
        return self._compute(name, operands, rows, cols, cost, text, number=number, spans=(rows, cols))

    def maximum(self, a: Value, b: Value) -> Value:
        """The larger of two, element by element."""
        return self.op("maximum", a, b)

    def row_max(self, a: Value) -> Value:
        """The largest of each row."""
        return self.op("row_max", a)

    def row_sum(self, a: Value) -> Value:
        """The sum of each row."""
        return self.op("row_sum", a)

    def exp(self, a: Value) -> Value:
        """e to the power of a."""
        return self.op("exp", a)

    def log(self, a: Value) -> Value:
        """Natural logarithm."""
        return self.op("log", a)

    def reciprocal(self, a: Value) -> Value:
        """1 / a, 0 for a row without keys."""
        return self.op("reciprocal", a)

    def scale(self, a: Value, number: float | None = None) -> Value:
        """Times the softmax scale, or times a number."""
        return self.op("scale", a, number=number)

    def first_columns(self, a: Value, size: Expr) -> Value:
        """The first `size` columns of what is on chip already: no bytes, no flops."""
        cols = Span.whole(size)
        text = f"{a.text}[:, :{size}]"
        return self._compute("first_columns", (a,), a.rows, cols, const(0), text, spans=(a.rows, cols))

    def mask(self, scores: Value) -> Value:
        """−∞ where the mask hides the pair; nothing to do under no mask."""
        return scores if self.mask_kind == "none" else self.op("mask", scores)
