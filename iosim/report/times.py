"""Times of one problem on one GPU by the kernels of its libraries, at the asked length and against the length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.kernels import KernelFacts, load_kernel
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem
from iosim.roofline import LowerBound, Machine, Term, attention_bound
from iosim.scaling.elements import Options
from iosim.scaling.sentences import options_text
from iosim.scaling.studied_options import pass_of
from iosim.scaling.study import records
from iosim.timing import Timing, default_kernel, time_kernel

OTHERS = ("torch-flash2", "torch-unfused")
"""Kernels set beside the one that the GPU's libraries prefer."""
RAGGED = "Kernels for sequences of different lengths are builds of their own, and were not measured"
SEQS = tuple(1 << k for k in range(9, 18))  # 512 to 131,072
MOST_STEPS = 2_200_000  # key tiles simulated for one length: about two seconds
MOST_SCORES = 1 << 33  # of all heads, for unfused attention
MOST_AT_ONCE = 8  # times as much for the problem itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Timings of the problem, the preferred kernel first, and the same against the length.

    `by_seq`: kernel, seq, seconds, low_s, high_s, bound_s, limit. `terms`: kernel, seq, term, seconds, hidden, of the
    preferred kernel alone. `remarks`: why a kernel or a length is missing. `bound`: the least time of the problem, None
    where it is not known.
    """

    timings: tuple[Timing, ...]
    by_seq: pd.DataFrame
    terms: pd.DataFrame
    remarks: tuple[str, ...]
    bound: LowerBound | None = None

    @property
    def main(self) -> Timing | None:
        """The preferred kernel that has a prediction."""
        return next((t for t in self.timings if t.once_s is not None), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kernels": [t.to_dict() for t in self.timings],
            "by_seq": records(self.by_seq),
            "terms": records(self.terms),
            "remarks": list(self.remarks),
            "lower_bound": self.bound.to_dict() if self.bound else None,
        }


def find_times(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    options: Options,
    sequences: Sequence[AttentionProblem] = (),
) -> Times:
    """Everything about time; what cannot be said is a remark, never an error.

    `sequences`: those of a ragged batch, whose padded alternative the problem is: the least time alone.
    """
    passes = pass_of(options)
    own = {name: {k: v for k, v in given.items() if k != "pass"} for name, given in options.items()}
    if any(own.values()):
        return no_times(f"Times are those of library kernels, which do not know {options_text(own)}.")
    if passes not in ("fwd", "bwd"):
        return no_times(f"Times are known for one pass at a time, not for {passes}.")
    if sequences:
        return replace(no_times(RAGGED), bound=_bound(problem, gpu, passes, sequences))
    timings, remarks = [], []
    for name in dict.fromkeys((default_kernel(gpu), *OTHERS)):
        facts = load_kernel(name)
        if _work(facts, problem) > MOST_AT_ONCE:
            remarks.append(f"{name}: too long to simulate here; iosim explain does it")
            continue
        try:
            timings.append(time_kernel(facts, problem, gpu, passes=passes))
        except UsageError as error:
            remarks.append(f"{name}: {error}")
    remarks += [f"{t.kernel}: {t.reason}" for t in timings if t.reason]
    main = next((t.kernel for t in timings if t.once_s is not None), None)
    rows, terms = [], []
    for timing in (t for t in timings if t.once_s is not None):
        for seq in SEQS:
            found = (
                timing if at_seq(problem, seq) == problem else _at(problem, seq, timing.kernel, gpu, passes)
            )
            if found is None or found.once_s is None:
                continue
            rows.append(_row(seq, found))
            terms += _term_rows(seq, found) if timing.kernel == main else []
    return Times(
        timings=tuple(timings),
        by_seq=pd.DataFrame(rows),
        terms=pd.DataFrame(terms),
        remarks=tuple(remarks),
        bound=_bound(problem, gpu, passes),
    )


def no_times(why: str) -> Times:
    """Nothing but the reason."""
    return Times(timings=(), by_seq=pd.DataFrame(), terms=pd.DataFrame(), remarks=(why,))


def _bound(
    problem: AttentionProblem, gpu: HardwareProfile, passes: str, sequences: Sequence[AttentionProblem] = ()
) -> LowerBound | None:
    try:
        machine = Machine.of(gpu, str(problem.dtype_k))
    except UsageError:
        return None
    return attention_bound(problem, machine, passes=passes, recompute=passes == "bwd", sequences=sequences)


def all_terms(timing: Timing) -> list[Term]:
    """The terms of one run; of several launches, each under its kernel's name."""
    many = len(timing.launches) > 1
    return [
        replace(t, name=f"{launch.kernel} {t.name}") if many else t
        for launch in timing.launches
        for t in launch.once.terms
    ]


def range_of(timing: Timing) -> tuple[float, float]:
    """The range of one run in seconds; ranges of launches add up."""
    return sum(x.once.low_s for x in timing.launches), sum(x.once.high_s for x in timing.launches)


def at_seq(problem: AttentionProblem, seq: int) -> AttentionProblem:
    """The problem with another length: of queries and keys where they are as many, of keys otherwise."""
    if problem.seq_q == problem.seq_k:
        return replace(problem, seq_q=seq, seq_k=seq)
    return replace(problem, seq_k=seq)


def _at(problem: AttentionProblem, seq: int, kernel: str, gpu: HardwareProfile, passes: str) -> Timing | None:
    """The timing at a length; None where it cannot be, or would take too long."""
    facts = load_kernel(kernel)
    try:
        there = at_seq(problem, seq)
        return None if _work(facts, there) > 1 else time_kernel(facts, there, gpu, passes=passes)
    except UsageError:
        return None


def _work(facts: KernelFacts, problem: AttentionProblem) -> float:
    """How long a simulation takes, in what is allowed for one length."""
    if facts.kernel_class == "unfused":
        return problem.batch * problem.heads * problem.seq_q * problem.seq_k / MOST_SCORES
    tile = facts.tile(problem.head_dim)
    return tile_steps(facts.packed(problem), tile) / MOST_STEPS if tile else 0.0


def _term_rows(seq: int, timing: Timing) -> list[dict[str, Any]]:
    return [
        {"kernel": timing.kernel, "seq": seq, "term": t.name, "seconds": t.seconds, "hidden": t.hidden}
        for t in all_terms(timing)
        if t.seconds
    ]


def _row(seq: int, timing: Timing) -> dict[str, Any]:
    low, high = range_of(timing)
    return {
        "kernel": timing.kernel,
        "seq": seq,
        "seconds": timing.once_s,
        "low_s": low,
        "high_s": high,
        "bound_s": timing.bound.seconds,
        "limit": limit_of(timing),
    }


def limit_of(timing: Timing) -> str:
    """The term that takes most of one run."""
    shown = [t for t in all_terms(timing) if not t.hidden and not t.name.endswith("start")]
    return max(shown, key=lambda t: t.seconds).name if shown else "start"
