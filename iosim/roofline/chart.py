"""The hierarchical roofline as numbers: roofs, ridge points, points, and what is wrong with a point above a roof.

Sources: Williams, Waterman, Patterson 2009; Yang, Kurth, Williams 2019 (one point a memory level).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from iosim.errors import ProfileError, SimulationError
from iosim.hardware import HardwareProfile
from iosim.roofline.machine import Machine

LEVELS = ("sram", "l2", "hbm")
TITLES = {"sram": "SRAM", "l2": "L2", "hbm": "HBM"}
ORDER_TOLERANCE = 0.01
ABOVE_TOLERANCE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A ceiling. `level` names a memory (slanted, B/s) or is None for a unit (flat, FLOP/s)."""

    name: str
    level: str | None
    value: float
    measured: bool
    source: str

    def at(self, intensity: float) -> float:
        """FLOP/s under this roof at an intensity in FLOP/B."""
        return self.value * intensity if self.level else self.value

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "level": self.level,
            "value": self.value,
            "unit": "B/s" if self.level else "FLOP/s",
            "measured": self.measured,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kernel at one level: FLOP/B of that level's bytes, FLOP/s."""

    kernel: str
    level: str
    flops: float
    bytes_moved: float
    seconds: float
    measured: bool

    @property
    def intensity(self) -> float:
        """FLOP/B."""
        return self.flops / self.bytes_moved

    @property
    def flops_per_s(self) -> float:
        """Speed reached."""
        return self.flops / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "kernel": self.kernel,
            "level": self.level,
            "measured": self.measured,
            "flops": self.flops,
            "bytes": self.bytes_moved,
            "seconds": self.seconds,
            "intensity_flop_per_byte": self.intensity,
            "flops_per_s": self.flops_per_s,
        }


def point(
    kernel: str, level: str, *, flops: float, bytes_moved: float, seconds: float, measured: bool
) -> Point:
    """A point; flops, bytes and seconds above zero."""
    return Point(
        kernel=kernel, level=level, flops=flops, bytes_moved=bytes_moved, seconds=seconds, measured=measured
    )


def roofs(profile: HardwareProfile, dtype: str, head_dims: Iterable[int] = (128,)) -> list[Roof]:
    """Every roof that the profile knows, at the highest clock.

    `head_dims`: one special-function roof each; a score takes one exponential and 4·d flops. `ProfileError` where the
    dtype has no peak.
    """
    machine = Machine.of(profile, dtype)
    found = [*_slanted(profile, machine)]
    found.append(
        _flat(
            f"{machine.unit} {dtype}",
            machine.tensor_flops_per_s,
            f"{machine.tensor_flops_per_clk_sm:g} FLOP/clk/SM",
        )
    )
    found.extend(_sustained(profile, machine, dtype))
    if machine.unit != "vector":
        found.append(_flat("FP32", machine.vector_flops_per_s, f"{machine.vector_lanes:g} lanes an SM"))
    for d in sorted(set(head_dims)):
        value = machine.special_ops_per_s * 4 * d
        found.append(
            _flat(
                f"exp at d {d}",
                value,
                f"{machine.special_ops_per_clk_sm:g} op/clk/SM, 4·{d} flops each",
            )
        )
    return found


def _flat(name: str, value: float, how: str) -> Roof:
    return Roof(name=name, level=None, value=value, measured=False, source=f"{how} at the highest clock")


def _sustained(profile: HardwareProfile, machine: Machine, dtype: str) -> list[Roof]:
    """What the matmul units keep up under load: their measured rate at the clock that the power limit leaves."""
    keys = [key for way in ("wgmma", "mma") if profile.has(key := f"measured.{way}_{dtype}_per_sm")]
    if machine.unit == "vector" or not keys or not profile.has("measured.matrix_clock"):
        return []
    rate = max(float(profile.number(key)) for key in keys)
    clock = float(profile.number("measured.matrix_clock"))
    return [
        Roof(
            name=f"{machine.unit} {dtype}",
            level=None,
            value=rate * machine.sms * clock,
            measured=True,
            source=f"{rate:g} FLOP/clk/SM at {clock / 1e9:.2f} GHz, the clock under a second of matmuls",
        )
    ]


