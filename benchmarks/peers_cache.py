"""Times pycachesim and libcachesim on the traces of `cache_traces`; `bench_cache.py --peers` runs it apart.

40 MiB, lines of 128 B, LRU; 16 ways in pycachesim, fully associative in libcachesim.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from cache_traces import LINE, MIB, cyclic_lines, flash_lines, mixed_lines


def row(name: str, touches: int, seconds: float, miss: float) -> None:
    print(f"{name:60}{touches / seconds / 1e6:9.1f} M/s  miss {miss:.4f}", flush=True)


def pycachesim(name: str, lines: np.ndarray) -> None:
    from cachesim import Cache, CacheSimulator, MainMemory

    for path in ("iterator", "list"):
        memory, level = MainMemory(), Cache("L2", 40 * MIB // LINE // 16, 16, LINE, "LRU")
        memory.load_to(level)
        memory.store_from(level)
        simulator, addresses = CacheSimulator(level, memory), lines.tolist()
        start = time.perf_counter()
        if path == "iterator":
            simulator.loadstore((([a], None) for a in addresses), length=LINE)
        else:
            simulator.load(addresses, length=LINE)
        seconds = time.perf_counter() - start
        row(f"pycachesim {path}, {name}", lines.size, seconds, level.stats()["MISS_count"] / lines.size)


def libcachesim(name: str, lines: np.ndarray) -> None:
    import libcachesim as lcs

    record = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
    trace = np.zeros(lines.size, record)
    trace["time"], trace["id"] = np.arange(lines.size) // 1000, lines // LINE + 1
    trace["size"], trace["next"] = LINE, -1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.oracleGeneral"
        trace.tofile(path)
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE, lcs.ReaderInitParam())
        cache = lcs.LRU(40 * MIB)
        start = time.perf_counter()
        miss = cache.process_trace(reader)[0]
        row(f"libcachesim process_trace, {name}", lines.size, time.perf_counter() - start, miss)


def main() -> None:
    touches = int(sys.argv[1])
    traces = {
        "flash 4 MiB": flash_lines(touches, 4 * MIB),
        "flash 32 MiB": flash_lines(touches, 32 * MIB),
        "cyclic 60 MiB": cyclic_lines(touches),
        "half fresh, half random": mixed_lines(touches),
    }
    for name, lines in traces.items():
        pycachesim(name, lines)
        libcachesim(name, lines)


if __name__ == "__main__":
    main()
