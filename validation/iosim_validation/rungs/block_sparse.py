"""`flash2` driven by a block mask: lists of column tiles in memory, one for every row tile; see `block_sparse.cu`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from iosim.block_mask import visible
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.launch import GpuFacts, Plan, Pointer, Scratch
from iosim_validation.rungs.flash2 import Flash2, diagonal

Ints = npt.NDArray[np.int32]
EVERY_TILE = "local:999999999"
LISTS = ("starts", "tiles", "edges")


class BlockSparse(Flash2):
    """The mask lies on the grid of the tile and is one for all heads; a problem's own mask holds as well."""

    name: ClassVar[str] = "block_sparse"
    title: ClassVar[str] = "FlashAttention-2 over the tiles of a block mask"

    def __init__(self, pattern: str = EVERY_TILE) -> None:
        self.pattern = pattern

    def masked(self, pattern: str) -> BlockSparse:
        """The same rung over another mask."""
        return BlockSparse(pattern)

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """One launch, and the lists that it reads. Errors: see `Rung.plan`; `ProblemError` for the mask."""
        chosen = self._choose(problem, gpu, tile)
        lists = tile_lists(problem, chosen, self.pattern)
        return Plan(
            launches=(self._launch(problem, gpu, chosen, *(Pointer(name) for name in LISTS)),),
            scratch={
                name: Scratch(shape=data.shape, dtype="int32", data=data)
                for name, data in zip(LISTS, lists, strict=True)
            },
        )


def tile_lists(problem: AttentionProblem, tile: TileShape, pattern: str) -> tuple[Ints, Ints, Ints]:
    """Where each row tile's list starts (one more at the end), the column tiles, and how many need the mask.

    A list goes down from the last tile, so that those which the diagonal or the ragged end crosses come first.
    """
    blocks = visible(problem, tile, pattern)
    rows, cols = blocks.shape
    first = np.arange(rows, dtype=np.int64) * tile.rows
    whole = np.clip(first + diagonal(problem) + 1, 0, problem.seq_k) // tile.cols
    starts = np.concatenate(([0], np.cumsum(blocks.sum(axis=1))))
    tiles = cols - 1 - np.nonzero(blocks[:, ::-1])[1]
    edges = (blocks & (np.arange(cols) >= whole[:, None])).sum(axis=1)
    # An empty array has no address.
    padded = tiles if tiles.size else np.zeros(1)
    return starts.astype(np.int32), padded.astype(np.int32), edges.astype(np.int32)
