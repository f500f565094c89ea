"""The L2 scan of an H200, simulated: misses a pass against footprint, measured and predicted.

    python benchmarks/l2_scan.py [--draws 3] [--sampled-slices 10]

Every row of `validation/measurements/h200/l2_scan.csv` is run through the cache of `iosim.memory.sliced_l2`: both
partitions read the buffer 4 KiB at a time in step, and what is written after a pass is written 4 KiB at a time from a
random side. Predictions are means over draws of what is not known: the pieces of the scattered buffer, and where the
buffers lay, the one read on a multiple of a turn (as 28 MiB without a miss show), the fresh one on 2 MiB.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from iosim.hardware.load import load_profile
from iosim.memory.cache import Cache
from iosim.memory.config import WRITE, Accesses, CacheConfig
from iosim.memory.sliced_l2 import SPAN_BYTES, sliced_l2

MIB = 2**20
STEP = 4096  # 256 threads reading 16 bytes each
PIECE = 65536
SCAN = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "l2_scan.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One row of the experiment."""

    scattered: bool
    footprint_bytes: int
    passes: int
    written_bytes: int
    alternate: bool


def simulate_scan(scan: Scan, config: CacheConfig, seed: int) -> float:
    """Misses a pass after the first, as a share of the footprint, for one draw of the addresses."""
    draw = np.random.default_rng(seed)
    buffer = int(draw.integers(0, 2**12)) * SPAN_BYTES
    fresh = 2**38 + int(draw.integers(0, 2**12)) * 2 * MIB
    if scan.scattered:
        pieces = draw.choice(2**30 // PIECE, scan.footprint_bytes // PIECE, replace=False)
        steps = (buffer + pieces[:, None] * PIECE + np.arange(0, PIECE, STEP)).ravel()
    else:
        steps = buffer + np.arange(0, scan.footprint_bytes, STEP)
    cache, sides = Cache(config), np.arange(config.partitions)
    for number in range(scan.passes):
        order = steps[::-1] if scan.alternate and number % 2 else steps
        read_by_all = np.repeat(order, config.partitions)
        cache.feed(Accesses.of(read_by_all, STEP, side=np.tile(sides, order.size)))
        if scan.written_bytes:
            start = fresh + number * scan.written_bytes + np.arange(0, scan.written_bytes, STEP)
            side = draw.integers(0, config.partitions, start.size)
            cache.feed(Accesses.of(start, STEP, kind=WRITE, side=side))
    return (cache.counts().fetch_bytes / scan.footprint_bytes - 1) / (scan.passes - 1)


def compare(config: CacheConfig, draws: int) -> pd.DataFrame:
    """Measured and predicted misses a pass of every row of the experiment."""
    table = pd.read_csv(SCAN)
    scans = [
        Scan(
            scattered=row.layout == "scattered",
            footprint_bytes=row.footprint_mib * MIB,
            passes=row.passes,
            written_bytes=row.write_mib_per_pass * MIB,
            alternate=bool(row.alternate),
        )
        for row in table.itertuples()
    ]
    footprint = table.footprint_mib * MIB
    out = table[["layout", "footprint_mib", "write_mib_per_pass", "alternate"]].copy()
    out["measured"] = (table.hbm_read_bytes / footprint - 1) / (table.passes - 1)
    out["predicted"] = [np.mean([simulate_scan(s, config, seed) for seed in range(draws)]) for s in scans]
    out["error"] = out.predicted - out.measured
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--sampled-slices", type=int, default=10)
    arguments = parser.parse_args()
    config = sliced_l2(load_profile("h200-sxm"), sampled_slices=arguments.sampled_slices)
    table = compare(config, arguments.draws)
    print(table.round(3).to_string(index=False))
    error = table.error.abs()
    print(
        f"rows {len(table)}: mean {error.mean():.3f}, worst {error.max():.3f}, above 0.10: {(error > 0.1).sum()}"
    )


if __name__ == "__main__":
    main()
