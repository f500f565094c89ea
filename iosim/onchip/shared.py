"""The on-chip level: what one thread block moves through its shared memory, by how its warps divide a tile.

Three ways to divide S = Q Kᵀ and O = P V of one tile (Br rows of Q by Bc rows of K and V) among warps:

    split-k   each warp owns Bc / warps keys: every warp reads all of Q, and the partial outputs of the warps are
              summed through shared memory (FlashAttention-1)
    split-q   each warp owns Br / warps queries: every warp reads all of K and V, nothing is exchanged
              (FlashAttention-2)
    wgmma     a Hopper warpgroup owns 64 queries; the tensor cores read Q, K and V from shared memory, P from registers

All three move the same bytes between slow memory and the chip at equal loop order: this level is below that one.
Sources: Dao 2023, section 3.3 (split-K against split-Q); PTX ISA, `mma.sync` and `wgmma.mma_async` (who reads which
operand from where). Everything else is derived from those two facts, and held against counters of an H200.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from iosim.errors import UsageError
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape

SCHEMES = ("split-k", "split-q", "wgmma")
MAX_WARPS = 32  # 1024 threads of 32 (CUDA C++ Programming Guide, compute capabilities)
WARPGROUP_ROWS = 64  # rows of every wgmma instruction (PTX ISA, wgmma.mma_async shapes m64nNk16)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedStep:
    """One tile through shared memory, in bytes.

    `fill_bytes`: written by the copies from slow memory. `*_read_bytes`: operands read by the warps or tensor cores.
    `exchange_*`: row statistics and partial outputs that warps hand each other. `arrival_barriers` wait for a
    filled tile, `exchange_barriers` for another warp's results; both stop the whole block. `async_barriers` are the
    hardware barriers of a producer and its consumers, at which no block-wide stop happens.
    """

    fill_bytes: int
    q_read_bytes: int
    k_read_bytes: int
    v_read_bytes: int
    exchange_write_bytes: int
    exchange_read_bytes: int
    arrival_barriers: int
    exchange_barriers: int
    async_barriers: int

    @property
    def operand_read_bytes(self) -> int:
        """Q, K and V as the matmuls read them."""
        return self.q_read_bytes + self.k_read_bytes + self.v_read_bytes

    @property
    def total_bytes(self) -> int:
        """All bytes through shared memory, fills included."""
        return (
            self.fill_bytes + self.operand_read_bytes + self.exchange_write_bytes + self.exchange_read_bytes
        )

    @property
    def block_barriers(self) -> int:
        """Barriers at which every warp of the block waits."""
        return self.arrival_barriers + self.exchange_barriers


@dataclass(frozen=True, slots=True, kw_only=True)
class OnChip:
    """One scheme on one tile: a step, the tile steps of all heads, and the rescaling of the output."""

    scheme: str
    tiles: TileShape
    readers: int
    step: SharedStep
    steps: int
    rescale_flops_per_step: int
    final_flops_per_row_tile: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, the sums of a step among them."""
        step = asdict(self.step) | {
            "operand_read_bytes": self.step.operand_read_bytes,
            "total_bytes": self.step.total_bytes,
            "block_barriers": self.step.block_barriers,
        }
        out = asdict(self) | {"tiles": asdict(self.tiles), "step": step}
        return out | {
            "shared_bytes": self.steps * self.step.total_bytes,
            "block_barriers": self.steps * self.step.block_barriers,
        }


