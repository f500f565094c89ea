"""Standard attention as three kernels, S and P in memory; the softmax in four ways."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.built_for import (
    REGISTERS_PER_SM,
    choose_tile,
    require_architecture,
    require_grid,
    require_shape,
    require_shared,
)
from iosim_validation.launch import Argument, Build, GpuFacts, Launch, Plan, Pointer, Scratch
from iosim_validation.rung import Rung

HEAD_DIMS = (32, 64, 96, 128, 256)
ARCHITECTURES = ("sm_80", "sm_90a")
TILE = TileShape(rows=128, cols=128)
SOFTMAX = MappingProxyType({"naive": 0, "safe": 1, "online": 2, "fused": 3})
PIECE = 8  # values of 16 bits in one load
SECTOR = 16  # values of 16 bits in a sector of 32 bytes, on which every row of S and P begins
GEMM_THREADS, GEMM_BLOCKS_PER_SM = 256, 2
# Of the second GEMM: keys a step, slots of its ring.
STEP_KEYS, STAGES = 64, 3
# The softmax's threads and, for a row on chip, pieces a thread, by the longest row that they hold.
ROW_SHAPES = ((64, 1), (128, 1), (128, 2), (128, 4), (128, 8), (256, 8), (512, 8))
LONGEST_ROW = 512 * 8 * PIECE


class Standard(Rung):
    """`softmax`: how P comes from S; a row on chip (`fused`), or as naive, safe or online softmax."""

    name: ClassVar[str] = "standard"
    title: ClassVar[str] = "three kernels, S and P in memory, a row of the softmax on chip"
    algorithm: ClassVar[str] = "standard"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"softmax": "fused", "gemm-tiles": str(TILE)})
    kernels: ClassVar[tuple[str, ...]] = ("qk_gemm", "softmax", "pv_gemm")
    variant: ClassVar[str] = "fused"

    def builds(self) -> tuple[Build, ...]:
        """Both GEMMs for every head dimension, the causal softmax for every row length, on two architectures.

        fp16, and bf16 at head_dim 128: the two differ in the names of two instructions.
        """
        found = []
        for architecture in ARCHITECTURES:
            if self.variant == "fused":
                shapes = [*((d, 0) for d in HEAD_DIMS), (128, 1)]
                found += [
                    self._gemm(e, *shape, architecture) for e in ("qk_gemm", "pv_gemm") for shape in shapes
                ]
            found += [self._softmax(shape, 1, 0, architecture) for shape in self._shapes()]
            found.append(self._softmax(self._shapes()[-1], 0, 1, architecture))
        return tuple(found)

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The one tile of its GEMMs, where both fit."""
        needed = max(shared_bytes(entry, problem.head_dim) for entry in ("qk_gemm", "pv_gemm"))
        return (TILE,) if needed <= gpu.shared_bytes_per_block else ()

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """S = scale·QKᵀ, P = softmax(S), O = PV. No log-sum-exp is written. Errors: see `Rung.plan`."""
        require_architecture(self.name, gpu)
        require_shape(self.name, problem, HEAD_DIMS)
        d = problem.head_dim
        for entry in ("qk_gemm", "pv_gemm"):
            hint = "take a smaller head_dim"
            require_shared(self.name, f"{entry} at head_dim {d}", shared_bytes(entry, d), gpu, hint)
        choose_tile(self.name, tile, self.tiles(problem, gpu), problem, gpu)
        shape = self._shape(problem.seq_k)
        heads = problem.batch * problem.heads
        rows, columns = -(-problem.seq_q // TILE.rows), -(-problem.seq_k // TILE.cols)
        grids = (rows * columns * heads, problem.seq_q * heads, rows * -(-d // TILE.cols) * heads)
        for blocks in grids:
            require_grid(self.name, blocks)
        bf16 = int(str(problem.dtype_q) == "bf16")
        causal = int(problem.mask.is_causal)
        stride = -(-problem.seq_k // SECTOR) * SECTOR
        sizes = (np.int32(problem.seq_q), np.int32(problem.seq_k), np.int32(stride))
        split = (np.int32(problem.heads), np.int32(problem.kv_heads))
        steps: tuple[tuple[Build, tuple[Argument, ...]], ...] = (
            (
                self._gemm("qk_gemm", d, bf16, gpu.architecture),
                (*_pointers("q", "k", "s"), *sizes, *split, np.float32(problem.softmax_scale)),
            ),
            (self._softmax(shape, causal, bf16, gpu.architecture), (*_pointers("s", "p"), *sizes)),
            (
                self._gemm("pv_gemm", d, bf16, gpu.architecture),
                (*_pointers("p", "v", "o"), *sizes, *split),
            ),
        )
        matrix = Scratch(shape=(problem.batch, problem.heads, problem.seq_q, stride), dtype="uint16")
        return Plan(
            launches=tuple(
                Launch(build=build, grid=(blocks, 1, 1), arguments=arguments)
                for (build, arguments), blocks in zip(steps, grids, strict=True)
            ),
            scratch={"s": matrix, "p": matrix},
            outputs=("o",),
        )

    def _shapes(self) -> tuple[tuple[int, int], ...]:
        """Threads and pieces of its softmax; a row that is read again needs no count of pieces."""
        if self.variant == "fused":
            return ROW_SHAPES
        return tuple(sorted({(threads, 0) for threads, _ in ROW_SHAPES}))

    def _shape(self, seq_k: int) -> tuple[int, int]:
        found = next((s for s in ROW_SHAPES if s[0] * s[1] * PIECE >= seq_k), None)
        if self.variant != "fused":
            return (found or ROW_SHAPES[-1])[0], 0
        if found is None:
            raise UsageError(
                f"{self.name}: a row of {seq_k} scores takes {4 * seq_k} of the {4 * REGISTERS_PER_SM} bytes of "
                f"registers of an SM; built for seq_k up to {LONGEST_ROW}; standard_online takes longer rows"
            )
        return found

    def _gemm(self, entry: str, head_dim: int, bf16: int, architecture: str) -> Build:
        stages = (("STAGES", STAGES),) if entry == "pv_gemm" else ()
        text = "standard_scores.cu" if entry == "qk_gemm" else "standard_output.cu"
        return Build(
            rung="standard",
            entry=entry,
            architecture=architecture,
            sources=("common_mma.cu", "common_tiles.cu", text),
            defines=(("BF16", bf16), ("D", head_dim), *stages),
            threads=GEMM_THREADS,
            shared_bytes=shared_bytes(entry, head_dim),
            registers_at_most=REGISTERS_PER_SM // GEMM_THREADS // GEMM_BLOCKS_PER_SM,
        )

    def _softmax(self, shape: tuple[int, int], causal: int, bf16: int, architecture: str) -> Build:
        threads, pieces = shape
        constants = {"BF16": bf16, "CAUSAL": causal, "SOFTMAX": SOFTMAX[self.variant]}
        return Build(
            rung=self.name,
            entry="softmax",
            architecture=architecture,
            sources=("common_mma.cu", "standard_softmax.cu"),
            defines=(*constants.items(), ("THREADS", threads), ("CHUNKS", pieces)),
            threads=threads,
            shared_bytes=0,
            registers_at_most=min(255, REGISTERS_PER_SM // threads),
        )


class _NotOnChip(Standard):
    """A softmax that reads its row again for every pass."""


class StandardNaive(_NotOnChip):
    """Σ exp(s), then the division; scores above 88 would overflow."""

    name = "standard_naive"
    title = "three kernels, S and P in memory, naive softmax: two passes, no maximum"
    options = MappingProxyType({"softmax": "naive", "gemm-tiles": str(TILE)})
    variant = "naive"


class StandardSafe(_NotOnChip):
    """The maximum, Σ exp(s − m), then the division."""

    name = "standard_safe"
    title = "three kernels, S and P in memory, safe softmax: three passes"
    options = MappingProxyType({"softmax": "safe", "gemm-tiles": str(TILE)})
    variant = "safe"


class StandardOnline(_NotOnChip):
    """The maximum and the sum in one pass, then the division."""

    name = "standard_online"
    title = "three kernels, S and P in memory, online softmax: two passes"
    options = MappingProxyType({"softmax": "online", "gemm-tiles": str(TILE)})
    variant = "online"


def shared_bytes(entry: str, head_dim: int) -> int:
    """Dynamic shared memory of a block of either GEMM: its tiles of 16-bit values, or the result on its way out."""
    width = min(head_dim, TILE.cols)
    if entry == "qk_gemm":
        return max(2 * (TILE.rows + TILE.cols) * head_dim, 2 * TILE.rows * TILE.cols)
    return max(STAGES * 2 * STEP_KEYS * (TILE.rows + width), 2 * TILE.rows * width)


def _pointers(*names: str) -> tuple[Pointer, ...]:
    return tuple(Pointer(name) for name in names)
