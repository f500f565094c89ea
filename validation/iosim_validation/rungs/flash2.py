"""FlashAttention-2 on mma.sync: outer Q, inner K and V, rows of its own for every warp; see `kernels/flash2.cu`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.built_for import choose_tile, require_architecture, require_shape, require_shared
from iosim_validation.designs import ARCHITECTURES, build, designs, head_dims, shared_bytes
from iosim_validation.launch import Argument, Build, GpuFacts, Launch, Plan, Pointer
from iosim_validation.rung import Rung

LARGEST_ROWS = 2**30
"""Rows of one tensor: the kernels count them in 32 bits, bytes in 64."""
LARGEST_GRID_SIDE = 65535  # of y and z (CUDA C++ Programming Guide)


class Flash2(Rung):
    """Contiguous [batch, heads, N, d]; GQA, any sequence lengths, masks none and causal."""

    name: ClassVar[str] = "flash2"
    title: ClassVar[str] = "FlashAttention-2 on mma.sync: O on chip, K and V past it"
    algorithm: ClassVar[str] = "flash2"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"lse": "on"})

    def builds(self) -> tuple[Build, ...]:
        """Every tile and head dimension in fp16 on every architecture, and the default tiles in bf16."""
        return tuple(
            build(self.name, d, tile, bf16, architecture)
            for architecture in ARCHITECTURES
            for d in head_dims(self.name)
            for n, tile in enumerate(designs(self.name, architecture, d))
            for bf16 in ((0, 1) if n == 0 else (0,))
        )

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The tiles whose shared memory fits; the default first."""
        d = problem.head_dim
        known = designs(self.name, gpu.architecture, d)
        return tuple(t for t in known if shared_bytes(self.name, d, t) <= gpu.shared_bytes_per_block)

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """One launch of (row tiles, heads, batch) blocks. Errors: see `Rung.plan`."""
        return Plan(launches=(self._launch(problem, gpu, self._choose(problem, gpu, tile)),))

    def _choose(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None) -> TileShape:
        d = problem.head_dim
        require_architecture(self.name, gpu)
        require_shape(self.name, problem, head_dims(self.name))
        _require_sizes(self.name, problem)
        known, fits = designs(self.name, gpu.architecture, d), self.tiles(problem, gpu)
        asked = min(known, key=lambda t: shared_bytes(self.name, d, t)) if tile is None and not fits else tile
        if asked in known and asked is not None:
            hint = f"what fits: {', '.join(str(t) for t in fits) or 'a smaller head_dim'}"
            what = f"tile {asked} at head_dim {d}"
            require_shared(self.name, what, shared_bytes(self.name, d, asked), gpu, hint)
        return choose_tile(self.name, tile, fits, problem, gpu)

    def _launch(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape, *more: Argument) -> Launch:
        bf16 = int(str(problem.dtype_q) == "bf16")
        return Launch(
            build=build(self.name, problem.head_dim, tile, bf16, gpu.architecture),
            grid=(-(-problem.seq_q // tile.rows), problem.heads, problem.batch),
            arguments=(*_arguments(problem), *more),
        )


def diagonal(problem: AttentionProblem) -> int:
    """Row r sees keys up to r + this: seq_k − seq_q under a causal mask, else seq_k, which is no limit."""
    return problem.key_offset if problem.mask.is_causal else problem.seq_k


def _arguments(problem: AttentionProblem) -> tuple[Argument, ...]:
    """Of every kernel here; exponentials are powers of two, so the scale comes times log2(e)."""
    sizes = (problem.seq_q, problem.seq_k, problem.kv_heads, diagonal(problem))
    return (
        *(Pointer(name) for name in ("q", "k", "v", "o", "lse")),
        *(np.int32(n) for n in sizes),
        np.float32(problem.softmax_scale * math.log2(math.e)),
    )


def _require_sizes(rung: str, problem: AttentionProblem) -> None:
    """Errors: `UsageError` past the numbers that the kernels count in, and for a scale that is not above 0."""
    if problem.softmax_scale <= 0:
        raise UsageError(f"{rung}: scale {problem.softmax_scale:g}; must be above 0: the largest score leads")
    if max(problem.heads, problem.batch) > LARGEST_GRID_SIDE:
        raise UsageError(
            f"{rung}: heads {problem.heads}, batch {problem.batch}; a grid has at most {LARGEST_GRID_SIDE} of either"
        )
    rows = problem.batch * max(problem.heads * problem.seq_q, problem.kv_heads * problem.seq_k)
    if rows > LARGEST_ROWS:
        raise UsageError(
            f"{rung}: {rows} rows in one tensor, counted up to {LARGEST_ROWS}; take a smaller batch"
        )
