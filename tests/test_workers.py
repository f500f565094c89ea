"""Tasks in several processes: order, errors, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from pathlib import Path

import pytest

from iosim.errors import RunError, UsageError
from iosim.workers import default_processes, in_order


def slow_if_even(number: int) -> tuple[int, int]:
    """The first tasks finish last."""
    time.sleep(0.05 * (number % 2 == 0))
    return number * number, os.getpid()


def fail_at_two(number: int) -> int:
    if number == 2:
        raise UsageError("two is one too many")
    return number


def die_at_two(number: int) -> int:
    if number == 2:
        os._exit(1)
    return number


def test_answers_come_in_order() -> None:
    seen: list[int] = []
    found = in_order(slow_if_even, range(9), 3, seen.append)
    assert [square for square, _ in found] == [n * n for n in range(9)]
    assert os.getpid() not in {process for _, process in found}
    assert sorted(seen) == list(range(9))
    assert active_children() == []


@pytest.mark.parametrize(("tasks", "processes"), [(range(4), 1), (range(1), 5), (range(0), 2)])
def test_few_tasks_start_nothing(tasks: range, processes: int) -> None:
    assert [process for _, process in in_order(slow_if_even, tasks, processes)] == [os.getpid()] * len(tasks)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [(fail_at_two, UsageError, "two is one too many"), (die_at_two, RunError, "died")],
)
def test_a_failure_ends_all(function: Callable[[int], int], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        in_order(function, range(6), 2)
    assert active_children() == []


def test_processes_are_counted() -> None:
    assert 1 <= default_processes() <= 8
    with pytest.raises(UsageError, match="at least 1"):
        in_order(slow_if_even, range(2), 0)


SCRIPT = """
import os, sys, time
from pathlib import Path
from iosim.workers import in_order

def wait(number):
    (Path(sys.argv[1]) / str(os.getpid())).touch()
    time.sleep(60 if number else 0)

if __name__ == "__main__":
    in_order(wait, range(8), 2)
"""


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="signals of a terminal")
@pytest.mark.parametrize("who", ["terminal", "one"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, who: str) -> None:
    script, pids = tmp_path / "waits.py", tmp_path / "pids"
    script.write_text(SCRIPT)
    pids.mkdir()
    run = subprocess.Popen(
        [sys.executable, str(script), str(pids)], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while len(list(pids.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    workers = [int(path.name) for path in pids.iterdir()]
    # Ctrl-C in a terminal reaches the whole group; `kill -INT` one process
    os.killpg(run.pid, signal.SIGINT) if who == "terminal" else os.kill(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=20)
    assert said.count("Traceback") == 1, said  # that of the script, which does not catch it
    assert len(workers) == 2
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="a process that is killed cannot tidy up")
def test_workers_of_a_dead_process_end_without_a_word(tmp_path: Path) -> None:
    script, pids = tmp_path / "waits.py", tmp_path / "pids"
    script.write_text(SCRIPT.replace("60 if number else 0", "1"))
    pids.mkdir()
    run = subprocess.Popen([sys.executable, str(script), str(pids)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while len(list(pids.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    run.kill()
    _, said = run.communicate(timeout=20)  # the last that holds stderr has gone
    assert "Traceback" not in said, said
    assert len(list(pids.iterdir())) == 2
