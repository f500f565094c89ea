"""What a folder of measurements was made with, kept beside them; another machine or another build is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import iosim
from iosim.errors import RunError, UsageError
from iosim.profiler.metrics import NCU_OPTIONS
from iosim_validation.gpu import Gpu
from iosim_validation.launch import SOURCES
from iosim_validation.whole_file import written_whole

FILE = "environment.json"
MUST_MATCH = ("gpu", "driver", "runtime_cuda", "nvrtc", "torch", "cudnn", "power_limit_w")
"""Rows made with other values of these are not comparable, and one file shall not hold both."""


def describe(gpu: Gpu, profile: Mapping[str, str] | None) -> dict[str, Any]:
    """The machine, the libraries, and this version of the kernels."""
    return {
        **gpu.environment(),
        "iosim": iosim.__version__,
        "commit": _commit(),
        "kernels_sha256": kernels_sha256(),
        "profile": dict(profile) if profile else None,
        "clock_control": "none: clocks and power limit are left as they are found",
        "profiler_options": list(NCU_OPTIONS),
    }


def enter(folder: Path, now: Mapping[str, Any], *, suite: str, command: str, force: bool) -> list[str]:
    """Open a folder of measurements: write its environment, or see that it is the one there.

    Returns what there is to say. Errors: `UsageError` when rows of another environment are there, unless `force`;
    then it is noted in the file. `RunError` when the disk refuses.
    """
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot read: {error}") from error
    notes = []
    if kept is None:
        kept = {"schema_version": 1, **now, "runs": []}
    elif changes := _changes(kept, now):
        if not force:
            raise UsageError(
                f"{path}: these rows were made with another environment: {'; '.join(changes)}. "
                "Choose another --out, or add --force to mix them"
            )
        notes.append(f"{path}: mixed with rows of another environment: {'; '.join(changes)}")
    suites = [run["suite"] for run in kept["runs"]]
    if suites and suite not in suites:
        notes.append(
            f"{path}: rows of {', '.join(dict.fromkeys(suites))} are there; {suite} is added to them"
        )
    run = {"suite": suite, "command": command, "started": datetime.now(UTC).isoformat(timespec="seconds")}
    changed = {name: now[name] for name in now if kept.get(name) != now[name]}
    kept["runs"].append(run | ({"changed": changed} if changed else {}))
    _write(path, json.dumps(kept, indent=2) + "\n")
    return notes


def kernels_sha256() -> str:
    """Of all kernel texts and of the plans that launch them."""
    digest = sha256()
    for path in (*sorted(SOURCES.glob("*.cu")), *sorted((SOURCES.parent / "rungs").glob("*.py"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _changes(kept: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    def short(value: object) -> str:
        return str(value)[:24]

    return [
        f"{name} {short(kept.get(name))}, now {short(now.get(name))}"
        for name in MUST_MATCH
        if kept.get(name) != now.get(name)
    ]


def _commit() -> str | None:
    """The commit of a checkout, with a + when files differ from it; None elsewhere."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(SOURCES), *words], capture_output=True, text=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if done.returncode else done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    return commit and commit + ("+" if git("status", "--porcelain", "--", ".") else "")


def _write(path: Path, text: str) -> None:
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")
