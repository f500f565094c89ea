"""Does a program compute attention? It is verified and run on small ragged problems, against the plain formula.

The small problems keep what shapes a program: the mask kind, the ratio of query heads to kv heads, the scale and
the options. They differ in what breaks careless ones: ragged last tiles, more queries than keys, one query,
values wider than keys, tiles larger than the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.algorithms.registry import Algorithm
from iosim.errors import IosimError, ProgramError, VerificationError
from iosim.interpret.numeric import run
from iosim.interpret.verify import verify
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.ir import Program
from iosim.theory.reference import reference_attention

Array = npt.NDArray[Any]

TOLERANCE = 1e-10
"""Largest accepted |error| in float64 on standard normal inputs: rounding is near 1e-15, a wrong formula near 1."""

LARGE = 40.0
"""Factor on Q and K for the large-score case: scores of some thousands, whose exp overflows float64."""

_WIDTH = 3  # of a window, and of a prefix: within the small sizes
_SCALE = 0.7  # stands for any scale that is not 1/√d; the asked one could drown the check in rounding
_SIZES = (  # seq_q, seq_k, head_dim, value_dim, tile rows, tile cols
    (8, 8, 4, 4, 4, 4),
    (7, 10, 3, 5, 3, 4),
    (10, 7, 4, 2, 4, 3),
    (1, 9, 4, 4, 1, 2),
    (5, 6, 2, 3, 8, 8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How a program did. `cases` problems were verified and compared; errors are absolute, in float64.

    `survives_large_scores`: it still gives the right rows where exp of a score overflows.
    """

    max_abs_error: float
    tolerance: float
    cases: int
    survives_large_scores: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def prove(algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str] | None = None) -> Proof:
    """Verify and run the program on small problems of the kind of `problem`.

    Errors: `VerificationError` naming the case, for a wrong access or for the worst wrong result; `ProgramError`
    for a program that reads something other than Q, K and V, or has no O.
    """
    program = algorithm.program(problem.mask.kind, algorithm.resolve(options or {}))
    _check_tensors(program)
    cases = list(small_problems(problem))
    for case, tiles in cases:
        verify(program, case, tiles)
    errors = [_error(program, case, tiles, algorithm, 1.0) for case, tiles in cases]
    worst = int(np.argmax(errors))
    if not errors[worst] <= TOLERANCE:
        raise VerificationError(
            f"{program.name}: O differs from attention by {errors[worst]:.3g} (allowed {TOLERANCE:g}) at "
            f"{_describe(*cases[worst])}"
        )
    large = [_error(program, case, tiles, algorithm, LARGE) for case, tiles in cases]
    return Proof(
        max_abs_error=errors[worst],
        tolerance=TOLERANCE,
        cases=len(cases),
        survives_large_scores=all(error <= TOLERANCE for error in large),
    )


def small_problems(problem: AttentionProblem) -> Iterator[tuple[AttentionProblem, TileShape]]:
    """The cases: small sizes, with the mask kind and the head ratio of `problem`."""
    kv_heads = min(problem.kv_heads, 2)
    heads = kv_heads * min(problem.group_size, 3)
    kinds = {"window": Mask("window", window=_WIDTH), "prefix": Mask("prefix", prefix=_WIDTH)}
    mask = kinds.get(problem.mask.kind, problem.mask)
    for seq_q, seq_k, head_dim, value_dim, rows, cols in _SIZES:
        case = replace(
            problem,
            batch=min(problem.batch, 2),
            heads=heads,
            kv_heads=kv_heads,
            seq_q=seq_q,
            seq_k=seq_k,
            head_dim=head_dim,
            value_dim=value_dim,
            mask=mask,
            scale=None if problem.scale is None else _SCALE,
        )
        yield case, TileShape(rows=rows, cols=cols)


def _check_tensors(program: Program) -> None:
    read = {t.name for t in program.tensors.values() if t.role == "input"}
    if not read <= {"Q", "K", "V"}:
        raise ProgramError(f"{program.name}: can only be checked on Q, K and V, but it reads {sorted(read)}")
    if "O" not in program.tensors:
        raise ProgramError(f"{program.name}: has no output O, so it is not attention")


def _error(
    program: Program, case: AttentionProblem, tiles: TileShape, algorithm: Algorithm, factor: float
) -> float:
    """The largest |difference| from the reference; infinite where the result is not finite."""
    q, k, v = _inputs(case, factor)
    try:
        with np.errstate(all="ignore"):
            found = run(program, case, tiles, {"Q": q, "K": k, "V": v})["O"]
    except VerificationError as error:  # shapes that do not belong together
        raise VerificationError(
            f"{program.name}: cannot be run at {_describe(case, tiles)}: {error}"
        ) from error
    except IosimError:
        raise
    except Exception as error:
        raise VerificationError(
            f"{program.name}: cannot be run at {_describe(case, tiles)}: {error}"
        ) from error
    scale = case.softmax_scale if algorithm.scaled else 1.0
    difference = np.abs(found - reference_attention(q, k, v, mask=case.mask, scale=scale))
    return float(difference.max()) if np.isfinite(difference).all() else float("inf")


def _inputs(case: AttentionProblem, factor: float) -> tuple[Array, Array, Array]:
    """Standard normal Q, K and V, the same on every run; Q and K times `factor`."""
    random = np.random.default_rng(0)
    p = case
    q = random.standard_normal((p.batch, p.heads, p.seq_q, p.head_dim)) * factor
    k = random.standard_normal((p.batch, p.kv_heads, p.seq_k, p.head_dim)) * factor
    v = random.standard_normal((p.batch, p.kv_heads, p.seq_k, p.value_dim))
    return q, k, v


def _describe(case: AttentionProblem, tiles: TileShape) -> str:
    p = case
    return (
        f"batch {p.batch}, heads {p.heads}, kv-heads {p.kv_heads}, seq-q {p.seq_q}, seq-k {p.seq_k}, "
        f"head-dim {p.head_dim}, value-dim {p.value_dim}, mask {p.mask}, tiles {tiles}"
    )
