"""A printed number beside the model's, and what may be expected of the pair."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number twice. `counted` False: the model should not meet it, and `note` says why.

    `limit`: largest error that the model claims, relative, or in the unit itself where `absolute`.
    """

    place: str
    what: str
    unit: str
    paper: float
    model: float
    counted: bool = True
    limit: float | None = None
    absolute: bool = False
    note: str = ""

    @property
    def error(self) -> float:
        """model / paper − 1."""
        return self.model / self.paper - 1

    @property
    def difference(self) -> float:
        """model − paper, in the unit."""
        return self.model - self.paper

    @property
    def holds(self) -> bool | None:
        """Whether the claimed limit is kept; None without one."""
        if self.limit is None or not self.counted:
            return None
        return abs(self.difference if self.absolute else self.error) <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"error": self.error, "difference": self.difference, "holds": self.holds}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Checks of one kind: the paper, how the model gets its numbers, and what a reader must know (`caveats`)."""

    name: str
    title: str
    source: str
    method: str
    checks: tuple[Check, ...]
    caveats: tuple[str, ...] = ()
    command: str = ""

    @property
    def counted(self) -> tuple[Check, ...]:
        """The checks that the model should meet."""
        return tuple(c for c in self.checks if c.counted)

    @property
    def mean_error(self) -> float | None:
        """Mean of the counted errors' sizes."""
        return fmean(abs(c.error) for c in self.counted) if self.counted else None

    @property
    def worst_error(self) -> float | None:
        """The largest of them."""
        return max((abs(c.error) for c in self.counted), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "source": self.source,
            "method": self.method,
            "command": self.command,
            "mean_error": self.mean_error,
            "worst_error": self.worst_error,
            "checks": [c.to_dict() for c in self.checks],
            "caveats": list(self.caveats),
        }


def past_limit(groups: Iterable[Group], max_error: float) -> Sequence[str]:
    """A sentence for every counted check whose relative error is larger than `max_error`, worst first."""
    found = [
        (-abs(c.error), f"{c.place}, {c.what}: off by {c.error:+.1%}, limit {max_error:.1%}")
        for group in groups
        for c in group.counted
        if abs(c.error) > max_error
    ]
    return [text for _, text in sorted(found)]
