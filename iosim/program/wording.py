"""How operations are written in a listing: infix where the field writes them so, brackets where they are needed."""

from __future__ import annotations

from collections.abc import Sequence

INFIX = ("+", "-", "·")


def apply_text(symbol: str, operands: Sequence[str]) -> str:
    """`a + b`, `(a - b) · c`, `1/l`, `exp(a)`: an operation's symbol on the texts of its operands."""
    if symbol in INFIX:
        parts = [_bracket(text, symbol, place == 0) for place, text in enumerate(operands)]
        return f" {symbol} ".join(parts)
    if symbol.endswith("/") and operands[0].isidentifier():
        return f"{symbol}{operands[0]}"
    return f"{symbol}({', '.join(operands)})"


def matmul_text(a: str, b: str, plus: str | None = None) -> str:
    """`a @ b`, or `plus + a @ b`."""
    text = f"{_bracket(a, '@', True)} @ {_bracket(b, '@', False)}"
    return text if plus is None else f"{plus} + {text}"


def _bracket(text: str, symbol: str, first: bool) -> str:
    binds_tighter = symbol in ("·", "@") or (symbol == "-" and not first)
    return f"({text})" if binds_tighter and _is_sum(text) else text


def _is_sum(text: str) -> bool:
    """True where a + or − stands outside all brackets."""
    depth = 0
    for before, here, after in zip(text, text[1:], text[2:], strict=False):
        depth += (before in "([") - (before in ")]")
        if depth == 0 and before == after == " " and here in "+-":
            return True
    return False
