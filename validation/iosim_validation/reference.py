"""Random inputs and the answer to hold a kernel's output against, on the GPU.

Inputs are fresh N(0, 1) for every check: constant data hides wrong indices, and zeros even run faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.problem import AttentionProblem
from iosim_validation.device import Arrays, cupy

CHUNK_BYTES = 1 << 30  # of scores held at once
LAYOUTS = ("bhnd", "bnhd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of an output: ‖o − ref‖ / ‖ref‖, and the worst |lse − ref| (None where the plan writes no lse)."""

    output: float
    lse: float | None


def fresh_arrays(problem: AttentionProblem, seed: int, layout: str = "bhnd") -> dict[str, Any]:
    """q, k, v of random numbers and o, lse full of NaN, each seen as [batch, heads, N, d] whatever the layout."""
    module = cupy()
    random = module.random.default_rng(seed)

    def made(heads: int, rows: int, columns: int) -> Any:
        shape = (problem.batch, heads, rows, columns)
        if layout == "bnhd":
            shape = (problem.batch, rows, heads, columns)
        found = to_type(random.standard_normal(shape, dtype=module.float32), str(problem.dtype_q))
        return found.transpose(0, 2, 1, 3) if layout == "bnhd" else found

    q = made(problem.heads, problem.seq_q, problem.head_dim)
    found = {
        "q": q,
        "k": made(problem.kv_heads, problem.seq_k, problem.head_dim),
        "v": made(problem.kv_heads, problem.seq_k, problem.value_dim),
        "o": module.empty((problem.batch, problem.heads, problem.seq_q, problem.value_dim), q.dtype),
        "lse": module.empty((problem.batch, problem.heads, problem.seq_q), module.float32),
    }
    poison(found)
    return found


def poison(arrays: Arrays) -> None:
    """NaN in every element of o and lse, so that one which is not written shows."""
    arrays["lse"].fill(np.nan)
    if arrays["o"].dtype == np.uint16:
        arrays["o"].fill(0x7FC0)
    else:
        arrays["o"].fill(np.nan)


def to_type(array: Any, dtype: str) -> Any:
    """float32 -> fp16, or bf16 as uint16 bits, rounded to nearest even."""
    module = cupy()
    if dtype == "fp16":
        return array.astype(module.float16)
    bits = array.view(module.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(module.uint16)


def to_float(array: Any) -> Any:
    """fp16, or bf16 as uint16 bits -> float32."""
    module = cupy()
    if array.dtype == module.uint16:
        return (array.astype(module.uint32) << 16).view(module.float32)
    return array.astype(module.float32)


def errors(problem: AttentionProblem, arrays: Arrays, *, has_lse: bool = True, mask: Any = None) -> Errors:
    """How far o and lse are from float32 attention, head by head; NaN anywhere gives an infinite error.

    `mask`: booleans [seq_q, seq_k] that stand for the problem's mask (a block mask written out).
    """
    module = cupy()
    group = problem.heads // problem.kv_heads
    seen = problem_mask(problem) if mask is None else module.asarray(mask)
    difference = reference = worst = 0.0
    rows = max(1, CHUNK_BYTES // (4 * problem.seq_k))
    for b in range(problem.batch):
        for h in range(problem.heads):
            k, v = (to_float(arrays[name][b, h // group]) for name in ("k", "v"))
            for start in range(0, problem.seq_q, rows):
                part = slice(start, min(start + rows, problem.seq_q))
                o, lse = _rows(problem, to_float(arrays["q"][b, h, part]), k, v, seen, part)
                got = to_float(arrays["o"][b, h, part])
                difference += float(((got - o).astype(module.float64) ** 2).sum())
                reference += float((o.astype(module.float64) ** 2).sum())
                if has_lse:
                    worst = max(worst, _lse_error(arrays["lse"][b, h, part], lse))
    output = (difference / reference) ** 0.5 if reference else difference**0.5
    return Errors(
        output=output if np.isfinite(output) else np.inf,
        lse=(worst if np.isfinite(worst) else np.inf) if has_lse else None,
    )


def problem_mask(problem: AttentionProblem) -> Any:
    """Booleans [seq_q, seq_k], True where a key is seen; None for a full mask. Causal is aligned at the end."""
    if problem.mask.kind == "none":
        return None
    if problem.mask.kind != "causal":
        raise NotImplementedError(f"mask {problem.mask}: the kernels know none and causal")
    module = cupy()
    offset = problem.seq_k - problem.seq_q
    return module.arange(problem.seq_k)[None, :] <= module.arange(problem.seq_q)[:, None] + offset


def _rows(problem: AttentionProblem, q: Any, k: Any, v: Any, seen: Any, part: slice) -> tuple[Any, Any]:
    module = cupy()
    s = (q @ k.T) * np.float32(problem.softmax_scale)
    if seen is not None:
        s = module.where(seen[part], s, np.float32(-np.inf))
    top = s.max(axis=1, keepdims=True)
    safe = module.where(module.isfinite(top), top, np.float32(0))
    p = module.exp(s - safe)
    total = p.sum(axis=1, keepdims=True)
    o = (p @ v) / module.where(total > 0, total, np.float32(1))
    lse = module.where(total > 0, safe + module.log(total), np.float32(-np.inf))[:, 0]
    return o, lse


def _lse_error(got: Any, wanted: Any) -> float:
    module = cupy()
    seen = module.isfinite(wanted)
    if not bool((module.isfinite(got) == seen).all()) or bool(module.isnan(got).any()):
        return np.inf
    return float(module.abs(got - wanted)[seen].max()) if bool(seen.any()) else 0.0
