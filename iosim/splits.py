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
) -> list[Split]:
    """Every split count from 1 to one key tile a split, or to WAVES of thread blocks, counted with the program."""
    binding = bind(problem, tiles)
    alone = algorithm.program(problem.mask.kind, {**options, "splits": "1"})
    launched = int(thread_blocks(alone, binding)[algorithm.name])
    most = min(MOST, -(-problem.seq_k // tiles.cols), max(1, WAVES * sm_count // launched))
    rows = [_row(1, launched, count(alone, binding).total_bytes, sm_count)]
    if most == 1:
        return rows
    many = algorithm.program(problem.mask.kind, {**options, "splits": "2"})
    columns: dict[str, Number] = {**binding, "splits": np.arange(2, most + 1)}
    blocks = np.broadcast_to(np.asarray(thread_blocks(many, columns)["split"]), (most - 1,))
    moved = np.broadcast_to(np.asarray(count(many, columns).total_bytes), (most - 1,))
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
