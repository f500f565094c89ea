"""Reads numbers.csv: one printed number a row, with paper, place, GPU and setting. Facts only, nothing computed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from iosim.errors import RunError
from iosim.problem import AttentionProblem

_FILE = Path(__file__).parent / "numbers.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A printed number in its printed unit; empty fields are what the paper does not say.

    `value` is text, since some are ranges; `status`: read in the paper, read (secondary), or recalled.
    """

    source: str
    place: str
    gpu: str
    quantity: str
    unit: str
    implementation: str
    passes: str
    batch: str
    heads: str
    seq: str
    head_dim: str
    mask: str
    dropout: str
    detail: str
    value: str
    status: str

    @property
    def number(self) -> float:
        """The value as a number; `RunError` for a range."""
        try:
            return float(self.value)
        except ValueError:
            raise RunError(f"numbers.csv: {self.place}, {self.quantity}: {self.value!r} is a range") from None

    @property
    def problem(self) -> AttentionProblem:
        """The attention that was measured, in fp16; key padding and dropout are not part of it."""
        return AttentionProblem.of(
            batch=int(self.batch),
            heads=int(self.heads),
            seq=int(self.seq),
            head_dim=int(self.head_dim),
            mask="causal" if self.mask == "causal" else "none",
        )

    @property
    def paper(self) -> str:
        """The paper's name alone."""
        return self.source.partition(",")[0]


@lru_cache(maxsize=1)
def published_numbers() -> tuple[Number, ...]:
    """Every row of the file. `RunError` where it cannot be read."""
    try:
        with _FILE.open(newline="", encoding="utf-8") as file:
            return tuple(Number(**row) for row in csv.DictReader(file))
    except (OSError, TypeError) as error:
        raise RunError(f"{_FILE.name}: cannot be read: {error}; reinstall iosim") from None


def select(place: str, quantity: str | None = None, **fields: str) -> list[Number]:
    """The rows of one place (its beginning is enough) that match all given fields."""
    return [
        n
        for n in published_numbers()
        if n.place.startswith(place)
        and (quantity is None or n.quantity == quantity)
        and all(getattr(n, name) == value for name, value in fields.items())
    ]
