"""The waterfall as data: totals, and between them steps that are each the difference of two readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape

if TYPE_CHECKING:
    import pandas as pd

ZONES = {
    "least": "what nobody can save",
    "program": "what the program asks for (exact)",
    "hierarchy": "what the memory system makes of it (simulated)",
    "measured": "what the counters say",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. A `total` is an amount, a `step` a signed difference; `after_bytes` is the amount reached.

    `note`: what it is in a few words. `reading`: how the number came about, with its own numbers. `leaves_out`: what
    it does not contain.
    `measured_bytes`: what a counter says of the same amount, where there is one.
    """

    name: str
    kind: str
    zone: str
    title: str
    bytes: int
    after_bytes: int
    note: str
    reading: str
    leaves_out: str = ""
    measured_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One attention from its compulsory bytes to HBM. Entries stand in order; steps add up from total to total.

    `sram_bytes`: M of one thread block. `extrapolated`: no counters of this GPU were ever compared below the SMs.
    """

    problem: AttentionProblem
    algorithm: str
    options: Mapping[str, str]
    tiles: TileShape | None
    kernel: str | None
    profile: str
    profile_sha256: str
    sram_bytes: int
    extrapolated: bool
    entries: tuple[Entry, ...]
    case: str | None = None
    warnings: tuple[str, ...] = ()

    def entry(self, name: str) -> Entry:
        """A line by name; `UsageError` lists the names."""
        for item in self.entries:
            if item.name == name:
                return item
        raise UsageError(f"gap: no line {name!r}; there are: {', '.join(e.name for e in self.entries)}")

    @property
    def totals(self) -> tuple[Entry, ...]:
        """The amounts, without the steps between them."""
        return tuple(e for e in self.entries if e.kind == "total")

    @property
    def headline(self) -> str:
        """The finding in one sentence: multiples of the compulsory bytes at the SMs and at HBM."""
        base = self.entries[0].bytes
        at = {e.name: f"{e.bytes / base:.3g}×" for e in self.totals}
        text = f"{at['sm']} the compulsory bytes at the SMs" + (
            f", {at['hbm']} at HBM" if "hbm" in at else ""
        )
        return text + (f" (measured {at['measured']})" if "measured" in at else "")

    def to_dict(self) -> dict[str, Any]:
        """The documented JSON of `iosim gap`."""
        tiles = self.tiles
        return {
            "schema_version": 1,
            "case": self.case,
            "problem": self.problem.to_dict(),
            "algorithm": self.algorithm,
            "options": dict(self.options),
            "tiles": {"rows": tiles.rows, "cols": tiles.cols} if tiles else {"rows": None, "cols": None},
            "kernel": self.kernel,
            "profile": self.profile,
            "profile_sha256": self.profile_sha256,
            "sram_bytes": self.sram_bytes,
            "extrapolated": self.extrapolated,
            "headline": self.headline,
            "entries": [asdict(e) for e in self.entries],
            "warnings": list(self.warnings),
        }

    def to_frame(self) -> pd.DataFrame:
        """One row a line, in order."""
        import pandas as pd

        table = pd.DataFrame([asdict(e) for e in self.entries])
        table["measured_bytes"] = table["measured_bytes"].astype("Int64")
        return table


class Ladder:
    """Builds the entries: every amount is said once, and the step to it is the difference from the one before."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    @property
    def level(self) -> int:
        """The amount reached; 0 before the first total."""
        return self._entries[-1].after_bytes if self._entries else 0

    def total(
        self,
        name: str,
        zone: str,
        title: str,
        amount: int,
        note: str,
        reading: str,
        *,
        measured: int | None = None,
    ) -> None:
        """An amount of its own; after the first it must be the one that the steps have reached."""
        if self._entries and amount != self.level:
            raise UsageError(
                f"gap: {name} is {amount} bytes, but the steps reach {self.level}; this is a bug"
            )
        self._entries.append(
            Entry(
                name=name,
                kind="total",
                zone=zone,
                title=title,
                bytes=amount,
                after_bytes=amount,
                note=note,
                reading=reading,
                measured_bytes=measured,
            )
        )

    def step(
        self,
        name: str,
        zone: str,
        title: str,
        to: int,
        note: str,
        reading: str,
        leaves_out: str = "",
        *,
        measured: int | None = None,
    ) -> None:
        """The difference to the amount `to`; `measured`: what a counter says of that amount."""
        self._entries.append(
            Entry(
                name=name,
                kind="step",
                zone=zone,
                title=title,
                bytes=to - self.level,
                after_bytes=to,
                note=note,
                reading=reading,
                leaves_out=leaves_out,
                measured_bytes=measured,
            )
        )

    def done(self) -> tuple[Entry, ...]:
        """All entries in order."""
        return tuple(self._entries)
