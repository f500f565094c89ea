"""What an algorithm is to the rest of the tool: its program function, its options, and a few facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from iosim.errors import ProblemError, UsageError
from iosim.problem import MASK_KINDS, AttentionProblem
from iosim.program.builder import ProgramFunction, build
from iosim.program.ir import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A choice of an algorithm; the first value is the default.

    `takes` says what else can be given, "RxC" (a tile such as 128x128) or "PATTERN" (a block mask), and is empty
    for nothing; `parse` reads that and raises `UsageError`.
    """

    values: tuple[str, ...]
    help: str
    takes: str = ""
    parse: Callable[[str], str] | None = None

    @property
    def takes_tile(self) -> bool:
        """True where a tile can be given."""
        return self.takes == "RxC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """An algorithm: its program function and what the rest of the tool must know about it.

    `tiled`: its Br x Bc is the user's to choose. `outer`: the tensor of its outer loop (q or k), which decides how
    the paper's tile rule reads. `computes`: attention, scores (Q Kᵀ alone), linear attention
    or latent attention. `scaled`: applies the softmax scale.
    `conflict`: what is wrong with a set of options, if anything. `masks`: the kinds of mask it can take.
    `latent`: the values are the first columns of the keys, and all heads share them.
    """

    name: str
    function: ProgramFunction
    summary: str
    source: str
    options: Mapping[str, Option] = field(default_factory=dict)
    tiled: bool = True
    outer: str = "q"
    computes: str = "attention"
    scaled: bool = True
    user_defined: bool = False
    idealised: bool = False
    latent: bool = False
    masks: tuple[str, ...] = MASK_KINDS
    conflict: Callable[[Mapping[str, str]], str | None] = lambda options: None

    def resolve(self, given: Mapping[str, str]) -> dict[str, str]:
        """Every option with its value; unknown options and values are errors that list what is allowed."""
        chosen = {name: option.values[0] for name, option in self.options.items()}
        for name, value in given.items():
            if name not in self.options:
                allowed = ", ".join(self.options) or "none"
                raise UsageError(f"{name}: {self.name} has no such option; its options: {allowed}")
            option = self.options[name]
            if option.parse is not None and value not in option.values:
                try:
                    value = option.parse(value)
                except UsageError as error:
                    raise UsageError(f"{name}: {error}") from None
            elif value not in option.values:
                raise UsageError(f"{name}: {value!r} is not one of {', '.join(option.values)}")
            chosen[name] = value
        if why := self.conflict(chosen):
            raise UsageError(f"{self.name}: {why}")
        return chosen

    def outer_of(self, options: Mapping[str, str]) -> str:
        """The tensor of the outer loop under these options: every backward goes over K and V outside."""
        return "k" if options.get("pass", "fwd") != "fwd" else self.outer

    def check(self, problem: AttentionProblem) -> None:
        """`ProblemError` for a problem that this algorithm cannot have."""
        if self.latent and problem.kv_heads != 1:
            raise ProblemError(
                f"kv_heads: {self.name} has one latent row for all heads; give kv_heads 1 and the row as head_dim"
            )
        if self.latent and problem.value_dim > problem.head_dim:
            raise ProblemError(
                f"value_dim: in {self.name} values are the first columns of the keys; give at most head_dim = "
                f"{problem.head_dim} (DeepSeek: head_dim 576, value_dim 512), got {problem.value_dim}"
            )

    def without_block_mask(self, mask_kind: str, options: Mapping[str, str]) -> Program:
        """The same program over all tiles that the mask kind leaves."""
        dense = {"block-mask": "off"} if "block-mask" in options else {}
        return self.program(mask_kind, {**options, **dense})

    def searched(self, mask_kind: str, options: Mapping[str, str]) -> Program:
        """The program whose tile is searched: without what lies on the tile or hardly depends on it.

        A block mask lies on the grid of the tile; page-table entries are some millionths of the bytes; splits are
        all alike on chip.
        """
        plain = {name: value for name, value in _PLAIN.items() if name in options}
        return self.program(mask_kind, {**options, **plain})

    def program(self, mask_kind: str, options: Mapping[str, str]) -> Program:
        """The tile program for one kind of mask and resolved options; built once, sizes left open."""
        if mask_kind not in self.masks:
            raise UsageError(f"mask: {self.name} has no {mask_kind} mask; allowed: {', '.join(self.masks)}")
        return _build(self.function, self.name, mask_kind, tuple(sorted(options.items())))


_PLAIN = {"block-mask": "off", "page": "off", "splits": "1"}


@lru_cache(maxsize=256)
def _build(
    function: ProgramFunction, name: str, mask_kind: str, options: tuple[tuple[str, str], ...]
) -> Program:
    return build(function, name, mask_kind, dict(options))
