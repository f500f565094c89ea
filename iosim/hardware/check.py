"""From the tree of a YAML file to a profile: every key checked against the schema, all faults collected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from iosim.errors import UsageError
from iosim.hardware.profile import HardwareProfile, Quantity
from iosim.hardware.schema import ENTRY_KEYS, FIELDS, GROUPS, HEADER_KEYS, KINDS, SECTIONS, FieldSpec
from iosim.units import Dimension, decimal_hint, is_decimal_size, parse_quantity

HEADER_TEXTS = ("name", "title", "architecture", "compute_capability")
MAX_SECTORS_A_LINE = 8
LEAST_LINES = 16  # of an L2 partition: one set
NOT_A_PROFILE = "a profile is a mapping of keys; see docs/hardware.md"


@dataclass(slots=True)
class Node:
    """A piece of a parsed file: text, mapping or list, and the line it starts in (that of its key)."""

    line: int
    value: str | dict[str, Node] | list[Node]

    def entries(self) -> dict[str, Node]:
        """The mapping, or an empty one when this is none."""
        return self.value if isinstance(self.value, dict) else {}

    def items(self) -> list[Node]:
        """The list, or an empty one when this is none."""
        return self.value if isinstance(self.value, list) else []

    def text(self) -> str:
        """The scalar text, or an empty one when this is none."""
        return self.value.strip() if isinstance(self.value, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One fault of a file."""

    line: int
    key: str
    message: str
    meant: str = ""
    """The right key of a misspelt one: it is not also told as missing."""

    def text(self, label: str) -> str:
        """One line: file, line, key, what to do."""
        return f"{label}:{self.line}: {self.key + ': ' if self.key else ''}{self.message}"


def nearest(word: str, allowed: Iterable[str]) -> str:
    """The end of an unknown-key message: the nearest right one, or all of them."""
    choices = list(allowed)
    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else f"allowed: {', '.join(choices)}"


def _unknown_key(line: int, key: str, allowed: Iterable[str]) -> Issue:
    group, dot, word = key.rpartition(".")
    choices = list(allowed)
    found = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    meant = group + dot + found[0] if found else ""
    return Issue(line=line, key=key, message=f"unknown key, {nearest(word, choices)}", meant=meant)


def check_tree(root: Node) -> list[Issue]:
    """All faults of a file, in the order in which they were found."""
    if not isinstance(root.value, dict) or not root.value:
        return [Issue(line=root.line, key="", message=NOT_A_PROFILE)]
    issues = list(_check_header(root))
    issues += [
        Issue(line=root.line, key=key, message="missing; every profile states it")
        for key in HEADER_TEXTS
        if key not in root.entries() and not _told_already(key, issues)
    ]
    numbers: dict[str, Node] = {}
    for section in SECTIONS:
        if section in root.value:
            issues += _collect(section, root.value[section], numbers)
    sources = root.entries().get("sources")
    default = root.entries().get("source")
    for key, node in numbers.items():
        try:
            read_quantity(FIELDS[key], node, _texts(sources), default.text() if default else "")
            _check_clock(node, numbers)
        except UsageError as error:
            issues.append(Issue(line=_line_of_value(node), key=key, message=str(error)))
    for key, spec in FIELDS.items():
        if spec.required and key not in numbers and not _told_already(key, issues):
            line, message = _missing(key, root)
            issues.append(Issue(line=line, key=key, message=message))
    if not issues:
        issues = [
            Issue(line=numbers[key].line, key=key, message=text)
            for key, text in contradictions(build_profile(root, []))
        ]
    return issues


def _line_of_value(node: Node) -> int:
    value = node.entries().get("value")
    return value.line if value else node.line


def _missing(key: str, root: Node) -> tuple[int, str]:
    """The line of the deepest mapping that should hold the key, and the message."""
    node = root
    for word in key.split(".")[:-1]:
        node = node.entries().get(word, node)
    unit = FIELDS[key].dimension.value
    return node.line, f"missing; give a value ({unit}) with its source, or {{unknown: reason}}"


def _told_already(key: str, issues: Sequence[Issue]) -> bool:
    """A misspelt or broken key or group is told once: not again as missing, nor for all that it holds."""
    told = {issue.key for issue in issues} | {issue.meant for issue in issues}
    return any(f"{key}.".startswith(f"{name}.") for name in told if name)


