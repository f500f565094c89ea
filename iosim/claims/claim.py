"""A sentence that people repeat, the numbers that bear on it, and the verdict that follows from those numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

HOLDS = "holds"
CONDITION = "holds with a condition"
FAILS = "does not hold"
UNDECIDED = "cannot be decided from bytes"
VERDICTS = (HOLDS, CONDITION, FAILS, UNDECIDED)

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One sentence.

    `measure` computes numbers from the library, nothing typed in; `judge` turns them into a verdict and looks at
    nothing else; `because` is a template over them; `command` shows them; `source`: who says it, or otherwise.
    """

    key: str
    section: str
    sentence: str
    source: str
    command: str
    measure: Callable[[], Numbers]
    judge: Callable[[Numbers], str]
    because: str

    def evidence(self) -> Evidence:
        """Compute the numbers and judge."""
        numbers = self.measure()
        return Evidence(
            claim=self,
            numbers=MappingProxyType(dict(numbers)),
            verdict=self.judge(numbers),
            text=self.because.format(**numbers),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A claim with its numbers, its verdict and the reason in words."""

    claim: Claim
    numbers: Numbers
    verdict: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        c = self.claim
        return {
            "key": c.key,
            "section": c.section,
            "sentence": c.sentence,
            "verdict": self.verdict,
            "because": self.text,
            "numbers": dict(self.numbers),
            "source": c.source,
            "command": c.command,
        }


def undecided(numbers: Numbers) -> str:
    """The judge of sentences about clocks, training runs and accuracies."""
    return UNDECIDED
