"""The K/V cache: bytes of a token in one layer by kind of attention, what a decode step reads, tokens that fit.

MHA, GQA and MQA cache a key and a value for each of their kv-heads. Latent attention (MLA, DeepSeek-AI 2024) caches
one row of latent + rope_dim elements a token for all heads; in its absorbed form the row is K as a whole and its first
`latent` elements are V, and a step reads it once a sequence, not once a head.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from iosim.errors import UsageError
from iosim.problem import DType

DEFAULT_GROUPS = 8  # kv-heads of the GQA row where none were asked for: what most published models have


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheShape:
    """The heads that all kinds share, and what each kind caches. `UsageError` where sizes contradict each other.

    `kv_heads`: of the GQA row. `latent`, `rope_dim`: of the MLA row. `queries`: query rows of a decode step.
    `window`: keys a query sees at most.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    latent: int = 512
    rope_dim: int = 64
    dtype_q: DType
    dtype_k: DType
    dtype_v: DType
    dtype_o: DType
    batch: int = 1
    seq: int = 4096
    queries: int = 1
    layers: int = 1
    window: int | None = None

    def __post_init__(self) -> None:
        for name in (
            "heads",
            "kv_heads",
            "head_dim",
            "value_dim",
            "latent",
            "batch",
            "seq",
            "queries",
            "layers",
        ):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', '-')}: must be 1 or more, got {getattr(self, name)}")
        if self.rope_dim < 0:
            raise UsageError(f"rope-dim: must be 0 or more, got {self.rope_dim}")
        if self.heads % self.kv_heads:
            raise UsageError(
                f"kv-heads: heads must be a multiple of it, got heads={self.heads} and kv_heads={self.kv_heads}"
            )

    @property
    def cached_tokens(self) -> int:
        """Tokens of one sequence that a step reads, and that have to be kept."""
        return self.seq if self.window is None else min(self.seq, self.window + self.queries - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheKind:
    """One kind of attention at the shared heads.

    `token_layer_bytes`: cached for a token in a layer. `step_cache_bytes`, `step_query_bytes`: what a decode step
    reads of the cache, and reads of Q and writes of O, in one layer. `step_flops`: matmul flops of the step.
    """

    kind: str
    kv_heads: int | None
    token_layer_bytes: int
    token_bytes: int
    step_cache_bytes: int
    step_query_bytes: int
    step_flops: int
    cache_bytes: int
    tokens_that_fit: int | None

    @property
    def flops_per_cache_byte(self) -> float:
        """Arithmetic intensity of the step against the cache."""
        return self.step_flops / self.step_cache_bytes

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"flops_per_cache_byte": self.flops_per_cache_byte}


def cache_kinds(shape: CacheShape, free_bytes: int | None = None) -> list[CacheKind]:
    """MHA, GQA, MQA and MLA at equal heads; `free_bytes` of GPU memory hold so many tokens of all layers.

    GQA is left out where its kv-heads are those of MHA or MQA.
    """
    counts = {"MHA": shape.heads, "GQA": shape.kv_heads, "MQA": 1}
    if shape.kv_heads in (1, shape.heads):
        del counts["GQA"]
    return [
        *(_with_heads(shape, kind, n, free_bytes) for kind, n in counts.items()),
        _latent(shape, free_bytes),
    ]


def _with_heads(s: CacheShape, kind: str, kv_heads: int, free_bytes: int | None) -> CacheKind:
    row = kv_heads * (s.head_dim * s.dtype_k.itemsize + s.value_dim * s.dtype_v.itemsize)
    return _kind(s, kind, kv_heads, row, q_width=s.head_dim, o_width=s.value_dim, free_bytes=free_bytes)


def _latent(s: CacheShape, free_bytes: int | None) -> CacheKind:
    """One row serves as K and, in part, as V; it has one dtype, that of K."""
    width = s.latent + s.rope_dim
    row = width * s.dtype_k.itemsize
    return _kind(s, "MLA", None, row, q_width=width, o_width=s.latent, free_bytes=free_bytes)


def _kind(
    s: CacheShape,
    kind: str,
    kv_heads: int | None,
    row: int,
    *,
    q_width: int,
    o_width: int,
    free_bytes: int | None,
) -> CacheKind:
    query_rows = s.batch * s.heads * s.queries
    return CacheKind(
        kind=kind,
        kv_heads=kv_heads,
        token_layer_bytes=row,
        token_bytes=row * s.layers,
        step_cache_bytes=s.batch * s.cached_tokens * row,
        step_query_bytes=query_rows * (q_width * s.dtype_q.itemsize + o_width * s.dtype_o.itemsize),
        step_flops=2 * query_rows * s.cached_tokens * (q_width + o_width),
        cache_bytes=s.batch * s.cached_tokens * row * s.layers,
        tokens_that_fit=None if free_bytes is None else free_bytes // (row * s.layers),
    )


def grouped_heads(heads: int, kv_heads: int | None) -> int:
    """kv-heads of the GQA row: the asked number, or eight where that divides the heads."""
    if kv_heads is not None:
        return kv_heads
    return DEFAULT_GROUPS if heads % DEFAULT_GROUPS == 0 and heads > DEFAULT_GROUPS else heads
