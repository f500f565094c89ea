"""What an export cannot say: the shape of the attention and the tile, as key=value text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from iosim.errors import UsageError
from iosim.kernels import CLASSES
from iosim.kernels.facts import KV_WALKS
from iosim.problem import AttentionProblem, TileShape

SIZES = ("batch", "heads", "kv_heads", "seq", "seq_q", "seq_k", "head_dim", "value_dim")
WORDS = ("mask", "dtype", "tiles", "class", "walk", "lse", "cache")
SHORT = {"B": "batch", "H": "heads", "N": "seq", "d": "head_dim", "dv": "value_dim", "causal": "mask"}
NAMES: Mapping[str, str] = MappingProxyType({name: name for name in (*SIZES, *WORDS)} | SHORT)
"""What a case may say, and the short forms."""
MAX_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A shape, and of the kernel what was said; None for the rest. `cold`: caches flushed before each pass."""

    text: str
    problem: AttentionProblem
    tile: TileShape | None = None
    kernel_class: str | None = None
    kv_walk: str | None = None
    lse: str | None = None
    cold: bool | None = None


def parse_case(text: str) -> Case:
    """Read `batch=2,heads=16,N=4096,d=128,causal,tiles=128x64`; commas or spaces between.

    `UsageError` says which entry is wrong and what is allowed; `ProblemError` for a shape that cannot be.
    """
    if len(text) > MAX_TEXT or not text.isprintable():
        raise UsageError(f"--case: must be printable text of at most {MAX_TEXT} characters")
    said: dict[str, str] = {}
    for entry in re.split(r"[,;\s]+", text.strip(" ,;")):
        name, value = _entry(entry)
        if name in said:
            raise UsageError(f"--case: {entry}: {name} is given twice")
        said[name] = value
    sizes = {name: _size(name, said[name]) for name in SIZES if name in said}
    if "head_dim" not in sizes:
        raise UsageError(
            "--case: d (the head dimension) is missing; write for example batch=2,heads=16,N=4096,d=128"
        )
    shape: dict[str, Any] = {**sizes, "mask": said.get("mask", "none"), "dtype": said.get("dtype", "fp16")}
    cache = _one_of("cache", said, ("all", "none"))
    return Case(
        text=" ".join(text.split()),
        problem=AttentionProblem.of(**shape),
        tile=TileShape.parse(said["tiles"]) if "tiles" in said else None,
        kernel_class=_one_of("class", said, tuple(CLASSES)),
        kv_walk=_one_of("walk", said, KV_WALKS),
        lse=_one_of("lse", said, ("on", "off")),
        cold=None if cache is None else cache == "all",
    )


def _entry(entry: str) -> tuple[str, str]:
    key, equals, value = entry.partition("=")
    if key not in NAMES:
        raise UsageError(f"--case: {key[:40]!r}: unknown; allowed: {', '.join(NAMES)}")
    if key == "causal" and not equals:
        return "mask", "causal"
    if key == "causal":
        if value not in ("0", "1"):
            raise UsageError(f"--case: causal: must be 0 or 1, got {value[:40]!r}")
        return "mask", "causal" if value == "1" else "none"
    if not value:
        raise UsageError(f"--case: {key}: has no value; write {key}=...")
    return NAMES[key], value


def _size(name: str, text: str) -> int:
    scale = {"k": 1024, "m": 1024**2}.get(text[-1:].lower(), 1)
    digits = text[:-1] if scale > 1 else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise UsageError(f"--case: {name}: must be a whole number, as 4096 or 4K, got {text[:40]!r}")
    return int(digits) * scale


def _one_of(name: str, said: Mapping[str, str], allowed: tuple[str, ...]) -> str | None:
    if name in said and said[name] not in allowed:
        raise UsageError(f"--case: {name}: must be one of {', '.join(allowed)}, got {said[name][:40]!r}")
    return said.get(name)
