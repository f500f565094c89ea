"""Reads the attention shape out of a Hugging Face config.json. Names of keys differ by model family; sizes do not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from iosim.errors import UsageError
from iosim.models.shape import ModelShape

MAX_FILE_BYTES = 1024 * 1024
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
_HIDDEN = ("hidden_size", "n_embd", "d_model")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_DTYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
}
_ENCODERS = ("bert", "roberta", "distilbert", "electra", "albert", "deberta", "modernbert", "xlm-roberta")

Config = Mapping[str, Any]


def read_config(path: Path) -> ModelShape:
    """The shape in a local config.json; what had to be derived stands in `notes`.

    head_dim is the file's own where it has one, and hidden size / heads otherwise, which many models do not follow.
    Errors: `UsageError` for a file that cannot be read or lacks a size.
    """
    label = path.name
    config = _text_part(_read(path), label)
    heads = _size(config, label, _HEADS)
    if heads is None:
        raise UsageError(f"{label}: no number of attention heads; looked for {', '.join(_HEADS)}")
    notes: dict[str, str] = {}
    latent = _size(config, label, ("kv_lora_rank",)) or 0
    rope_dim = (_size(config, label, ("qk_rope_head_dim",)) or 0) if latent else 0
    head_dim = _head_dim(config, label, heads, rope_dim if latent else None, notes)
    value_dim = (_size(config, label, ("v_head_dim",)) if latent else None) or head_dim
    window, window_layers = _window(config, label)
    return ModelShape(
        name=_name(config, path),
        heads=heads,
        kv_heads=heads if latent else _kv_heads(config, label, heads),
        head_dim=head_dim,
        value_dim=value_dim,
        layers=_size(config, label, _LAYERS),
        dtype=_dtype(config, notes),
        mask="none" if config.get("model_type") in _ENCODERS else "causal",
        source=f"local file {label}",
        window=window,
        window_layers=window_layers,
        latent=latent,
        rope_dim=rope_dim,
        notes=notes,
    )


def _read(path: Path) -> Config:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(
                f"{path.name}: larger than {MAX_FILE_BYTES // 1024} KiB; not a model's config.json"
            )
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"model: {path}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path.name}: not valid JSON: {' '.join(str(error).split())[:120]}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path.name}: not a model's config.json: the top is no object")
    return found


def _text_part(config: Config, label: str) -> Config:
    """The language part of a model that also sees or hears; the whole file otherwise."""
    part = config.get("text_config")
    if part is None:
        return config
    if not isinstance(part, dict):
        raise UsageError(f"{label}: text_config: must be an object")
    return {"model_type": config.get("model_type"), **part}


def _size(config: Config, label: str, keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{label}: {key}: must be a whole number of 1 or more, got {str(value)[:40]!r}")
        return value
    return None


def _head_dim(config: Config, label: str, heads: int, rope_dim: int | None, notes: dict[str, str]) -> int:
    if rope_dim is not None:
        content = _size(config, label, ("qk_nope_head_dim",))
        if content is None:
            raise UsageError(
                f"{label}: kv_lora_rank without qk_nope_head_dim: the head dimension is not known"
            )
        return content + rope_dim
    given = _size(config, label, ("head_dim",))
    if given is not None:
        return given
    hidden = _size(config, label, _HIDDEN)
    if hidden is None:
        raise UsageError(f"{label}: neither head_dim nor a hidden size ({', '.join(_HIDDEN)})")
    if hidden % heads:
        raise UsageError(
            f"{label}: no head_dim, and the hidden size {hidden} is no multiple of {heads} heads; add head_dim"
        )
    notes["head_dim"] = (
        f"head_dim {hidden // heads} was derived as hidden size / heads, the file has none; --head-dim overrides"
    )
    return hidden // heads


def _kv_heads(config: Config, label: str, heads: int) -> int:
    given = _size(config, label, _KV_HEADS)
    if config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        return 1  # Falcon's files keep a number of kv-heads that this flag overrules
    return heads if given is None else given


def _window(config: Config, label: str) -> tuple[int | None, str]:
    """The sliding window, where it is in use, and in which layers."""
    if config.get("use_sliding_window") is False:
        return None, "all"
    window = _size(config, label, ("sliding_window",))
    kinds = config.get("layer_types")
    mixed = isinstance(kinds, list) and len(set(map(str, kinds))) > 1
    if isinstance(kinds, list) and kinds and "sliding_attention" not in kinds:
        return None, "all"
    return window, "alternate" if window and (mixed or config.get("model_type") == "gemma2") else "all"


def _dtype(config: Config, notes: dict[str, str]) -> str:
    text = str(config.get("torch_dtype") or config.get("dtype") or "").removeprefix("torch.")
    if text in _DTYPES:
        return _DTYPES[text]
    notes["dtype"] = (
        f"dtype {text!r} is not known; fp16 is taken" if text else "the file has no dtype; fp16 is taken"
    )
    return "fp16"


def _name(config: Config, path: Path) -> str:
    named = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    return named or path.resolve().parent.name or str(config.get("model_type") or path.stem)
