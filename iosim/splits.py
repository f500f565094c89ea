"""How many ways to split the keys: every split costs bytes for its partial results and puts idle SMs to work.

SMs draw bytes in proportion to how many of them work, so the figure of merit is bytes divided by the busy share of
the SMs (one thread block at a time on each): the time of a kernel that is bound by bytes, up to a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.algorithms.registry import Algorithm
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.launch import busy_share, thread_blocks
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Number

WAVES = 8
"""Thread blocks an SM beyond which more splits have nothing to fill."""

MOST = 512
"""Most splits that are tried: four times the SMs of the largest GPU of the profiles, and a few more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split count: thread blocks of the first kernel, share of the SMs they keep busy, bytes of all kernels."""

    splits: int
    thread_blocks: int
    sm_share: float
    total_bytes: int

    @property
    def bytes_per_busy_share(self) -> float:
        """What is minimised."""
        return self.total_bytes / self.sm_share

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("splits", "thread_blocks", "sm_share", "total_bytes", "bytes_per_busy_share")
        return {name: getattr(self, name) for name in names}


def split_table(
    problem: AttentionProblem,
    algorithm: Algorithm,
    options: Mapping[str, str],
    tiles: TileShape,
    sm_count: int,
    *,
    batch: Mapping[AttentionProblem, int] | None = None,
) -> list[Split]:
    """Every split count from 1 to one key tile a split, or to WAVES of thread blocks, counted with the program.

    `batch`: the sequences of a ragged batch and how many there are of each, in place of `problem`; one count for all.
    """
    parts = [(bind(p, tiles), copies) for p, copies in (batch or {problem: 1}).items()]
    alone = algorithm.program(problem.mask.kind, {**options, "splits": "1"})
    launched = sum(int(thread_blocks(alone, b)[algorithm.name]) * n for b, n in parts)
    longest = max(binding["Nk"] for binding, _ in parts)
    most = min(MOST, -(-longest // tiles.cols), max(1, WAVES * sm_count // launched))
    rows = [_row(1, launched, sum(int(count(alone, b).total_bytes) * n for b, n in parts), sm_count)]
    if most == 1:
        return rows
    many = algorithm.program(problem.mask.kind, {**options, "splits": "2"})
    blocks = moved = np.zeros(most - 1, dtype=object)
    for binding, copies in parts:
        columns: dict[str, Number] = {**binding, "splits": np.arange(2, most + 1)}
        blocks = blocks + np.asarray(thread_blocks(many, columns)["split"]).astype(object) * copies
        moved = moved + np.asarray(count(many, columns).total_bytes).astype(object) * copies
    rows += [_row(s, b, n, sm_count) for s, b, n in zip(range(2, most + 1), blocks, moved, strict=True)]
    return rows


def _row(splits: int, blocks: Any, moved: Any, sm_count: int) -> Split:
    return Split(
        splits=splits,
        thread_blocks=int(blocks),
        sm_share=busy_share(int(blocks), sm_count),
        total_bytes=int(moved),
    )


def best_split(table: list[Split]) -> Split:
    """The row with the fewest bytes for the SMs that are busy; the smallest of equals."""
    return min(table, key=lambda row: (row.bytes_per_busy_share, row.splits))
