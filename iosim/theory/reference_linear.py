"""Linear attention written out with its N x Nk weights, in float64: what the program without them is held against."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from iosim.theory.softmax import Array


def reference_linear(q: ArrayLike, k: ArrayLike, v: ArrayLike) -> Array:
    """Rows of φ(Q) φ(K)ᵀ, each divided by its sum, times V; φ(x) = elu(x) + 1. Shapes as `reference_attention`."""
    Q, K, V = (np.asarray(x, dtype=np.float64) for x in (q, k, v))
    group = Q.shape[-3] // K.shape[-3]
    K, V = np.repeat(K, group, axis=-3), np.repeat(V, group, axis=-3)
    weights = _phi(Q) @ np.swapaxes(_phi(K), -1, -2)
    out: Array = (weights / weights.sum(axis=-1, keepdims=True)) @ V
    return out


def _phi(x: Array) -> Array:
    return np.maximum(x, 0.0) + np.exp(np.minimum(x, 0.0))
