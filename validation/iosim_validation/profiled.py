"""What the profiler runs: some items, each launched once inside its range. See `counters`.

    ncu … python -m iosim_validation.profiled ITEMS.json

ITEMS.json is a list of [case, implementation, tile]. An item that fails is said on stderr; the others go on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import randbits

from iosim.errors import UsageError
from iosim_validation.cases import find_case
from iosim_validation.gpu import Arrays, Gpu
from iosim_validation.items import OURS, Item, Key, find_work
from iosim_validation.launch import GpuFacts
from iosim_validation.rung import Rung


def find_item(key: Key, rungs: Mapping[str, Rung], gpu: GpuFacts) -> Item:
    """The item of a key. Errors: `UsageError` where there is none."""
    rung = key.impl.removeprefix(OURS)
    case = replace(find_case(key.case), only=(rung,), every_tile=True, peers=rung == key.impl)
    work = find_work([case], {rung: rungs[rung]} if rung in rungs else {}, gpu, peers=[key.impl])
    found = next((item for item in work.all_items if item.key == key), None)
    if found is None:
        raise UsageError(f"{' '.join(key)}: no such item")
    return found


def run_items(gpu: Gpu, keys: Iterable[Key], rungs: Mapping[str, Rung]) -> list[str]:
    """Launch each item once, unseen, and once in the profiler's range; returns what failed."""
    faults: list[str] = []
    shape, arrays = "", None
    for number, key in enumerate(keys):
        try:
            item = find_item(key, rungs, gpu.facts)
            if arrays is None or key.case != shape:
                arrays = None
                gpu.release()
                shape, arrays = key.case, gpu.fresh_arrays(item.case.problem, randbits(32))
            _one(gpu, number, item, arrays)
        except Exception as error:  # the profiler's other items are still wanted
            faults.append(f"{' '.join(key)}: {type(error).__name__}: {error}")
    return faults


def _one(gpu: Gpu, number: int, item: Item, arrays: Arrays) -> None:
    job = item.job(gpu, arrays)
    if job is None:
        raise UsageError("torch is not there or does not do this problem")
    job.run()
    gpu.wait()
    gpu.profiled(number, job)


def main() -> int:
    """Run the items of the file that is named on the command line."""
    from iosim_validation.cupy_gpu import CupyGpu
    from iosim_validation.rungs import RUNGS

    keys = [Key(*entry) for entry in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    for fault in run_items(CupyGpu(), keys, RUNGS):
        print(fault, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
