"""GPU 0 through CuPy, and torch where it is installed, as the harness sees it."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from iosim.problem import AttentionProblem
from iosim_validation import peers, reference
from iosim_validation.device import cupy, gpu_facts, load, make_ready
from iosim_validation.gpu import Answer, Arrays, Errors, Job, Samples
from iosim_validation.launch import Build, GpuFacts, Plan
from iosim_validation.microbenchmarks import spin_launch
from iosim_validation.nvml import Nvml
from iosim_validation.nvrtc import Resources, cached_cubin, version

FLUSH_TIMES_L2 = 2
QUEUE_CLOCKS = 500_000  # a quarter of a millisecond in which the host gets ahead of the GPU
MARKER = Build(
    rung="marker",
    entry="iosim_item",
    architecture="",
    sources=(),
    defines=(),
    threads=1,
    shared_bytes=0,
    prelude='extern "C" __global__ void iosim_item() {}\n',
)


class CupyGpu:
    """GPU 0. Events and launches go to the null stream, which CuPy and torch share."""

    def __init__(self) -> None:
        self._cupy = cupy()
        address = self._cupy.cuda.runtime.deviceGetPCIBusId(0)
        self._nvml = Nvml(address if isinstance(address, str) else address.decode())
        self._flushed: Any = None

    @property
    def facts(self) -> GpuFacts:
        """What plans need to know of it."""
        return gpu_facts()

    def environment(self) -> dict[str, Any]:
        """Names and versions of everything that a time depends on; None where unknown."""
        runtime, torch = self._cupy.cuda.runtime, peers.torch()
        return {
            "gpu": self.facts.name,
            "architecture": self.facts.architecture,
            "sms": self.facts.sms,
            "l2_bytes": self.facts.l2_bytes,
            "memory_bytes": self._cupy.cuda.Device().mem_info[1],
            "driver": self._nvml.driver(),
            "driver_cuda": _cuda_version(runtime.driverGetVersion()),
            "runtime_cuda": _cuda_version(runtime.runtimeGetVersion()),
            "cupy": self._cupy.__version__,
            "nvrtc": version(),
            "torch": None if torch is None else str(torch.__version__),
            "cudnn": None if torch is None else torch.backends.cudnn.version(),
            "python": platform.python_version(),
            "power_limit_w": self._nvml.power_limit_w(),
            "highest_sm_clock_hz": self._nvml.highest_sm_clock_hz(),
        }

    def free_bytes(self) -> int:
        """Memory that can still be allocated, CuPy's and torch's cached blocks left out."""
        return int(self._cupy.cuda.Device().mem_info[0])

    def resources(self, build: Build) -> Resources:
        """What a build takes of an SM."""
        _, made = cached_cubin(build.source(), build.architecture, build.entry)
        return made.resources[build.entry]

    def fresh_arrays(self, problem: AttentionProblem, seed: int) -> Arrays:
        """Random q, k, v, and o, lse full of NaN."""
        return reference.fresh_arrays(problem, seed)

    def poison(self, arrays: Arrays) -> None:
        """NaN in every element of o and lse."""
        reference.poison(arrays)

    def answer(self, problem: AttentionProblem, arrays: Arrays, mask: Any = None) -> Answer:
        """What the outputs should be."""
        return reference.answer(problem, arrays, mask)

    def errors(self, answer: Answer, arrays: Arrays, *, has_lse: bool) -> Errors:
        """How far o and lse are from the answer."""
        return reference.errors_of(answer, arrays, has_lse=has_lse)

    def job(self, plan: Plan, arrays: Arrays) -> Job:
        """A plan made ready."""
        run = make_ready(plan, arrays)
        return Job(run=run, fill=run, has_lse="lse" in plan.outputs)

    def peer(self, name: str, problem: AttentionProblem, arrays: Arrays) -> Job | None:
        """A backend of torch on the same inputs; None where it does not do this problem."""
        return peers.peer_job(name, problem, arrays)

    def graph(self, jobs: Sequence[Job], launches: int) -> Job:
        """That many launches of the jobs in turn, captured."""
        order = [jobs[n % len(jobs)] for n in range(launches)]
        if jobs[0].library == "torch":
            torch = peers.torch()
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                for job in order:
                    job.run()
            return Job(run=captured.replay, fill=jobs[0].fill, library="torch")
        stream = self._cupy.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            for job in order:
                job.run()
            graph = stream.end_capture()
        graph.upload()
        return Job(run=graph.launch, fill=jobs[0].fill)

    def intervals(self, jobs: Sequence[Job], launches: int, *, flush: bool) -> list[float]:
        """Seconds of each launch, by events."""
        event, elapsed = self._cupy.cuda.Event, self._cupy.cuda.get_elapsed_time
        if flush:
            pairs = [(event(), event()) for _ in range(launches)]
            for n, (start, end) in enumerate(pairs):
                self._flush()
                self._spin()
                start.record()
                jobs[n % len(jobs)].run()
                end.record()
            self.wait()
            return [elapsed(start, end) / 1e3 for start, end in pairs]
        events = [event() for _ in range(launches + 1)]
        self._spin()
        events[0].record()
        for n, after in enumerate(events[1:]):
            jobs[n % len(jobs)].run()
            after.record()
        self.wait()
        return [elapsed(*pair) / 1e3 for pair in pairwise(events)]

    def watch(self) -> AbstractContextManager[Samples]:
        """Sample clock and power until the end of the block."""
        return self._nvml.watch()

    def profiled(self, marker: int | None, job: Job) -> None:
        """Run a job once inside the profiler's range; a marker's grid has one block more than its number."""
        from cupyx.profiler import profile

        kernel = self._marker()
        self.wait()
        with profile():
            if marker is not None:
                kernel((marker + 1,), (1,), ())
            job.run()
            self.wait()

    def pause(self, seconds: float) -> None:
        """Let the card rest."""
        time.sleep(seconds)

    def wait(self) -> None:
        """Until everything launched is done; a launch that went wrong shows here."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def release(self) -> None:
        """Give cached memory back, CuPy's and torch's."""
        self._cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:  # importing it takes seconds, and without it there is nothing to give back
            sys.modules["torch"].cuda.empty_cache()

    def _flush(self) -> None:
        """Read twice the L2: afterwards it holds clean lines of a buffer that no kernel touches."""
        if self._flushed is None:
            words = FLUSH_TIMES_L2 * self.facts.l2_bytes // 4
            self._flushed = (self._cupy.ones(words, np.float32), self._cupy.empty((), np.float32))
        buffer, total = self._flushed
        buffer.sum(out=total)

    def _spin(self) -> None:
        """Keep the GPU waiting while the host fills the queue, so that an interval is not the host's."""
        launch = spin_launch(self.facts, QUEUE_CLOCKS)
        load(launch.build)(launch.grid, (1,), launch.arguments)

    def _marker(self) -> Any:
        return load(replace(MARKER, architecture=self.facts.architecture))


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
