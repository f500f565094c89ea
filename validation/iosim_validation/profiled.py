"""What the profiler runs: some items, each launched once inside its range. See `counters`.

    ncu … python -m iosim_validation.profiled ITEMS.json

ITEMS.json is a list of [case, implementation, tile]. Beside it the items that ran are listed, in order, and whether a
marker kernel stands before each. An item that fails is said on stderr; the others go on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import randbits
from typing import NamedTuple

from iosim.errors import UsageError
from iosim_validation.cases import find_case
from iosim_validation.gpu import Arrays, Gpu
from iosim_validation.items import OURS, Item, Key, find_work
from iosim_validation.launch import GpuFacts
from iosim_validation.rung import Rung


class Ran(NamedTuple):
    """An item that ran: its number in the list, and whether a marker stands before it."""

    number: int
    marked: bool


def find_item(key: Key, rungs: Mapping[str, Rung], gpu: GpuFacts) -> Item:
    """The item of a key. Errors: `UsageError` where there is none."""
    rung = key.impl.removeprefix(OURS)
    case = replace(find_case(key.case), only=(rung,), every_tile=True, peers=rung == key.impl)
    work = find_work([case], {rung: rungs[rung]} if rung in rungs else {}, gpu, peers=[key.impl])
    found = next((item for item in work.all_items if item.key == key), None)
    if found is None:
        raise UsageError(f"{' '.join(key)}: no such item")
    return found


def run_items(gpu: Gpu, keys: Iterable[Key], rungs: Mapping[str, Rung]) -> tuple[list[Ran], list[str]]:
    """Launch each item once, unseen, and once in the profiler's range; returns what ran and what failed.

    A marker costs the profiler as much as a kernel: it stands only where launches cannot be told apart by number.
    """
    ran: list[Ran] = []
    faults: list[str] = []
    shape, arrays = "", None
    unclear = False  # whether the launches before this item can be counted
    for number, key in enumerate(keys):
        try:
            item = find_item(key, rungs, gpu.facts)
            if arrays is None or key.case != shape:
                arrays = None
                gpu.release()
                shape, arrays = key.case, gpu.fresh_arrays(item.case.problem, randbits(32))
            marked = unclear or item.plan is None
            unclear = True
            _one(gpu, number if marked else None, item, arrays)
        except Exception as error:  # the profiler's other items are still wanted
            faults.append(f"{' '.join(key)}: {type(error).__name__}: {error}")
        else:
            ran.append(Ran(number, marked))
            unclear = item.plan is None
    return ran, faults


def _one(gpu: Gpu, marker: int | None, item: Item, arrays: Arrays) -> None:
    job = item.job(gpu, arrays)
    if job is None:
        raise UsageError("torch is not there or does not do this problem")
    job.run()
    gpu.wait()
    gpu.profiled(marker, job)


def read_ran(todo: Path) -> list[Ran]:
    """The items that ran, of the list that lies beside a list of items; empty where there is none."""
    path = _beside(todo)
    return [Ran(*entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def write_ran(todo: Path, ran: Iterable[Ran]) -> None:
    """Put that list there."""
    _beside(todo).write_text(json.dumps(list(ran)), encoding="utf-8")


def _beside(todo: Path) -> Path:
    return todo.with_suffix(".ran.json")


def main() -> int:
    """Run the items of the file that is named on the command line."""
    from iosim_validation.cupy_gpu import CupyGpu
    from iosim_validation.rungs import RUNGS

    todo = Path(sys.argv[1])
    keys = [Key(*entry) for entry in json.loads(todo.read_text(encoding="utf-8"))]
    ran, faults = run_items(CupyGpu(), keys, RUNGS)
    write_ran(todo, ran)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
