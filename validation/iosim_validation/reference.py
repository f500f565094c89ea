"""Random inputs and the answer to hold a kernel's output against, on the GPU.

Inputs are fresh N(0, 1) for every check: constant data hides wrong indices, and zeros even run faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem
from iosim_validation.device import cupy
from iosim_validation.gpu import Answer, Arrays, Errors

CHUNK_BYTES = 1 << 28  # of float32 scores held at once, a few times over
LAYOUTS = ("bhnd", "bnhd")


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

    if layout not in LAYOUTS:
        raise UsageError(f"layout: unknown layout {layout!r}; known: {', '.join(LAYOUTS)}")
    q = made(problem.heads, problem.seq_q, problem.head_dim)
    found = {
        "q": q,
        "k": made(problem.kv_heads, problem.seq_k, problem.head_dim),
        "v": made(problem.kv_heads, problem.seq_k, problem.value_dim),
        "o": made(problem.heads, problem.seq_q, problem.value_dim),
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
    """How far o and lse are from float32 attention. `mask`: see `answer`."""
    return errors_of(answer(problem, arrays, mask), arrays, has_lse=has_lse)


def answer(problem: AttentionProblem, arrays: Arrays, mask: Any = None) -> Answer:
    """float32 attention, and plain arithmetic in the inputs' dtype beside it: S, P and O are rounded to it.

    `mask`: booleans [seq_q, seq_k] that stand for the problem's mask (a block mask written out).
    """
    module = cupy()
    seen = problem_mask(problem) if mask is None else module.asarray(mask)
    dtype = str(problem.dtype_q)
    shape = (problem.batch * problem.kv_heads, problem.group_size * problem.seq_q)
    o = module.empty((*shape, problem.value_dim), module.float32)
    lse = module.empty(shape, module.float32)
    plain_o, plain_lse = module.empty_like(o), module.empty_like(lse)
    for heads, rows, q, k, v in _pieces(problem, arrays):
        visible = None if seen is None else seen[module.arange(rows.start, rows.stop) % problem.seq_q]
        s = module.matmul(q, k.transpose(0, 2, 1)) * np.float32(problem.softmax_scale)
        o[heads, rows], lse[heads, rows] = _softmax_v(s, v, visible, None)
        s = to_float(to_type(s, dtype))
        plain_o[heads, rows], plain_lse[heads, rows] = _softmax_v(s, v, visible, dtype)
    full = (problem.batch, problem.heads, problem.seq_q)
    o, plain_o = (x.reshape(*full, problem.value_dim) for x in (o, plain_o))
    lse, plain_lse = lse.reshape(full), plain_lse.reshape(full)
    return Answer(
        o=o,
        lse=lse,
        plain=_distance(o, lse, to_float(to_type(plain_o, dtype)), plain_lse),
        largest=float(module.abs(o).max()),
    )


def errors_of(wanted: Answer, arrays: Arrays, *, has_lse: bool = True) -> Errors:
    """How far o and lse are from the answer."""
    return _distance(wanted.o, wanted.lse, to_float(arrays["o"]), arrays["lse"] if has_lse else None)


def problem_mask(problem: AttentionProblem) -> Any:
    """Booleans [seq_q, seq_k], True where a key is seen; None for a full mask. Causal is aligned at the end."""
    if problem.mask.kind == "none":
        return None
    if problem.mask.kind != "causal":
        raise UsageError(
            f"mask: {problem.mask} has no reference here; allowed: none, causal, or a block mask"
        )
    module = cupy()
    offset = problem.seq_k - problem.seq_q
    return module.arange(problem.seq_k)[None, :] <= module.arange(problem.seq_q)[:, None] + offset


def _pieces(problem: AttentionProblem, arrays: Arrays) -> Iterator[tuple[slice, slice, Any, Any, Any]]:
    """Kv-heads and rows whose scores fit in a chunk, with their q, k, v as float32 [kv-heads, rows, columns].

    The rows of the query heads that share a kv-head follow each other.
    """
    module = cupy()
    pairs = problem.batch * problem.kv_heads
    rows = problem.group_size * problem.seq_q
    q = module.ascontiguousarray(arrays["q"]).reshape(pairs, rows, problem.head_dim)
    k = module.ascontiguousarray(arrays["k"]).reshape(pairs, problem.seq_k, problem.head_dim)
    v = module.ascontiguousarray(arrays["v"]).reshape(pairs, problem.seq_k, problem.value_dim)
    row_bytes = 4 * problem.seq_k
    rows_at_once = min(rows, max(1, CHUNK_BYTES // row_bytes))
    heads_at_once = max(1, CHUNK_BYTES // (row_bytes * rows_at_once))
    for head in range(0, pairs, heads_at_once):
        heads = slice(head, min(head + heads_at_once, pairs))
        keys, values = to_float(k[heads]), to_float(v[heads])
        for row in range(0, rows, rows_at_once):
            part = slice(row, min(row + rows_at_once, rows))
            yield heads, part, to_float(q[heads, part]), keys, values


def _softmax_v(s: Any, v: Any, visible: Any, rounded: str | None) -> tuple[Any, Any]:
    """softmax(s) v and log-sum-exp of [kv-heads, rows, keys] scores; P is rounded to a dtype where one is named."""
    module = cupy()
    if visible is not None:
        s = module.where(visible, s, np.float32(-np.inf))
    top = s.max(axis=2, keepdims=True)
    safe = module.where(module.isfinite(top), top, np.float32(0))
    p = module.exp(s - safe)
    total = p.sum(axis=2, keepdims=True)
    divisor = module.where(total > 0, total, np.float32(1))
    lse = module.where(total > 0, safe + module.log(divisor), np.float32(-np.inf))[:, :, 0]
    p /= divisor
    if rounded is not None:
        p = to_float(to_type(p, rounded))
    return module.matmul(p, v), lse


def _distance(o: Any, lse: Any, got_o: Any, got_lse: Any) -> Errors:
    module = cupy()
    difference = module.abs(got_o - o)
    reference = float(module.linalg.norm(o.ravel()))
    length = float(module.linalg.norm(difference.ravel()))
    return Errors(
        output=_finite(length / reference if reference else length),
        worst=_finite(float(difference.max())),
        lse=None if got_lse is None else _lse_error(got_lse, lse),
    )


def _finite(value: float) -> float:
    return value if np.isfinite(value) else np.inf


def _lse_error(got: Any, wanted: Any) -> float:
    module = cupy()
    seen = module.isfinite(wanted)
    if not bool((module.isfinite(got) == seen).all()) or bool(module.isnan(got).any()):
        return np.inf
    return float(module.abs(got[seen] - wanted[seen]).max()) if bool(seen.any()) else 0.0
