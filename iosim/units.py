"""Quantities with units: "3.35 TB/s", "192 KiB" <-> SI numbers; decimal GB and binary GiB stay distinct."""

from __future__ import annotations

import difflib
import math
import re
from enum import StrEnum
from fractions import Fraction

from iosim.errors import UsageError

Number = int | float
MAX_NUMBER = 10**30
"""Beyond it is a typing error, not hardware."""


class Dimension(StrEnum):
    """What a number measures; the value is its base unit, the one all parsed numbers are in."""

    BYTES = "B"
    BYTES_PER_S = "B/s"
    BYTES_PER_CLK = "B/clk"
    FLOP_PER_S = "FLOP/s"
    OPS_PER_CLK = "op/clk"
    HERTZ = "Hz"
    SECONDS = "s"
    CYCLES = "clk"
    WATTS = "W"
    JOULES = "J"
    COUNT = "count"
    FLAG = "flag"


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 head`, `8,192 keys`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def _scaled(symbol: str, prefixes: dict[str, int]) -> dict[str, Fraction]:
    return {prefix + symbol: Fraction(factor) for prefix, factor in prefixes.items()}


_PARTS_OF_S = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
_ANY_SIZE = _DECIMAL | _BINARY
UNITS: dict[Dimension, dict[str, Fraction]] = {
    Dimension.BYTES: _scaled("B", _ANY_SIZE),
    Dimension.BYTES_PER_S: _scaled("B/s", _ANY_SIZE),
    Dimension.BYTES_PER_CLK: {"B/clk": Fraction(1)},
    Dimension.FLOP_PER_S: _scaled("FLOP/s", _DECIMAL) | _scaled("OP/s", _DECIMAL),
    Dimension.OPS_PER_CLK: {"op/clk": Fraction(1)},
    Dimension.HERTZ: _scaled("Hz", _DECIMAL),
    Dimension.SECONDS: _PARTS_OF_S | {"µs": Fraction(1, 10**6)},
    Dimension.CYCLES: {"clk": Fraction(1)},
    Dimension.WATTS: {"W": Fraction(1), "kW": Fraction(1000)},
    Dimension.JOULES: {"J": Fraction(1), "nJ": Fraction(1, 10**9), "pJ": Fraction(1, 10**12)},
    Dimension.COUNT: {"": Fraction(1)},
    Dimension.FLAG: {},
}
"""For each dimension, its accepted units and their size in the base unit. OP/s is for integer dtypes."""

_SHOWN = {
    Dimension.BYTES: "B, KiB, MiB, GiB (binary) or kB, MB, GB (decimal)",
    Dimension.BYTES_PER_S: "GB/s, TB/s (decimal) or GiB/s, TiB/s (binary)",
    Dimension.FLOP_PER_S: "GFLOP/s, TFLOP/s, PFLOP/s or TOP/s",
    Dimension.HERTZ: "Hz, kHz, MHz, GHz",
}
_NUMBER = re.compile(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?)\s*(.*)", re.DOTALL | re.ASCII)
_BINARY_UNIT = re.compile(r"([kmgt])ib(.*)", re.IGNORECASE)


def split_quantity(text: str) -> tuple[Fraction, str]:
    """Split "3.35 TB/s" into its exact number and its unit (empty when there is none)."""
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text.strip()[:40]!r} is not a number with a unit, as in '192 KiB' or '3.35 TB/s'")
    if len(match[1]) > 40 or abs(int(match[2] or 0)) > 99:  # Fraction would write all of its digits out
        raise UsageError(f"{text.strip()[:40]!r} is not between 0 and 1e30")
    return Fraction(match[1].replace("_", "")), match[3].strip()


def has_exponent(text: str) -> bool:
    """True for a bare number in exponent notation, such as 3.35e12."""
    return re.fullmatch(r"\s*[+-]?[\d_.]+[eE][+-]?\d{1,3}\s*", text) is not None


def is_decimal_size(text: str) -> bool:
    """True when a size is written with a decimal unit (KB, MB, GB) rather than a binary one."""
    return re.search(r"\d\s*[kKMGT]B\s*$", text) is not None


def as_number(value: Fraction) -> Number:
    """The exact int when there is one, else the nearest float."""
    return value.numerator if value.denominator == 1 else float(value)


def parse_quantity(text: str, dimension: Dimension, unit: str | None = None) -> Number:
    """Read a quantity into the dimension's base unit; an int wherever the result is whole.

    The unit stands in the text, or beside it as `unit`. A number in exponent notation (3.35e12) may go
    without: it is in the base unit. Any other bare number is an error, as are negative and non-finite ones.
    """
    if dimension is Dimension.FLAG:
        return _parse_flag(text)
    number, found = split_quantity(text)
    if found and unit:
        raise UsageError(f"{text.strip()!r} has a unit and a second one beside it ({unit}); give one")
    found = found or unit or ""
    if not 0 <= number <= MAX_NUMBER:
        raise UsageError(f"{text.strip()!r} is not between 0 and 1e30")
    table = UNITS[dimension]
    if not found and dimension is not Dimension.COUNT:
        if not has_exponent(text):
            raise UsageError(
                f"{text.strip()!r} has no unit; allowed: {_allowed(dimension)}, "
                f"or exponent notation for {dimension.value}"
            )
        return as_number(number)
    binary = _BINARY_UNIT.fullmatch(found)
    if binary:  # 192kib can mean one thing only
        found = f"{binary[1].upper()}iB{binary[2]}"
    if found not in table:
        near = difflib.get_close_matches(found.lower(), {u.lower(): u for u in table}, n=1)
        hint = next((f"; did you mean {u!r}?" for u in table if near and u.lower() == near[0]), "")
        raise UsageError(f"{text.strip()!r}: unknown unit {found!r}; allowed: {_allowed(dimension)}{hint}")
    value = number * table[found]
    if dimension is Dimension.COUNT and value.denominator != 1:
        raise UsageError(f"{text.strip()!r} must be a whole number")
    return as_number(value)


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false", "yes", "no"):
        raise UsageError(f"{text.strip()!r} is not a flag; allowed: true, false")
    return word in ("true", "yes")


def _allowed(dimension: Dimension) -> str:
    return _SHOWN.get(dimension) or ", ".join(u for u in UNITS[dimension] if u) or "a plain whole number"


def parse_sram(text: str, itemsize: int, warnings: list[str] | None = None) -> int:
    """Read an on-chip size for the command line: bytes with a unit, or elements as in `98304el`.

    `itemsize` is the bytes of one element (that of K). A bare number is refused, because it could mean
    bytes or elements. A decimal unit is taken at its word and appends a line to `warnings`.
    """
    elements = re.fullmatch(r"\s*([0-9]{1,19})\s*el(?:ements?|ems?)?\s*", text)
    if elements:
        size: Number = int(elements[1]) * itemsize
    elif re.fullmatch(r"(?:[^a-zA-Z]|[eE][+-]?\d)*el(?:ements?|ems?)?\s*", text):
        raise UsageError(
            f"sram: {text.strip()!r} is not a whole number of elements, 1 or more, as in 98304el"
        )
    elif re.fullmatch(r"\s*[\d.]+(?:[eE]\+?\d+)?\s*", text):
        bare = text.strip()
        raise UsageError(f"sram: {bare!r} has no unit; write {bare}B, {bare}KiB or {bare}el (elements)")
    else:
        try:
            size = parse_quantity(text, Dimension.BYTES)
        except UsageError as error:
            raise UsageError(f"sram: {error}") from None
    if not isinstance(size, int) or size < 1:
        raise UsageError(f"sram: {text.strip()!r} is not a whole number of bytes, 1 or more")
    if warnings is not None and is_decimal_size(text):
        warnings.append(f"sram: {decimal_hint(text, size)}")
    return size


def decimal_hint(text: str, size_bytes: Number) -> str:
    """The warning for an on-chip size in a decimal unit."""
    binary = re.sub(r"([kKMGT])B\s*$", lambda m: f"{m[1].upper()}iB", text.strip())
    return f"{text.strip()!r} is decimal ({size_bytes:,} B); on-chip memories come in {binary!r}"


def format_bytes(size_bytes: Number, *, decimal: bool = False, digits: int = 4) -> str:
    """Bytes for people: "163 KiB", "50 MiB", or with `decimal` "80 GB". Labels always say which."""
    steps = [(f, f"{p}B") for p, f in _BINARY.items()]
    if decimal:
        steps = [(f, f"{p}B") for p, f in _DECIMAL.items() if p not in ("", "K")]
    return _format(size_bytes, steps, "B", digits)


def format_rate(per_s: Number, unit: str = "B/s", *, digits: int = 4) -> str:
    """A rate or frequency for people, always decimal: "3.352 TB/s", "989.4 TFLOP/s", "1.98 GHz"."""
    return _format(per_s, [(f, p + unit) for p, f in _DECIMAL.items() if p not in ("", "K")], unit, digits)


def format_seconds(seconds: Number, *, digits: int = 4) -> str:
    """A time for people: "1.693 ms", "25.4 µs"."""
    steps = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")]
    factor, name = max((s for s in steps if abs(seconds) >= s[0]), default=(1.0, "s"))
    return f"{_trimmed(seconds / factor, digits)} {name}"


def _format(value: Number, steps: list[tuple[int, str]], base: str, digits: int) -> str:
    if not math.isfinite(value):
        return f"{value} {base}"
    factor, name = max((s for s in steps if abs(value) >= s[0]), default=(1, base))
    return f"{_trimmed(value / factor, digits)} {name}"


def _trimmed(value: float, digits: int) -> str:
    whole = len(str(int(abs(value))))
    text = f"{value:.{max(0, digits - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_quantity(value: Number, dimension: Dimension) -> str:
    """Any quantity for people, in the unit its dimension is usually written in."""
    if dimension is Dimension.FLAG:
        return "yes" if value else "no"
    if dimension is Dimension.BYTES:
        whole_binary = any(value % f == 0 for f in _BINARY.values()) and value % 10**9 != 0
        return format_bytes(value, decimal=not whole_binary and value >= 10**6)
    if dimension in (Dimension.BYTES_PER_S, Dimension.FLOP_PER_S, Dimension.HERTZ):
        return format_rate(value, dimension.value, digits=5)
    if dimension is Dimension.SECONDS:
        return f"{_trimmed(value * 1e6, 4)} us"
    if dimension is Dimension.JOULES:
        return f"{_trimmed(value * 1e12, 4)} pJ"
    if dimension is Dimension.COUNT:
        return f"{value:,}"
    return f"{value:g} {dimension.value}"
