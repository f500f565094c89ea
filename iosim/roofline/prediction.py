"""The time a fused forward kernel takes: the same work as the lower bound's, at measured rates, term by term.

For one thread block, which owns one tile of Q:

    load Q | tile tile tile ... (mask) | store O     tile: two matmuls, and a softmax before, after or behind them

The busiest SM gives the compute cycles; the clock is what the tensor cores leave of the highest; HBM runs beside them;
a start is added. Long runs are slowed further, to the clock that the board's power allows. docs/time.md derives every
term and says what each is worth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosim.errors import UsageError
from iosim.kernels import KernelClass
from iosim.roofline.compute import Compute, Constants
from iosim.roofline.machine import Machine
from iosim.roofline.terms import Term, inputs, longest
from iosim.roofline.work import FusedWork

TERMS = (
    "in turn",
    "clock",
    "tensor",
    "special functions",
    "shared memory",
    "vector",
    "barriers",
    "stores",
    "loads",
    "edge",
    "masking",
    "waves and tail",
    "lone block",
    "path",
    "interleaving",
    "step",
    "HBM",
    "power",
    "start",
)
"""What an ablation can leave out. "in turn", "clock", "lone block", "path" (of shared memory), "interleaving" (of
exponentials with products) and "step" (a step's own instructions) are not times of their own but ways to count them."""
RARE = ("vector", "barriers", "stores", "loads")
"""Terms that few kernels have; others do not show them."""
PAUSE_S = 70e-6
"""Between two of the repeated runs of a benchmark that clears the L2: little power is drawn in it (assumed)."""
START_SPREAD_S = 0.7e-6
BANDWIDTH_SPREAD = 0.02
RESIDUAL = 0.025
"""Scatter of measured over predicted times that no constant explains: rows of an H200 (docs/time.md)."""
RESIDUAL_ELSEWHERE = 0.05
"""The same on a GPU whose rates are assumed."""
SIGMAS = 2.0
"""The range is this many standard deviations to both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds with a range, and the terms they are made of.

    Terms of compute add up; HBM runs beside them, so the lesser of the two is `hidden`. `clock_hz` is what the power
    leaves. `sustained`: repeated runs, rather than one.
    """

    seconds: float
    low_s: float
    high_s: float
    terms: tuple[Term, ...]
    limit: str
    clock_hz: float
    sustained: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values; shares are of the whole time."""
        return {
            "seconds": self.seconds,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "limit": self.limit,
            "clock_hz": self.clock_hz,
            "sustained": self.sustained,
            "terms": [t.to_dict(self.seconds) for t in self.terms],
        }


def predict(
    work: FusedWork,
    machine: Machine,
    kernel: KernelClass,
    *,
    sustained: bool = False,
    pause_s: float = PAUSE_S,
    without: Collection[str] = (),
) -> Prediction:
    """The time of one launch, or of each of many in a row (`sustained`, `pause_s` apart).

    `without`: names of TERMS to leave out, for an ablation. Errors: `ProfileError` for a GPU on which nobody knows
    the kernel's class, `UsageError` for an unknown term.
    """
    return _Model(work, machine, kernel, _known(without)).prediction(pause_s if sustained else None)


def predict_both(
    work: FusedWork,
    machine: Machine,
    kernel: KernelClass,
    *,
    pause_s: float = PAUSE_S,
    without: Collection[str] = (),
) -> tuple[Prediction, Prediction]:
    """One launch, and each of many in a row; see `predict`."""
    model = _Model(work, machine, kernel, _known(without))
    return model.prediction(None), model.prediction(pause_s)


def one_launch(
    terms: Sequence[Term], machine: Machine, *, spread_s: float, limit: str, sustained: bool = False
) -> Prediction:
    """A small kernel: its terms and a start. `spread_s`: standard deviation of what is no part of the start."""
    start = Term(
        name="start",
        seconds=machine.start_s,
        formula="launch, cold instruction cache, first fetch",
        inputs=inputs(("start", machine.start_s, "s")),
    )
    seconds = _total(terms) + start.seconds
    half = SIGMAS * math.hypot(spread_s, START_SPREAD_S)
    return Prediction(
        seconds=seconds,
        low_s=max(0.0, seconds - half),
        high_s=seconds + half,
        terms=(*terms, start),
        limit=limit,
        clock_hz=machine.clock_hz,
        sustained=sustained,
    )


def _known(without: Collection[str]) -> frozenset[str]:
    if unknown := sorted(set(without) - set(TERMS)):
        raise UsageError(f"time: unknown term {unknown[0]!r}; known: {', '.join(TERMS)}")
    return frozenset(without)


def _total(terms: Sequence[Term]) -> float:
    return math.fsum(t.seconds for t in terms if not t.hidden)


class _Model:
    """The constants of a kernel on a GPU, and its busiest SM, found once."""

    def __init__(
        self, work: FusedWork, machine: Machine, kernel: KernelClass, without: frozenset[str]
    ) -> None:
        self.work, self.machine, self.without = work, machine, without
        share, ops = kernel.share_on(machine.architecture, backward=work.backward), None
        hidden, mask = kernel.hidden_exp, kernel.mask_ops
        if work.interleaved and "interleaving" not in without:
            hidden = kernel.interleaved_exp or hidden
        if work.backward:
            ops = kernel.backward_ops
        elif kernel.disorder:
            ops = kernel.softmax_ops
        self.best = Constants(
            share=share.value,
            hidden_exp=hidden.value if hidden else 0.0,
            mask_ops=mask.value if mask else 0.0,
            score_ops=ops.value if ops else 0.0,
            disorder=kernel.disorder.value if kernel.disorder else None,
            read_bytes_per_s=machine.hbm_read_bytes_per_s,
            write_bytes_per_s=machine.hbm_write_bytes_per_s,
            start_s=machine.start_s,
        )
        self.spreads = {
            "share": share.spread,
            "hidden_exp": hidden.spread if hidden else 0.0,
            "mask_ops": mask.spread if mask else 0.0,
            "score_ops": ops.spread if ops else 0.0,
            **({"disorder": kernel.disorder.spread} if kernel.disorder else {}),
            "read_bytes_per_s": BANDWIDTH_SPREAD * machine.hbm_read_bytes_per_s,
            "start_s": START_SPREAD_S,
        }
        if "clock" not in without:
            self.machine = machine.at_work(self._compute(self.best).flops_per_clk_sm())
        compute = self._compute(self.best)
        mean = compute.mean_cycles()
        uneven = mean > 0 and "waves and tail" not in without
        self.unevenness = compute.busiest_cycles() / mean if uneven else 1.0

    def prediction(self, pause_s: float | None) -> Prediction:
        """The time with its range; `pause_s` None: one launch."""
        terms, clock = self._terms(self.best, pause_s)
        seconds = _total(terms)
        half = SIGMAS * self._deviation(seconds, pause_s)
        limits = [t for t in terms if t.name != "start" and not t.hidden]
        return Prediction(
            seconds=seconds,
            low_s=max(0.0, seconds - half),
            high_s=seconds + half,
            terms=tuple(terms),
            limit=longest(limits).name,
            clock_hz=clock,
            sustained=pause_s is not None,
        )

    def _deviation(self, seconds: float, pause_s: float | None) -> float:
        """Standard deviation: each constant moved by its own, and what none explains, as independent errors."""
        unexplained = RESIDUAL_ELSEWHERE if self.machine.assumed else RESIDUAL
        moved = []
        for name, spread in self.spreads.items():
            constants = replace(self.best, **{name: getattr(self.best, name) + spread})
            moved.append(_total(self._terms(constants, pause_s)[0]) - seconds)
        return math.hypot(unexplained * seconds, *moved)

    def _compute(self, constants: Constants) -> Compute:
        return Compute(work=self.work, machine=self.machine, constants=constants, without=self.without)

    def _terms(self, c: Constants, pause_s: float | None) -> tuple[list[Term], float]:
        """All terms, and the clock that they leave. The schedule's unevenness is that of the best constants."""
        compute = self._compute(c)
        terms = compute.terms(self.unevenness * compute.mean_cycles())
        hbm = self._hbm(c)
        boosted = math.fsum(t.seconds for t in terms)
        stretch = 1.0 if pause_s is None else self._stretch(max(boosted, hbm.seconds) + pause_s)
        if pause_s is not None:
            terms.append(self._power(boosted * (stretch - 1), stretch))
        behind = hbm.seconds <= boosted * stretch
        terms = [replace(t, hidden=not behind) for t in terms]
        start = Term(
            name="start",
            seconds=0.0 if "start" in self.without else self.work.launches * c.start_s,
            formula="launches x (launch, cold instruction cache, first fetch)",
            inputs=inputs(("launches", self.work.launches, ""), ("start", c.start_s, "s")),
        )
        shown = [t for t in terms if t.name not in RARE or t.seconds]
        return [*shown, replace(hbm, hidden=behind), *self._side(c), start], self.machine.clock_hz / stretch

    def _side(self, c: Constants) -> list[Term]:
        """Small kernels that stream before and after; half of their bytes are read."""
        if not self.work.side_bytes:
            return []
        half = self.work.side_bytes / 2
        return [
            Term(
                name="side kernels",
                seconds=half / c.read_bytes_per_s + half / c.write_bytes_per_s,
                formula="bytes of the row sums and of dQ / copy bandwidth",
                inputs=inputs(("bytes", self.work.side_bytes, "B")),
            )
        ]

    def _hbm(self, c: Constants) -> Term:
        w = self.work
        seconds = w.hbm_read_bytes / c.read_bytes_per_s + w.hbm_write_bytes / c.write_bytes_per_s
        return Term(
            name="HBM",
            seconds=0.0 if "HBM" in self.without else seconds,
            formula="bytes read / read bandwidth + bytes written / write bandwidth",
            inputs=inputs(
                ("read", w.hbm_read_bytes, "B"),
                ("read bandwidth", c.read_bytes_per_s, "B/s"),
                ("written", w.hbm_write_bytes, "B"),
                ("write bandwidth", c.write_bytes_per_s, "B/s"),
            ),
        )

    def _stretch(self, run_s: float) -> float:
        """Highest clock over the clock at the power limit; power goes as the cube of the clock."""
        power, w = self.machine.power, self.work
        if power is None or "power" in self.without:
            return 1.0
        joules = power.joule_per_flop * w.tiles * w.tile_flops
        joules += power.joule_per_hbm_byte * (w.hbm_read_bytes + w.hbm_write_bytes)
        return float(max(1.0, (power.busy_w + joules / run_s) / power.limit_w) ** (1 / 3))

    def _power(self, seconds: float, stretch: float) -> Term:
        power = self.machine.power
        rows = [("clock", self.machine.clock_hz / stretch, "Hz")]
        if power is not None:
            rows += [("board limit", power.limit_w, "W"), ("busy, no matmul", power.busy_w, "W")]
            rows += [("energy", power.joule_per_flop, "J/FLOP"), ("energy", power.joule_per_hbm_byte, "J/B")]
        return Term(
            name="power",
            seconds=seconds,
            formula="compute x ((busy + energy of flops and bytes / time) / limit)^(1/3), at least 1",
            inputs=inputs(*rows),
        )
