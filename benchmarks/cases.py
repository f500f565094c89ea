"""What `run.py` times of iosim itself, one case a process: `python -m benchmarks.cases NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measure import measure

Call = Callable[[], dict[str, Any]]


def layer() -> Call:
    """One attention layer as the peers see it: N=8192, d=128, H=32, flash2 with 128x128 tiles."""
    raise SystemExit("the Python API is not there yet")


def long_causal() -> Call:
    """1.3e8 tile pairs: causal flash2 at N=1,048,576, d=128, 64x64 tiles."""
    raise SystemExit("the Python API is not there yet")


def sweep() -> Call:
    """10,000 points up to N = 1M: three algorithms, head dims and on-chip sizes, best tiles at each."""
    raise SystemExit("the Python API is not there yet")


CASES = {"layer": (layer, 20), "long_causal": (long_causal, 5), "sweep": (sweep, 1)}


if __name__ == "__main__":
    measure(*CASES[sys.argv[1]])
