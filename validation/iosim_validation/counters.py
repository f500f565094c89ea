"""Hardware counters: the same items again, each launched once under `ncu`, and its columns put into their rows.

The profiler runs `iosim_validation.profiled` on some items at a time, which leaves a list of the items that ran. How
many launches one of ours has is known; those of a peer are not, so a marker kernel before a peer, and before
whatever follows one, carries the item's number in its grid. Without the tool, or without the right to read counters,
the columns stay empty and a sentence says why.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from iosim.errors import InterruptedRun, UsageError
from iosim.profiler.export import Launch, parse_export
from iosim.profiler.metrics import ncu_command_for
from iosim_validation.harness import kept_text
from iosim_validation.items import Item, Work
from iosim_validation.peers import UNFUSED
from iosim_validation.profiled import Ran, read_ran
from iosim_validation.results import Row, Table, has_failed, is_counted

MARKER_NAME = "iosim_item"
BATCH = 80
START_S, ITEM_S = 90, 8
"""What a batch may take before it is given up."""

NO_TOOL = (
    "counters: ncu is not on the PATH, so the counter columns stay empty; it comes with the CUDA toolkit "
    "(Nsight Compute)"
)
NO_RIGHT = (
    "counters: the driver does not let this user read them (ERR_NVGPUCTRPERM), so the counter columns stay empty; "
    "run as root, in a container with --cap-add=SYS_ADMIN, or set NVreg_RestrictProfilingToAdminUsers=0"
)

Run = Callable[[Sequence[str], float], "Outcome"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command left: exit code and everything that it said."""

    code: int
    text: str


