"""What the harness asks of a GPU: a small interface, so that every path of it also runs on a fake one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from iosim.problem import AttentionProblem
from iosim_validation.launch import Build, GpuFacts, Plan
from iosim_validation.nvrtc import Resources

Arrays = Mapping[str, Any]
Library = Literal["cupy", "torch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of an output: ‖o − ref‖ / ‖ref‖, the worst element |o − ref|, the worst |lse − ref| (None without an lse).

    NaN anywhere makes them infinite.
    """

    output: float
    worst: float
    lse: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """float32 attention of some inputs, and how far plain arithmetic in their own dtype is from it.

    `largest`: the largest |o| of the reference.
    """

    o: Any
    lse: Any
    plain: Errors
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to launch. `run` puts it on the stream and returns at once; `fill` runs it and leaves o (and lse)
    in the arrays that it was made from. `library`: who launches, for the capture of a graph."""

    run: Callable[[], None]
    fill: Callable[[], None]
    has_lse: bool = True
    library: Library = "cupy"


@dataclass(slots=True, kw_only=True)
class Samples:
    """Readings during a run, each with its time in seconds: clock of the SMs in hertz, power of the board in watts."""

    sm_clock_hz: list[tuple[float, float]] = field(default_factory=list)
    power_w: list[tuple[float, float]] = field(default_factory=list)


class Gpu(Protocol):
    """One GPU. Whatever fails on it raises; `wait` raises again when the GPU cannot be used any more."""

    @property
    def facts(self) -> GpuFacts:
        """What plans need to know of it."""

    def environment(self) -> dict[str, Any]:
        """Names and versions of everything that a time depends on; None where unknown."""

    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    def resources(self, build: Build) -> Resources:
        """Compile a build (or find it compiled) and say what it takes of an SM."""

    def fresh_arrays(self, problem: AttentionProblem, seed: int) -> Arrays:
        """Random q, k, v, and o, lse full of NaN."""

    def poison(self, arrays: Arrays) -> None:
        """NaN in every element of o and lse."""

    def answer(self, problem: AttentionProblem, arrays: Arrays, mask: Any = None) -> Answer:
        """What the outputs should be. `mask`: booleans [seq_q, seq_k] instead of the problem's."""

    def errors(self, answer: Answer, arrays: Arrays, *, has_lse: bool) -> Errors:
        """How far o and lse are from the answer."""

    def job(self, plan: Plan, arrays: Arrays) -> Job:
        """A plan made ready: arguments and scratch exist."""

    def peer(self, name: str, problem: AttentionProblem, arrays: Arrays) -> Job | None:
        """An implementation of someone else on the same inputs; None where it does not do this problem."""

    def graph(self, jobs: Sequence[Job], launches: int) -> Job:
        """That many launches of the jobs in turn, captured; one run replays them all."""

    def intervals(self, jobs: Sequence[Job], launches: int, *, flush: bool) -> list[float]:
        """Seconds of each of that many launches of the jobs in turn, by events on the GPU.

        `flush`: the L2 is emptied before each launch, outside the interval. Without it launches follow each other.
        """

    def watch(self) -> AbstractContextManager[Samples]:
        """Sample clock and power until the end of the block."""

    def profiled(self, marker: int | None, job: Job) -> None:
        """Run a job once inside the profiler's range, behind a marker kernel that carries this number, if any."""

    def pause(self, seconds: float) -> None:
        """Let the card rest: a slow kernel otherwise lends its power budget to the next one."""

    def wait(self) -> None:
        """Until everything launched is done."""

    def release(self) -> None:
        """Give cached memory back."""
