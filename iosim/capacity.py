"""What fits in a GPU's memory: the longest sequence of each algorithm, and memory against length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from iosim.errors import UsageError
from iosim.problem import AttentionProblem
from iosim.theory.peak_memory import HeldMemory, at_length, held_memory, largest_seq

if TYPE_CHECKING:
    import pandas as pd

LONG_SEQS = {"128k": 128 * 1024, "1m": 1024 * 1024}
"""The context lengths that people ask about."""
PLOT_SEQS = tuple(2**k for k in range(9, 23))
"""Lengths of a figure: 512 to 4 Mi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One algorithm and pass on one GPU: bytes at the asked length, and what is the longest that fits.

    `largest_seq_head`: one head of one batch entry; `largest_seq_layer`: all of the problem's. `fits` holds the
    asked length, `fits_long` the lengths of `LONG_SEQS`, of the whole layer.
    """

    held: HeldMemory
    capacity_bytes: int
    largest_seq_head: int
    largest_seq_layer: int

    @property
    def fits(self) -> bool:
        """Whether the asked length fits."""
        return self.held.total_bytes <= self.capacity_bytes

    @property
    def fits_long(self) -> dict[str, bool]:
        """Whether the whole layer fits at each of the long lengths."""
        return {name: seq <= self.largest_seq_layer for name, seq in LONG_SEQS.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "algorithm": self.held.algorithm,
            "pass": self.held.passes,
            "bytes": self.held.total_bytes,
            "parts": [asdict(part) for part in self.held.parts],
            "status": self.held.status,
            "source": self.held.source,
            "capacity_bytes": self.capacity_bytes,
            "fits": self.fits,
            "largest_seq_head": self.largest_seq_head,
            "largest_seq_layer": self.largest_seq_layer,
            **{f"fits_{name}": fits for name, fits in self.fits_long.items()},
        }


def usable_bytes(hbm_bytes: int, reserve_bytes: int) -> int:
    """Memory left beside what is taken (weights, other layers); `UsageError` where nothing is."""
    if reserve_bytes >= hbm_bytes:
        raise UsageError(f"reserve: {reserve_bytes} bytes leave nothing of the GPU's {hbm_bytes}")
    return hbm_bytes - reserve_bytes


def memory_fits(
    problem: AttentionProblem, algorithms: Sequence[str], passes: Sequence[str], capacity_bytes: int
) -> list[Fit]:
    """Every algorithm with every pass. The longest sequences keep everything but the length."""
    head = replace(problem, batch=1, heads=1, kv_heads=1)
    return [
        Fit(
            held=held_memory(problem, algorithm, which),
            capacity_bytes=capacity_bytes,
            largest_seq_head=largest_seq(head, algorithm, which, capacity_bytes),
            largest_seq_layer=largest_seq(problem, algorithm, which, capacity_bytes),
        )
        for algorithm in algorithms
        for which in passes
    ]


def memory_by_seq(
    problem: AttentionProblem, algorithms: Sequence[str], passes: Sequence[str], seqs: Sequence[int]
) -> pd.DataFrame:
    """Bytes held at each length: columns algorithm, pass, seq, bytes."""
    import pandas as pd

    rows = [
        (a, which, n, held_memory(at_length(problem, n), a, which).total_bytes)
        for a in algorithms
        for which in passes
        for n in seqs
    ]
    return pd.DataFrame(rows, columns=["algorithm", "pass", "seq", "bytes"])
