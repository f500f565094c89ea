"""Lower bounds of an expression over all values of one letter: what a search of tiles prunes by.

A count under a mask is a sum over row tiles or key tiles of ranges rounded to whole tiles. Without the rounding the sum
depends on one side of the tile alone: ⌈x/c⌉·c >= x and ⌊x/c⌋·c <= x. So the bounds of all pairs of sides cost no more
than the two sides apart. Whatever has no rule is bounded by 0, which is always right for bytes.

The letter's range is written as two more letters, `least(c)` and `most(c)`, that a binding has to give.
"""

from __future__ import annotations

from functools import lru_cache

from iosim.program.expr import (
    Expr,
    add,
    cdiv,
    const,
    factors,
    floordiv,
    maximum,
    minimum,
    nonnegative,
    param,
    product,
    sub,
    sum_over,
)

SIDES = ("Br", "Bc")


def least(letter: str) -> str:
    """The name of a letter's smallest value."""
    return f"least {letter}"


def most(letter: str) -> str:
    """The name of a letter's largest value."""
    return f"most {letter}"


@lru_cache(maxsize=256)
def relaxed(node: Expr) -> Expr:
    """A lower bound of a sum of byte counts, in which every sum over a loop depends on one side of the tile at most."""
    if not sums_of(node) or not set(SIDES) <= node.params:
        return node
    if node.op == "+":
        return add(*map(relaxed, node.children))
    if node.op == "*":
        return product(relaxed(part) for part in factors(node))
    if node.op == "sum":
        for side in SIDES:
            bound = _low_sum(node, param(side))
            if bound is not None:
                return bound
    return const(0)


@lru_cache(maxsize=1024)
def sums_of(node: Expr) -> tuple[Expr, ...]:
    """The outermost sums in an expression, each once."""
    if node.op == "sum":
        return (node,)
    return tuple(dict.fromkeys(found for child in node.children for found in sums_of(child)))


def _low_sum(node: Expr, c: Expr) -> Expr | None:
    """Σ body from below, without `c` inside; None where the loop's ends depend on it, or something has no rule."""
    name, (lo, end, body) = str(node.args[0]), node.children
    if _depends(lo, c) or _depends(end, c):
        return None
    try:
        if _divides(body, c):  # a number of tiles: Σ ⌈x/c⌉ >= (Σ x)/c
            return cdiv(sum_over(name, lo, end, maximum(0, _Range(c).low_scaled(body))), c)
        return sum_over(name, lo, end, maximum(0, _Range(c).low(body)))
    except _NoRuleError:
        return None


def _depends(node: Expr, c: Expr) -> bool:
    return bool(node.params & c.params)


def _divides(node: Expr, c: Expr) -> bool:
    """Whether something is divided by `c` and not multiplied by it again."""
    if node.op in ("//", "cdiv") and node.children[1] is c:
        return True
    if node.op == "*" and any(part is c for part in factors(node)):
        return False
    return any(_divides(child, c) for child in node.children)


class _Range:
    """Bounds of nodes over all values of the letter `c`, a positive size."""

    def __init__(self, c: Expr) -> None:
        letter = str(c.args[0])
        self.c, self.least, self.most = c, param(least(letter)), param(most(letter))

    def low(self, node: Expr) -> Expr:
        """No more than the node."""
        return self._bound(node, up=False)

    def high(self, node: Expr) -> Expr:
        """No less than the node."""
        return self._bound(node, up=True)

    def low_scaled(self, node: Expr) -> Expr:
        """No more than the node times `c`."""
        return self._scaled(node, up=False)

    def _bound(self, node: Expr, *, up: bool) -> Expr:
        if not _depends(node, self.c):
            return node
        if node is self.c:
            return self.most if up else self.least
        match node.op:
            case "+":
                a, b = node.children
                return add(self._bound(a, up=up), self._bound(b, up=up))
            case "-":
                a, b = node.children
                return sub(self._bound(a, up=up), self._bound(b, up=not up))
            case "min" | "max":
                a, b = (self._bound(child, up=up) for child in node.children)
                return minimum(a, b) if node.op == "min" else maximum(a, b)
            case "*":
                return self._product(node, up=up)
            case "//" | "cdiv":
                return self._quotient(node, up=up)
            case "extent":
                return self.high(node.children[1]) if up else const(0)
        raise _NoRuleError

    def _product(self, node: Expr, *, up: bool) -> Expr:
        parts = factors(node)
        moving = [part for part in parts if _depends(part, self.c) and part is not self.c]
        fixed = [part for part in parts if not _depends(part, self.c)]
        times = sum(part is self.c for part in parts)
        if not all(nonnegative(part) for part in fixed) or len(moving) > 1 or times > 1:
            raise _NoRuleError
        if not moving:
            return product([*fixed, self._bound(self.c, up=up)])
        inner = self._scaled(moving[0], up=up) if times else self._bound(moving[0], up=up)
        return product([*fixed, inner])

    def _quotient(self, node: Expr, *, up: bool) -> Expr:
        divide = floordiv if node.op == "//" else cdiv
        x, y = node.children
        bound = self._bound(x, up=up)
        if not _depends(y, self.c):
            return divide(bound, y)
        if y is not self.c:
            raise _NoRuleError
        if nonnegative(x):
            return divide(bound, self.least if up else self.most)
        pick = maximum if up else minimum  # the sign of x decides which end of c counts
        return pick(divide(bound, self.least), divide(bound, self.most))

    def _scaled(self, node: Expr, *, up: bool) -> Expr:
        """A bound of node · c."""
        c = self.c
        match node.op:
            case "//" | "cdiv" if node.children[1] is c:
                x = self._bound(node.children[0], up=up)
                if node.op == "cdiv":
                    return add(x, sub(self.most, 1)) if up else x
                return x if up else sub(add(x, 1), self.most)
            case "min" | "max":
                a, b = (self._scaled(child, up=up) for child in node.children)
                return minimum(a, b) if node.op == "min" else maximum(a, b)
            case "+":
                a, b = node.children
                return add(self._scaled(a, up=up), self._scaled(b, up=up))
            case "-":
                a, b = node.children
                return sub(self._scaled(a, up=up), self._scaled(b, up=not up))
            case "*":
                parts = factors(node)
                moving = [part for part in parts if _depends(part, c)]
                fixed = [part for part in parts if not _depends(part, c)]
                if len(moving) == 1 and all(nonnegative(part) for part in fixed):
                    return product([*fixed, self._scaled(moving[0], up=up)])
        bound = self._bound(node, up=up)
        ends = product([bound, self.least]), product([bound, self.most])
        return maximum(*ends) if up else minimum(*ends)


class _NoRuleError(Exception):
    """A node that is not bounded."""
