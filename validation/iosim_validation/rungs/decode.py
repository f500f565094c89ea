"""Few queries, many keys: the keys split over thread blocks, the query heads of a kv-head packed into one tile."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.splits import best_split, split_table
from iosim_validation.built_for import (
    choose_tile,
    require_architecture,
    require_grid,
    require_shape,
    require_shared,
)
from iosim_validation.launch import Build, GpuFacts, Launch, Plan, Pointer, Scratch
from iosim_validation.rung import Rung

HEAD_DIMS = (32, 64, 96, 128, 256)
ARCHITECTURES = ("sm_80", "sm_90a")
WARPS, WARP_KEYS = 4, 16
COLS = WARPS * WARP_KEYS
THREADS = 32 * WARPS
MOST_SPLITS = 512
LARGEST_SHARED_BYTES = 232448  # of a block, H100 and later
STAGES = (2, 6)  # fewest and most slots of a warp's ring
RESIDENT_BLOCKS = 2  # the ring takes what leaves room for two blocks on an SM


class Decode(Rung):
    """Split-KV attention with a combining kernel; with one split a single kernel."""

    name: ClassVar[str] = "decode"
    title: ClassVar[str] = "split keys, packed query heads, one ring of copies a warp"
    algorithm: ClassVar[str] = "decode"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"splits": "best", "pack-gqa": "on"})
    kernels: ClassVar[tuple[str, ...]] = ("decode_split", "decode_combine")

    def builds(self) -> tuple[Build, ...]:
        """Every tile and head dimension, fp16 in one split and bf16 causal in several, on two architectures."""
        found = []
        for architecture in ARCHITECTURES:
            for bf16 in (0, 1):
                for d in HEAD_DIMS:
                    for tile in _tiles(d):
                        stages = _stages(tile, d, LARGEST_SHARED_BYTES)
                        found.append(self._split(tile, d, bf16, bf16, bf16, stages, architecture))
                    found.append(self._combine(d, bf16, architecture))
        return tuple(found)

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The tiles that fit, the smallest that holds all packed rows first."""
        rows, d = problem.group_size * problem.seq_q, problem.head_dim
        found = [t for t in _tiles(d) if shared_bytes(t, d, STAGES[0]) <= gpu.shared_bytes_per_block]
        return tuple(sorted(found, key=lambda t: (-(-rows // t.rows), t.rows)))

    def plan(
        self,
        problem: AttentionProblem,
        gpu: GpuFacts,
        tile: TileShape | None = None,
        *,
        splits: int | None = None,
    ) -> Plan:
        """One launch for one split, two for several. `splits`: None takes those of `iosim.splits`.

        Errors: see `Rung.plan`; `UsageError` for splits outside 1 .. 512.
        """
        require_architecture(self.name, gpu)
        require_shape(self.name, problem, HEAD_DIMS)
        d = problem.head_dim
        smallest = _tiles(d)[0]
        needed = shared_bytes(smallest, d, STAGES[0])
        require_shared(self.name, f"tile {smallest} at head_dim {d}", needed, gpu, "take a smaller head_dim")
        chosen = choose_tile(self.name, tile, self.tiles(problem, gpu), problem, gpu)
        many = best_splits(problem, chosen, gpu.sms) if splits is None else splits
        if not 1 <= many <= MOST_SPLITS:
            raise UsageError(f"{self.name}: splits must be 1 to {MOST_SPLITS}, got {many}")
        rows = problem.group_size * problem.seq_q
        kv_heads = problem.batch * problem.kv_heads
        blocks = kv_heads * -(-rows // chosen.rows) * many
        require_grid(self.name, blocks)
        bf16, causal = int(str(problem.dtype_q) == "bf16"), int(problem.mask.is_causal)
        stages = _stages(chosen, d, gpu.shared_bytes_per_block)
        split = self._split(chosen, d, bf16, causal, int(many > 1), stages, gpu.architecture)
        parts = ("o_parts", "lse_parts") if many > 1 else ("o", "lse")  # not touched with one split
        sizes = (problem.seq_q, problem.seq_k, problem.kv_heads, problem.group_size, many)
        first = Launch(
            build=split,
            grid=(blocks, 1, 1),
            arguments=(
                *(Pointer(name) for name in ("q", "k", "v", "o", "lse", *parts)),
                *(np.int32(n) for n in sizes),
                np.float32(problem.softmax_scale),
            ),
        )
        if many == 1:
            return Plan(launches=(first,))
        second = Launch(
            build=self._combine(d, bf16, gpu.architecture),
            grid=(-(-kv_heads * rows // WARPS), 1, 1),
            arguments=(
                *(Pointer(name) for name in ("o_parts", "lse_parts", "o", "lse")),
                *(np.int32(n) for n in (problem.seq_q, problem.group_size, many)),
                np.int64(kv_heads * rows),
            ),
        )
        shape = (problem.batch, problem.kv_heads, many, rows)
        return Plan(
            launches=(first, second),
            scratch={
                "o_parts": Scratch(shape=(*shape, d), dtype="float32"),
                "lse_parts": Scratch(shape=shape, dtype="float32"),
            },
        )

    def _split(
        self, tile: TileShape, d: int, bf16: int, causal: int, split: int, stages: int, architecture: str
    ) -> Build:
        constants = {
            "BF16": bf16,
            "D": d,
            "ROWS": tile.rows,
            "CAUSAL": causal,
            "SPLIT": split,
            "STAGES": stages,
        }
        return Build(
            rung=self.name,
            entry="decode_split",
            architecture=architecture,
            sources=("common_mma.cu", "common_tiles.cu", "decode_split.cu"),
            defines=tuple(constants.items()),
            threads=THREADS,
            shared_bytes=shared_bytes(tile, d, stages),
        )

    def _combine(self, d: int, bf16: int, architecture: str) -> Build:
        return Build(
            rung=self.name,
            entry="decode_combine",
            architecture=architecture,
            sources=("common_mma.cu", "decode_combine.cu"),
            defines=(("BF16", bf16), ("D", d)),
            threads=THREADS,
            shared_bytes=0,
        )


def shared_bytes(tile: TileShape, head_dim: int, stages: int) -> int:
    """Q, and the larger of the four rings and the four warps' results in fp32, with m and l of their rows."""
    ring = 4 * head_dim * COLS * stages
    results = 4 * WARPS * tile.rows * (head_dim + 8 + 2)
    return 2 * tile.rows * head_dim + max(ring, results)


def _stages(tile: TileShape, head_dim: int, shared_bytes_per_block: int) -> int:
    """Slots of a warp's ring: as many as leave room for two blocks on an SM, where that is two or more."""
    room = shared_bytes_per_block // RESIDENT_BLOCKS - 1024
    return max(
        STAGES[0], *(n for n in range(STAGES[0], STAGES[1] + 1) if shared_bytes(tile, head_dim, n) <= room), 0
    )


def _tiles(head_dim: int) -> tuple[TileShape, ...]:
    """What the registers hold: every warp keeps O of all rows, rows * head_dim / 32 registers a thread."""
    rows = (16, 32) if head_dim <= 128 else (16,)
    return tuple(TileShape(rows=r, cols=COLS) for r in rows)


@lru_cache(maxsize=256)
def best_splits(problem: AttentionProblem, tile: TileShape, sms: int) -> int:
    """The splits of `iosim.splits`: fewest bytes for the SMs that are busy."""
    table = split_table(problem, find_algorithm("decode"), {"pack-gqa": "on", "page": "off"}, tile, sms)
    return min(MOST_SPLITS, best_split(table).splits)
