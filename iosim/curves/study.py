"""The curves of one level of one GPU, with its capacities and the lower bounds beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from iosim.curves.capacity import CapacityCurve, Progress, Run, alone_curve, in_turn_curve, merged_curve
from iosim.curves.steps import find_steps
from iosim.hardware import HardwareProfile
from iosim.memory.hierarchy import Policies

Ints = NDArray[np.int64]
Stage = Callable[[str], Progress]
"""Gives a progress function for a named stage of the work."""
MOST_POINTS = 800
"""Rows of a curve's table; a curve with more steps is shown at so many of them, exact at each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A capacity that the GPU has; `lru_bytes` is what it leaves for an LRU."""

    name: str
    capacity_bytes: int
    lru_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveStudy:
    """Curves of one level: sram (in turn, alone) or l2 (merged).

    `inside_bytes`: of a capacity of this level, the bytes that are not the LRU's (SRAM holds the tile as well).
    """

    level: str
    run: Run
    profile: str
    curves: tuple[CapacityCurve, ...]
    capacities: tuple[Capacity, ...]
    inside_bytes: int
    policies: Policies | None
    extrapolated: bool

    def table(self, curve: CapacityCurve) -> pd.DataFrame:
        """Bytes at each step of a curve (at most MOST_POINTS of them), at 0, and at the GPU's capacities."""
        lru = _points(curve.capacities_bytes, [c.lru_bytes for c in self.capacities])
        out = pd.DataFrame(
            {
                "level": self.level,
                "stream": curve.stream,
                "lru_bytes": lru,
                "capacity_bytes": lru + self.inside_bytes,
                "read_bytes": curve.read_bytes(lru),
                "write_bytes": curve.write_bytes(lru),
                "dirty_bytes": curve.dirty_bytes(lru),
                "total_bytes": curve.total_bytes(lru),
            }
        )
        for group, name in enumerate(curve.tensor_bytes):
            out[f"{name}_read_bytes"] = curve.flushed.fetch_bytes_of(group, lru)
        return out

    def bounds(self, capacities_bytes: Sequence[int]) -> pd.DataFrame:
        """Lower bounds by name at capacities of this level, with all that is on chip beside it counted in."""
        beside = self.curves[0].beside_bytes - self.inside_bytes
        rows = [
            {"capacity_bytes": capacity, "bound": name, "bytes": value}
            for capacity in capacities_bytes
            for name, value in self.run.floor(capacity + beside).items()
        ]
        return pd.DataFrame(rows)

    def notable(self) -> list[tuple[int, int, str]]:
        """Capacity, LRU bytes and what is there: no LRU, the ends of steps, the GPU's capacities; ascending."""
        found = [(0, "no LRU")]
        for curve in self.curves:
            said = f"{curve.stream}: " if len(self.curves) > 1 else ""
            found += [(s.capacity_bytes, f"{said}{'; '.join(s.texts())}") for s in find_steps(curve)]
        rows = [(lru + self.inside_bytes, lru, text) for lru, text in found]
        rows += [(c.capacity_bytes, c.lru_bytes, f"{self.profile}: {c.name}") for c in self.capacities]
        return sorted(rows, key=lambda row: row[:2])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        run = self.run
        ends = [c.capacity_bytes for c in self.capacities]
        return {
            "schema_version": 1,
            "problem": run.problem.to_dict(),
            "algorithm": run.algorithm.name,
            "options": dict(run.options),
            "tiles": {"rows": run.tile.rows, "cols": run.tile.cols} if run.algorithm.tiled else None,
            "profile": self.profile,
            "level": self.level,
            "memory": "fully associative LRU of whole tiles",
            "live_bytes": run.live_bytes,
            "extrapolated": self.extrapolated,
            "policies": self.policies.to_dict() if self.policies else None,
            "gpu_capacities": [
                {"name": c.name, "capacity_bytes": c.capacity_bytes, "lru_bytes": c.lru_bytes}
                for c in self.capacities
            ],
            "bounds": self.bounds(ends).to_dict(orient="records"),
            "curves": [self._curve_dict(curve) for curve in self.curves],
        }

    def _curve_dict(self, curve: CapacityCurve) -> dict[str, Any]:
        table = self.table(curve).drop(columns=["level", "stream"])
        return {
            "stream": curve.stream,
            "tile_accesses": curve.accesses,
            "every_step_shown": len(curve.capacities_bytes) <= MOST_POINTS,
            "steps": [step.to_dict() for step in find_steps(curve)],
            "points": table.to_dict(orient="records"),
        }


def _points(steps: Ints, extra: Sequence[int]) -> Ints:
    """0, the extra capacities, and the steps: all of them, or the last of each of many narrow stretches."""
    if len(steps) > MOST_POINTS:
        place = np.log(steps) - np.log(steps[0])
        stretch = np.floor(place / (place[-1] / (MOST_POINTS - 1))).astype(np.int64)
        steps = steps[np.append(np.diff(stretch) > 0, True)]
    return np.union1d(np.union1d([0], np.array(extra, dtype=np.int64)), steps).astype(np.int64)


def sram_study(
    run: Run, profile: HardwareProfile, stage: Stage | None = None, *, sram_bytes: int | None = None
) -> CurveStudy:
    """An LRU on chip beside the program's tile: for all blocks in turn, and for each block alone.

    `sram_bytes`: M of a thread block, by default the profile's.
    """
    block = profile.sram_per_block_bytes if sram_bytes is None else sram_bytes
    return CurveStudy(
        level="sram",
        run=run,
        profile=profile.name,
        curves=(
            in_turn_curve(run, stage("all blocks in turn") if stage else None),
            alone_curve(run, stage("each block alone") if stage else None),
        ),
        capacities=(
            Capacity(
                name="SRAM of a thread block",
                capacity_bytes=block,
                lru_bytes=max(0, block - run.live_bytes),
            ),
        ),
        inside_bytes=run.live_bytes,
        policies=None,
        extrapolated=False,
    )


def l2_study(
    run: Run, profile: HardwareProfile, policies: Policies, stage: Stage | None = None
) -> CurveStudy:
    """An LRU behind all SMs: HBM bytes of the blocks merged by a schedule. Errors: `ProfileError` without an L2."""
    whole, parts = profile.l2_capacity_bytes, profile.l2_partitions
    sizes = {"L2": whole} | ({"one L2 partition": whole // parts} if parts > 1 else {})
    return CurveStudy(
        level="l2",
        run=run,
        profile=profile.name,
        curves=(merged_curve(run, policies, stage("all blocks merged") if stage else None),),
        capacities=tuple(Capacity(name=n, capacity_bytes=s, lru_bytes=s) for n, s in sizes.items()),
        inside_bytes=0,
        policies=policies,
        extrapolated=not profile.counter_data,
    )
