"""Is an output right? Held against float32 attention and against plain arithmetic in the same dtype.

A kernel may be twice as far from float32 as plain arithmetic is, where S, P and O are rounded to the dtype one after
the other, and a small amount more, for shapes so small that plain arithmetic happens to be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from iosim.problem import AttentionProblem
from iosim_validation.gpu import Answer, Arrays, Errors, Gpu, Job

TIMES_PLAIN = 2
ULP = MappingProxyType({"fp16": 2.0**-10, "bf16": 2.0**-7})
"""Distance of two numbers beside each other, over the smaller power of two below them."""
OUTPUT_SHARE, WORST_SHARE = 1 / 8, 1
"""Of an ULP: what is allowed beside twice the plain error, on average and for the worst element."""
LSE_MORE = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Errors of an output and what was allowed; `fault` names the first that is too large, empty when none is."""

    errors: Errors
    allowed: Errors
    fault: str = ""


def check(gpu: Gpu, job: Job, problem: AttentionProblem, arrays: Arrays, answer: Answer) -> Verdict:
    """Poison the outputs, run the job once and compare. Whatever the launch raises goes through."""
    gpu.poison(arrays)
    job.fill()
    gpu.wait()
    return judge(gpu.errors(answer, arrays, has_lse=job.has_lse), answer, problem)


def judge(errors: Errors, answer: Answer, problem: AttentionProblem) -> Verdict:
    """Whether errors are small enough."""
    ulp, plain = ULP[str(problem.dtype_q)], answer.plain
    allowed = Errors(
        output=TIMES_PLAIN * plain.output + OUTPUT_SHARE * ulp,
        worst=TIMES_PLAIN * plain.worst + WORST_SHARE * ulp * answer.largest,
        lse=None if plain.lse is None else TIMES_PLAIN * plain.lse + LSE_MORE,
    )
    return Verdict(errors=errors, allowed=allowed, fault=_fault(errors, allowed))


def _fault(errors: Errors, allowed: Errors) -> str:
    pairs = (
        ("o", errors.output, allowed.output),
        ("worst o", errors.worst, allowed.worst),
        ("lse", errors.lse, allowed.lse),
    )
    for name, error, most in pairs:
        if error is not None and most is not None and not error <= most:
            unwritten = " (NaN, infinite or not written)" if error == float("inf") else ""
            return f"wrong: {name} is off by {error:.2g}{unwritten}, allowed {most:.2g}"
    return ""
