"""The import rules: each room may import only what stands above it. Read by `ast`, nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400

# Rooms from the ground up: a room may import itself and the rooms before it in this table.
ROOMS = (
    "errors",  # the exception tree
    "units",  # "192 KiB" <-> 196608
    "resources",  # finds packaged data
    "display",  # tables in a notebook
    "workers",  # one function over many tasks, in several processes
    "problem",  # what is computed
    "block_mask",  # which tiles of it
    "hardware",  # on what
    "models",  # shapes of published models
    "program",  # the grammar of tile programs
    "algorithms",  # one tile program each
    "interpret",  # the readings of a program
    "theory",  # a side branch: see ONLY below
    "capacity",  # what fits in a GPU's memory
    "kv_cache",  # bytes of a cached token
    "onchip",  # shared memory and special functions of a thread block
    "results",  # records
    "kernels",  # facts about production kernels
    "memory",  # caches and schedules
    "roofline",  # time
    "tuning",  # tiles from M
    "placement",  # the tile that a run uses
    "work",  # useful flops
    "splits",  # of the keys, over thread blocks
    "notes",  # what options mean
    "analysis",  # the path from problem to record
    "levels",  # the bytes at every level of one run
    "curves",  # bytes against every capacity
    "trace_file",  # the tile accesses of a run, in a file
    "lengths",  # of the sequences of a batch
    "ragged",  # a batch of them
    "proving",  # does a program compute attention
    "grid",  # the axes of a sweep
    "sweep",  # many runs
    "sweep_file",  # kept on disk, resumable
    "scaling",  # fitted exponents
    "audit",  # predicted against measured
    "timing",  # how long a kernel takes
    "profiler",  # a profiler's export of someone's own kernel
    "tune",  # the best tile of a kernel
    "whatif",  # other memories
    "gap",  # a name for every byte
    "published",  # the papers' numbers against the model
    "claims",  # sentences against the numbers
    "plots",  # records -> figures
    "report",  # records and figures -> a folder
    "cli",  # parse, call, show
)

# An oracle must be independent of what it checks; nor may the rooms it checks lean on it.
ONLY = {"theory": {"errors", "problem", "block_mask", "theory"}}
NEVER = {
    room: {"theory"} for room in ("tuning", "placement", "grid", "sweep", "sweep_file", "tune", "whatif")
}

# Libraries that belong to one concern, and the rooms of that concern.
LIBRARIES = {
    "matplotlib": {"plots", "report"},
    "typer": {"cli"},
    "click": {"cli"},
    "rich": {"cli"},
    "ruamel": {"hardware"},
}
GPU_SIDE = {"cupy", "iosim_validation"}  # only inside functions of cli: the model runs without a GPU


def imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield (dotted name, line, is inside a function) of every import; `from a import b` gives `a.b`."""
    lazy = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in lazy
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield "." * node.level + f"{node.module or ''}.{alias.name}", node.lineno, id(node) in lazy


def import_complaint(room: str, name: str, lazy: bool) -> str | None:
    """Say why `room` may not import the dotted `name`; None when it may."""
    if name.startswith("."):
        return f"relative import {name}: write it in full"
    top, _, rest = name.partition(".")
    if top in GPU_SIDE and not (room == "cli" and lazy):
        return f"imports {top}: only functions of cli may"
    if room not in LIBRARIES.get(top, {room}):
        return f"imports {top}, which belongs to {', '.join(sorted(LIBRARIES[top]))}"
    if top != "iosim" or name == "iosim.__version__":
        return None
    target = rest.partition(".")[0]
    if target not in ROOMS:
        return f"imports {name}: not a room (the front door is for users)"
    allowed = ONLY.get(room, set(ROOMS[: ROOMS.index(room) + 1]) - NEVER.get(room, set()))
    return None if target in allowed else f"imports {target}, which does not stand above {room}"


def complaints(path: str, source: str) -> list[str]:
    """List what a file of `iosim/` (path below it, such as `memory/cache.py`) does against the rules."""
    room = path.partition("/")[0].removesuffix(".py")
    if room in ("__init__", "__main__"):  # the doors: users come in here, so they may see every room
        room = "cli"
    if room not in ROOMS:
        return [f"{path}: {room} is in no room: give it a place in ROOMS"]
    tree = ast.parse(source)
    found = [
        f"{path}:{line}: {why}"
        for name, line, lazy in imports(tree)
        if (why := import_complaint(room, name, lazy)) is not None
    ]
    for node in ast.walk(tree):
        if room != "cli" and isinstance(node, ast.Name) and node.id == "print":
            found.append(f"{path}:{node.lineno}: prints; only cli speaks")
    if (lines := source.count("\n")) > MAX_LINES:
        found.append(f"{path}: {lines} lines; split it below {MAX_LINES}")
    return found


def files_of(folder: str) -> list[str]:
    return sorted(p.relative_to(ROOT / folder).as_posix() for p in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", files_of("iosim"))
def test_file_keeps_to_its_room(path: str) -> None:
    source = (ROOT / "iosim" / path).read_text(encoding="utf-8")
    assert complaints(path, source) == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_pages_name_every_room(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = {
        re.sub(r"\.py$|/$", "", name) for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    missing = [room for room in ROOMS if room not in named]
    assert missing == []


@pytest.mark.parametrize("path", files_of("validation"))
def test_gpu_side_files_are_short(path: str) -> None:
    source = (ROOT / "validation" / path).read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_LINES


@pytest.mark.parametrize(
    ("path", "source", "complaint"),
    [
        ("problem.py", "from iosim.hardware import load", "does not stand above problem"),
        ("problem.py", "import iosim.cli.main", "does not stand above problem"),
        ("problem.py", "def f():\n    from iosim import sweep", "does not stand above problem"),
        ("theory/bounds.py", "from iosim.program import Program", "does not stand above theory"),
        ("theory/bounds.py", "from iosim.units import parse", "does not stand above theory"),
        ("sweep.py", "from iosim.theory import bounds", "does not stand above sweep"),
        ("sweep.py", "from iosim import AttentionProblem", "not a room"),
        ("sweep.py", "import iosim", "not a room"),
        ("memory/cache.py", "from .schedule import order", "relative import"),
        ("memory/cache.py", "import matplotlib.pyplot as plt", "belongs to plots, report"),
        ("memory/cache.py", "def f():\n    import cupy", "only functions of cli"),
        ("cli/gpu.py", "import iosim_validation", "only functions of cli"),
        ("memory/cache.py", "print('hit')", "only cli speaks"),
        ("memory/cache.py", "x = 1\n" * (MAX_LINES + 1), "split it"),
        ("helpers.py", "", "is in no room"),
    ],
)
def test_breaking_a_rule_is_noticed(path: str, source: str, complaint: str) -> None:
    (found,) = complaints(path, source)
    assert complaint in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("problem.py", "from iosim.errors import ProblemError"),
        ("theory/bounds.py", "from iosim.theory.closed_forms import flash2\nimport math"),
        ("plots/style.py", "import matplotlib as mpl\nfrom iosim.results import RunRecord"),
        ("cli/gpu.py", "def f():\n    import cupy, iosim_validation\n    print(cupy)"),
        ("sweep_file.py", "from iosim import __version__"),
        ("__init__.py", "from iosim.analysis import analyze"),
        ("__main__.py", "from iosim.cli import main"),
    ],
)
def test_keeping_the_rules_is_not_complained_about(path: str, source: str) -> None:
    assert complaints(path, source) == []
