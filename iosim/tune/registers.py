"""Registers and shared memory of a tile, estimated from the layout of the tensor-core instructions.

Forward, a thread of a block whose W warps divide the Br rows of a tile (R = Br / 16W row blocks a warp):

    mma.sync m16n8k16   O  Br·dv / 32W   S  Br·Bc / 32W (P takes its place)   operands 4R + 8   row statistics 6R
    wgmma m64nNk16      O  64·dv / 128   S  64·Bc / 128 (P takes its place); operands stay in shared memory

and `OTHER` for addresses, counters and masks. Backward (mma.sync; a block owns Bc keys): dK and dV, and beside them S
and dP or later dQ. `OTHER` is one number for all, set by what is known to compile: FlashAttention-2's tiles need 252 of
255 (its builds spill 6 and 14 registers a thread at head dimensions 64 and 128: the estimate calls them tight), a wgmma
kernel of three warpgroups with 64 x 128 x 128 each compiles into its 160 without a spill and with 144 keys does not.
Sources: PTX ISA (fragments of m16n8k16 and of wgmma; setmaxnreg takes multiples of 8), FlashAttention-2 source
(flash_fwd_launch_template.h, flash_bwd_launch_template.h), shared memory of measured launches (attention.csv).
"""

from __future__ import annotations

from dataclasses import dataclass

from iosim.problem import AttentionProblem, TileShape

WARP, WARPGROUP = 32, 128
"""Threads."""
MMA_ROWS, MMA_COLS = 16, 16
"""Rows of an m16n8k16 and the keys that P V takes at a time (k16)."""
WGMMA_ROWS, WGMMA_KEYS = 64, 256
"""Rows of a wgmma, and the most keys of its n side."""
OTHER = 32
TIGHT = 8
"""Within so many registers of the limit a build may spill a few."""
BEYOND = 13
"""By how many a tight build passes the estimate: of FlashAttention-2's two that spill, 9 and 17 (its card)."""
MMA_LIMIT, CONSUMER_LIMIT = 255, 240
"""Registers of a thread; of a consumer's thread after setmaxnreg (240 x 2 and 24 fill an SM of two consumers)."""
PRODUCER = 24
GRANULE = 8
BARRIER_BYTES = 1024
"""Kept free beside the tiles of a wgmma kernel: barriers, and the 1024-byte alignment that its swizzle needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a thread block asks for. `registers`: of a computing thread; `launch_registers`: a thread at launch."""

    threads: int
    registers: int
    register_limit: int
    launch_registers: int
    shared_bytes: int
    parts: tuple[tuple[str, int], ...]

    @property
    def tight(self) -> bool:
        """Whether a build may spill a few registers."""
        return self.registers > self.register_limit - TIGHT

    @property
    def spilled(self) -> int:
        """Registers a thread that a tight build is taken to write out and read back in every step."""
        return max(0, self.registers + BEYOND - self.register_limit) if self.tight else 0


def mma_needs(problem: AttentionProblem, tile: TileShape, warps: int, stages: int) -> Needs:
    """Forward by mma.sync; `problem` with padded head dimensions, `stages` copies of K and V."""
    blocks = tile.rows // (MMA_ROWS * warps)
    parts = (
        ("O", tile.rows * problem.value_dim // (WARP * warps)),
        ("S", tile.rows * tile.cols // (WARP * warps)),
        ("operands", 4 * blocks + 8),
        ("row statistics", 6 * blocks),
        ("other", OTHER),
    )
    return _mma(parts, warps, _forward_bytes(problem, tile, stages))


def wgmma_needs(problem: AttentionProblem, tile: TileShape, stages: int) -> Needs:
    """Forward by wgmma: a warpgroup for every 64 rows, and one that only loads."""
    consumers = tile.rows // WGMMA_ROWS
    parts = (
        ("O", WGMMA_ROWS * problem.value_dim // WARPGROUP),
        ("S", WGMMA_ROWS * tile.cols // WARPGROUP),
        ("other", OTHER),
    )
    registers = _up(sum(n for _, n in parts))
    return Needs(
        threads=WARPGROUP * (consumers + 1),
        registers=registers,
        register_limit=CONSUMER_LIMIT,
        launch_registers=_up(-(-(consumers * registers + PRODUCER) // (consumers + 1))),
        shared_bytes=_forward_bytes(problem, tile, stages) + BARRIER_BYTES,
        parts=parts,
    )


def backward_needs(problem: AttentionProblem, tile: TileShape, warps: int, stages: int) -> Needs:
    """Backward by mma.sync: K, V, dO, `stages` of Q, and P and dS in shared memory."""
    p, lanes = problem, WARP * warps
    scores = 2 * tile.rows * tile.cols // lanes
    parts = (
        ("dK, dV", tile.cols * (p.head_dim + p.value_dim) // lanes),
        ("S, dP or dQ", max(scores, tile.rows * p.head_dim // lanes)),
        ("operands", 16),
        ("other", OTHER),
    )
    size = p.dtype_k.itemsize
    keys = tile.cols * (p.head_dim + p.value_dim) * size
    queries = tile.rows * (stages * p.head_dim + p.value_dim) * size
    return _mma(parts, warps, keys + queries + 2 * tile.rows * tile.cols * size)


def _mma(parts: tuple[tuple[str, int], ...], warps: int, shared_bytes: int) -> Needs:
    registers = sum(n for _, n in parts)
    return Needs(
        threads=WARP * warps,
        registers=registers,
        register_limit=MMA_LIMIT,
        launch_registers=min(MMA_LIMIT, _up(registers)) if registers <= MMA_LIMIT else registers,
        shared_bytes=shared_bytes,
        parts=parts,
    )


def _forward_bytes(p: AttentionProblem, tile: TileShape, stages: int) -> int:
    """Q once, K and V `stages` times; O leaves through Q's place."""
    rows = tile.rows * max(p.head_dim, p.value_dim) * p.dtype_q.itemsize
    return rows + stages * tile.cols * (p.head_dim + p.value_dim) * p.dtype_k.itemsize


def _up(registers: int) -> int:
    return -(-registers // GRANULE) * GRANULE
