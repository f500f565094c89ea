"""Wavefronts: cycles of the shared-memory data path, as a counter sees them."""

from __future__ import annotations

from dataclasses import dataclass

from iosim.errors import UsageError
from iosim.onchip.shared import on_chip
from iosim.onchip.steps import row_tiles, tile_steps
from iosim.problem import AttentionProblem, TileShape

WAVEFRONT_BYTES = 128  # 32 banks of 4 bytes: what shared memory delivers in one cycle
ROWS_PER_SHUFFLE = 8  # a warp instruction covers 32 lanes, so 8 rows of 4 lanes
QUAD_STEPS = 2  # a butterfly over 4 lanes takes log2(4) shuffles


@dataclass(frozen=True, slots=True, kw_only=True)
class Wavefronts:
    """Cycles of the shared-memory data path, without bank conflicts, by what takes them.

    `shuffles` pass through the same data path. Copies from slow memory that bypass registers are not among them.
    """

    operands: int
    shuffles: int
    outputs: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.operands + self.shuffles + self.outputs


def shared_wavefronts(
    problem: AttentionProblem, tiles: TileShape, scheme: str, *, warps: int = 4, pack: bool = True
) -> Wavefronts:
    """Wavefronts of a whole forward pass by split-q or wgmma; `UsageError` for split-k, whose exchange is scattered.

    Operands: bytes read / 128. Shuffles: a butterfly over four lanes for every row's maximum, and for its sum at
    the end. Outputs: O is laid out in shared memory and, by split-q, read back as rows; on Hopper a bulk copy takes it.
    """
    if scheme == "split-k":
        raise UsageError("scheme: wavefronts are known for split-q and wgmma")
    p = problem.packed_heads() if pack else problem
    step = on_chip(p, tiles, scheme, warps=warps).step
    steps, blocks = tile_steps(p, tiles), row_tiles(p, tiles)
    output = tiles.rows * p.value_dim * p.dtype_o.itemsize * (1 if scheme == "wgmma" else 2)
    return Wavefronts(
        operands=steps * step.operand_read_bytes // WAVEFRONT_BYTES,
        shuffles=(steps + blocks) * QUAD_STEPS * tiles.rows // ROWS_PER_SHUFFLE,
        outputs=blocks * output // WAVEFRONT_BYTES,
    )
