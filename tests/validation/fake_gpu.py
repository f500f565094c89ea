"""A GPU without a GPU: NumPy computes, a counter stands for the clock, and faults come when they are asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim_validation import reference
from iosim_validation.gpu import Answer, Arrays, Errors, Job, Samples
from iosim_validation.launch import Build, GpuFacts, Launch, Plan, Scratch
from iosim_validation.nvrtc import Resources
from iosim_validation.rung import Rung

FACTS = GpuFacts(
    name="NVIDIA H200", architecture="sm_90a", sms=132, shared_bytes_per_block=232448, l2_bytes=60 << 20
)


class FakeRung(Rung):
    """A rung that launches once a kernel name, and refuses head_dim 96."""

    name: ClassVar[str] = "fake"
    title: ClassVar[str] = "a fake"
    algorithm: ClassVar[str] = "flash2"

    def builds(self) -> tuple[Build, ...]:
        return tuple(self._build(kernel) for kernel in self.kernels)

    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        return (TileShape(rows=128, cols=64), TileShape(rows=64, cols=64))

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        if problem.head_dim == 96:
            raise UsageError(f"{self.name}: head_dim 96; built for the others")
        launches = tuple(Launch(build=b, grid=(3, 2, 1), arguments=()) for b in self.builds())
        return Plan(launches=launches, scratch={"s": Scratch(shape=(16,), dtype="uint16")})

    def _build(self, kernel: str) -> Build:
        return Build(
            rung=self.name,
            entry=kernel,
            architecture="sm_90a",
            sources=(),
            defines=(),
            threads=128,
            shared_bytes=4096,
            prelude=self.name,
        )


class ThreeKernels(FakeRung):
    """A rung of three launches."""

    name: ClassVar[str] = "three"
    kernels: ClassVar[tuple[str, ...]] = ("qk_gemm", "softmax", "pv_gemm")


class Sparse(FakeRung):
    """A rung that takes block masks only."""

    name: ClassVar[str] = "block_sparse"
    pattern: str = ""

    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        if not self.pattern:
            raise UsageError("block_sparse: needs a block mask")
        return super().plan(problem, gpu, tile)

    def masked(self, pattern: str) -> Rung:
        made = Sparse()
        made.pattern = pattern
        return made


FAKES: Mapping[str, Rung] = {"fake": FakeRung(), "three": ThreeKernels()}


@dataclass
class FakeGpu:
    """`seconds` of a launch by rung or peer; `faults`: rung -> wrong, nan, raises, hangs, sticky or interrupt."""

    seconds: dict[str, float] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    torch: str | None = "2.0"
    free: int = 100 << 30
    facts: GpuFacts = FACTS
    driver: str = "580.0"
    settles_to: float = 1.25
    now: float = 0.0
    dead: bool = False
    rests: list[float] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)
    flushed: int = 0
    seen: list[tuple[int | None, str]] = field(default_factory=list)
    launched: dict[str, int] = field(default_factory=dict)
    woken: threading.Event = field(default_factory=threading.Event)
    _problems: dict[int, AttentionProblem] = field(default_factory=dict)
    _masks: dict[int, Any] = field(default_factory=dict)
    _kept: list[Arrays] = field(default_factory=list)
    _jobs: dict[int, tuple[str, int]] = field(default_factory=dict)

    def environment(self) -> dict[str, Any]:
        return {"gpu": self.facts.name, "driver": self.driver, "torch": self.torch}

    def free_bytes(self) -> int:
        return self.free

    def resources(self, build: Build) -> Resources:
        return Resources(
            registers_per_thread=100, spill_store_bytes=0, spill_load_bytes=0, static_shared_bytes=16
        )

    def fresh_arrays(self, problem: AttentionProblem, seed: int) -> Arrays:
        arrays = reference.fresh_arrays(problem, seed)
        self._problems[id(arrays)] = problem
        self._kept.append(arrays)
        return arrays

    def poison(self, arrays: Arrays) -> None:
        reference.poison(arrays)

    def answer(self, problem: AttentionProblem, arrays: Arrays, mask: Any = None) -> Answer:
        self._masks[id(arrays)] = mask
        return reference.answer(problem, arrays, mask)

    def errors(self, answer: Answer, arrays: Arrays, *, has_lse: bool) -> Errors:
        return reference.errors_of(answer, arrays, has_lse=has_lse)

    def job(self, plan: Plan, arrays: Arrays) -> Job:
        return self._made(plan.launches[0].build.rung, arrays, has_lse=True)

    def peer(self, name: str, problem: AttentionProblem, arrays: Arrays) -> Job | None:
        return self._made(name, arrays, has_lse=False) if self.torch else None

    def graph(self, jobs: Sequence[Job], launches: int) -> Job:
        self.graphs.append(launches)
        name, _ = self._jobs[id(jobs[0].run)]
        return self._registered(name, launches, jobs[0].fill)

    def intervals(self, jobs: Sequence[Job], launches: int, *, flush: bool) -> list[float]:
        took = []
        busy = 0.0
        for n in range(launches):
            name, many = self._jobs[id(jobs[n % len(jobs)].run)]
            one = self.seconds.get(name, 1e-3) * many
            one *= 1.5 if flush else self.settles_to if busy > 0.05 else 1.0
            busy += one
            took.append(one)
            self.flushed += flush
        self.now += busy
        return took

    @contextmanager
    def watch(self) -> Iterator[Samples]:
        samples = Samples()
        yield samples
        samples.sm_clock_hz += [(0.0, 1.98e9), (1.0, 1.6e9), (2.0, 1.4e9)]

    def profiled(self, marker: int | None, job: Job) -> None:
        job.run()
        self.seen.append((marker, self._jobs[id(job.run)][0]))

    def pause(self, seconds: float) -> None:
        self.rests.append(seconds)

    def wait(self) -> None:
        if self.dead:
            raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def release(self) -> None:
        pass

    def _made(self, name: str, arrays: Arrays, *, has_lse: bool) -> Job:
        def fill() -> None:
            self.launched[name] = self.launched.get(name, 0) + 1
            self._compute(name, arrays)

        job = self._registered(name, 1, fill)
        return Job(run=job.run, fill=fill, has_lse=has_lse)

    def _registered(self, name: str, many: int, fill: Any) -> Job:
        def run() -> None:
            fill()

        self._jobs[id(run)] = (name, many)
        self._kept.append({"run": run})  # an address may not be used again
        return Job(run=run, fill=fill)

    def _compute(self, name: str, arrays: Arrays) -> None:
        fault = self.faults.get(name, "")
        if fault == "raises":
            raise RuntimeError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        if fault == "hangs":
            self.woken.wait(10)
            raise RuntimeError("woken")
        if fault == "interrupt":
            raise KeyboardInterrupt
        if fault == "sticky":
            self.dead = True
            self.wait()
        problem = self._problems[id(arrays)]
        found = reference.answer(problem, arrays, self._masks.get(id(arrays)))
        arrays["o"][...] = reference.to_type(found.o, str(problem.dtype_q))
        arrays["lse"][...] = found.lse
        if fault == "wrong":
            arrays["o"][0, 0, 0] = np.float16(3)
        if fault == "nan":
            arrays["o"][0, 0, -1, -1] = np.nan