def on_chip(problem: AttentionProblem, tiles: TileShape, scheme: str, *, warps: int = 4) -> OnChip:
    """What one thread block does on chip for every tile, by `scheme` (split-k, split-q or wgmma).

    `warps` divide the tile in the first two; wgmma takes one warpgroup for every 64 rows. Tiles count whole, as a
    kernel executes them. Errors: `UsageError` where the tile does not divide among the warps.
    """
    readers = _readers(scheme, tiles, warps)
    p, Br, Bc = problem, tiles.rows, tiles.cols
    q_bytes = Br * p.head_dim * p.dtype_q.itemsize
    k_bytes = Bc * p.head_dim * p.dtype_k.itemsize
    v_bytes = Bc * p.value_dim * p.dtype_v.itemsize
    if scheme == "split-k":
        step = _split_k(p, Br, readers, q_bytes=q_bytes, k_bytes=k_bytes, v_bytes=v_bytes)
    else:
        wgmma = scheme == "wgmma"
        step = SharedStep(
            fill_bytes=k_bytes + v_bytes,  # Q is filled once for the whole row tile
            q_read_bytes=q_bytes,
            k_read_bytes=readers * k_bytes,
            v_read_bytes=readers * v_bytes,
            exchange_write_bytes=0,
            exchange_read_bytes=0,
            arrival_barriers=0 if wgmma else 2,  # the K tile is there, the V tile is there
            exchange_barriers=0,
            async_barriers=4 if wgmma else 0,  # K and V: full for the consumers, empty for the producer
        )
    return OnChip(
        scheme=scheme,
        tiles=tiles,
        readers=readers,
        step=step,
        steps=tile_steps(problem, tiles),
        rescale_flops_per_step=_rescale_flops(p, tiles, scheme),
        final_flops_per_row_tile=0 if scheme == "split-k" else Br * p.value_dim,
    )


def check_warps(warps: int) -> None:
    """`UsageError` for a number of warps that no thread block has."""
    if not 1 <= warps <= MAX_WARPS:
        raise UsageError(f"warps: a thread block has 1 to {MAX_WARPS} warps, got {warps}")


def _readers(scheme: str, tiles: TileShape, warps: int) -> int:
    """Warps (or warpgroups) that each read the whole of the operand they share."""
    if scheme not in SCHEMES:
        raise UsageError(f"scheme: unknown scheme {scheme!r}; allowed: {', '.join(SCHEMES)}")
    check_warps(warps)
    side, name = (tiles.cols, "cols") if scheme == "split-k" else (tiles.rows, "rows")
    parts = -(-tiles.rows // WARPGROUP_ROWS) if scheme == "wgmma" else warps
    unit = WARPGROUP_ROWS * parts if scheme == "wgmma" else warps
    if side % unit:
        whom = f"warpgroups of {WARPGROUP_ROWS} rows" if scheme == "wgmma" else f"{warps} warps"
        raise UsageError(f"tiles: {scheme} divides the {name} among {whom}, and {side} does not divide")
    return parts


def _split_k(
    p: AttentionProblem, Br: int, warps: int, *, q_bytes: int, k_bytes: int, v_bytes: int
) -> SharedStep:
    """Every warp owns some keys of a row's softmax, so maximum, sum and output exist in `warps` parts.

    All warps need a row's maximum, to take the exponentials; its sum and its output only the one warp that adds
    them up. The sums travel with the outputs, so one barrier serves both.
    """
    size = p.dtype_acc.itemsize
    part = warps * Br * size  # one number a row from every warp
    output = part * p.value_dim
    return SharedStep(
        fill_bytes=q_bytes,  # K and V stay for the whole pass over Q
        q_read_bytes=warps * q_bytes,
        k_read_bytes=k_bytes,
        v_read_bytes=v_bytes,
        exchange_write_bytes=2 * part + output,
        exchange_read_bytes=warps * part + part + output,
        arrival_barriers=1,
        exchange_barriers=2,  # maxima, then sums and outputs
        async_barriers=0,
    )


def _rescale_flops(p: AttentionProblem, tiles: TileShape, scheme: str) -> int:
    """Multiplications that keep the running output right, a step; exponentials are counted elsewhere.

    FlashAttention-1 (Algorithm 1, line 12) keeps O normalised: l e^(m − m_new) (a row), times O, times e^(m̃ − m_new)
    on P, and 1/l_new on the sum. FlashAttention-2 (Algorithm 1, line 10) multiplies O by e^(m − m_new) alone.
    """
    Br, Bc, dv = tiles.rows, tiles.cols, p.value_dim
    return Br + 2 * Br * dv + Br * Bc if scheme == "split-k" else Br * dv