def _check_header(root: Node) -> Iterator[Issue]:
    entries = root.entries()
    for key, node in entries.items():
        if key not in HEADER_KEYS and key not in SECTIONS:
            yield _unknown_key(node.line, key, (*HEADER_KEYS, *SECTIONS))
    for key in HEADER_TEXTS:
        if key in entries and not entries[key].text():
            yield Issue(line=entries[key].line, key=key, message="must be a text")
    counter = entries.get("counter_data")
    if counter and counter.text() and counter.text() not in ("true", "false"):
        yield Issue(line=counter.line, key="counter_data", message="must be true or false")
    aliases = entries.get("aliases")
    if aliases and (not isinstance(aliases.value, list) or not all(n.text() for n in aliases.items())):
        yield Issue(line=aliases.line, key="aliases", message="must be a list of names, as in [NVIDIA H200]")
    sources = entries.get("sources")
    if sources and (not isinstance(sources.value, dict) or not all(n.text() for n in sources.value.values())):
        yield Issue(line=sources.line, key="sources", message="must map short names to full citations")


def _collect(path: str, node: Node, numbers: dict[str, Node]) -> Iterator[Issue]:
    """Walk the groups down to the numbers; unknown keys become issues."""
    if node.text() or node.items():
        yield Issue(line=node.line, key=path, message="must be a mapping of keys")
    for word, child in node.entries().items():
        key = f"{path}.{word}"
        if key in FIELDS:
            numbers[key] = child
        elif key in GROUPS:
            yield from _collect(key, child, numbers)
        else:
            inside = sorted({k[len(path) + 1 :].split(".")[0] for k in FIELDS if k.startswith(path + ".")})
            yield _unknown_key(child.line, key, inside)


def _check_clock(node: Node, numbers: Mapping[str, Node]) -> None:
    clock = node.entries().get("clock")
    if clock and f"compute.clocks.{clock.text()}" not in numbers:
        given = [key.rsplit(".", 1)[1] for key in numbers if key.startswith("compute.clocks.")]
        raise UsageError(f"unknown clock {clock.text()!r}, {nearest(clock.text(), given)}")


def _texts(node: Node | None) -> dict[str, str]:
    return {key: child.text() for key, child in node.entries().items()} if node else {}


def read_quantity(spec: FieldSpec, node: Node, sources: Mapping[str, str], default_source: str) -> Quantity:
    """One number: `50 MiB` with the source of the whole file, or a mapping with value, source and more."""
    entry = _texts(node)
    for word, child in node.entries().items():
        if word not in ENTRY_KEYS:
            raise UsageError(f"unknown key {word!r}, {nearest(word, ENTRY_KEYS)}")
        if not child.text():
            raise UsageError(f"{word} is empty")
    if isinstance(node.value, str):
        entry = {"value": node.value}
    unknown = entry.get("unknown")
    if ("value" in entry) == (unknown is not None):
        raise UsageError("give either a value, or unknown with the reason")
    kind = entry.get("kind", "measured" if spec.key.startswith("measured.") else "theoretical")
    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}; allowed: {', '.join(KINDS)}")
    if spec.key.startswith("measured.") and kind != "measured":
        raise UsageError("stands under measured but its kind is theoretical")
    value = None
    if unknown is None:
        value = parse_quantity(entry["value"], spec.dimension, entry.get("unit"))
        if (
            value == 0
            and spec.dimension is not Dimension.FLAG
            and not spec.key.endswith("reserved_per_block")
        ):
            raise UsageError(f"{entry['value']!r} must be above zero")
        if spec.dimension is Dimension.BYTES and not isinstance(value, int):
            raise UsageError(f"{entry['value']!r} is not a whole number of bytes")
    source = "" if unknown is not None else _source(entry.get("source", default_source), sources)
    return Quantity(
        key=spec.key,
        value=value,
        unit=spec.unit,
        source=source,
        kind=kind,
        clock=entry.get("clock"),
        note=entry.get("note"),
        unknown=unknown,
    )


def _source(text: str, sources: Mapping[str, str]) -> str:
    """A key of `sources`, or a citation in words."""
    if not text:
        raise UsageError("no source; every number says where it is from (or give the file one `source:`)")
    if text in sources:
        return sources[text]
    if " " not in text:
        raise UsageError(
            f"unknown source {text!r}, {nearest(text, sources) if sources else 'no sources given'}"
        )
    return text


