"""Reads kernel cards: small YAML files, checked key by key. A card may come from anyone: nothing in it is trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from iosim.errors import ProfileError, UsageError
from iosim.hardware.check import NOT_A_PROFILE, Node, nearest
from iosim.hardware.load import MAX_FILE_BYTES, read_tree
from iosim.kernels.classes import CLASSES, UNFUSED
from iosim.kernels.facts import (
    GRID_AXES,
    KV_WALKS,
    WARP_SPLITS,
    GroupFact,
    InstructionFact,
    KernelFacts,
    SpillFact,
    SplitFact,
    TileFact,
)
from iosim.onchip import SpecialFacts
from iosim.problem import AttentionProblem, TileShape

_CARDS = Path(__file__).parent / "cards"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
REQUIRED = ("name", "kernel_class", "algorithm", "tiles", "threads_per_block", "registers_per_thread")
OPTIONAL = (
    *("title", "measured_as", "options", "sources", "backward_tiles", "grid_order", "kv_walk", "persistent"),
    *(
        "stages",
        "warps_divide",
        "pad",
        "pack_heads_at_single_query",
        "few_queries_elsewhere",
        "q_box_rows",
        "repeats_kv",
        "splits_keys",
        "causal_groups",
        "row_lanes",
        "special",
        "spills",
        "in_step",
        "column_band",
        "interleaves_exp",
        "instructions",
    ),
)
PARTS = ("loop", "scores", "output")  # of a program whose instructions a card counts
UNFUSED_ALGORITHMS = ("standard", "masked_standard")  # S and P in slow memory, kernel by kernel
MOST = 10**9  # of any number of a card: bytes, rows, lanes
MAX_TEXT = 1000
MAX_ITEMS = 64
NOT_A_CARD = "a kernel card is a mapping of keys; see docs/kernels.md"


def kernel_names() -> list[str]:
    """The kernels that come with the package, sorted."""
    return sorted(path.stem for path in _CARDS.glob("*.yaml"))


def load_kernel(name_or_path: str) -> KernelFacts:
    """A kernel card by name or from a user's own file. `ProfileError` gives file, line, key and what is allowed."""
    if name_or_path.endswith((".yaml", ".yml")):
        return _read(Path(name_or_path), name_or_path)
    if "/" in name_or_path or Path(name_or_path).suffix:
        raise ProfileError(
            f"kernel: {name_or_path!r} is not a kernel card: a card of your own is a file that ends in .yaml "
            "(docs/kernels.md); those that ship: `iosim kernels list`"
        )
    if name_or_path not in kernel_names():
        raise ProfileError(
            f"kernel: unknown kernel {name_or_path!r}; known: {', '.join(kernel_names())}, or a file (.yaml)"
        )
    return _shipped(name_or_path)


@lru_cache(maxsize=64)  # a search over designs, or an audit, asks for the same card thousands of times
def _shipped(name: str) -> KernelFacts:
    return _read(_CARDS / f"{name}.yaml", name)


def _read(path: Path, said: str) -> KernelFacts:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ProfileError(f"{path.name}: larger than {MAX_FILE_BYTES // 1024} KiB; not a kernel card")
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a name that no file can have
        why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else error
        raise ProfileError(f"{said!r}: cannot read this file: {why}") from None
    tree, issues = read_tree(text, path.name)
    if tree is None:
        raise ProfileError(issues[0].text(path.name).replace(NOT_A_PROFILE, NOT_A_CARD))
    return _Reader(path.name).card(tree)


@lru_cache(maxsize=1)
def kernels_by_measurement() -> Mapping[str, KernelFacts]:
    """The shipped cards by the names under which measurement files know them; of several the first."""
    return {name: cards[0] for name, cards in _measured().items()}


def measured_kernel(name: str, problem: AttentionProblem, tile: TileShape | None) -> KernelFacts | None:
    """The card of a measured kernel; where several tell its tiles apart, the one whose tile has these rows."""
    cards = _measured().get(name, ())
    for card in cards if tile else ():
        own = card.tile(card.packed(problem).head_dim)
        if own is not None and tile is not None and own.rows == tile.rows:
            return card
    return cards[0] if cards else None


@lru_cache(maxsize=1)
def _measured() -> Mapping[str, Sequence[KernelFacts]]:
    found: dict[str, list[KernelFacts]] = {}
    for card in map(load_kernel, kernel_names()):
        for alias in card.measured_as:
            found.setdefault(alias, []).append(card)
    return found


