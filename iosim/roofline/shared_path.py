"""The path of shared memory during one tile, in wavefronts: all that passes through it, whoever waits for it.

A wavefront is a cycle of the path, at most 128 bytes. Operands and parts of O come in whole wavefronts. A number a row
(a maximum, a sum) is stored or loaded for eight rows at a time, 32 bytes, and takes one all the same; so does a
shuffle. Copies from slow memory take the path too. Counted from how a kernel divides its tile, and held against the
counter `shared_wavefronts` of our own kernels (docs/time.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from iosim.onchip import on_chip
from iosim.onchip.wavefronts import QUAD_STEPS, ROWS_PER_SHUFFLE, WAVEFRONT_BYTES
from iosim.problem import AttentionProblem, TileShape


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPath:
    """Wavefronts of one tile.

    `operands`: read by the warps. `exchange`: row statistics and parts of O that warps hand each other. `shuffles`:
    row statistics within a warp. `copies`: K and V on their way in, which no warp waits for. `parts_out`: of the
    exchange, parts of O that are stored piece by piece while the next piece is multiplied.
    """

    operands: float
    exchange: float
    shuffles: float
    copies: float
    parts_out: float = 0.0

    @property
    def by_warps(self) -> float:
        """What the counter of shared-memory wavefronts sees: copies that pass the registers by are not among them."""
        return self.operands + self.exchange + self.shuffles

    @property
    def total(self) -> float:
        """The time of the path, in cycles."""
        return self.by_warps + self.copies


def shared_path(problem: AttentionProblem, tile: TileShape, scheme: str, *, warps: int) -> SharedPath:
    """One tile by `scheme` (split-q or split-k) of a kernel that keeps O on chip.

    Errors: `UsageError` where the tile does not divide among the warps.
    """
    p = problem
    step = on_chip(p, tile, scheme, warps=warps).step
    groups = tile.rows / ROWS_PER_SHUFFLE  # eight rows each: one store or load of a number a row by one warp
    copied = tile.cols * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    parts_out, exchange, shuffles = 0.0, 0.0, QUAD_STEPS * groups
    if scheme == "split-k":
        parts_out = warps * tile.rows * p.value_dim * p.dtype_acc.itemsize / WAVEFRONT_BYTES
        # maxima and sums out of every warp; all maxima into every warp, and the sums into the owner of a row
        exchange = 2 * parts_out + groups * (2 * warps + warps * warps + warps)
        shuffles = 2 * warps * QUAD_STEPS * groups  # every warp: the maximum and the sum of all rows
    return SharedPath(
        operands=step.operand_read_bytes / WAVEFRONT_BYTES,
        exchange=exchange,
        parts_out=parts_out,
        shuffles=shuffles,
        copies=copied / WAVEFRONT_BYTES,
    )
