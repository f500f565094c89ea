"""FlashAttention-1: outer K and V, inner Q; O and the statistics through memory each pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.problem import AttentionProblem, TileShape
from iosim_validation.built_for import (
    choose_tile,
    require_architecture,
    require_grid,
    require_shape,
    require_shared,
)
from iosim_validation.launch import Argument, Build, GpuFacts, Launch, Plan, Pointer, Scratch
from iosim_validation.rung import Rung

HEAD_DIMS = (32, 64, 96, 128)
ROWS, COLS = (64, 128), (64, 128)
WARP_ROWS, WARP_THREADS = 16, 32
SECTOR = 8  # values of 32 bits in a sector of 32 bytes, on which the statistics of every head begin


class Flash1(Rung):
    """One thread block a (batch, head); O between two visits in fp32."""

    name: ClassVar[str] = "flash1"
    title: ClassVar[str] = "FlashAttention-1: outer K and V, O through memory for every key tile"
    algorithm: ClassVar[str] = "flash1"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"variant": "fp32-between"})

    def builds(self) -> tuple[Build, ...]:
        """Every tile and head dimension: causal in bf16 on two architectures, full in fp16 on the newer."""
        kinds = (("sm_80", 1), ("sm_90a", 1), ("sm_90a", 0))
        return tuple(
            self._build(tile, d, causal, causal=causal, architecture=architecture)
            for architecture, causal in kinds
            for d in HEAD_DIMS
            for tile in _tiles()
        )

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The tiles that fit, most keys first (the fewer key tiles, the fewer passes over O), then most rows."""
        d = problem.head_dim
        found = [t for t in _tiles() if shared_bytes(t, d) <= gpu.shared_bytes_per_block]
        return tuple(sorted(found, key=lambda t: (-t.cols, -t.rows)))

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """One launch. Errors: see `Rung.plan`."""
        require_architecture(self.name, gpu)
        require_shape(self.name, problem, HEAD_DIMS)
        d = problem.head_dim
        smallest = min(_tiles(), key=lambda t: shared_bytes(t, d))
        hint = "take a smaller head_dim"
        require_shared(self.name, f"tile {smallest} at head_dim {d}", shared_bytes(smallest, d), gpu, hint)
        chosen = choose_tile(self.name, tile, self.tiles(problem, gpu), problem, gpu)
        blocks = problem.batch * problem.heads
        require_grid(self.name, blocks)
        build = self._build(
            chosen,
            d,
            int(str(problem.dtype_q) == "bf16"),
            causal=int(problem.mask.is_causal),
            architecture=gpu.architecture,
        )
        heads = (problem.batch, problem.heads)
        statistics = Scratch(shape=(*heads, -(-problem.seq_q // SECTOR) * SECTOR), dtype="float32")
        arguments: tuple[Argument, ...] = (
            *(Pointer(name) for name in ("q", "k", "v", "o", "lse", "o_between", "m", "l")),
            *(np.int32(n) for n in (problem.seq_q, problem.seq_k, problem.heads, problem.kv_heads)),
            np.float32(problem.softmax_scale),
        )
        return Plan(
            launches=(Launch(build=build, grid=(blocks, 1, 1), arguments=arguments),),
            scratch={
                "o_between": Scratch(shape=(*heads, problem.seq_q, d), dtype="float32"),
                "m": statistics,
                "l": statistics,
            },
        )

    def _build(self, tile: TileShape, head_dim: int, bf16: int, *, causal: int, architecture: str) -> Build:
        threads = tile.rows // WARP_ROWS * WARP_THREADS
        constants = {"BF16": bf16, "D": head_dim, "CAUSAL": causal, "ROWS": tile.rows, "KEYS": tile.cols}
        return Build(
            rung=self.name,
            entry="flash1",
            architecture=architecture,
            sources=("common_mma.cu", "common_tiles.cu", "flash1.cu"),
            defines=tuple(constants.items()),
            threads=threads,
            shared_bytes=shared_bytes(tile, head_dim),
        )


def shared_bytes(tile: TileShape, head_dim: int) -> int:
    """K and V of a key tile and two slots for Q, 16 bits a value, and O of a row tile in fp32."""
    return 4 * head_dim * (2 * tile.rows + tile.cols)


def _tiles() -> tuple[TileShape, ...]:
    return tuple(TileShape(rows=rows, cols=cols) for rows in ROWS for cols in COLS)
