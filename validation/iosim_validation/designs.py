"""Thread blocks of the FlashAttention-2 rungs: the warps of every head dimension and tile, and compiler options.

A warp of 32 rows reads K and V from shared memory for twice as many rows as one of 16, and takes twice the registers
for S and O: it is used where they leave room. No design here spills, on any architecture it is listed for: what the
compiler makes of the last registers differs by architecture, so some are told to unroll less or to forget addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iosim.problem import TileShape
from iosim_validation.launch import Build

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a", "sm_100")
WARP_THREADS = 32
VALUE_BYTES, FP32_BYTES = 2, 4
STAGES = 2  # ring slots of K and of V
REGISTERS_PER_SM, LARGEST_REGISTERS = 65536, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A tile as a thread block.

    `blocks`: blocks an SM that registers leave room for. `unroll`: steps of S = Q Kᵀ in one stretch of code. `forget`:
    work addresses out again in every step.
    """

    warps: int = 4
    blocks: int = 2
    unroll: int = 4
    forget: bool = False


Designs = Mapping[TileShape, Design]


def _tile(rows: int, cols: int) -> TileShape:
    return TileShape(rows=rows, cols=cols)


# By head dimension, the default tile first: the fastest on an H200 at 4,096 rows.
_FLASH2: Mapping[int, Designs] = MappingProxyType(
    {
        32: {
            _tile(128, 64): Design(blocks=3),
            _tile(128, 32): Design(blocks=3),
            _tile(128, 128): Design(),
            _tile(64, 32): Design(blocks=4),
            _tile(64, 64): Design(blocks=4),
            _tile(64, 128): Design(),
        },
        64: {
            _tile(128, 64): Design(),
            _tile(128, 32): Design(blocks=3),
            _tile(128, 128): Design(warps=8, blocks=1),
            _tile(64, 32): Design(blocks=4),
            _tile(64, 64): Design(blocks=3),
            _tile(64, 128): Design(),
        },
        96: {
            _tile(128, 64): Design(),
            _tile(128, 32): Design(),
            _tile(128, 128): Design(warps=8, blocks=1),
            _tile(64, 32): Design(blocks=3),
            _tile(64, 64): Design(blocks=3),
            _tile(64, 128): Design(),
        },
        128: {
            _tile(128, 64): Design(),
            _tile(128, 32): Design(),
            _tile(128, 128): Design(warps=8, blocks=1),
            _tile(64, 32): Design(),
            _tile(64, 64): Design(),
            _tile(64, 128): Design(blocks=1),
        },
        256: {
            _tile(128, 64): Design(warps=8, blocks=1),
            _tile(128, 32): Design(warps=8, blocks=1),
            _tile(64, 32): Design(),
            _tile(64, 64): Design(blocks=1),
        },
    }
)
_SPLIT_K: Mapping[int, Designs] = MappingProxyType(
    {
        32: {
            _tile(64, 64): Design(),
            _tile(64, 128): Design(),
            _tile(128, 64): Design(),
            _tile(128, 128): Design(),
        },
        64: {_tile(64, 64): Design(), _tile(64, 128): Design(blocks=1), _tile(128, 64): Design(blocks=1)},
        96: {_tile(64, 64): Design(blocks=1), _tile(64, 128): Design(blocks=1)},
        128: {_tile(64, 64): Design(blocks=1)},
    }
)

# What differs from the above, by rung, generation, head dimension and tile; None: not built. Three blocks of 168
# registers instead of two of 255 are worth 3 to 5 % at head_dim 64 on an H200.
_THREE_BLOCKS = Design(blocks=3, forget=True)
_TUNED: Mapping[tuple[str, int, int, TileShape], Design | None] = MappingProxyType(
    {
        ("flash2", 80, 64, _tile(128, 64)): _THREE_BLOCKS,
        ("flash2", 89, 64, _tile(128, 64)): _THREE_BLOCKS,
        ("flash2", 90, 64, _tile(128, 64)): _THREE_BLOCKS,
        ("flash2", 100, 128, _tile(128, 64)): Design(unroll=8, forget=True),
        ("block_sparse", 80, 128, _tile(128, 64)): None,
        ("block_sparse", 89, 128, _tile(128, 64)): None,
        ("block_sparse", 90, 64, _tile(128, 64)): _THREE_BLOCKS,
        ("block_sparse", 100, 128, _tile(128, 64)): Design(forget=True),
    }
)


def designs(rung: str, architecture: str, head_dim: int) -> Designs:
    """The tiles of a rung (flash2, block_sparse, split_k_warps) on an architecture, the default first."""
    of_all = _SPLIT_K if rung == "split_k_warps" else _FLASH2
    found = {
        tile: _TUNED.get((rung, _generation(architecture), head_dim, tile), design)
        for tile, design in of_all.get(head_dim, {}).items()
    }
    return {tile: design for tile, design in found.items() if design is not None}


def head_dims(rung: str) -> tuple[int, ...]:
    """Those that a rung is built for."""
    return tuple(_SPLIT_K if rung == "split_k_warps" else _FLASH2)


def shared_bytes(rung: str, head_dim: int, tile: TileShape, warps: int = 4) -> int:
    """Q of a row tile, a ring of K and one of V; with split K the parts of O, and two numbers a row, of every warp."""
    tiles = VALUE_BYTES * head_dim * (tile.rows + 2 * STAGES * tile.cols)
    parts = FP32_BYTES * warps * tile.rows * (head_dim + 2)
    return tiles + (parts if rung == "split_k_warps" else 0)


def build(rung: str, head_dim: int, tile: TileShape, bf16: int, architecture: str) -> Build:
    """What is compiled for a tile that the rung has."""
    design = designs(rung, architecture, head_dim)[tile]
    threads = design.warps * WARP_THREADS
    constants = {
        "BF16": bf16,
        "D": head_dim,
        "BR": tile.rows,
        "BC": tile.cols,
        "WARPS": design.warps,
        "BLOCKS": design.blocks,
        "UNROLL": design.unroll,
        "FORGET": int(design.forget),
    }
    return Build(
        rung=rung,
        entry=rung,
        architecture=architecture,
        sources=("common_mma.cu", "common_flash2.cu", f"{rung}.cu"),
        defines=tuple(constants.items()),
        threads=threads,
        shared_bytes=shared_bytes(rung, head_dim, tile, design.warps),
        registers_at_most=min(LARGEST_REGISTERS, REGISTERS_PER_SM // (threads * design.blocks) // 8 * 8),
    )


def _generation(architecture: str) -> int:
    """80, 89, 90 or 100: the newest listed one that is no newer, since its register needs are the nearest known."""
    found = re.fullmatch(r"sm_(\d+)a?", architecture)
    known = (80, 89, 90, 100)
    return max((k for k in known if found and k <= int(found[1])), default=known[0])
