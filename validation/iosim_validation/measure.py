"""`iosim hw measure`: what the GPU at hand really reaches, beside what its profile says it should.

Every figure is the work of a micro-benchmark over its time (CUDA events, median of several launches), or over the
clocks that its slowest block counted. A figure under 60 % or over 100 % of theory is flagged and not stored: the
benchmark, the profile or the GPU is not what it is thought to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Protocol

from iosim.hardware import HardwareProfile
from iosim.units import format_bytes, format_rate
from iosim_validation.launch import GpuFacts
from iosim_validation.microbenchmarks import (
    SPREAD,
    Micro,
    few_mma_micro,
    matrix_micro,
    mma_micro,
    reuse_micro,
    shared_micro,
    stream_micro,
    vector_micro,
    wgmma_micro,
)
from iosim_validation.waits import turn_clocks, turn_micro, waits

LEAST_SHARE, MOST_SHARE = 0.60, 1.00
ROUNDING = 0.005
"""By this much a figure may pass its peak: clocks are read a few cycles late, clock rates are printed rounded."""
STREAM_BYTES = 4 << 30
L2_FOOTPRINTS_MIB = (4, 8, 12, 16, 20, 22, 24, 26, 28, 30, 34, 38, 42, 46, 50, 54, 58, 62, 70, 80, 96)
L2_TRAFFIC_BYTES = 8 << 30
PLATEAU_FROM_BYTES = 8 << 20
"""Below it the blocks' shares are so small that the loop around them counts."""
KNEE_SHARE = 0.90
Tell = Callable[[str], None]


