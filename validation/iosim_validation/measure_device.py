"""A real GPU as the bench of the micro-benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from iosim_validation.device import cupy, gpu_facts, load
from iosim_validation.launch import GpuFacts, Launch, Pointer
from iosim_validation.microbenchmarks import DATA_BYTES, Micro, empty_launch, spin_launch

LAUNCHES = 5
REST_S = 0.05
MANY = 400  # launches of an empty kernel; fewer than the queue of a stream holds
QUEUE_CLOCKS = 100_000_000  # some 50 ms of waiting, in which the host fills the queue


class GpuBench:
    """GPU 0, through CuPy. It holds two arrays of 4 GiB until it is let go."""

    def __init__(self) -> None:
        self._cupy = cupy()
        words = DATA_BYTES // 4
        # A pattern rather than zeros: equal data draws less power, and some memory systems compress it.
        pattern = self._cupy.arange(words, dtype=self._cupy.uint32)
        self._arrays = {
            "data": self._cupy.multiply(pattern, np.uint32(2654435761), out=pattern),
            "other": self._cupy.empty(words, self._cupy.uint32),
            "cycles": self._cupy.zeros(gpu_facts().sms, self._cupy.uint64),
            "sink": self._cupy.zeros(1, self._cupy.uint32),
        }

    @property
    def facts(self) -> GpuFacts:
        """What the GPU is."""
        return gpu_facts()

    def seconds(self, micro: Micro) -> float:
        """Median time of one launch after a first one that is not timed."""
        run = self._ready(micro.launch)
        run()
        return median(self._elapsed(run) for _ in range(LAUNCHES))

    def clocks(self, micro: Micro) -> float:
        """Clocks of the slowest block, the median of several launches."""
        run = self._ready(micro.launch)
        run()
        found = []
        for _ in range(LAUNCHES):
            self._arrays["cycles"].fill(0)  # a launch of few blocks leaves the others' places as they are
            run()
            found.append(float(self._arrays["cycles"].max()))
        return median(found)

    def launch_seconds(self, *, graph: bool) -> float:
        """Between empty kernels that wait in the queue of a stream, or follow each other in a graph."""
        stream = self._cupy.cuda.Stream(non_blocking=True)
        empty = self._ready(empty_launch(self.facts))
        with stream:
            empty()
            if graph:
                stream.synchronize()
                stream.begin_capture()
            else:
                self._ready(spin_launch(self.facts, QUEUE_CLOCKS))()
            start, end = (self._cupy.cuda.Event() for _ in range(2))
            if not graph:
                start.record(stream)
            for _ in range(MANY):
                empty()
            if graph:
                captured = stream.end_capture()
                captured.launch(stream)  # the first launch of a graph uploads it
                start.record(stream)
                captured.launch(stream)
            end.record(stream)
            end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3 / MANY

    def rested_clock(self, micro: Micro) -> float:
        """Clocks over time of single launches, each after a rest."""
        run = self._ready(micro.launch)
        run()
        found = []
        for _ in range(LAUNCHES):
            self._cupy.cuda.runtime.deviceSynchronize()
            time.sleep(REST_S)
            took = self._elapsed(run)
            found.append(float(self._arrays["cycles"].max()) / took)
        return median(found)

    def sustained_clock(self, micro: Micro, seconds: float) -> float:
        """Clocks over time of the launches in the second half of `seconds`."""
        run = self._ready(micro.launch)
        run()
        once = self._elapsed(run)
        count = max(4, int(seconds / once))
        for _ in range(count // 2):
            run()
        took = [self._elapsed(run) for _ in range(count // 2)]
        return float(self._arrays["cycles"].max()) / median(took)

    def _ready(self, launch: Launch) -> Callable[[], None]:
        kernel = load(launch.build)
        arguments: tuple[Any, ...] = tuple(
            self._arrays[a.array] if isinstance(a, Pointer) else a for a in launch.arguments
        )
        block = (launch.build.threads, 1, 1)
        return lambda: kernel(launch.grid, block, arguments, shared_mem=launch.build.shared_bytes)

    def _elapsed(self, run: Callable[[], None]) -> float:
        start, end = (self._cupy.cuda.Event() for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(start, end)) / 1e3
