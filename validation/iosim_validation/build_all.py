"""Compiles everything that some work needs, in several processes: the compiler itself uses one core."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from iosim.errors import RunError
from iosim_validation.launch import Build
from iosim_validation.nvrtc import cached_cubin

MOST_PROCESSES = 16
ALONE = 3
"""So few are compiled here: starting another process costs as much."""

Progress = Callable[[int, int], None]


def build_all(builds: Sequence[Build], progress: Progress | None = None) -> dict[Build, str]:
    """Compile into the cache; returns the builds that failed, with the compiler's words."""
    tell = progress or (lambda done, total: None)
    failed: dict[Build, str] = {}
    if len(builds) <= ALONE:
        for done, build in enumerate(builds, start=1):
            if words := _compile(build):
                failed[build] = words
            tell(done, len(builds))
        return failed
    # A fresh interpreter each: a process that already talks to a GPU must not be forked.
    context = get_context("spawn")
    processes = min(MOST_PROCESSES, len(builds), os.cpu_count() or 1)
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = {pool.submit(_compile, build): build for build in builds}
        for done, future in enumerate(as_completed(waiting), start=1):
            if words := future.result():
                failed[waiting[future]] = words
            tell(done, len(builds))
    return failed


def _compile(build: Build) -> str:
    try:
        cached_cubin(build.source(), build.architecture, build.entry)
    except RunError as error:
        return str(error)
    return ""
