"""Options that several algorithms share, and which of them do not go together."""

from __future__ import annotations

from collections.abc import Mapping

from iosim import block_mask
from iosim.algorithms.algorithm import Option
from iosim.errors import UsageError
from iosim.problem import TileShape


def tile(text: str) -> str:
    return str(TileShape.parse(text))


def _count(text: str) -> str:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= MAX_COUNT):
        raise UsageError(f"must be a whole number from 1 to {MAX_COUNT}, got {text!r}")
    return str(int(text))


MAX_COUNT = 1 << 20
SPLITS = Option(
    values=("1", "best"),
    help="thread blocks that share the keys of a row tile; best: least bytes for the SMs that are busy",
    takes="COUNT",
    parse=_count,
)
PAGE = Option(
    values=("off",),
    help="keys and values in pages of this many tokens, found by a page table",
    takes="COUNT",
    parse=_count,
)
PACK_GQA = Option(values=("on", "off"), help="query heads that share a kv-head as rows of one tile")

BIAS = Option(
    values=("none", "alibi", "matrix"),
    help="added to the scores on chip: alibi from the indices, or a matrix that is read with every tile",
)

BLOCK_MASK = Option(
    values=("off",),
    help="compute only these tiles: local:2+global:1, strided:4, butterfly, random:0.1, a .npy file",
    takes="PATTERN",
    parse=block_mask.check,
)


def block_mask_conflict(options: Mapping[str, str]) -> str | None:
    if options["pass"] != "fwd" and (
        why := _forward_only(options, {"bias": "none", "dropout": "off", "page": "off"})
    ):
        return why
    if options["block-mask"] == "off":
        return None
    if options.get("variant", "literal") != "literal":
        return "a block mask goes with variant=literal: which visit is a tile's first depends on the mask"
    return None


def standard_conflict(options: Mapping[str, str]) -> str | None:
    return (
        None
        if options["pass"] == "fwd"
        else _forward_only(
            options, {"gemm-tiles": "off", "scale-pass": "off", "dropout": "off", "bias": "none"}
        )
    )


def _forward_only(options: Mapping[str, str], defaults: Mapping[str, str]) -> str | None:
    for name, default in defaults.items():
        if options.get(name, default) != default:
            return f"{name} belongs to the forward pass alone; leave it out, or use pass=fwd"
    return None


OFF_ON = ("off", "on")
PASS = Option(values=("fwd", "bwd", "fwd+bwd"), help="forward, backward (from what a forward saved), or both")
