"""Time one call in a process of its own and print a line of JSON. Standard library only: peers run it too."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(prepare: Callable[[], Callable[[], dict[str, Any]]], repeats: int) -> None:
    """Print seconds of `prepare` (imports), of its call the first time and at best, memory, and what it says.

    `prepare` imports what it needs and returns the call to time; the call returns facts worth printing.
    """
    started = time.perf_counter()
    call = prepare()
    prepared, peak_before = time.perf_counter(), peak_bytes()
    facts = call()
    seconds = [time.perf_counter() - prepared]
    peak_after = peak_bytes()
    for _ in range(repeats - 1):
        again = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - again)
    line = {
        "import_seconds": prepared - started,
        "first_seconds": seconds[0],
        "best_seconds": min(seconds),
        "grown_bytes": peak_after - peak_before,
        "peak_bytes": peak_after,
    }
    print(json.dumps(line | facts))
