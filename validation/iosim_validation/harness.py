"""Checks and times every item of some cases, and keeps each row as soon as it is there."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from secrets import randbits

from iosim.errors import InterruptedRun, IosimError, RunError
from iosim_validation.check import Verdict, check
from iosim_validation.gpu import Answer, Arrays, Gpu, Job
from iosim_validation.items import Item, Work, tensor_bytes
from iosim_validation.launch import Build
from iosim_validation.results import Table, has_failed, make_rows
from iosim_validation.timing import Times, sets_needed, time_jobs

SPARE_BYTES = 4 << 30
"""For the reference, the buffer that empties the L2, and what the libraries take."""

Progress = Callable[[int, int], None]
Clock = Callable[[], float]
End = Callable[[str], None]


def end_process(message: str) -> None:
    """Say it and end at once: a thread that waits for a GPU which hangs cannot be woken."""
    print(f"iosim: {message}", file=sys.stderr, flush=True)
    os._exit(RunError.exit_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long each item is timed, and when to stop by itself (seconds from the start; None: when all is done).

    `hang_s`: an item that takes longer hangs, as a kernel with a barrier that nobody reaches does.
    """

    run_s: float = 0.3
    pause_s: float = 0.2
    stop_after_s: float | None = None
    hang_s: float = 120


@dataclass(slots=True, kw_only=True)
class Done:
    """What a run did: items measured, items that were there already, items that failed (with why), items left."""

    measured: int = 0
    kept: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    left: int = 0


def measure(
    gpu: Gpu,
    work: Work,
    table: Table,
    settings: Settings,
    *,
    broken: dict[Build, str] | None = None,
    progress: Progress | None = None,
    clock: Clock = time.monotonic,
    end: End = end_process,
) -> Done:
    """Measure what the table does not have yet.

    Errors: `InterruptedRun` on Ctrl-C, `RunError` when the GPU is lost; rows are kept either way.
    """
    done, total, started = Done(), len(work.all_items), clock()
    tell = progress or (lambda done, total: None)
    try:
        for group in work.items:
            open_items = [item for item in group if not table.of(item)]
            done.kept += len(group) - len(open_items)
            with_arrays = _Inputs(gpu)
            for item in open_items:
                if settings.stop_after_s is not None and clock() - started > settings.stop_after_s:
                    break
                with _watched(gpu, item, table, settings.hang_s, end):
                    _one(gpu, item, with_arrays, table, settings, broken or {})
                done.measured += 1
                tell(done.kept + done.measured, total)
            if open_items:
                with_arrays.forget()
                gpu.release()
    except KeyboardInterrupt:
        raise InterruptedRun(
            f"interrupted; {kept_text(table)} and the same command goes on from there"
        ) from None
    done.left = sum(not table.of(item) for item in work.all_items)
    done.failed = {
        " ".join(item.key).strip(): rows[0]["flags"]
        for item in work.all_items
        if has_failed(rows := table.of(item))
    }
    return done


@contextmanager
def _watched(gpu: Gpu, item: Item, table: Table, seconds: float, end: End) -> Iterator[None]:
    """End the process when the block takes longer, with a row that says so: the next run goes on behind it."""

    def expired() -> None:
        fault = f"did not finish within {seconds:.0f} s"
        table.put(item.key, make_rows(item, gpu, verdict=None, times=None, fault=fault))
        end(
            f"{' '.join(item.key)}: {fault}; {kept_text(table)}, and the same command goes on behind this one"
        )

    timer = threading.Timer(seconds, expired)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def kept_text(table: Table) -> str:
    """How much is safe on disk."""
    return f"{sum(1 for _ in table)} rows are kept in {table.folder}"


class _Inputs:
    """The tensors of one attention: input sets, each made when it is first asked for, and their answers."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._sets: list[Arrays] = []
        self._answers: dict[str, Answer] = {}

    def sets(self, item: Item, count: int) -> Sequence[Arrays]:
        """That many sets of the item's tensors."""
        while len(self._sets) < count:
            self._sets.append(self._gpu.fresh_arrays(item.case.problem, randbits(32)))
        return self._sets[:count]

    def answer(self, item: Item) -> Answer:
        """Of the first set. A block mask lies on the grid of the tile: each tile has an answer of its own."""
        mask = item.mask()
        name = "" if mask is None else str(item.tile)
        if name not in self._answers:
            self._answers[name] = self._gpu.answer(item.case.problem, self.sets(item, 1)[0], mask)
        return self._answers[name]

    def forget(self) -> None:
        """Let go of all of it."""
        self._sets.clear()
        self._answers.clear()


def _one(
    gpu: Gpu, item: Item, inputs: _Inputs, table: Table, settings: Settings, broken: dict[Build, str]
) -> None:
    """Measure one item and keep its rows, also when it fails."""
    verdict: Verdict | None = None
    times: Times | None = None
    fault = next((broken[build] for build in item.builds if build in broken), "")
    if not fault:
        try:
            verdict, times = _checked_and_timed(gpu, item, inputs, settings)
            fault = verdict.fault
        except _LeftOutError as error:
            fault = str(error)
        except (
            Exception
        ) as error:  # whatever a launch raises is a result of this kernel, not the end of the run
            fault = _words(error)
    rows = make_rows(item, gpu, verdict=verdict, times=times, fault=fault)
    table.put(item.key, rows)
    if fault:
        _see_that_it_lives(gpu, item, table)


class _LeftOutError(IosimError):
    """An item that is not run, and why."""


def _checked_and_timed(
    gpu: Gpu, item: Item, inputs: _Inputs, settings: Settings
) -> tuple[Verdict, Times | None]:
    problem = item.case.problem
    one = tensor_bytes(problem) + item.scratch_bytes()
    count = sets_needed(one, gpu.facts.l2_bytes) if item.case.timed else 1
    if count * one + SPARE_BYTES > gpu.free_bytes():
        gpu.release()
    if count * one + SPARE_BYTES > gpu.free_bytes():
        raise _LeftOutError(
            f"needs {(count * one + SPARE_BYTES) / 1e9:.1f} GB, {gpu.free_bytes() / 1e9:.1f} are free"
        )
    arrays = inputs.sets(item, 1)[0]
    job = _ready(gpu, item, arrays)
    verdict = check(gpu, job, problem, arrays, inputs.answer(item))
    if verdict.fault or not item.case.timed:
        return verdict, None
    jobs = [job, *(_ready(gpu, item, more) for more in inputs.sets(item, count)[1:])]
    return verdict, time_jobs(gpu, jobs, run_s=settings.run_s, pause_s=settings.pause_s)


def _ready(gpu: Gpu, item: Item, arrays: Arrays) -> Job:
    job = item.job(gpu, arrays)
    if job is None:
        raise _LeftOutError("torch is not there or does not do this problem")
    return job


def _see_that_it_lives(gpu: Gpu, item: Item, table: Table) -> None:
    """After a fault: some of them (an illegal address) take the whole context with them."""
    try:
        gpu.wait()
    except Exception as error:
        raise RunError(
            f"{' '.join(item.key)}: {_words(error)}: the GPU cannot be used any more in this process; "
            f"{kept_text(table)}, and the same command goes on behind this one"
        ) from error


def _words(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