def _slanted(profile: HardwareProfile, machine: Machine) -> list[Roof]:
    sram = machine.shared_bytes_per_clk_sm * machine.sms * machine.clock_hz
    rows = [("sram", sram, False, f"{machine.shared_bytes_per_clk_sm:g} B/clk/SM at the highest clock")]
    with contextlib.suppress(ProfileError):  # NVIDIA prints none for several GPUs
        rows.append(("l2", profile.level("l2").bandwidth_bytes_per_s, False, "printed"))
    if profile.has("measured.l2_read_bandwidth"):
        rows.append(("l2", float(profile.number("measured.l2_read_bandwidth")), True, "reads"))
    rows.append(("hbm", machine.hbm_peak_bytes_per_s, False, "printed"))
    if profile.has("measured.hbm_read_bandwidth"):
        rows.append(("hbm", machine.hbm_read_bytes_per_s, True, "reads"))
    return [
        Roof(name=TITLES[level], level=level, value=value, measured=measured, source=source)
        for level, value, measured, source in rows
    ]


def compute_roof(found: Sequence[Roof]) -> Roof:
    """The flat roof of the matmul units: the first."""
    return next(r for r in found if r.level is None)


def ridge(slanted: Roof, flat: Roof) -> float:
    """FLOP/B at which a memory stops being the limit."""
    return flat.value / slanted.value


def axis_decades(found: Sequence[Roof]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges of intensity and speed in whole decades, from the printed roofs alone: two plots of a GPU compare.

    Two decades on the far sides of the fastest and the slowest memory's ridge; speeds from what the slowest feeds
    at the left edge to twice the matmul roof.
    """
    flat = compute_roof(found)
    printed = [r for r in found if r.level and not r.measured]
    ridges = [ridge(r, flat) for r in printed]
    left = math.floor(math.log10(min(ridges))) - 2
    right = math.ceil(math.log10(max(ridges))) + 2
    bottom = math.floor(math.log10(min(r.value for r in printed) * 10.0**left))
    return (10.0**left, 10.0**right), (10.0**bottom, 10.0 ** math.ceil(math.log10(2 * flat.value)))


def check_order(points: Sequence[Point]) -> list[str]:
    """Intensities must grow outwards: SRAM, L2, HBM. `SimulationError` for a prediction, warnings for measurements."""
    said = []
    for (kernel, measured), own in _by_kernel(points).items():
        ordered = [own[level] for level in LEVELS if level in own]
        for inner, outer in itertools.pairwise(ordered):
            if inner.intensity <= outer.intensity * (1 + ORDER_TOLERANCE):
                continue
            text = (
                f"{kernel}: fewer bytes at {TITLES[inner.level]} ({inner.bytes_moved:.4g}) than at "
                f"{TITLES[outer.level]} ({outer.bytes_moved:.4g})"
            )
            if not measured:
                raise SimulationError(f"roofline: {text}; this is a bug")
            said.append(text)
    return said


def above_roofs(points: Sequence[Point], found: Sequence[Roof], *, causal: bool = False) -> list[str]:
    """A sentence for every point above a printed roof, with the likely causes.

    `causal`: some kernel has a mask, so full N² flops are a likely cause.
    """
    flat = compute_roof(found)
    said = []
    for p in points:
        if p.flops_per_s > flat.value * (1 + ABOVE_TOLERANCE):
            causes = ["full N² flops on a causal kernel"] if causal else []
            causes += [
                "another variant of this GPU",
                "the 2:4 sparse peak",
                "tf32 or fp8 taken for this dtype",
            ]
            said.append(_above(p, flat.name, p.flops_per_s / flat.value, causes))
        for r in found:
            if (
                r.level == p.level
                and not r.measured
                and p.flops_per_s > r.at(p.intensity) * (1 + ABOVE_TOLERANCE)
            ):
                inner = {
                    "hbm": "data that lay in the L2",
                    "l2": "data that lay in L1",
                    "sram": "operands in registers",
                }
                causes = [inner[p.level], "another variant of this GPU", "bytes of another kernel"]
                said.append(_above(p, r.name, p.flops_per_s / r.at(p.intensity), causes))
    return said


def _above(p: Point, roof: str, ratio: float, causes: Sequence[str]) -> str:
    return (
        f"{p.kernel}: {'measured' if p.measured else 'predicted'} at {TITLES[p.level]} {ratio:.2f} times above the "
        f"roof {roof}; likely: {', '.join(causes)}"
    )


def _by_kernel(points: Sequence[Point]) -> dict[tuple[str, bool], dict[str, Point]]:
    out: dict[tuple[str, bool], dict[str, Point]] = {}
    for p in points:
        out.setdefault((p.kernel, p.measured), {})[p.level] = p
    return out


def kernels_of(points: Sequence[Point]) -> list[tuple[str, bool, dict[str, Point]]]:
    """(kernel, measured, its points by level) in the order in which they first appear."""
    return [(kernel, measured, own) for (kernel, measured), own in _by_kernel(points).items()]
