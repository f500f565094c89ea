"""The same function over many tasks in several processes: answers in the order of the tasks, nothing left behind.

A worker is a fresh interpreter, so that nothing depends on threads or on a GPU that this one uses. It lives as long
as its pipe: when the run is interrupted it is ended at once, and when this process dies the pipe closes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from iosim.errors import RunError, UsageError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
MOST_PROCESSES = 8
"""Unless more are asked for: each takes some 250 MB while it simulates."""


def default_processes() -> int:
    """The cores that this process may use, at most MOST_PROCESSES."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_PROCESSES, cores)


def in_order(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    processes: int = 1,
    done: Callable[[int], None] | None = None,
) -> list[Answer]:
    """`function` of every task, in the order of the tasks; `done` is told the number of each that is finished.

    With one process, or one task, nothing is started. Otherwise function, tasks and answers are pickled, and a script
    that calls this needs the usual `if __name__ == "__main__":`. An exception of the function ends the others and is
    raised here. Errors: `UsageError` for fewer than one process, `RunError` for a worker that dies.
    """
    if processes < 1:
        raise UsageError(f"processes: must be at least 1, got {processes}")
    tell = done or (lambda number: None)
    answers: dict[int, Answer] = {}
    if min(processes, len(tasks)) < 2:
        for number, task in enumerate(tasks):
            answers[number] = function(task)
            tell(number)
    else:
        for number, answer in _spread(function, tasks, min(processes, len(tasks))):
            answers[number] = answer
            tell(number)
    return [answers[number] for number in range(len(tasks))]


def _spread(
    function: Callable[[Task], Answer], tasks: Sequence[Task], processes: int
) -> Iterator[tuple[int, Answer]]:
    """Numbers of tasks and answers as they come; the next task goes to whoever is free."""
    with _workers(function, processes) as pipes:
        ahead = iter(range(len(tasks)))
        at: dict[Connection, int] = {}
        for pipe, number in zip(pipes, ahead, strict=False):
            _give(pipe, tasks[number])
            at[pipe] = number
        while at:
            ready = wait(list(at))
            for pipe in [pipe for pipe in at if pipe in ready]:
                answer, failure = _take(pipe)
                if failure is not None:
                    raise failure
                yield at.pop(pipe), answer
                if (number := next(ahead, -1)) >= 0:
                    _give(pipe, tasks[number])
                    at[pipe] = number


@contextmanager
def _workers(function: Callable[[Any], Any], many: int) -> Iterator[list[Connection]]:
    """The ends of the pipes to this many workers, who are gone afterwards however it ends."""
    context = get_context("spawn")
    started = []
    pipes: list[Connection] = []
    try:
        with _interrupts_held():
            for _ in range(many):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(function, theirs), daemon=True)
                process.start()
                theirs.close()
                started.append(process)
                pipes.append(ours)
        yield pipes
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.join()
        for pipe in pipes:
            pipe.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits while workers start, and never reaches them: they inherit what is blocked here."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # when it starts by itself, with the first worker, it lets interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(function: Callable[[Any], Any], pipe: Connection) -> None:
    """A worker: answers until the pipe is closed."""
    while True:
        try:
            task = pipe.recv()
        except (EOFError, ConnectionResetError):
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = (function(task), None)
        except Exception as error:
            answer = (None, error)
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):  # who asked has died: nobody is left to tell
            return


def _give(pipe: Connection, task: Any) -> None:
    try:
        pipe.send(task)
    except BrokenPipeError:
        raise _died() from None


def _take(pipe: Connection) -> tuple[Any, Exception | None]:
    try:
        answer, failure = pipe.recv()
    except (EOFError, ConnectionResetError):
        raise _died() from None
    return answer, failure


def _died() -> RunError:
    return RunError(
        'one of the processes died, for want of memory or in a script without `if __name__ == "__main__":`; '
        "ask for one process (--processes 1)"
    )
