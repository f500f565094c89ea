"""Nsight Compute reports (.ncu-rep) through the profiler's own command line, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from iosim.errors import RunError, UsageError

TIMEOUT_S = 300
PAGE = ("--csv", "--page", "raw", "--print-units", "base")


def import_report(path: Path) -> str:
    """The raw page of a report as CSV, and below it the settings of the session, where ncu tells them.

    Errors: `UsageError` where ncu is not installed, `RunError` where it fails.
    """
    if not path.is_file():
        raise RunError(f"{path}: cannot read: no such file")
    tool = shutil.which("ncu")
    if tool is None:
        raise UsageError(
            f"{path.name}: reading a report needs Nsight Compute's ncu, which is not installed here; where it is: "
            f"ncu --import {path.name} {' '.join(PAGE)} > export.csv"
        )
    raw = _run(tool, path, *PAGE)
    if raw.returncode:
        said = " ".join((raw.stderr or raw.stdout).split())[:200] or "no reason given"
        raise RunError(f"{path.name}: ncu --import failed with exit code {raw.returncode}: {said}")
    session = _run(tool, path, "--page", "session")
    settings = "" if session.returncode else session.stdout
    return raw.stdout + "".join(f"\n== {line}" for line in settings.splitlines())


def _run(tool: str, path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [tool, "--import", str(path.resolve()), *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{path.name}: ncu --import failed: {type(error).__name__}") from None
