"""The Θ statements of the literature: curves up to an unknown constant, to be drawn and never compared.

N² stands for seq_q·seq_k and N for √(seq_q·seq_k), d for head_dim, M for the elements that fit on chip.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from iosim.problem import AttentionProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One Θ or Ω statement: `expression` in elements a head, where it holds, and who proved it.

    `direction`: "forward" or "backward". `kind`: "algorithm" (what one algorithm moves), "lower bound", or
    "optimum" (both at once).
    """

    name: str
    expression: str
    valid_range: str
    source: str
    direction: str
    kind: str
    formula: Callable[[float, float, float], float]
    holds: Callable[[float, float, float], bool]

    def elements(self, problem: AttentionProblem, sram_elements: float) -> float | None:
        """The expression with constant 1, over all heads and batch entries; None outside its range."""
        N, d, M = math.sqrt(problem.seq_q * problem.seq_k), float(problem.head_dim), float(sram_elements)
        if M <= 0 or not self.holds(N, d, M):
            return None
        return problem.batch * problem.heads * self.formula(N, d, M)


def _paper_range(N: float, d: float, M: float) -> bool:
    return d <= M <= N * d


def _up_to_whole(N: float, d: float, M: float) -> bool:
    return N * d >= M


def _near_whole(N: float, d: float, M: float) -> bool:
    return N * d / 2 <= M <= N * d


def _from_d_squared(N: float, d: float, M: float) -> bool:
    return d * d <= M <= N * d


def _below_d_squared(N: float, d: float, M: float) -> bool:
    return d * d > M


_DAO = "Dao et al. 2022 (arXiv:2205.14135)"
_SAHA = "Saha and Ye 2024 (arXiv:2402.07443)"

SHAPES: tuple[Shape, ...] = (
    Shape(
        name="standard attention",
        expression="Θ(Nd + N²)",
        valid_range="printed d <= M <= Nd; true from M of order d², below it Q Kᵀ alone moves N²d/√M",
        source=f"{_DAO}, theorem 2",
        direction="forward",
        kind="algorithm",
        formula=lambda N, d, M: N * d + N * N,
        holds=_from_d_squared,
    ),
    Shape(
        name="FlashAttention",
        expression="Θ(N²d²/M)",
        valid_range="d <= M <= Nd",
        source=f"{_DAO}, theorem 2",
        direction="forward",
        kind="algorithm",
        formula=lambda N, d, M: N * N * d * d / M,
        holds=_paper_range,
    ),
    Shape(
        name="FlashAttention proposition 3",
        expression="not o(N²d²/M) for all M in [d, Nd]",
        valid_range="proved only at M of order Nd, where it says Ω(Nd); no bound at any smaller M",
        source=f"{_DAO}, proposition 3",
        direction="forward",
        kind="lower bound",
        formula=lambda N, d, M: N * d,
        holds=_near_whole,
    ),
    Shape(
        name="large cache optimum",
        expression="Θ(N²d²/M)",
        valid_range="d² <= M <= Nd; holds for fast matrix multiplication too",
        source=_SAHA,
        direction="forward",
        kind="optimum",
        formula=lambda N, d, M: N * N * d * d / M,
        holds=_from_d_squared,
    ),
    Shape(
        name="small cache optimum",
        expression="Θ(N²d/√M)",
        valid_range="M < d²; for algorithms without fast matrix multiplication",
        source=_SAHA,
        direction="forward",
        kind="optimum",
        formula=lambda N, d, M: N * N * d / math.sqrt(M),
        holds=_below_d_squared,
    ),
    Shape(
        name="backward optimum",
        expression="Θ(min{(N²d² + Nd³)/M, (N²d + Nd²)/√M})",
        valid_range="M <= Nd; the two terms cross at M = d²; counts the gradient of a d × d weight",
        source="Li et al. 2024 (arXiv:2410.09397), as others summarise it",
        direction="backward",
        kind="optimum",
        formula=lambda N, d, M: min((N * N * d * d + N * d**3) / M, (N * N * d + N * d * d) / math.sqrt(M)),
        holds=_up_to_whole,
    ),
)
"""Every statement that may be drawn, large to small M within a direction."""