class _Reader:
    def __init__(self, label: str) -> None:
        self.label = label

    def fail(self, node: Node, key: str, message: str) -> ProfileError:
        return ProfileError(f"{self.label}:{node.line}: {key}: {message}")

    def mapping(
        self, node: Node, key: str, wanted: Collection[str], optional: Collection[str] = ()
    ) -> dict[str, Node]:
        """The entries of a mapping with all of `wanted`, and of `optional` those it has."""
        if not isinstance(node.value, dict):
            what = f"must be a mapping with the keys {', '.join(wanted)}" if key else NOT_A_CARD
            raise self.fail(node, key or "card", what)
        known = (*wanted, *optional)
        for name, entry in node.value.items():
            if name not in known:
                raise self.fail(
                    entry, f"{key}.{name[:40]}".strip("."), f"unknown key, {nearest(name, known)}"
                )
        if missing := [name for name in wanted if name not in node.value]:
            raise self.fail(node, key or "card", f"missing: {', '.join(missing)}")
        return node.value

    def items(self, node: Node, key: str) -> list[Node]:
        if not isinstance(node.value, list) or len(node.value) > MAX_ITEMS:
            raise self.fail(node, key, f"must be a list of at most {MAX_ITEMS}, as in [a, b]")
        return node.value

    def text(self, node: Node, key: str) -> str:
        """One line of printable text."""
        found = " ".join(node.text().split())
        if not found or len(found) > MAX_TEXT or not found.isprintable():
            raise self.fail(node, key, f"must be a printable text of at most {MAX_TEXT} characters")
        return found

    def texts(self, node: Node, key: str) -> dict[str, str]:
        if not isinstance(node.value, dict) or len(node.value) > MAX_ITEMS:
            raise self.fail(node, key, "must map names to texts, as in {lse: on}")
        return {name: self.text(value, f"{key}.{name[:40]}") for name, value in node.value.items()}

    def whole(self, node: Node, key: str, low: int = 0, high: int = MOST) -> int:
        text = node.text()
        good = text.isascii() and text.isdigit() and len(text) <= len(str(MOST))
        if not good or not low <= int(text) <= high:
            raise self.fail(node, key, f"must be a whole number from {low} to {high}, got {text[:40]!r}")
        return int(text)

    def number(self, node: Node, key: str) -> float:
        try:
            value = float(node.text())
        except ValueError:
            raise self.fail(node, key, f"must be a number, got {node.text()[:40]!r}") from None
        if not 0 <= value <= MOST:
            raise self.fail(node, key, f"must be a finite number of at least 0, got {node.text()[:40]!r}")
        return value

    def flag(self, node: Node, key: str) -> bool:
        return self.word(node, key, ("true", "false")) == "true"

    def word(self, node: Node, key: str, allowed: tuple[str, ...]) -> str:
        if node.text() not in allowed:
            raise self.fail(node, key, f"must be one of {', '.join(allowed)}, got {node.text()[:40]!r}")
        return node.text()

    def rows(self, node: Node, key: str, kind: Callable[..., Any], low: int = 1) -> tuple[Any, ...]:
        """A list of mappings of whole numbers."""
        names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
        entries = [self.mapping(item, key, names) for item in self.items(node, key)]
        return tuple(kind(**{n: self.whole(e[n], f"{key}.{n}", low) for n in names}) for e in entries)

    def card(self, tree: Node) -> KernelFacts:
        top = self.mapping(tree, "", REQUIRED, OPTIONAL)
        name = self.text(top["name"], "name")
        if not _NAME.fullmatch(name):
            raise self.fail(top["name"], "name", "must be letters, digits, '.', '_', '+' and '-', at most 80")
        tiles = self.rows(top["tiles"], "tiles", TileFact)
        if not tiles:
            raise self.fail(top["tiles"], "tiles", "at least one tile")
        options = self._options(top["algorithm"], top.get("options"))
        return KernelFacts(
            name=name,
            kernel_class=self._class(top),
            algorithm=top["algorithm"].text(),
            options=options,
            tiles=tiles,
            threads_per_block=self.whole(top["threads_per_block"], "threads_per_block", 1, 1024),
            registers_per_thread=self.whole(top["registers_per_thread"], "registers_per_thread", 0, 255),
            **{"title": name} | self._optional(top),
        )

    def _class(self, top: Mapping[str, Node]) -> str:
        """The class; programs that keep S and P in slow memory and `unfused` go with each other alone."""
        found = self.word(top["kernel_class"], "kernel_class", tuple(CLASSES))
        algorithm = top["algorithm"].text()
        if (found == UNFUSED.name) != (algorithm in UNFUSED_ALGORITHMS):
            fitting = [c for c in CLASSES if (c == UNFUSED.name) == (algorithm in UNFUSED_ALGORITHMS)]
            raise self.fail(
                top["kernel_class"],
                "kernel_class",
                f"{found} does not run algorithm {algorithm}; allowed with it: {', '.join(fitting)}",
            )
        return found

    def _optional(self, top: Mapping[str, Node]) -> dict[str, Any]:
        """The entries that a card may leave out, those that it has."""
        readers: dict[str, Callable[[Node, str], Any]] = {
            "title": self.text,
            "measured_as": lambda n, k: tuple(self.text(item, k) for item in self.items(n, k)),
            "sources": self.texts,
            "backward_tiles": lambda n, k: self.rows(n, k, TileFact),
            "grid_order": self._order,
            "kv_walk": lambda n, k: self.word(n, k, KV_WALKS),
            "persistent": self.flag,
            "warps_divide": lambda n, k: self.word(n, k, WARP_SPLITS),
            "stages": lambda n, k: self.whole(n, k, 1, 64),
            "pack_heads_at_single_query": self.flag,
            "few_queries_elsewhere": self.flag,
            "q_box_rows": lambda n, k: self.whole(n, k, 1, 4096),
            "repeats_kv": self.flag,
            "splits_keys": self._split,
            "causal_groups": self._groups,
            "row_lanes": lambda n, k: self.whole(n, k, 0, 1024),
            "spills": lambda n, k: self.rows(n, k, SpillFact, 0),
            "in_step": self.number,
            "column_band": self.whole,
            "interleaves_exp": self.flag,
            "instructions": self._instructions,
        }
        found = {key: read(top[key], key) for key, read in readers.items() if key in top}
        if "pad" in top:
            axes = ("rows", "cols", "head_dim")
            pad = self.mapping(top["pad"], "pad", axes)
            found |= {f"pad_{axis}": self.whole(pad[axis], f"pad.{axis}", 1, 4096) for axis in axes}
        if "special" in top:
            names = ("per_row", "per_row_tile", "per_block")
            rule = self.mapping(top["special"], "special", names, ("step_rows", "per_causal_tile"))
            amounts = {name: self.whole(value, f"special.{name}") for name, value in rule.items()}
            lanes = {"row_lanes": found["row_lanes"]} if "row_lanes" in found else {}
            found["special"] = SpecialFacts(**lanes, **amounts)
        return found

    def _instructions(self, node: Node, key: str) -> dict[str, tuple[InstructionFact, ...]]:
        parts = self.mapping(node, key, (), PARTS)
        found = {part: self.rows(rows, f"{key}.{part}", InstructionFact, 0) for part, rows in parts.items()}
        for part, counted in found.items():
            if len({fact.head_dim for fact in counted}) < len(counted):
                raise self.fail(parts[part], f"{key}.{part}", "each head_dim once")
        return found

    def _split(self, node: Node, key: str) -> SplitFact:
        entry = self.mapping(node, key, ("rows", "blocks_per_sm"))
        return SplitFact(
            rows=self.whole(entry["rows"], f"{key}.rows", 1),
            blocks_per_sm=self.number(entry["blocks_per_sm"], f"{key}.blocks_per_sm"),
        )

    def _groups(self, node: Node, key: str) -> GroupFact:
        names = ("l2_share", "tiles_per_sm")
        entry = self.mapping(node, key, names)
        return GroupFact(**{name: self.number(entry[name], f"{key}.{name}") for name in names})

    def _order(self, node: Node, key: str) -> tuple[str, ...]:
        order = tuple(self.word(item, key, GRID_AXES) for item in self.items(node, key))
        if sorted(order) != sorted(GRID_AXES):
            raise self.fail(node, key, f"must name {', '.join(GRID_AXES)} once each")
        return order

    def _options(self, algorithm: Node, node: Node | None) -> dict[str, str]:
        """The algorithm's own options, resolved. A card names a registered algorithm: it never runs a file."""
        from iosim.algorithms.registry import ALGORITHMS, find_algorithm

        if algorithm.text() not in ALGORITHMS:
            raise self.fail(
                algorithm, "algorithm", f"unknown algorithm, {nearest(algorithm.text()[:40], ALGORITHMS)}"
            )
        options = self.texts(node, "options") if node else {}
        try:
            return find_algorithm(algorithm.text()).resolve(options)
        except UsageError as error:
            raise self.fail(node or algorithm, "options", str(error)) from None
