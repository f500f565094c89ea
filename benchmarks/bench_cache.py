"""Throughput of the cache, tile LRU and stack distances, beside pycachesim and libcachesim on the same traces.

    python benchmarks/bench_cache.py [--touches 4000000] [--peers] [--json]

`--peers` installs the two simulators into a virtual environment of their own under `.bench/` on first use.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from cache_traces import LINE, MIB, cyclic_lines, flash_lines, flash_ranges, mixed_lines

from iosim.memory.cache import Cache
from iosim.memory.config import Accesses, CacheConfig
from iosim.memory.stack_distance import StackDistance
from iosim.memory.tiles import TileCache

HERE = Path(__file__).parent
BENCH = HERE.parent / ".bench"
NAME = 60  # width of a name, in the rows of peers_cache.py too
PEERS = ("pycachesim==0.3.1", "libcachesim==0.3.5")
CONFIG = CacheConfig(capacity_bytes=40 * MIB, line_bytes=LINE, sector_bytes=32, ways=16)


def rate(work: Callable[[], int]) -> float:
    """Millions of touches a second: the better of two runs, after one that compiles."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        touches = work()
        best = min(best, time.perf_counter() - start)
    return touches / best / 1e6


Rows = list[tuple[str, float, str]]


def row(name: str, million: float, note: str = "") -> tuple[str, float, str]:
    print(f"{name:{NAME}}{million:9.1f} M/s  {note}", file=sys.stderr, flush=True)
    return name, million, note


def lines_of(trace: Accesses) -> Callable[[], int]:
    def work() -> int:
        cache = Cache(CONFIG)
        cache.feed(trace)
        counts = cache.counts()
        work.miss = counts.miss_ratio  # type: ignore[attr-defined]
        return counts.read_touches + counts.write_touches

    return work


def bench_lines(touches: int) -> Rows:
    traces = {
        "lines, flash 4 MiB, as ranges": Accesses.of(*flash_ranges(touches, 4 * MIB)),
        "lines, flash 4 MiB, one address each": Accesses.of(flash_lines(touches, 4 * MIB), LINE),
        "lines, flash 32 MiB, as ranges": Accesses.of(*flash_ranges(touches, 32 * MIB)),
        "lines, flash 32 MiB, one address each": Accesses.of(flash_lines(touches, 32 * MIB), LINE),
        "lines, cyclic 60 MiB (all miss)": Accesses.of(cyclic_lines(touches), LINE),
        "lines, half fresh, half random": Accesses.of(mixed_lines(touches), LINE),
    }
    rows = []
    for name, trace in traces.items():
        work = lines_of(trace)
        million = rate(work)
        rows.append(row(f"iosim {name}", million, f"miss {work.miss:.4f}"))  # type: ignore[attr-defined]
    return rows


def bench_tiles() -> Rows:
    tiles, size = 1024, 64 * 256  # one head of 65536 x 128 in half precision, tiles of 64 rows
    scan = np.column_stack([np.arange(tiles), tiles + np.arange(tiles)]).ravel()
    rows = [np.concatenate([[2 * tiles + i], scan, [3 * tiles + i]]) for i in range(tiles)]
    trace, sizes = np.concatenate(rows), np.full(4 * tiles, size)
    writes = (trace >= 3 * tiles).astype(np.uint8)

    def lru(capacity: int) -> Callable[[], int]:
        def work() -> int:
            TileCache(sizes, capacity).feed(trace, writes)
            return len(trace)

        return work

    def distances(keys: np.ndarray, weights: np.ndarray, flags: object = 0) -> Callable[[], int]:
        def work() -> int:
            StackDistance(weights).feed(keys, flags)
            return len(keys)

        return work

    lines = cyclic_lines(len(trace)) // LINE
    draw = np.random.default_rng(0).integers(0, 2**18, len(trace))
    cyclic = distances(lines, np.full(60 * MIB // LINE, LINE))
    return [
        row("iosim tile LRU, flash, 50 MiB (hits)", rate(lru(50 * MIB))),
        row("iosim tile LRU, flash, 4 MiB (misses)", rate(lru(4 * MIB))),
        row("iosim stack distances, flash tiles", rate(distances(trace, sizes, writes))),
        row("iosim stack distances, cyclic 60 MiB lines", rate(cyclic)),
        row("iosim stack distances, random lines of 32 MiB", rate(distances(draw, np.full(2**18, LINE)))),
    ]


def peers(touches: int) -> Rows:
    """Run `peers_cache.py` in an environment that has the peers and nothing of ours."""
    python = BENCH / "cache" / "bin" / "python"
    if not python.exists():
        venv.create(BENCH / "cache", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy", *PEERS], check=True)
    command = [python, HERE / "peers_cache.py", str(touches)]
    done = subprocess.run(command, check=True, cwd=BENCH, stdout=subprocess.PIPE, text=True)
    rows = []
    for line in done.stdout.splitlines():
        million, _, note = line[NAME:].partition(" M/s")
        rows.append(row(line[:NAME].strip(), float(million), note.strip()))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--touches", type=int, default=4_000_000)
    parser.add_argument("--peers", action="store_true", help="also time pycachesim and libcachesim")
    parser.add_argument("--json", action="store_true", help="print all rows as JSON at the end")
    arguments = parser.parse_args()
    rows = [*bench_lines(arguments.touches), *bench_tiles()]
    if arguments.peers:
        rows += peers(arguments.touches)
    if arguments.json:
        print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
