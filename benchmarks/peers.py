"""Other tools, each installed into an environment of its own under .bench/, and run there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".bench"
INSTALL_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A package at a fixed version and the script that times it."""

    package: str
    version: str
    script: str
    counts: str  # what its one call covers


PEERS = (
    Peer(
        package="genz-llm",
        version="0.0.16",
        script="peer_genz.py",
        counts="a whole layer, attention picked out",
    ),
    Peer(
        package="llm-analysis",
        version="0.2.2",
        script="peer_llm_analysis.py",
        counts="time and flops of the attention block; no bytes moved",
    ),
)


class InstallError(Exception):
    """The peer is not to be had here; the message is the last line that the installer said."""


def python_of(peer: Peer) -> Path:
    """Return the interpreter of the peer's environment, made and filled on first use."""
    folder = ENVIRONMENTS / f"{peer.package}-{peer.version}"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists() and python.exists():
        return python
    print(f"installing {peer.package} {peer.version} under {folder.parent.name}/", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    steps = (
        [sys.executable, "-m", "venv", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", f"{peer.package}=={peer.version}"],
    )
    for step in steps:
        try:
            done = subprocess.run(
                step, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InstallError(type(error).__name__) from error
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
            raise InstallError(said[-1].strip())
    stamp.touch()
    return python
