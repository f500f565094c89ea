"""Block masks in the study of the bound: Proposition 4 of FlashAttention, Θ(Nd + N²d²s/M) at density s of blocks.

The blocks of a mask are tiles, so another M is another mask: what is held against a bound is each of them against the
bound of its own visible pairs. The law is fitted in s: matrix elements = once · Nd + constant · s · N²d²/M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from iosim.grid import Grid
from iosim.problem import AttentionProblem
from iosim.scaling.elements import ITEMSIZE, Options, split
from iosim.scaling.passes import BOTH, sweep_passes

DENSITIES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
MASKED = ("flash1", "flash2")
MOST_BLOCKS = 1 << 20  # of a mask in a study: more take long, and say nothing new
_SEQ, _HEAD_DIM, _ELEMENTS = 1 << 14, 64, 1 << 15
LAW_TEXT = f"N = {_SEQ:,}, d = {_HEAD_DIM}, M = {_ELEMENTS:,} elements, random blocks of density 1/16 to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseLaw:
    """Matrix elements of an algorithm over random block masks, with the paper's tiles: a straight line in s.

    `constant`: its slope in units of N²d²/M; `once`: its value at s = 0 in units of Nd.
    """

    algorithm: str
    constant: float
    once: float
    r_squared: float
    points: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def block_mask_of(options: Options) -> str:
    """The block mask that is studied, empty for none."""
    masks = (own.get("block-mask", "off") for own in options.values())
    return next((mask for mask in masks if mask != "off"), "")


def without_block_mask(options: Options) -> dict[str, Mapping[str, str]]:
    """The same options over all tiles."""
    kept = {name: {k: v for k, v in own.items() if k != "block-mask"} for name, own in options.items()}
    return {name: own for name, own in kept.items() if own}


def sparse_laws(options: Options, algorithms: Sequence[str] = MASKED) -> tuple[SparseLaw, ...]:
    """The law of each algorithm under its other options, counted at `LAW_TEXT`."""
    return tuple(_law(name, dict(options.get(name, {}))) for name in algorithms)


def _law(name: str, own: dict[str, str]) -> SparseLaw:
    moved = []
    for s in DENSITIES:
        options = own | {"block-mask": f"random:{s}"}
        grid = Grid(
            algorithm=(name,),
            seq=(_SEQ,),
            head_dim=(_HEAD_DIM,),
            sram_bytes=(_ELEMENTS * ITEMSIZE,),
            tiles=("paper",),
            dtypes={"dtype": "fp16"},
            options={name: options},
        )
        table = sweep_passes(grid)
        moved.append(float(split(table, name, options)["matrix elements"].iloc[0]))
    density, elements = np.array(DENSITIES), np.array(moved)
    slope, start = np.polyfit(density, elements, 1)
    line = start + slope * density
    spread = float(((elements - elements.mean()) ** 2).sum())
    return SparseLaw(
        algorithm=name,
        constant=float(slope) * _ELEMENTS / (_SEQ * _HEAD_DIM) ** 2,
        once=float(start) / (_SEQ * _HEAD_DIM),
        r_squared=1 - float(((elements - line) ** 2).sum()) / spread,
        points=len(DENSITIES),
    )


def least_sram_bytes(problem: AttentionProblem, options: Options) -> int:
    """The smallest M, to a factor of two, at which the paper's tiles cut a problem into no more than `MOST_BLOCKS`."""
    backward = any(own.get("pass", "fwd") in ("bwd", BOTH) for own in options.values())
    row = problem.head_dim * problem.dtype_k.itemsize * (8 if backward else 4)
    M = row
    while True:
        cols = M // row
        rows = min(cols, problem.head_dim)
        if -(-problem.seq_q // rows) * -(-problem.seq_k // cols) <= MOST_BLOCKS:
            return M
        M *= 2


def narrowed(problem: AttentionProblem, head_dim: int, seq: int) -> AttentionProblem:
    """The problem at another width and length."""
    return replace(problem, head_dim=head_dim, value_dim=head_dim, seq_q=seq, seq_k=seq)
