"""Which rows of K some rows of Q see under a mask, and the other way round, as first and past-the-last index.

Query row r stands at key r + Nk − N (bottom-right aligned).
"""

from __future__ import annotations

from dataclasses import replace

from iosim.program.expr import Expr, cdiv, const, maximum, minimum, param
from iosim.program.ir import Span

GROUP = param("H") // param("Hk")
"""Query heads that share a kv-head."""

_N, _NK, _WINDOW, _PREFIX = param("N"), param("Nk"), param("w"), param("pre")
Range = tuple[Expr, Expr]


def keys_seen(mask_kind: str, rows: Span) -> Range:
    """The keys that some query of `rows` sees."""
    if rows.packed:
        rows = replace(rows, start=rows.start // GROUP, stop=cdiv(rows.stop, GROUP), packed=False)
    if mask_kind == "none":
        return const(0), _NK
    offset = _NK - _N
    first = maximum(0, rows.start + offset - _WINDOW + 1) if mask_kind == "window" else const(0)
    last = maximum(0, rows.stop + offset)
    return first, minimum(_NK, maximum(_PREFIX, last)) if mask_kind == "prefix" else last


def queries_seeing(mask_kind: str, keys: Span) -> Range:
    """The queries that see some key of `keys`."""
    if mask_kind == "none":
        return const(0), _N
    offset = _NK - _N
    last = _N
    if mask_kind == "window":
        last = minimum(_N, maximum(0, keys.stop - offset + _WINDOW - 1))
    first = maximum(0, keys.start - offset)
    if mask_kind == "prefix":  # every query sees keys that start inside it; beyond it the bound is no bound
        first = minimum(first, maximum(0, keys.start - _PREFIX + 1) * (_N + _NK))
    return first, last
