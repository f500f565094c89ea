"""What kernels are built for, and the sentences that refuse everything else before a launch."""

from __future__ import annotations

import re
from collections.abc import Collection

from iosim.errors import TileError, UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation.launch import GpuFacts

DTYPES = ("fp16", "bf16")
MASKS = ("none", "causal")
LARGEST_INDEX = 2**31 - 1
"""Rows of a head and thread blocks of a grid are 32-bit numbers in the kernels; addresses are 64-bit."""
REGISTERS_PER_SM = 65536


def require_architecture(rung: str, gpu: GpuFacts, oldest: int = 80) -> None:
    """Errors: `UsageError` for a GPU whose machine code lacks the instructions."""
    found = re.fullmatch(r"sm_(\d+)a?", gpu.architecture)
    if found is None or int(found[1]) < oldest:
        raise UsageError(f"{rung}: built for sm_{oldest} and later, {gpu.name} is {gpu.architecture}")


def require_shape(rung: str, problem: AttentionProblem, head_dims: Collection[int]) -> None:
    """One 16-bit dtype, masks none and causal, value_dim = head_dim in `head_dims`; else `UsageError`."""
    dtypes = {str(d) for d in (problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o)}
    if len(dtypes) != 1 or not dtypes <= set(DTYPES):
        raise UsageError(
            f"{rung}: q, k, v and o must all be fp16 or all bf16, got {', '.join(sorted(dtypes))}"
        )
    if problem.mask.kind not in MASKS:
        raise UsageError(f"{rung}: mask {problem.mask}; built for {' and '.join(MASKS)}")
    if problem.value_dim != problem.head_dim or problem.head_dim not in head_dims:
        known = ", ".join(str(d) for d in sorted(head_dims))
        raise UsageError(
            f"{rung}: head_dim {problem.head_dim} and value_dim {problem.value_dim}; built for {known}, both alike"
        )
    if max(problem.seq_q, problem.seq_k) > LARGEST_INDEX - 512:
        raise UsageError(f"{rung}: rows are numbered in 32 bits, got seq {max(problem.seq_q, problem.seq_k)}")


def require_grid(rung: str, blocks: int) -> None:
    """Errors: `UsageError` for more thread blocks than one launch has."""
    if blocks > LARGEST_INDEX:
        raise UsageError(
            f"{rung}: {blocks} thread blocks, one launch has at most {LARGEST_INDEX}; take a smaller batch"
        )


def require_shared(rung: str, what: str, shared_bytes: int, gpu: GpuFacts, hint: str) -> None:
    """Errors: `TileError` with the bytes when a block's shared memory is not there. `hint`: what would fit."""
    if shared_bytes > gpu.shared_bytes_per_block:
        raise TileError(
            f"{rung}: {what} needs {shared_bytes} bytes of shared memory a block, "
            f"{gpu.name} has {gpu.shared_bytes_per_block}; {hint}"
        )


def choose_tile(
    rung: str, tile: TileShape | None, known: tuple[TileShape, ...], problem: AttentionProblem, gpu: GpuFacts
) -> TileShape:
    """The tile asked for, or the first of `known`; `TileError` where it is not among them."""
    if tile is None and known:
        return known[0]
    if tile not in known or tile is None:
        names = ", ".join(str(t) for t in known) or "none"
        raise TileError(
            f"{rung}: tile {tile or 'any'} is not built for head_dim {problem.head_dim} on {gpu.name} "
            f"with {gpu.shared_bytes_per_block} bytes of shared memory a block; built: {names}"
        )
    return tile