def run_command(command: Sequence[str], timeout_s: float) -> Outcome:
    """Run it and wait; code 124 when it had to be stopped."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout
        return Outcome(code=124, text=f"{said or ''}\nstopped after {timeout_s:.0f} s")
    return Outcome(code=done.returncode, text=done.stdout + done.stderr)


def pending(work: Work, table: Table) -> list[Item]:
    """Items that were timed and have no counters yet."""
    return [
        item
        for item in work.all_items
        if item.case.timed and (rows := table.of(item)) and not has_failed(rows) and not is_counted(rows)
    ]


def count(
    work: Work,
    table: Table,
    *,
    run: Run = run_command,
    tool: str | None = None,
    stop_after_s: float | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[str]:
    """Fill the counter columns of what is pending; returns sentences about what could not be counted.

    Errors: `InterruptedRun` on Ctrl-C; what is counted is kept.
    """
    items, started = pending(work, table), clock()
    tell = progress or (lambda done, total: None)
    if not items:
        return []
    if (tool or shutil.which("ncu")) is None:
        return [NO_TOOL]
    notes: list[str] = []
    without: tuple[str, ...] = ()
    try:
        for start in range(0, len(items), BATCH):
            if stop_after_s is not None and clock() - started > stop_after_s:
                notes.append(f"counters: stopped with {len(items) - start} items left; run it again")
                break
            batch = items[start : start + BATCH]
            counted, without, fault = _profile(batch, without, run)
            notes += _keep(counted, table)
            tell(start + len(batch), len(items))
            if fault:
                return [*notes, fault]
    except KeyboardInterrupt:
        raise InterruptedRun(f"counters: interrupted; {kept_text(table)}") from None
    if without:
        notes.append(f"counters: this GPU or ncu has no {', '.join(without)}; those columns stay empty")
    return notes


def _profile(
    items: Sequence[Item], without: tuple[str, ...], run: Run
) -> tuple[list[tuple[Item, list[Launch]]], tuple[str, ...], str]:
    """Items of a batch with their launches, the metrics that do not exist here, and what went wrong."""
    with tempfile.TemporaryDirectory() as name:
        todo, log = Path(name) / "items.json", Path(name) / "counters.csv"
        todo.write_text(json.dumps([item.key for item in items]), encoding="utf-8")
        program = [sys.executable, "-m", "iosim_validation.profiled", str(todo)]
        while True:
            command = ncu_command_for(program, str(log), ("--profile-from-start", "off"), without=without)
            outcome = run(command, START_S + ITEM_S * len(items))
            said = outcome.text + (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
            unknown = tuple(m for m in _unknown_metrics(said) if m not in without)
            if not unknown:
                break
            without += unknown
        ran = read_ran(todo)
    if "ERR_NVGPUCTRPERM" in said:
        return [], without, NO_RIGHT
    try:
        launches = parse_export(said, "ncu").launches
    except UsageError:
        launches = ()
    fault = "" if outcome.code == 0 and launches else f"counters: ncu failed: {_last_words(said)}"
    return _by_item(items, ran, launches), without, fault


def _keep(batch: Sequence[tuple[Item, list[Launch]]], table: Table) -> list[str]:
    notes = []
    for item, launches in batch:
        names = kernel_names(item, launches)
        if not launches or len(names) != len(launches):
            notes.append(f"counters: {' '.join(item.key)}: {len(launches)} launches, {len(names)} expected")
            continue
        known = {row["kernel"]: row for row in table.rows(item.key)}
        first = next(iter(known.values()))
        table.put(
            item.key, [_counted(known.get(n, first), n, m) for n, m in zip(names, launches, strict=True)]
        )
    return notes


def _by_item(
    items: Sequence[Item], ran: Sequence[Ran], launches: Sequence[Launch]
) -> list[tuple[Item, list[Launch]]]:
    """The launches of each item that ran; a list that ends early where they are not the ones of its plan."""
    found, rest = [], deque(launches)
    for number, marked in ran:
        item = items[number]
        if marked:
            while rest and not _is_marker(rest.popleft(), number):
                pass  # the launches of an item that failed half-way
        mine: list[Launch] = []
        names = [build.entry for build in item.builds]
        while rest and not _is_marker(rest[0]):
            if names and (len(mine) == len(names) or not rest[0].kernel.startswith(names[len(mine)])):
                break
            mine.append(rest.popleft())
        found.append((item, mine))
    return found


def _is_marker(launch: Launch, number: int | None = None) -> bool:
    return launch.kernel.startswith(MARKER_NAME) and number in (None, (launch.blocks or 0) - 1)


def kernel_names(item: Item, launches: Sequence[Launch]) -> Sequence[str]:
    """What the launches of an item are called in a measurements file."""
    if item.rung is not None:
        return item.kernels
    if item.impl == UNFUSED:
        gemms = iter(("qk_gemm", "pv_gemm"))
        return ["softmax" if "softmax" in m.kernel.lower() else next(gemms, "other") for m in launches]
    if len(launches) == 1:
        return ["flash_fwd"]
    return [_fused_name(launch.kernel.lower()) for launch in launches]


def _fused_name(name: str) -> str:
    if "combine" in name:
        return "splitkv_combine"
    if "splitkv" in name:
        return "flash_fwd_splitkv"
    return "flash_fwd" if re.search(r"flash|fmha|sdpa|attention", name) else "other"


def _counted(row: Row, kernel: str, launch: Launch) -> Row:
    taken = {
        "registers_per_thread": launch.registers_per_thread,
        "shared_bytes_per_block": launch.shared_bytes_per_block,
        "local_store_warp_insts": launch.spilled_stores,
        "tensor_cycles": launch.tensor_cycles,
        "barrier_stall_cycles": launch.barrier_stall_cycles,
        "profiled_clock_hz": launch.clock_hz,
        **launch.measured,
    }
    found = {name: _text(name, value) for name, value in taken.items() if value is not None}
    return row | {"kernel": kernel, "grid": _size(launch.grid), "block": _size(launch.block)} | found


def _text(column: str, value: float) -> str:
    return f"{value:.9g}" if column.endswith("_s") else str(round(value))


def _size(dimensions: tuple[int, int, int] | None) -> str:
    return "x".join(map(str, dimensions or ()))


def _unknown_metrics(text: str) -> list[str]:
    return re.findall(r"Failed to find metric (?:regex:)?(\S+__\S+)", text)


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith('"')]
    faults = [line for line in lines if "error" in line.lower()] or lines
    return " / ".join(faults[-2:])[:300] or "it said nothing"
