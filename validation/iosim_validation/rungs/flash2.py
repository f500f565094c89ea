"""FlashAttention-2 on mma.sync: outer Q, inner K and V, rows of its own for every warp; see `kernels/flash2.cu`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.built_for import choose_tile, require_architecture, require_shape, require_shared
from iosim_validation.launch import Argument, Build, GpuFacts, Launch, Plan, Pointer
from iosim_validation.rung import Rung

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100")
WARP_THREADS = 32
VALUE_BYTES = 2
STAGES = 2  # ring slots of K and of V
LARGEST_ROWS = 2**30
"""Rows of one tensor: kernels count them in 32 bits, bytes in 64."""
LARGEST_GRID_SIDE = 65535  # of y and z (CUDA C++ Programming Guide)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A tile as a thread block: its warps, and the blocks an SM that its registers leave room for."""

    warps: int
    blocks: int


# By head dimension: rows x columns -> warps and blocks an SM, the default first. A warp of 32 rows reads K and V from
# shared memory for twice as many rows as one of 16, and takes twice the registers: it is used where S and O leave room.
DESIGNS: Mapping[int, Mapping[tuple[int, int], Design]] = MappingProxyType(
    {
        32: {
            (128, 64): Design(warps=4, blocks=3),
            (128, 32): Design(warps=4, blocks=3),
            (128, 128): Design(warps=4, blocks=2),
            (64, 32): Design(warps=4, blocks=4),
            (64, 64): Design(warps=4, blocks=4),
            (64, 128): Design(warps=4, blocks=2),
        },
        64: {
            (128, 64): Design(warps=4, blocks=2),
            (128, 32): Design(warps=4, blocks=3),
            (128, 128): Design(warps=8, blocks=1),
            (64, 32): Design(warps=4, blocks=4),
            (64, 64): Design(warps=4, blocks=3),
            (64, 128): Design(warps=4, blocks=2),
        },
        96: {
            (128, 64): Design(warps=4, blocks=2),
            (128, 32): Design(warps=4, blocks=2),
            (128, 128): Design(warps=8, blocks=1),
            (64, 32): Design(warps=4, blocks=3),
            (64, 64): Design(warps=4, blocks=3),
            (64, 128): Design(warps=4, blocks=2),
        },
        128: {
            (128, 64): Design(warps=4, blocks=2),
            (128, 32): Design(warps=4, blocks=2),
            (128, 128): Design(warps=8, blocks=1),
            (64, 32): Design(warps=4, blocks=2),
            (64, 64): Design(warps=4, blocks=2),
            (64, 128): Design(warps=4, blocks=1),
        },
        256: {
            (64, 32): Design(warps=4, blocks=2),
            (64, 64): Design(warps=4, blocks=1),
            (128, 32): Design(warps=8, blocks=1),
            (128, 64): Design(warps=8, blocks=1),
        },
    }
)


class Flash2(Rung):
    """Contiguous [batch, heads, N, d]; GQA, any sequence lengths, masks none and causal."""

    name: ClassVar[str] = "flash2"
    title: ClassVar[str] = "FlashAttention-2 on mma.sync: O on chip, K and V past it"
    algorithm: ClassVar[str] = "flash2"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"lse": "on"})

    def builds(self) -> tuple[Build, ...]:
        """Every tile and head dimension in fp16 on every architecture, and the default tiles in bf16."""
        return tuple(
            self._build(d, TileShape(rows=rows, cols=cols), bf16, architecture)
            for architecture in ARCHITECTURES
            for d, designs in DESIGNS.items()
            for n, (rows, cols) in enumerate(designs)
            for bf16 in ((0, 1) if n == 0 else (0,))
        )

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The tiles whose shared memory fits; the default first."""
        d = problem.head_dim
        known = [TileShape(rows=rows, cols=cols) for rows, cols in DESIGNS.get(d, {})]
        return tuple(t for t in known if shared_bytes(d, t) <= gpu.shared_bytes_per_block)

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """One launch of (row tiles, heads, batch) blocks. Errors: see `Rung.plan`."""
        chosen = self._choose(problem, gpu, tile)
        build = self._build(problem.head_dim, chosen, int(str(problem.dtype_q) == "bf16"), gpu.architecture)
        return Plan(launches=(Launch(build=build, grid=grid(problem, chosen), arguments=arguments(problem)),))

    def _choose(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None) -> TileShape:
        d = problem.head_dim
        require_architecture(self.name, gpu)
        require_shape(self.name, problem, DESIGNS)
        require_sizes(self.name, problem)
        if tile is not None and (tile.rows, tile.cols) in DESIGNS[d]:
            fits = ", ".join(str(t) for t in self.tiles(problem, gpu)) or "a smaller head_dim"
            what = f"tile {tile} at head_dim {d}"
            require_shared(self.name, what, shared_bytes(d, tile), gpu, f"what fits: {fits}")
        return choose_tile(self.name, tile, self.tiles(problem, gpu), problem, gpu)

    def _build(self, head_dim: int, tile: TileShape, bf16: int, architecture: str) -> Build:
        design = DESIGNS[head_dim][tile.rows, tile.cols]
        threads = design.warps * WARP_THREADS
        constants = {
            "BF16": bf16,
            "D": head_dim,
            "BR": tile.rows,
            "BC": tile.cols,
            "WARPS": design.warps,
            "BLOCKS": design.blocks,
        }
        return Build(
            rung=self.name,
            entry=self.name,
            architecture=architecture,
            sources=("common_mma.cu", "common_flash2.cu", f"{self.name}.cu"),
            defines=tuple(constants.items()),
            threads=threads,
            shared_bytes=shared_bytes(head_dim, tile),
            registers_at_most=min(255, 65536 // (threads * design.blocks) // 8 * 8),
        )


def shared_bytes(head_dim: int, tile: TileShape) -> int:
    """Q of a row tile, and a ring of K and one of V."""
    return VALUE_BYTES * head_dim * (tile.rows + 2 * STAGES * tile.cols)


def grid(problem: AttentionProblem, tile: TileShape) -> tuple[int, int, int]:
    """Row tiles fastest, then heads, then batch."""
    return -(-problem.seq_q // tile.rows), problem.heads, problem.batch


def arguments(problem: AttentionProblem) -> tuple[Argument, ...]:
    """q, k, v, o, lse; seq_q, seq_k, kv_heads; the diagonal that no key passes; the scale times log2(e)."""
    diagonal = problem.key_offset if problem.mask.is_causal else problem.seq_k
    return (
        *(Pointer(name) for name in ("q", "k", "v", "o", "lse")),
        *(np.int32(n) for n in (problem.seq_q, problem.seq_k, problem.kv_heads, diagonal)),
        np.float32(problem.softmax_scale * math.log2(math.e)),
    )


def require_sizes(rung: str, problem: AttentionProblem) -> None:
    """Errors: `UsageError` past the numbers that the kernels count in, and for a scale that is not above zero."""
    if problem.softmax_scale <= 0:
        raise UsageError(
            f"{rung}: scale {problem.softmax_scale:g}; must be above 0, or a larger score is no larger weight"
        )
    if max(problem.heads, problem.batch) > LARGEST_GRID_SIDE:
        raise UsageError(
            f"{rung}: heads {problem.heads}, batch {problem.batch}; a grid has at most {LARGEST_GRID_SIDE} of either"
        )
    rows = problem.batch * max(problem.heads * problem.seq_q, problem.kv_heads * problem.seq_k)
    if rows > LARGEST_ROWS:
        raise UsageError(
            f"{rung}: {rows} rows in one tensor; they are counted up to {LARGEST_ROWS}, take a smaller batch"
        )
