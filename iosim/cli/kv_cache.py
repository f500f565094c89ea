"""`iosim kv-cache`: bytes of a cached token by kind of attention, what a decode step reads, tokens that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Self

import typer

from iosim.cli.memory import Reserve, capacity_of
from iosim.cli.options import (
    PROBLEM,
    AsJson,
    Hw,
    Overrides,
    ProblemOptions,
    Text,
    parse_size,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.kv_cache import CacheKind, CacheShape

DEFAULT_HEADS = "128"
DEFAULT_LATENT, DEFAULT_ROPE = 512, 64


def _own(*names: str, help: str) -> typer.models.OptionInfo:
    return typer.Option(*names, metavar="SIZE", help=help, rich_help_panel=PROBLEM)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOptions(ProblemOptions):
    """The problem options with the cache's own default heads; --seq are the cached tokens, --seq-q the new ones."""

    heads: Annotated[Text, _own("--heads", help=f"Query heads [{DEFAULT_HEADS}].")] = None

    def completed(self) -> Self:
        """With the default heads where neither the user nor a model gave any, and one new token a step."""
        out = self if (self.heads, self.model) != (None, None) else replace(self, heads=DEFAULT_HEADS)
        return ProblemOptions.completed(out)


@with_options
def kv_cache(
    *,
    problem: CacheOptions,
    latent: Annotated[Text, _own("--latent", help="MLA: latent elements of the cached row [512].")] = None,
    rope_dim: Annotated[Text, _own("--rope-dim", help="MLA: rotary elements of the cached row [64].")] = None,
    layers: Annotated[Text, _own("--layers", help="Layers that cache [the model's, or 1].")] = None,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    reserve: Reserve = None,
    as_json: AsJson = False,
) -> None:
    """Bytes that MHA, GQA, MQA and MLA cache for a token, at equal heads, and what one decode step reads.

    --seq: cached tokens of a sequence. --seq-q: new tokens of a step [1]. --reserve: memory taken by the weights.
    """
    from iosim.kv_cache import cache_kinds

    shape = _shape(problem, latent, rope_dim, layers)
    name, free, warnings = capacity_of(hw, overrides, reserve)
    kinds = cache_kinds(shape, free)
    model = problem.shape()
    warnings += problem.remarks({"mask", "head_dim"} if model is not None and model.latent else {"mask"})
    own = None if model is None else _kind_of(model.latent, model.heads, model.kv_heads)
    if as_json:
        document = {
            "schema_version": 1,
            "model": None if model is None else model.name,
            "model_kind": own,
            "heads": shape.heads,
            "head_dim": shape.head_dim,
            "value_dim": shape.value_dim,
            "latent": shape.latent,
            "rope_dim": shape.rope_dim,
            "layers": shape.layers,
            "batch": shape.batch,
            "seq": shape.seq,
            "cached_tokens": shape.cached_tokens,
            "profile": name,
            "free_bytes": free,
            "kinds": [kind.to_dict() for kind in kinds],
            "warnings": warnings,
        }
        print_json(document)
        return
    warn(warnings)
    _show(shape, kinds, own, name)


def _kind_of(latent: int, heads: int, kv_heads: int) -> str:
    if latent:
        return "MLA"
    return {heads: "MHA", 1: "MQA"}.get(kv_heads, "GQA")


def _shape(options: CacheOptions, latent: str | None, rope_dim: str | None, layers: str | None) -> CacheShape:
    from iosim.kv_cache import CacheShape, grouped_heads

    model = options.shape()
    new = parse_size("seq-q", options.seq_q or "1")
    if options.seq is not None and options.seq_k is not None:
        raise UsageError("--seq: the cached tokens; give either --seq or --seq-k")
    cached = options.seq_k or options.seq
    asked = replace(options, seq=cached, seq_q=None, seq_k=None).problem()
    expanded = 0 if model is None or options.head_dim is not None else model.rope_dim
    given_kv = options.kv_heads if model is None or model.latent else str(asked.kv_heads)
    return CacheShape(
        heads=asked.heads,
        kv_heads=grouped_heads(asked.heads, None if given_kv is None else parse_size("kv-heads", given_kv)),
        head_dim=asked.head_dim - expanded,  # a conventional head keeps its rotary part inside
        value_dim=asked.value_dim,
        latent=parse_size("latent", latent) if latent else (model and model.latent) or DEFAULT_LATENT,
        rope_dim=_rope(rope_dim, 0 if model is None else model.rope_dim),
        dtype_q=asked.dtype_q,
        dtype_k=asked.dtype_k,
        dtype_v=asked.dtype_v,
        dtype_o=asked.dtype_o,
        batch=asked.batch,
        seq=asked.seq_k,
        queries=new,
        layers=parse_size("layers", layers) if layers else (model and model.layers) or 1,
        window=asked.mask.window,
    )


def _rope(text: str | None, of_model: int) -> int:
    if text is None:
        return of_model or DEFAULT_ROPE
    return 0 if text.strip() == "0" else parse_size("rope-dim", text)


def _show(shape: CacheShape, kinds: Sequence[CacheKind], own: str | None, gpu: str) -> None:
    from iosim.units import format_bytes

    print(
        f"heads {shape.heads}, head-dim {shape.head_dim}, value-dim {shape.value_dim}, K {shape.dtype_k}, "
        f"V {shape.dtype_v}; MLA row {shape.latent} + {shape.rope_dim}; layers {shape.layers}"
    )
    print(
        f"batch {shape.batch}, {shape.cached_tokens} cached tokens a sequence, {shape.queries} new a step; {gpu}\n"
    )
    print_table(
        [
            "kind",
            "kv-heads",
            "B a token, layer",
            "B a token",
            "step reads, layer",
            "flops a byte",
            "cache, all layers",
            "tokens that fit",
        ],
        [
            [
                f"{k.kind} (the model's)" if k.kind == own else k.kind,
                str(k.kv_heads or "one row"),
                f"{k.token_layer_bytes:,}",
                f"{k.token_bytes:,}",
                f"{k.step_cache_bytes:,}",
                f"{k.flops_per_cache_byte:.4g}",
                format_bytes(k.cache_bytes),
                f"{k.tokens_that_fit:,}",
            ]
            for k in kinds
        ],
        right=range(1, 8),
    )