def _numbers(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    for word, child in node.entries().items():
        key = f"{path}.{word}" if path else word
        if key in FIELDS:
            yield key, child
        elif key in GROUPS:
            yield from _numbers(child, key)


def build_profile(root: Node, warnings: Sequence[str]) -> HardwareProfile:
    """The profile of a tree that `check_tree` found good."""
    entries = root.entries()
    sources = _texts(entries.get("sources"))
    default = entries["source"].text() if "source" in entries else ""
    quantities: dict[str, Quantity] = {}
    said = list(warnings)
    for key, node in _numbers(root, ""):
        quantities[key] = read_quantity(FIELDS[key], node, sources, default)
        value = node.text() or " ".join(
            node.entries()[k].text() for k in ("value", "unit") if k in node.entries()
        )
        said += decimal_warning(quantities[key], value)
    return HardwareProfile(
        name=entries["name"].text(),
        title=entries["title"].text(),
        architecture=entries["architecture"].text(),
        compute_capability=entries["compute_capability"].text(),
        counter_data="counter_data" in entries and entries["counter_data"].text() == "true",
        aliases=tuple(node.text() for node in entries["aliases"].items()) if "aliases" in entries else (),
        quantities={key: quantities[key] for key in FIELDS if key in quantities},
        sources=sources,
        warnings=tuple(said),
    )


def decimal_warning(quantity: Quantity, text: str) -> list[str]:
    if quantity.value is None or not FIELDS[quantity.key].on_chip or not is_decimal_size(text):
        return []
    return [f"{quantity.key}: {decimal_hint(text, quantity.value)}"]


def contradictions(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    """Numbers that cannot stand together: (key, message)."""
    for small, large in (
        ("memory.sram.per_block", "memory.sram.per_sm"),
        ("memory.sram.per_sm", "memory.sram.combined_per_sm"),
        ("memory.l2.sector", "memory.l2.line"),
        ("memory.l2.line", "memory.l2.capacity"),
        ("memory.l2.capacity", "memory.hbm.capacity"),
    ):
        both = profile.has(small) and profile.has(large)
        if both and profile.number(small) > profile.number(large):
            yield small, f"{profile.quantity(small)} is more than {large} ({profile.quantity(large)})"
    yield from _beyond_the_printed(profile)
    yield from _cache_shape(profile)


def _beyond_the_printed(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    """What was measured of this GPU and is more than it can; a printed number that a what-if gives is another GPU's."""
    for measured, printed in (
        ("measured.hbm_read_bandwidth", "memory.hbm.bandwidth"),
        ("measured.hbm_write_bandwidth", "memory.hbm.bandwidth"),
        ("measured.hbm_copy_bandwidth", "memory.hbm.bandwidth"),
        ("measured.tensor_clock", "compute.clocks.boost"),
        ("measured.matrix_clock", "compute.clocks.boost"),
    ):
        if not (profile.has(measured) and profile.has(printed)):
            continue
        found, most = profile.quantity(measured), profile.quantity(printed)
        elsewhere = most.is_what_if and not found.is_what_if
        if profile.number(measured) > profile.number(printed) and not elsewhere:
            yield measured, f"{found} is more than {printed} ({most})"


def _cache_shape(profile: HardwareProfile) -> Iterator[tuple[str, str]]:
    """An L2 that the hierarchy can be: lines of up to 8 sectors, sizes in powers of two, partitions with a full set."""
    line, sector, capacity = "memory.l2.line", "memory.l2.sector", "memory.l2.capacity"
    for key in (line, sector):
        if profile.has(key) and not _is_power_of_two(int(profile.number(key))):
            yield key, f"{profile.quantity(key)} must be a power of two, as 128 B"
    if profile.has(line) and profile.has(sector):
        sectors = int(profile.number(line)) // int(profile.number(sector))
        if sectors > MAX_SECTORS_A_LINE:
            yield (
                line,
                f"{sectors} sectors of {profile.quantity(sector)}; a line has at most {MAX_SECTORS_A_LINE}",
            )
    if profile.has(line) and profile.has(capacity) and profile.has("memory.l2.partitions"):
        least = LEAST_LINES * int(profile.number(line)) * profile.l2_partitions
        if profile.l2_capacity_bytes < least:
            yield (
                capacity,
                f"must hold {LEAST_LINES} lines a partition, {least} B, got {profile.quantity(capacity)}",
            )


def _is_power_of_two(size: int) -> bool:
    return size > 0 and size & (size - 1) == 0
