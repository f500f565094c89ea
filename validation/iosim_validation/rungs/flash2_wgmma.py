"""FlashAttention-2 for Hopper: the copy engine, wgmma, warpgroups with roles. `kernels/flash2_wgmma.cu` draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.built_for import choose_tile, require_grid, require_shape
from iosim_validation.launch import Build, GpuFacts, Launch, Plan, Pointer, Scratch, Stride, TensorMap
from iosim_validation.rung import Rung
from iosim_validation.wgmma import product

ARCHITECTURE = "sm_90a"
SOURCES = (
    "common_mma.cu",
    "common_hopper.cu",
    "flash2_wgmma_tiles.cu",
    "flash2_wgmma_softmax.cu",
    "flash2_wgmma_store.cu",
    "flash2_wgmma.cu",
)
WARPGROUP, WARPGROUP_ROWS = 128, 64
STAGES = 2  # a third slot gains nothing: the time of a copy is hidden with two
BARRIERS = 2 + 4 * STAGES
MAILBOX_BYTES = 16
LARGEST_SCALE = 1e6
"""Beyond it the scaled start of the running maximum, −1e30, leaves float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registers:
    """Registers a thread: at launch, and after the producer has given back and the consumers have taken."""

    launch: int
    producer: int
    consumer: int


# By consumer warpgroups; 65,536 registers an SM. What is taken must have been given back, or the consumers wait
# for ever: producer + consumers × consumer <= (1 + consumers) × launch.
REGISTERS = MappingProxyType(
    {
        1: Registers(launch=240, producer=32, consumer=240),
        2: Registers(launch=168, producer=24, consumer=240),
        3: Registers(launch=128, producer=32, consumer=160),
    }
)
# Columns by rows; more of them spill (192 rows) or pass the shared memory of a block.
COLUMNS = MappingProxyType({192: (128, 96, 64), 128: (128, 160, 64), 64: (128, 192, 160, 96, 64)})
HEAD_DIMS = (64, 128)
DEFAULTS = tuple(TileShape(rows=rows, cols=128) for rows in COLUMNS)
ROW_COST = MappingProxyType({192: 1.0, 128: 1.08, 64: 1.45})
"""Time of a row of a tile: 732, 680 and 510 TFLOP/s where no SM waits, N = 2048 and d = 128 on an H200
(validation/measurements/h200/wgmma_tiles.csv). More rows share each block of K and V, more warpgroups take turns."""


