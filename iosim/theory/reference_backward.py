"""Gradients of attention written the plainest way, in float64: what every backward program is held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from iosim.problem import Mask
from iosim.theory.reference import reference_attention, visible_pairs
from iosim.theory.softmax import Array, safe_softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """dQ, dK and dV for one dO, and what a forward saves: P [..., N, Nk], O, m, l and lse [..., N]."""

    dq: Array
    dk: Array
    dv: Array
    o: Array
    p: Array
    m: Array
    l: Array
    lse: Array


def reference_gradients(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    do: ArrayLike,
    *,
    mask: Mask | str = "none",
    scale: float | None = None,
    bias: ArrayLike | None = None,
) -> Gradients:
    """The gradients of Σ dO ∘ O; shapes, scale and bias as in `reference_attention`, dO as O.

    The softmax Jacobian is written out: dS = diag(P) dP − P Pᵀ dP, a row at a time.
    """
    Q, K, V, dO = (np.asarray(x, dtype=np.float64) for x in (q, k, v, do))
    O, lse = reference_attention(Q, K, V, mask=mask, scale=scale, bias=bias, return_lse=True)
    group = Q.shape[-3] // K.shape[-3]
    keys, values = np.repeat(K, group, axis=-3), np.repeat(V, group, axis=-3)
    factor = 1.0 / np.sqrt(Q.shape[-1]) if scale is None else scale
    S = factor * np.einsum("...nd,...md->...nm", Q, keys)
    S = S if bias is None else S + np.asarray(bias, dtype=np.float64)
    S = np.where(visible_pairs(Mask.parse(mask), Q.shape[-2], K.shape[-2]), S, -np.inf)
    P = safe_softmax(S)
    dP = np.einsum("...ne,...me->...nm", dO, values)
    dS = P * dP - P * np.einsum("...nm,...nm->...n", P, dP)[..., None]
    m = S.max(axis=-1)
    shifted = np.exp(S - np.where(np.isneginf(m), 0.0, m)[..., None])
    return Gradients(
        dq=factor * np.einsum("...nm,...md->...nd", dS, keys),
        dk=_over_groups(factor * np.einsum("...nm,...nd->...md", dS, Q), group),
        dv=_over_groups(np.einsum("...nm,...ne->...me", P, dO), group),
        o=O,
        p=P,
        m=m,
        l=shifted.sum(axis=-1),
        lse=lse,
    )


def _over_groups(per_query_head: Array, group: int) -> Array:
    *batch, heads, rows, cols = per_query_head.shape
    total: Array = per_query_head.reshape(*batch, heads // group, group, rows, cols).sum(axis=-3)
    return total
