"""What `iosim require` answers: the least amount under each reading, the curve around it, and what stays fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iosim.problem import AttentionProblem, TileShape

if TYPE_CHECKING:
    import pandas as pd

UNITS = {"sram": "B", "l2": "B", "hbm": "B/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The share of the compute bound at one amount of the memory, the unit that limits it, and the tile."""

    value: float
    reached: float
    limit: str
    tile: TileShape | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        tile = {"rows": self.tile.rows, "cols": self.tile.cols} if self.tile else None
        return {"value": self.value, "reached": self.reached, "limit": self.limit, "tile": tile}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer under one reading. `value` is None where the share is never reached, and `reason` says why.

    `ceiling`: the share with any amount of this memory. `curve`: amounts around the answer, ascending. `own`: at what
    the GPU has.
    """

    reading: str
    value: float | None
    at: Point | None
    ceiling: float
    reason: str
    curve: tuple[Point, ...]
    own: Point | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "reading": self.reading,
            "value": self.value,
            "at": self.at.to_dict() if self.at else None,
            "ceiling": self.ceiling,
            "reason": self.reason,
            "own": self.own.to_dict() if self.own else None,
            "curve": [p.to_dict() for p in self.curve],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What `iosim require` answers: one answer a reading, and what stays fixed."""

    problem: AttentionProblem
    algorithm: str
    profile: str
    footprint: str
    solve: str
    reach: float
    compute_s: float
    answers: tuple[Answer, ...]
    fixed: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def unit(self) -> str:
        """Of every value: B or B/s."""
        return UNITS[self.solve]

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim require`."""
        return {
            "schema_version": 1,
            "problem": self.problem.to_dict(),
            "algorithm": self.algorithm,
            "profile": self.profile,
            "footprint": self.footprint,
            "solve": self.solve,
            "unit": self.unit,
            "reach": self.reach,
            "compute_bound_s": self.compute_s,
            "answers": [a.to_dict() for a in self.answers],
            "fixed": list(self.fixed),
            "notes": list(self.notes),
        }

    def to_frame(self) -> pd.DataFrame:
        """The curves of all readings, a row a point; the GPU's own amount and the answer are marked."""
        import pandas as pd

        rows = [
            {
                "reading": a.reading,
                self.solve: p.value,
                "reached": p.reached,
                "limit": p.limit,
                "tile": str(p.tile) if p.tile else None,
                "own": p is a.own,
                "answer": p is a.at,
            }
            for a in self.answers
            for p in points_of(a)
        ]
        return pd.DataFrame(rows)


def points_of(answer: Answer) -> list[Point]:
    """The curve with the GPU's own amount and the answer in it, ascending."""
    extra = [p for p in (answer.at, answer.own) if p is not None]
    known = {p.value for p in extra}
    return sorted([*extra, *(p for p in answer.curve if p.value not in known)], key=lambda p: p.value)
