"""Where a curve falls: the capacities at which whole reads of a tensor drop out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.curves.capacity import CapacityCurve

BINS_PER_OCTAVE = 8
LEAST_SHARE = 0.02
"""Share of the bytes still read that must drop out within a bin for it to belong to a step."""
NEAR = 4
"""Bins with steps that lie so near belong together."""
WHOLE_PASS = 0.95
"""A step counts where at least one tensor is read so many times less: one whole read, up to ragged ends ..."""
FELL_TO = 0.9
"""... and at most this share of its reads is left."""
ALIKE = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes begin to fall at `start_bytes` and have fallen at `capacity_bytes`.

    `passes`: for each tensor that loses a whole read, how many times it is read just below the step and after it.
    """

    start_bytes: int
    capacity_bytes: int
    dropped_bytes: int
    passes: dict[str, tuple[float, float]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        passes = [{"tensor": name, "before": a, "after": b} for name, (a, b) in self.passes.items()]
        return {
            "start_bytes": self.start_bytes,
            "capacity_bytes": self.capacity_bytes,
            "dropped_bytes": self.dropped_bytes,
            "passes": passes,
        }

    def texts(self) -> list[str]:
        """What is read how many times less, tensors that fare alike together: `K, V read 32 → 1×`."""
        groups: list[tuple[list[str], float, float]] = []
        for name, (before, after) in self.passes.items():
            for names, b, a in groups:
                if abs(before - b) <= ALIKE * b and abs(after - a) <= ALIKE * b:
                    names.append(name)
                    break
            else:
                groups.append(([name], before, after))
        return [f"{', '.join(names)} read {_times(b)} → {_times(a)}×" for names, b, a in groups]


def _times(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _lost_a_pass(before: float, after: float) -> bool:
    return before - after >= WHOLE_PASS and after <= FELL_TO * before


def find_steps(curve: CapacityCurve) -> tuple[Step, ...]:
    """The steps of the bytes read, in ascending capacity; gradual ones have a start well below their end."""
    distance = curve.flushed.read_steps[0]
    distance = distance[distance <= curve.capacities_bytes.max(initial=0)]  # first touches never drop out
    if not len(distance):
        return ()
    before = curve.read_bytes(distance - 1)
    drop = before - curve.read_bytes(distance)
    bins = np.floor(np.log2(distance) * BINS_PER_OCTAVE).astype(np.int64)
    numbers, first = np.unique(bins, return_index=True)
    large = np.add.reduceat(drop, first) >= LEAST_SHARE * before[first]
    last = np.append(first[1:], len(distance)) - 1
    numbers, first, last = numbers[large], first[large], last[large]
    cuts = np.flatnonzero(np.diff(numbers) > NEAR) + 1
    runs = zip(np.split(first, cuts), np.split(last, cuts), strict=True)
    found = [_step(curve, int(distance[a[0]]), int(distance[b[-1]])) for a, b in runs]
    return tuple(step for step in found if step.passes)


def _step(curve: CapacityCurve, start: int, end: int) -> Step:
    ends = np.array([start - 1, end])
    passes = {name: curve.passes(name, ends) for name in curve.tensor_bytes}
    read = curve.read_bytes(ends)
    return Step(
        start_bytes=start,
        capacity_bytes=end,
        dropped_bytes=int(read[0] - read[1]),
        passes={name: (float(p[0]), float(p[1])) for name, p in passes.items() if _lost_a_pass(p[0], p[1])},
    )
