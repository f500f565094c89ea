"""What a search returns: a row a design, and the whole table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iosim.problem import AttentionProblem
from iosim.tune.cost import Times
from iosim.tune.design import Design, Fit, design_dict

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRow:
    """A design with its bytes and times. Infeasible ones have a reason and nothing else.

    `hbm`: compulsory, estimate or simulated. Times are None where the class has no constants, which `TuneTable.no_time`
    explains.
    """

    design: Design
    fit: Fit
    sm_bytes: int | None = None
    hbm_bytes: int | None = None
    hbm: str = ""
    times: Times | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        t, needs = self.times, self.fit.needs
        return {
            **design_dict(self.design),
            "fits": self.fit.fits,
            "reason_class": self.fit.reason_class or None,
            "reason": self.fit.reason or None,
            "registers_per_thread": needs.registers,
            "register_limit": needs.register_limit,
            "registers_tight": needs.tight and self.fit.fits,
            "threads": needs.threads,
            "shared_bytes": needs.shared_bytes,
            "blocks_per_sm": self.fit.blocks_per_sm,
            "limited_by": self.fit.limited_by,
            "sm_bytes": self.sm_bytes,
            "hbm_bytes": self.hbm_bytes,
            "hbm_from": self.hbm or None,
            "seconds": t.seconds if t else None,
            "low_s": t.low_s if t else None,
            "high_s": t.high_s if t else None,
            "sustained_s": t.repeated_s if t else None,
            "limit": t.limit if t else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneTable:
    """All designs: those that fit, best first, then those that do not.

    `no_time`: why there are no times, None where there are. `notes`: what was assumed or left out.
    """

    problem: AttentionProblem
    profile: str
    kernel_class: str
    passes: str
    objective: str
    level: str
    rows: tuple[TuneRow, ...]
    no_time: str | None
    notes: tuple[str, ...] = field(default=())

    @property
    def feasible(self) -> tuple[TuneRow, ...]:
        """Designs that fit, best first."""
        return tuple(r for r in self.rows if r.fit.fits)

    @property
    def winner(self) -> TuneRow:
        """The best design."""
        return self.rows[0]

    @property
    def alike(self) -> int:
        """Designs whose predicted time lies in the range of the winner's, itself among them; 0 without times."""
        best = self.winner.times
        return (
            sum(r.times is not None and r.times.seconds <= best.high_s for r in self.feasible) if best else 0
        )

    def score(self, row: TuneRow) -> float | None:
        """What is minimised: seconds or bytes; None where a design does not fit."""
        return score_of(row, self.objective, self.level) if row.fit.fits else None

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim tune`."""
        return {
            "schema_version": 1,
            "problem": self.problem.to_dict(),
            "profile": self.profile,
            "kernel_class": self.kernel_class,
            "pass": self.passes,
            "objective": self.objective,
            "level": self.level,
            "winner": self.winner.to_dict(),
            "designs_within_its_range": self.alike,
            "no_time": self.no_time,
            "notes": list(self.notes),
            "rows": [row.to_dict() for row in self.rows],
        }

    def to_frame(self) -> pd.DataFrame:
        """A row a design."""
        import pandas as pd

        return pd.DataFrame([{"winner": r is self.winner, **r.to_dict()} for r in self.rows])


def score_of(row: TuneRow, objective: str, level: str) -> float:
    """What is minimised: seconds or bytes; infinity where it is not known."""
    if objective == "time":
        return row.times.seconds if row.times else math.inf
    amount = row.hbm_bytes if level == "hbm" else row.sm_bytes
    return math.inf if amount is None else float(amount)