class Flash2Wgmma(Rung):
    """Any layout whose rows are contiguous: strides of q, k, v and o are read from the arrays."""

    name: ClassVar[str] = "flash2_wgmma"
    title: ClassVar[str] = "FlashAttention-2 on Hopper: copy engine, wgmma, three warpgroups in turns"
    algorithm: ClassVar[str] = "flash2"
    options: ClassVar[Mapping[str, str]] = MappingProxyType({"lse": "on"})

    def builds(self) -> tuple[Build, ...]:
        """Every head dimension, tile, mask and dtype; the default tile first."""
        return tuple(
            build(head_dim, tile, causal=causal, bf16=bf16)
            for tile in _tiles()
            for head_dim in HEAD_DIMS
            for causal in (False, True)
            for bf16 in (False, True)
        )

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The fastest first; the others are there to be measured."""
        if gpu.architecture != ARCHITECTURE or problem.head_dim not in HEAD_DIMS:
            return ()
        fit = [t for t in _tiles() if shared_bytes(problem.head_dim, t) <= gpu.shared_bytes_per_block]
        first = min(DEFAULTS, key=lambda tile: _waves_cost(tile, problem, gpu))
        return tuple(sorted(fit, key=lambda tile: tile != first))

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """One launch of at most a block an SM, and a counter of tiles. Errors: see `Rung.plan`."""
        if gpu.architecture != ARCHITECTURE:
            raise UsageError(
                f"{self.name}: built for {ARCHITECTURE}, {gpu.name} is {gpu.architecture}; take flash2"
            )
        require_shape(self.name, problem, HEAD_DIMS)
        if not 0 < problem.softmax_scale <= LARGEST_SCALE:
            raise UsageError(
                f"{self.name}: scale must be positive and at most {LARGEST_SCALE:g}, got {problem.softmax_scale:g}"
            )
        if tile is not None:
            _require_resources(problem.head_dim, tile, gpu)
        chosen = choose_tile(self.name, tile, self.tiles(problem, gpu), problem, gpu)
        row_tiles = -(-problem.seq_q // chosen.rows)
        tiles = row_tiles * problem.heads * problem.batch
        require_grid(self.name, tiles + gpu.sms)
        bf16 = str(problem.dtype_q) == "bf16"
        sizes = (
            problem.seq_q,
            problem.seq_k,
            problem.heads,
            problem.group_size,
            problem.batch,
            tiles,
            heads_together(problem, row_tiles, gpu),
        )
        launch = Launch(
            build=build(problem.head_dim, chosen, causal=problem.mask.is_causal, bf16=bf16),
            grid=(min(tiles, gpu.sms), 1, 1),
            arguments=(
                TensorMap(array="q", box_rows=chosen.rows),
                TensorMap(array="k", box_rows=chosen.cols),
                TensorMap(array="v", box_rows=chosen.cols),
                Pointer("o"),
                Pointer("lse"),
                *(Stride(array="o", axis=axis) for axis in range(3)),
                *(np.int32(size) for size in sizes),
                Pointer("counter"),
                np.float32(problem.softmax_scale * math.log2(math.e)),
            ),
        )
        counter = Scratch(shape=(1,), dtype="uint32", data=np.zeros(1, np.uint32))
        return Plan(launches=(launch,), scratch={"counter": counter})


def build(head_dim: int, tile: TileShape, *, causal: bool, bf16: bool) -> Build:
    """The text for one head dimension, tile, mask and dtype."""
    consumers = tile.rows // WARPGROUP_ROWS
    registers = REGISTERS[consumers]
    shared = shared_bytes(head_dim, tile)
    return Build(
        rung=Flash2Wgmma.name,
        entry="flash2_wgmma",
        architecture=ARCHITECTURE,
        sources=SOURCES,
        defines=(
            ("HEAD_DIM", head_dim),
            ("CONSUMERS", consumers),
            ("BLOCK_COLS", tile.cols),
            ("STAGES", STAGES),
            # P needs registers of its own beside S and O: three warpgroups have them at d = 64 only.
            ("OVERLAP", int(consumers < 3 or head_dim == 64)),
            ("TURNS", int(consumers == 3)),
            ("CAUSAL", int(causal)),
            ("BF16", int(bf16)),
            ("PRODUCER_REGISTERS", registers.producer),
            ("CONSUMER_REGISTERS", registers.consumer),
            ("SHARED_BYTES", shared),
        ),
        prelude=product("product_qk", columns=tile.cols, left="shared", right_transposed=False, bf16=bf16)
        + product("product_pv", columns=head_dim, left="registers", right_transposed=True, bf16=bf16),
        threads=WARPGROUP * (1 + consumers),
        shared_bytes=shared,
        registers_at_most=registers.launch,
    )


def shared_bytes(head_dim: int, tile: TileShape) -> int:
    """Shared memory of a block: Q, both rings, barriers, mailbox. The kernel asserts the same sum."""
    row_bytes = 2 * head_dim
    return row_bytes * (tile.rows + 2 * STAGES * tile.cols) + 8 * BARRIERS + MAILBOX_BYTES


def heads_together(problem: AttentionProblem, row_tiles: int, gpu: GpuFacts) -> int:
    """Query heads whose causal tiles are taken together, longest first.

    As many as share half the L2 (each of its two partitions keeps a copy of what both sides read), but at least 2.5
    tiles an SM, so that the longest tile of a group does not outlast the others; groups of equal size.
    """
    pair_bytes = 2 * 2 * problem.seq_k * problem.head_dim
    in_cache = gpu.l2_bytes // 2 // pair_bytes * problem.group_size
    enough_tiles = -(-5 * gpu.sms // (2 * row_tiles))
    planes = problem.heads * problem.batch
    groups = max(1, planes // max(in_cache, enough_tiles, 1))
    return -(-planes // groups)


def _waves_cost(tile: TileShape, problem: AttentionProblem, gpu: GpuFacts) -> float:
    """Rows that the busiest SM computes, those past the end of a head with them, at their cost."""
    tiles = -(-problem.seq_q // tile.rows) * problem.heads * problem.batch
    return -(-tiles // gpu.sms) * tile.rows * ROW_COST[tile.rows]


def _tiles() -> tuple[TileShape, ...]:
    return tuple(TileShape(rows=rows, cols=cols) for rows, known in COLUMNS.items() for cols in known)


def _require_resources(head_dim: int, tile: TileShape, gpu: GpuFacts) -> None:
    """Errors: `UsageError` with bytes or registers for a tile that is not built because it cannot be."""
    name = Flash2Wgmma.name
    consumers, rest = divmod(tile.rows, WARPGROUP_ROWS)
    if rest or consumers not in REGISTERS:
        raise UsageError(
            f"{name}: tile {tile}: 64 rows a consumer warpgroup, 1 to 3 of them; rows 64, 128 or 192"
        )
    needed = shared_bytes(head_dim, tile)
    if needed > gpu.shared_bytes_per_block:
        raise UsageError(
            f"{name}: tile {tile} at head_dim {head_dim} needs {needed} bytes of shared memory a block, "
            f"{gpu.name} has {gpu.shared_bytes_per_block}; take fewer columns"
        )
    if tile.cols not in COLUMNS[tile.rows]:
        held = tile.cols // 2 + head_dim // 2
        raise UsageError(
            f"{name}: tile {tile} at head_dim {head_dim}: S and O take {held} of a consumer's "
            f"{REGISTERS[consumers].consumer} registers, the rest is not enough or not built; "
            f"columns built for {tile.rows} rows: {', '.join(map(str, sorted(COLUMNS[tile.rows])))}"
        )
