"""Attention written the plainest way, in float64: what every tile program is held against."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import ProblemError
from iosim.problem import Mask
from iosim.theory.softmax import Array, safe_softmax


def visible_pairs(mask: Mask, seq_q: int, seq_k: int) -> NDArray[np.bool_]:
    """True where a query may see a key, [seq_q, seq_k]; bottom-right aligned."""
    distance = np.arange(seq_q)[:, None] + (seq_k - seq_q) - np.arange(seq_k)[None, :]
    if not mask.is_causal:
        return np.ones((seq_q, seq_k), dtype=np.bool_)
    allowed: NDArray[np.bool_] = distance >= 0
    if mask.prefix is not None:
        return allowed | (np.arange(seq_k)[None, :] < mask.prefix)
    return allowed if mask.window is None else allowed & (distance < mask.window)


@overload
def reference_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    mask: Mask | str = ...,
    scale: float | None = ...,
    bias: ArrayLike | None = ...,
    keep: ArrayLike | None = ...,
    return_lse: Literal[False] = ...,
) -> Array: ...


@overload
def reference_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    mask: Mask | str = ...,
    scale: float | None = ...,
    bias: ArrayLike | None = ...,
    keep: ArrayLike | None = ...,
    return_lse: Literal[True],
) -> tuple[Array, Array]: ...


def reference_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    mask: Mask | str = "none",
    scale: float | None = None,
    bias: ArrayLike | None = None,
    keep: ArrayLike | None = None,
    return_lse: bool = False,
) -> Array | tuple[Array, Array]:
    """softmax(scale · Q Kᵀ + bias) V with every intermediate in full, in float64.

    q [..., heads, seq_q, d], k [..., kv_heads, seq_k, d], v [..., kv_heads, seq_k, dv]; query head h uses
    key/value head h // (heads / kv_heads). `scale` None is 1/√d. `bias` is added to the scaled scores,
    `keep` multiplies the probabilities (dropout, with its 1/(1−p) inside); both broadcast to
    [..., heads, seq_q, seq_k]. Rows that see no key give 0, and −inf in the log-sum-exp [..., heads, seq_q]
    that `return_lse` adds. `ProblemError` when the shapes do not belong together.
    """
    Q, K, V = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    group = _group_size(Q, K, V)
    K, V = np.repeat(K, group, axis=-3), np.repeat(V, group, axis=-3)
    factor = 1.0 / np.sqrt(Q.shape[-1]) if scale is None else scale
    S = factor * (Q @ np.swapaxes(K, -1, -2))
    if bias is not None:
        S = S + np.asarray(bias, dtype=np.float64)
    S = np.where(visible_pairs(Mask.parse(mask), Q.shape[-2], K.shape[-2]), S, -np.inf)
    P = safe_softmax(S)
    O: Array = (P if keep is None else P * np.asarray(keep, dtype=np.float64)) @ V
    return (O, _log_sum_exp(S)) if return_lse else O


def _group_size(Q: Array, K: Array, V: Array) -> int:
    if min(Q.ndim, K.ndim, V.ndim) < 3:
        raise ProblemError("reference_attention: q, k and v need the axes [..., heads, sequence, dim]")
    if Q.shape[-1] != K.shape[-1] or K.shape[:-1] != V.shape[:-1] or Q.shape[:-3] != K.shape[:-3]:
        raise ProblemError(
            f"reference_attention: shapes q {Q.shape}, k {K.shape}, v {V.shape} do not match; "
            "q and k share the last axis, k and v all but the last, all three the batch axes"
        )
    group, rest = divmod(int(Q.shape[-3]), int(K.shape[-3]))
    if rest or not group:
        raise ProblemError(
            f"reference_attention: {Q.shape[-3]} query heads are not a multiple of {K.shape[-3]} kv heads"
        )
    return group


def _log_sum_exp(S: Array) -> Array:
    m = S.max(axis=-1)
    shift = np.where(np.isneginf(m), 0.0, m)
    with np.errstate(divide="ignore"):
        lse: Array = shift + np.log(np.exp(S - shift[..., None]).sum(axis=-1))
    return lse
