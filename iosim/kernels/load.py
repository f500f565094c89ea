"""Reads kernel cards: small YAML files, checked key by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from iosim.errors import ProfileError, UsageError
from iosim.hardware.check import Node, nearest
from iosim.hardware.load import MAX_FILE_BYTES, read_tree
from iosim.kernels.classes import CLASSES
from iosim.kernels.facts import GRID_AXES, KV_WALKS, KernelFacts, SpillFact, TileFact

_CARDS = Path(__file__).parent / "cards"


def kernel_names() -> list[str]:
    """The kernels that come with the package, sorted."""
    return sorted(path.stem for path in _CARDS.glob("*.yaml"))


def load_kernel(name_or_path: str) -> KernelFacts:
    """A kernel card by name or from a user's own file. `ProfileError` gives file, line, key and what is allowed."""
    own = name_or_path.endswith((".yaml", ".yml"))
    path = Path(name_or_path) if own else _CARDS / f"{name_or_path}.yaml"
    if not own and name_or_path not in kernel_names():
        raise ProfileError(
            f"kernel: unknown kernel {name_or_path!r}; known: {', '.join(kernel_names())}, or a file"
        )
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ProfileError(f"{path.name}: larger than {MAX_FILE_BYTES // 1024} KiB; not a kernel card")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{name_or_path}: cannot read this file: {error}") from None
    tree, issues = read_tree(text, path.name)
    if tree is None:
        raise ProfileError(issues[0].text(path.name))
    return _Reader(path.name).card(tree)


@lru_cache(maxsize=1)
def kernels_by_measurement() -> Mapping[str, KernelFacts]:
    """The shipped cards by the names under which measurement files know them."""
    cards = [load_kernel(name) for name in kernel_names()]
    return {alias: card for card in cards for alias in card.measured_as}


class _Reader:
    def __init__(self, label: str) -> None:
        self.label = label

    def fail(self, node: Node, key: str, message: str) -> ProfileError:
        return ProfileError(f"{self.label}:{node.line}: {key}: {message}")

    def mapping(self, node: Node, key: str, wanted: set[str]) -> dict[str, Node]:
        """The entries of a mapping with exactly these keys."""
        found = node.entries()
        for name, entry in found.items():
            if name not in wanted:
                raise self.fail(entry, f"{key}.{name}".strip("."), f"unknown key, {nearest(name, wanted)}")
        if missing := sorted(wanted - found.keys()):
            raise self.fail(node, key or "card", f"missing: {', '.join(missing)}")
        return found

    def whole(self, node: Node, key: str) -> int:
        text = node.text()
        if not text.isascii() or not text.isdigit():
            raise self.fail(node, key, f"must be a whole number, got {text!r}")
        return int(text)

    def number(self, node: Node, key: str) -> float:
        try:
            value = float(node.text())
        except ValueError:
            raise self.fail(node, key, f"must be a number, got {node.text()!r}") from None
        if not 0 <= value < 1e9:
            raise self.fail(node, key, f"must be a finite number of at least 0, got {node.text()!r}")
        return value

    def flag(self, node: Node, key: str) -> bool:
        if node.text() not in ("true", "false"):
            raise self.fail(node, key, f"must be true or false, got {node.text()!r}")
        return node.text() == "true"

    def word(self, node: Node, key: str, allowed: tuple[str, ...]) -> str:
        if node.text() not in allowed:
            raise self.fail(node, key, f"must be one of {', '.join(allowed)}, got {node.text()!r}")
        return node.text()

    def rows(self, node: Node, key: str, kind: Callable[..., Any]) -> tuple[Any, ...]:
        """A list of mappings of whole numbers."""
        names = {f.name for f in fields(kind)}  # type: ignore[arg-type]
        entries = [self.mapping(item, key, names) for item in node.items()]
        return tuple(kind(**{n: self.whole(v, f"{key}.{n}") for n, v in e.items()}) for e in entries)

    def card(self, tree: Node) -> KernelFacts:
        wanted = {f.name for f in fields(KernelFacts)} - {"pad_rows", "pad_cols", "pad_head_dim"} | {"pad"}
        top = self.mapping(tree, "", wanted)
        pad = self.mapping(top["pad"], "pad", {"rows", "cols", "head_dim"})
        order = tuple(self.word(item, "grid_order", GRID_AXES) for item in top["grid_order"].items())
        if sorted(order) != sorted(GRID_AXES):
            raise self.fail(top["grid_order"], "grid_order", f"must name {', '.join(GRID_AXES)} once each")
        tiles = self.rows(top["tiles"], "tiles", TileFact)
        if not tiles:
            raise self.fail(top["tiles"], "tiles", "at least one tile")
        return KernelFacts(
            name=top["name"].text(),
            title=top["title"].text(),
            kernel_class=self.word(top["kernel_class"], "kernel_class", tuple(CLASSES)),
            measured_as=tuple(item.text() for item in top["measured_as"].items()),
            algorithm=top["algorithm"].text(),
            options=self._options(top["algorithm"], top["options"]),
            sources={name: node.text() for name, node in top["sources"].entries().items()},
            tiles=tiles,
            backward_tiles=self.rows(top["backward_tiles"], "backward_tiles", TileFact),
            grid_order=order,
            kv_walk=self.word(top["kv_walk"], "kv_walk", KV_WALKS),
            persistent=self.flag(top["persistent"], "persistent"),
            threads_per_block=self.whole(top["threads_per_block"], "threads_per_block"),
            registers_per_thread=self.whole(top["registers_per_thread"], "registers_per_thread"),
            pad_rows=self.whole(pad["rows"], "pad.rows"),
            pad_cols=self.whole(pad["cols"], "pad.cols"),
            pad_head_dim=self.whole(pad["head_dim"], "pad.head_dim"),
            pack_heads_at_single_query=self.flag(
                top["pack_heads_at_single_query"], "pack_heads_at_single_query"
            ),
            row_lanes=self.whole(top["row_lanes"], "row_lanes"),
            spills=self.rows(top["spills"], "spills", SpillFact),
            in_step=self.number(top["in_step"], "in_step"),
            column_band=self.whole(top["column_band"], "column_band"),
        )

    def _options(self, algorithm: Node, node: Node) -> dict[str, str]:
        from iosim.algorithms.registry import find_algorithm

        options = {name: value.text() for name, value in node.entries().items()}
        try:
            return find_algorithm(algorithm.text()).resolve(options)
        except UsageError as error:
            raise self.fail(node, "options", str(error)) from None