class Bench(Protocol):
    """Runs a micro-benchmark: a GPU, or a stand-in for one."""

    @property
    def facts(self) -> GpuFacts:
        """What the GPU is."""

    def seconds(self, micro: Micro) -> float:
        """Median time of one launch."""

    def clocks(self, micro: Micro) -> float:
        """Clocks that the slowest block counted."""

    def launch_seconds(self, *, graph: bool) -> float:
        """From the start of one empty kernel to that of the next, on a stream or in a graph."""

    def rested_clock(self, micro: Micro) -> float:
        """Clocks over time of one launch after a rest."""

    def sustained_clock(self, micro: Micro, seconds: float) -> float:
        """SM clock in Hz over the second half of `seconds` of back-to-back launches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. `key`: its place in the profile; `theory`: the peak, in the same unit, if one is printed."""

    key: str
    title: str
    measured: float
    unit: str
    theory: float | None = None
    note: str = ""

    @property
    def share(self) -> float | None:
        """Measured over theory."""
        return self.measured / self.theory if self.theory else None

    @property
    def flag(self) -> str:
        """Why it is not to be trusted; empty when it is."""
        if self.share is None:
            return ""
        if self.share < LEAST_SHARE:
            return f"under {LEAST_SHARE:.0%} of theory: a busy or throttled GPU, or a benchmark that does not reach it"
        if self.share > MOST_SHARE + ROUNDING:
            return (
                f"over {MOST_SHARE:.0%} of theory: not the profile's GPU, or a peak printed for a lower clock"
            )
        return ""

    @property
    def text(self) -> str:
        """The measured number with a unit that reads well."""
        return quantity_text(self.measured, self.unit)

    @property
    def theory_text(self) -> str:
        """The same of the theory."""
        return "" if self.theory is None else quantity_text(self.theory, self.unit)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("key", "title", "measured", "unit", "theory", "share", "flag", "note")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """L2 read bandwidth at one footprint, in bytes and B/s."""

    footprint_bytes: int
    in_step_bandwidth: float
    apart_bandwidth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything measured on one GPU."""

    facts: GpuFacts
    figures: tuple[Figure, ...]
    l2_curve: tuple[Point, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "schema_version": 1,
            "gpu": asdict(self.facts),
            "figures": [figure.to_dict() for figure in self.figures],
            "l2_curve": [asdict(point) for point in self.l2_curve],
        }


def quantity_text(value: float, unit: str) -> str:
    """`4.64 TB/s`, `30 MiB`, `1.31 us`: a prefix where the unit takes one."""
    if unit == "B":
        return format_bytes(value)
    if unit == "s":
        return f"{value * 1e6:.4g} us"  # the letters that a profile is written in
    if unit in ("B/s", "Hz"):
        return format_rate(value, unit)
    return f"{value:.4g} {unit}"


def measure(bench: Bench, profile: HardwareProfile | None, tell: Tell) -> Measured:
    """Run all micro-benchmarks. `profile` gives the theory; without one nothing can be flagged."""
    theory = _Theory(profile)
    tell("HBM bandwidth")
    figures = _hbm(bench, theory)
    tell("L2 bandwidth against footprint")
    curve = _l2_curve(bench)
    figures += _l2(curve)
    tell("rates of an SM")
    figures += _per_sm(bench, theory)
    tell("latencies, stores and turns of blocks")
    figures += _waits(bench, theory)
    tell("launches, and the clock under matrix load")
    for graph, key, title in ((False, "stream", "launch on a stream"), (True, "graph", "launch in a graph")):
        took = bench.launch_seconds(graph=graph)
        note = "empty kernels back to back"
        figures.append(Figure(key=f"measured.{key}_launch", title=title, measured=took, unit="s", note=note))
    figures += _clocks(bench, theory)
    return Measured(facts=bench.facts, figures=tuple(figures), l2_curve=curve)


class _Theory:
    """Peaks of a profile; None for what it does not know."""

    def __init__(self, profile: HardwareProfile | None) -> None:
        self._profile = profile

    def number(self, key: str) -> float | None:
        """In the base unit of the key."""
        found = self._profile.quantities.get(key) if self._profile else None
        return None if found is None or found.value is None else float(found.value)

    def per_sm(self, key: str) -> float | None:
        """FLOP a clock and SM, from a peak of the whole GPU at the clock that it is printed for."""
        peak, sms = self.number(key), self.number("compute.sm_count")
        if self._profile is None or peak is None or sms is None:
            return None
        clock = self.number(f"compute.clocks.{self._profile.quantities[key].clock or 'boost'}")
        return peak / (sms * clock) if clock else None


def _hbm(bench: Bench, theory: _Theory) -> list[Figure]:
    peak = theory.number("memory.hbm.bandwidth")
    micros = {
        "read": stream_micro(bench.facts, "read", STREAM_BYTES),
        "write": stream_micro(bench.facts, "write", STREAM_BYTES),
        "copy": stream_micro(bench.facts, "copy", STREAM_BYTES),
    }
    return [
        Figure(
            key=f"measured.hbm_{way}_bandwidth",
            title=f"HBM {way}",
            measured=micro.bytes_moved / bench.seconds(micro),
            unit="B/s",
            theory=peak,
            note="read and written bytes together" if way == "copy" else "data set of 4 GiB",
        )
        for way, micro in micros.items()
    ]


def _l2_curve(bench: Bench) -> tuple[Point, ...]:
    points = []
    for footprint in (mib << 20 for mib in L2_FOOTPRINTS_MIB):
        passes = max(3, L2_TRAFFIC_BYTES // footprint)
        apart = reuse_micro(bench.facts, footprint, passes=passes, in_step=False)
        few = max(3, passes // bench.facts.sms)
        in_step = reuse_micro(bench.facts, footprint, passes=few, in_step=True)
        points.append(
            Point(
                footprint_bytes=footprint,
                in_step_bandwidth=in_step.bytes_moved / bench.seconds(in_step),
                apart_bandwidth=apart.bytes_moved / bench.seconds(apart),
            )
        )
    return tuple(points)


def plateau_and_knee(points: Sequence[tuple[int, float]]) -> tuple[float, int | None]:
    """Bandwidth before it falls, and the last footprint that has 90 % of it; None where it never falls.

    `points`: (footprint in bytes, bandwidth), ascending. The plateau is the median of everything from 8 MiB up to the
    steepest fall between two neighbours.
    """
    seen = [point for point in points if point[0] >= PLATEAU_FROM_BYTES]
    falls = [after / before for (_, before), (_, after) in pairwise(seen)]
    steepest = min(range(len(falls)), key=falls.__getitem__)
    plateau = median(rate for _, rate in seen[: steepest + 1])
    last = max(size for size, rate in seen if rate >= KNEE_SHARE * plateau)
    return plateau, None if last == seen[-1][0] else last


def _l2(curve: Sequence[Point]) -> list[Figure]:
    ways = (
        ("l2_read_bandwidth", "l2_own_read_capacity", "apart", "every block its own share"),
        ("l2_shared_read_bandwidth", "l2_shared_read_capacity", "in_step", "all blocks the same bytes"),
    )
    out = []
    for bandwidth_key, capacity_key, way, how in ways:
        points = [(p.footprint_bytes, getattr(p, f"{way}_bandwidth")) for p in curve]
        plateau, knee = plateau_and_knee(points)
        words = way.replace("_", " ")
        out.append(
            Figure(key=f"measured.{bandwidth_key}", title=f"L2 read {words}", measured=plateau, unit="B/s", note=how)
        )  # fmt: skip
        if knee is not None:
            note = f"last footprint with {KNEE_SHARE:.0%} of the bandwidth"
            title = f"L2 capacity {words}"
            out.append(
                Figure(key=f"measured.{capacity_key}", title=title, measured=knee, unit="B", note=note)
            )
    return out


def _per_sm(bench: Bench, theory: _Theory) -> list[Figure]:
    gpu = bench.facts
    shared = shared_micro(gpu)
    out = [
        Figure(
            key="measured.sram_read_bandwidth_per_sm",
            title="shared memory read",
            measured=shared.bytes_moved / bench.clocks(shared),
            unit="B/clk",
            theory=theory.number("memory.sram.bandwidth_per_sm"),
        )
    ]
    rates: list[tuple[str, str, Micro | None, float | None]] = [
        ("special_per_sm", "exponentials", vector_micro(gpu, "exp_rate"), theory.number("compute.special_per_sm")),
        ("fp32_per_sm", "FP32 FLOP", vector_micro(gpu, "fma_rate"), theory.per_sm("compute.vector.fp32")),
    ]  # fmt: skip
    for dtype in SPREAD:
        peak = theory.per_sm(f"compute.tensor_dense.{dtype}")
        rates.append((f"mma_{dtype}_per_sm", f"mma.sync {dtype} FLOP", mma_micro(gpu, dtype), peak))
        rates.append((f"wgmma_{dtype}_per_sm", f"wgmma {dtype} FLOP", wgmma_micro(gpu, dtype), peak))
    for key, title, micro, peak in rates:
        if micro is not None:
            rate = micro.operations_per_sm / bench.clocks(micro)
            out.append(Figure(key=f"measured.{key}", title=title, measured=rate, unit="op/clk", theory=peak))
    return out


def _waits(bench: Bench, theory: _Theory) -> list[Figure]:
    out = []
    for wait in waits(bench.facts):
        clocks = bench.clocks(wait.micro)
        found = wait.micro.bytes_moved / clocks if wait.unit == "B/clk" else clocks / wait.times
        out.append(
            Figure(
                key=f"measured.{wait.key}", title=wait.title, measured=found, unit=wait.unit, note=wait.note
            )
        )
    clock = theory.number("compute.clocks.boost")
    if clock:
        found = turn_clocks(bench.seconds(turn_micro(bench.facts)), clock)
        note = "blocks of 256 threads, two an SM, that do next to nothing; at the highest clock"
        out.append(
            Figure(
                key="measured.block_turnover", title="turn of blocks", measured=found, unit="clk", note=note
            )
        )
    return out


def _clocks(bench: Bench, theory: _Theory) -> list[Figure]:
    boost = theory.number("compute.clocks.boost")
    return [
        Figure(
            key="measured.tensor_clock",
            title="clock of one launch with matmuls",
            measured=bench.rested_clock(few_mma_micro(bench.facts, "fp16")),
            unit="Hz",
            theory=boost,
            note="mma.sync by a warp an SM on a rested card, cycles over time",
        ),
        Figure(
            key="measured.matrix_clock",
            title="clock under matrix load",
            measured=bench.sustained_clock(matrix_micro(bench.facts, "fp16"), 1.0),
            unit="Hz",
            theory=boost,
            note="second half of 1 s of fp16 matmuls on spread values",
        ),
    ]
