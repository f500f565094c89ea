"""Columns of a sweep in words: what an axis, a heading and a curve's label call them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from iosim.units import format_bytes

AXES: Mapping[str, str] = MappingProxyType(
    {
        "sm_bytes": "bytes moved",
        "sm_read_bytes": "bytes read",
        "sm_write_bytes": "bytes written",
        "hbm_read_bytes": "bytes read from HBM",
        "hbm_write_bytes": "bytes written to HBM",
        "seq_q": "N: queries",
        "seq_k": "keys",
        "head_dim": "d: head dimension",
        "value_dim": "dv: width of a value",
        "sram_bytes": "M: bytes on chip, a thread block",
    }
)
"""Columns that have a name of their own; the part before a colon is the paper's letter."""

_UNITS = {"_bytes": "bytes", "_flops": "flops", "_ops": "operations"}
_SIZES = {
    "sram_bytes": "M",
    "seq_q": "N",
    "head_dim": "d",
    "value_dim": "dv",
    "batch": "B",
    "heads": "H",
    "kv_heads": "Hk",
}
_TILES = {"best": "best tiles", "paper": "the paper's tiles", "paper-literal": "the paper's tiles, literal"}


def axis_text(column: str) -> str:
    """The label of an axis, with its unit: `special, operations`."""
    if column in AXES:
        return AXES[column]
    for suffix, unit in _UNITS.items():
        if column.endswith(suffix):
            return f"{_spaced(column.removesuffix(suffix))}, {unit}"
    return _spaced(column)


def short_text(column: str) -> str:
    """A column inside a sentence: `N`, `M`, `bytes moved`, `special operations`."""
    return axis_text(column).partition(":")[0].replace(", ", " ")


def listed(columns: Iterable[str]) -> str:
    """Several columns inside a sentence: `algorithm, d and M`."""
    *first, last = [short_text(column) for column in columns]
    return f"{', '.join(first)} and {last}" if first else last


def value_text(column: str, value: Any) -> str:
    """A value as the label of a curve: `M = 32 KiB`, `d = 128`, `flash2`, `no mask`."""
    text = str(value).removesuffix(".0")
    if column in ("algorithm", "profile"):
        return text
    if column == "mask":
        return "no mask" if text == "none" else text
    if column == "tiles":
        return _TILES.get(text, f"{text} tiles")
    if text.isdigit():
        text = format_bytes(int(text)) if column.endswith("_bytes") else f"{int(text):,}"
    if column == "seq_k":
        return f"{text} keys"
    return f"{_SIZES.get(column) or _spaced(column.removesuffix('_bytes'))} = {text}"


def _spaced(column: str) -> str:
    return column.replace("_", " ")
