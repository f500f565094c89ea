"""Loads hardware profiles: the only reader of YAML (1.2, no tags, no anchors); errors carry line numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISCHR, S_ISFIFO
from typing import Any

from iosim.errors import ProfileError
from iosim.hardware.check import NOT_A_PROFILE, Issue, Node, build_profile, check_tree
from iosim.hardware.names import canonical, choose
from iosim.hardware.overrides import apply_overrides
from iosim.hardware.profile import HardwareProfile
from iosim.resources import data_dir

MAX_FILE_BYTES = 256 * 1024
_MAX_DEPTH = 8


def profile_names() -> list[str]:
    """The names of the profiles that come with the package, sorted."""
    return sorted(path.stem for path in data_dir("hwprofiles").glob("*.yaml"))


def load_profile(name_or_path: str, overrides: Sequence[str] = ()) -> HardwareProfile:
    """Load a profile by name, by the name the driver reports, or from a user's own YAML file.

    `overrides` are "key.path=value" texts, such as memory.l2.capacity=100MiB.
    Raises `ProfileError`: unknown or ambiguous name, unreadable file, or any fault in it with file and line.
    """
    path, label, warnings = _find(str(name_or_path))
    tree, issues = read_tree(_read_text(path, label), label)
    if tree is not None:
        issues = check_tree(tree)
    if tree is None or issues:
        issues.sort(key=lambda issue: issue.line)
        more = f" (and {len(issues) - 1} more; `iosim hw check` lists all)" if len(issues) > 1 else ""
        raise ProfileError(issues[0].text(label) + more)
    return apply_overrides(build_profile(tree, warnings), overrides)


def check_file(name_or_path: str) -> list[str]:
    """Every fault of a profile as "file:line: key: what to do" lines in file order; empty when good."""
    path, label, _ = _find(str(name_or_path))
    tree, issues = read_tree(_read_text(path, label), label)
    if tree is not None:
        issues = check_tree(tree)
    return [issue.text(label) for issue in sorted(issues, key=lambda issue: issue.line)]


def _is_path(text: str) -> bool:
    return text.lower().endswith((".yaml", ".yml")) or "/" in text or "\\" in text


def _find(request: str) -> tuple[Path, str, list[str]]:
    """The file of a request, the label its errors carry, and what there is to say about the choice."""
    if _is_path(request):
        return Path(request).expanduser(), request, []
    folder = data_dir("hwprofiles")
    names = profile_names()
    wanted = canonical(request)
    if wanted in names:
        return folder / f"{wanted}.yaml", f"{wanted}.yaml", []
    aliases = {name: _read_aliases(folder / f"{name}.yaml") for name in names}
    name, warning = choose(request, aliases)
    return folder / f"{name}.yaml", f"{name}.yaml", [warning] if warning else []


def _read_text(path: Path, label: str) -> str:
    try:
        status = path.stat()
        if S_ISCHR(status.st_mode) or S_ISFIFO(status.st_mode):  # endless, whatever their size says
            raise ProfileError(f"{label}: not a file; a profile is a YAML file")
        if status.st_size > MAX_FILE_BYTES:
            raise ProfileError(f"{label}: larger than {MAX_FILE_BYTES // 1024} KiB; not a hardware profile")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ProfileError(
            f"{label}: cannot read this file: {(error.strerror or str(error)).lower()}"
        ) from None
    except (UnicodeDecodeError, ValueError):
        raise ProfileError(f"{label}: not a UTF-8 text file") from None


def _read_aliases(path: Path) -> tuple[str, ...]:
    """Only the header of a file that comes with the package: parsing stops after `aliases`."""
    tree, _ = read_tree(_read_text(path, path.name), path.name, stop_after="aliases")
    node = tree.entries().get("aliases") if tree else None
    return tuple(str(item.value) for item in node.items()) if node else ()


def read_tree(text: str, label: str, stop_after: str | None = None) -> tuple[Node | None, list[Issue]]:
    """Parse YAML into nodes that keep their line. A fault gives (None, one issue).

    Scalars stay text: what `1e12` or `yes` means is decided by the field, not by YAML.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        tree = _build(YAML(typ="safe", pure=True).parse(text), stop_after)
        return tree, [] if tree else [Issue(line=1, key="", message=NOT_A_PROFILE)]
    except _TreeError as error:
        return None, [Issue(line=error.line, key="", message=str(error))]
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(str(error.problem or error.context or "cannot be parsed").split())
        return None, [Issue(line=mark.line + 1 if mark else 1, key="", message=f"not valid YAML: {said}")]
    except (YAMLError, ValueError, AttributeError, RecursionError):
        return None, [Issue(line=1, key="", message="not valid YAML")]


class _TreeError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def _build(events: Iterator[Any], stop_after: str | None) -> Node | None:
    """Stack the parser's events into a tree; without recursion or aliases no hostile file can blow it up."""
    root: Node | None = None
    stack: list[Node] = []
    keys: list[Node | None] = []  # for each open mapping, the key that waits for its value
    for event in events:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind == "AliasEvent" or getattr(event, "anchor", None):
            raise _TreeError(line, "anchors and aliases are not allowed; write the value out")
        if getattr(event, "tag", None) and kind != "DocumentStartEvent":
            raise _TreeError(line, f"tags are not allowed, found {str(event.tag)[:40]!r}")
        if kind == "DocumentStartEvent" and root is not None:
            raise _TreeError(line, "more than one document; a file holds one")
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            stack.pop()
            keys.pop()
        elif kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent"):
            value: Any = {"ScalarEvent": str, "MappingStartEvent": dict, "SequenceStartEvent": list}[kind]
            node = Node(line=line, value=event.value if kind == "ScalarEvent" else value())
            root = root or node
            if stack:
                _attach(stack[-1], keys, node)
            if kind != "ScalarEvent":
                stack.append(node)
                keys.append(None)
                if len(stack) > _MAX_DEPTH:
                    raise _TreeError(line, f"nested deeper than {_MAX_DEPTH} levels, which nothing here is")
        if stop_after and len(stack) == 1 and keys == [None] and stop_after in stack[0].entries():
            return root
    return root


def _attach(parent: Node, keys: list[Node | None], node: Node) -> None:
    if isinstance(parent.value, list):
        parent.value.append(node)
        return
    key = keys[-1]
    if key is None:
        if not isinstance(node.value, str):
            raise _TreeError(node.line, "a key must be plain text")
        if node.value in parent.entries():
            first = parent.entries()[node.value].line
            raise _TreeError(node.line, f"{node.value}: given twice, first in line {first}")
        keys[-1] = node
        return
    assert isinstance(key.value, str)
    node.line = key.line  # a mapping starts below its key; errors point at the key
    parent.entries()[key.value] = node
    keys[-1] = None
