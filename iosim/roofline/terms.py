"""A term of a time: its name, its formula in words, the numbers that went in, and the seconds that came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A number of a formula, with its unit."""

    name: str
    value: float
    unit: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name, "value": self.value, "unit": self.unit}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One named part of a time. `hidden`: it runs behind the others and adds nothing."""

    name: str
    seconds: float
    formula: str
    inputs: tuple[Input, ...] = ()
    hidden: bool = False

    def to_dict(self, total_s: float) -> dict[str, Any]:
        """Plain values, with the term's share of a total."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "share": self.seconds / total_s if total_s else 0.0,
            "formula": self.formula,
            "inputs": [i.to_dict() for i in self.inputs],
            "hidden": self.hidden,
        }


def inputs(*rows: tuple[str, float, str]) -> tuple[Input, ...]:
    """Inputs from (name, value, unit)."""
    return tuple(Input(name=n, value=float(v), unit=u) for n, v, u in rows)


def longest(terms: Sequence[Term]) -> Term:
    """The term that takes most; the first of equals."""
    return max(terms, key=lambda t: t.seconds)
