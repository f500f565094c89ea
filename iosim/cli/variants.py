"""The algorithms' own options on the command line, and which algorithm gets which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from iosim.cli.options import Text, algorithm_option
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.algorithms.registry import Algorithm

Softmax = Annotated[
    Text,
    algorithm_option(
        "--softmax", metavar="KIND", help="standard: fused, naive, safe or online passes [fused]."
    ),
]
GemmTiles = Annotated[
    Text,
    algorithm_option(
        "--gemm-tiles", metavar="TILE", help="standard: the re-reads of real tiles, as 128x128."
    ),
]
ScalePass = Annotated[
    bool, algorithm_option("--scale-pass", help="standard: scale the scores in a kernel of its own.")
]
AdditiveMask = Annotated[
    bool, algorithm_option("--additive-mask", help="standard: add a mask tensor to the scores.")
]
Dropout = Annotated[
    bool,
    algorithm_option(
        "--dropout", help="standard: drop probabilities in a kernel of its own; flash2: on chip."
    ),
]
Pass = Annotated[
    Text,
    algorithm_option("--pass", metavar="PASS", help="standard, flash1, flash2: fwd, bwd or fwd+bwd [fwd]."),
]
BlockMask = Annotated[
    Text,
    algorithm_option(
        "--block-mask",
        metavar="PATTERN",
        help="flash1, flash2, masked_standard: compute only these tiles: local:2+global:1, strided:4, dilated:2:3, "
        "butterfly, random:0.1:SEED, or a .npy file of one entry a tile.",
    ),
]
Splits = Annotated[
    Text,
    algorithm_option(
        "--splits", metavar="COUNT", help="decode, mla: thread blocks that share the keys, or best [1]."
    ),
]
Page = Annotated[
    Text,
    algorithm_option(
        "--page", metavar="TOKENS", help="flash2, decode, mla: K and V in pages, found by a page table [off]."
    ),
]
PackGqa = Annotated[
    bool | None,
    algorithm_option(
        "--pack-gqa/--no-pack-gqa",
        help="decode, mla: query heads that share a kv-head as rows of one tile [pack].",
    ),
]
Bias = Annotated[
    Text,
    algorithm_option(
        "--bias", metavar="KIND", help="standard, flash2: none, alibi (from indices) or matrix (read) [none]."
    ),
]
Flash1Variant = Annotated[
    Text,
    algorithm_option(
        "--flash1-variant", metavar="KIND", help="flash1: literal, skip-first-read or fp32-between [literal]."
    ),
]
Lse = Annotated[bool, algorithm_option("--lse", help="flash2: write the log-sum-exp, 4 bytes a row.")]
SaveStats = Annotated[
    Text, algorithm_option("--save-stats", metavar="KIND", help="seed_flash: none, lse or m+l [m+l].")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOptions:
    """The algorithms' own options; each reaches only the algorithms that have it."""

    softmax: Softmax = None
    gemm_tiles: GemmTiles = None
    scale_pass: ScalePass = False
    additive_mask: AdditiveMask = False
    dropout: Dropout = False
    flash1_variant: Flash1Variant = None
    lse: Lse = False
    save_stats: SaveStats = None
    bias: Bias = None
    pass_: Pass = None
    splits: Splits = None
    page: Page = None
    pack_gqa: PackGqa = None
    block_mask: BlockMask = None

    def given(self) -> dict[str, tuple[str, str]]:
        """What was asked for: the algorithm's name of the option -> (the command line's name, value)."""
        out = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and value is not item.default:
                flag = f"--{item.name.rstrip('_').replace('_', '-')}"
                name = next((n for n, renamed in _RENAMED.items() if renamed == flag), flag[2:])
                out[name] = (flag, {True: "on", False: "off"}.get(value, str(value)))
        return out

    def options_for(self, algorithms: Sequence[Algorithm]) -> list[dict[str, str]]:
        """The options of each algorithm; `UsageError` for one that none of them has, or a value it has not."""
        from iosim.algorithms.registry import ALGORITHMS

        given = self.given()
        for name, (flag, _) in given.items():
            if not any(name in algorithm.options for algorithm in algorithms):
                chosen = ", ".join(algorithm.name for algorithm in algorithms)
                owners = ", ".join(a.name for a in ALGORITHMS.values() if name in a.options)
                raise UsageError(f"{flag}: not an option of {chosen}; it belongs to {owners}")
        out = []
        for algorithm in algorithms:
            own = {name: value for name, (_, value) in given.items() if name in algorithm.options}
            for name in own:
                _check_option(algorithm, given[name][0], name, own[name])
            out.append(own)
        return out


_RENAMED = {"variant": "--flash1-variant"}  # an algorithm's own name says too little on the command line


def option_flag(name: str) -> str:
    """How the command line spells an algorithm's option."""
    return _RENAMED.get(name, f"--{name}")


def _check_option(algorithm: Algorithm, flag: str, name: str, value: str) -> None:
    option = algorithm.options[name]
    if value in option.values:
        return
    try:
        if option.parse is None:
            algorithm.resolve({name: value})
        else:
            option.parse(value)
    except UsageError as error:
        if option.takes and not option.takes_tile:
            raise UsageError(f"{flag}: {error}") from None
        allowed = ", ".join(option.values) + (", or a tile such as 128x128" if option.takes_tile else "")
        raise UsageError(f"{flag}: {value!r} is not one of {allowed}") from None
