"""What each mechanism of the simulated hierarchy is worth: errors over the measured kernels with it left out.

    python benchmarks/hierarchy_ablation.py            # every variant, about 25 s each
    python benchmarks/hierarchy_ablation.py NAME...    # some of them
    python benchmarks/hierarchy_ablation.py --places 4 # instead: the same kernels with their tensors elsewhere

Every fused forward kernel with at least 8 query rows of `validation/measurements/h200/attention.csv` is simulated.
Errors are |predicted / measured − 1|; hard rows are those that read at least 0.8 % more than Q, K and V once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.audit.compare import LARGE_ONLY
from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.kernels import kernels_by_measurement
from iosim.levels import SAMPLED_SLICES, kernel_policies
from iosim.memory import hierarchy
from iosim.memory.cache import Cache
from iosim.memory.config import Accesses, CacheConfig, IndexFunction
from iosim.memory.hierarchy import Policies, simulate_kernels
from iosim.memory.sliced_l2 import sliced_l2

MIB = 2**20
ATTENTION = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "attention.csv"
HARD = 1.008
PLACES_MIB = (0, 2, 666, 12346)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A name for the table, and how the L2 and the policies differ from the model's."""

    says: str
    l2: Callable[[CacheConfig], CacheConfig] = lambda config: config
    policies: Callable[[Policies], Policies] = lambda policies: policies


def one_partition(config: CacheConfig, share: int) -> CacheConfig:
    """One partition in place of all, of `share` times the bytes of one."""
    index = replace(config.index, slices=config.index.slices * share)
    sampled = config.sampled_slices * share
    return replace(
        config,
        partitions=1,
        capacity_bytes=config.capacity_bytes * share,
        index=index,
        sampled_slices=sampled,
    )


def more_ways(config: CacheConfig, ways: int) -> CacheConfig:
    """The same bytes in sets of `ways` lines, so fewer slices."""
    index = replace(config.index, slices=config.index.slices * config.ways // ways)
    return replace(config, ways=ways, index=index, dirty_ways=ways // 2)


def hashed_chunks(config: CacheConfig) -> CacheConfig:
    """Chunks of 4 KiB, each to a set of its own by a hash."""
    return replace(
        config, line_bytes=4096, sector_bytes=512, index=IndexFunction(kind="hashed"), sampled_slices=0
    )


VARIANTS = {
    "model": Variant(says="the model"),
    "one-60": Variant(says="one L2 of 60 MiB: no copies", l2=lambda c: one_partition(c, 2)),
    "one-30": Variant(says="one L2 of 30 MiB: copies everywhere", l2=lambda c: one_partition(c, 1)),
    "random": Variant(says="random replacement", l2=lambda c: replace(c, policy="random", dirty_ways=0)),
    "fifo": Variant(says="first in, first out", l2=lambda c: replace(c, policy="fifo", dirty_ways=0)),
    "tree": Variant(says="tree of bits (pseudo-LRU)", l2=lambda c: replace(c, policy="tree", dirty_ways=0)),
    "chunks": Variant(says="4 KiB chunks hashed to sets of 16", l2=hashed_chunks),
    "ways-32": Variant(says="32 ways, half the slices", l2=lambda c: more_ways(c, 30)),
    "home": Variant(says="a written line at home only", l2=lambda c: replace(c, write_copies="home")),
    "all": Variant(says="a written line in both partitions", l2=lambda c: replace(c, write_copies="all")),
    "dirty": Variant(says="no limit to dirty lines", l2=lambda c: replace(c, dirty_ways=0)),
    "home-4k": Variant(says="home changes every 4 KiB, not 16", l2=lambda c: replace(c, home_bytes=4096)),
    "no-skew": Variant(says="lock step: no skew", policies=lambda p: replace(p, skew=0.0)),
    "skew": Variant(says="skew 0.5 in place of 0.2", policies=lambda p: replace(p, skew=0.5)),
    "no-spills": Variant(
        says="no spilled registers",
        policies=lambda p: replace(p, spill_bytes_per_step=0, spill_bytes_per_block=0),
    ),
    "forward": Variant(
        says="FlashAttention-2 walks K, V forward", policies=lambda p: replace(p, kv_walk="forward")
    ),
    "heads": Variant(
        says="heads fastest in the grid",
        policies=lambda p: replace(p, grid_order=("head", "batch", "row_tile")),
    ),
}


class MovedCache(Cache):
    """A cache that sees every address `moved_bytes` further on."""

    moved_bytes = 0

    def feed(self, accesses: Accesses) -> None:
        super().feed(replace(accesses, start_bytes=accesses.start_bytes + self.moved_bytes))


def fused_rows() -> list[MeasuredRow]:
    """The measured kernels that the summary of the audit covers."""
    rows = read_measurements(ATTENTION).rows
    return [r for r in rows if r.kernel == "flash_fwd" and r.problem.seq_q >= 8 and r.tile]


def predicted(row: MeasuredRow, variant: Variant) -> tuple[int, int, int]:
    """HBM reads, HBM writes and bytes between the partitions."""
    profile, facts = load_profile(row.gpu), kernels_by_measurement()[row.implementation]
    assert row.tile is not None
    seen = facts.packed(row.problem)
    policies = kernel_policies(
        facts,
        seen,
        row.tile,
        profile,
        registers_per_thread=row.registers_per_thread,
        threads=row.threads_per_block,
        shared_bytes=row.shared_bytes_per_block or 0,
    )
    program = find_algorithm(facts.algorithm).program(seen.mask.kind, facts.options)
    l2 = variant.l2(sliced_l2(profile, sampled_slices=SAMPLED_SLICES))
    (kernel,) = simulate_kernels(program, bind(seen, row.tile), variant.policies(policies), l2)
    counts = kernel.cache
    return counts.fetch_bytes, counts.writeback_bytes, counts.fabric_bytes


def errors(rows: Sequence[MeasuredRow], variant: Variant) -> pd.DataFrame:
    """Signed errors of each row; NaN where the audit's summary does not count it."""
    table = []
    for row in rows:
        found = predicted(row, variant)
        columns = ("hbm_read_bytes", "hbm_write_bytes", "l2_fabric_bytes")
        pairs = [
            p / row.measured[c] - 1 if row.measured[c] >= LARGE_ONLY.get(c, 0) else np.nan
            for p, c in zip(found, columns, strict=True)
        ]
        p = row.problem
        once = p.dtype_q.itemsize * p.batch * p.head_dim * (p.heads * p.seq_q + 2 * p.kv_heads * p.seq_k)
        table.append((row.case, row.implementation, *pairs, row.measured["hbm_read_bytes"] > HARD * once))
    return pd.DataFrame(table, columns=["case", "kernel", "read", "write", "fabric", "hard"])


def line(says: str, table: pd.DataFrame) -> str:
    """One row of the Markdown table, in per cent."""
    read = table.read.abs() * 100
    cells = [
        f"{read.mean():.2f} / {read.quantile(0.9):.1f} / {read.max():.1f}",
        f"{read[table.hard].mean():.1f}",
        f"{table.write.abs().mean() * 100:.1f} ({table.write.mean() * 100:+.1f})",
        f"{table.fabric.abs().mean() * 100:.1f}",
    ]
    return f"| {says} | " + " | ".join(cells) + " |"


def places(rows: Sequence[MeasuredRow], count: int) -> None:
    """The model with every tensor moved; how far the rows' errors spread."""
    reads = []
    for mib in PLACES_MIB[:count]:
        moved = type("Moved", (MovedCache,), {"moved_bytes": mib * MIB})
        with mock.patch.object(hierarchy, "Cache", moved):
            table = errors(rows, VARIANTS["model"])
        print(line(f"tensors from {mib} MiB", table), flush=True)
        reads.append(table.read)
    spread = pd.concat(reads, axis=1)
    out = table[["case", "kernel"]].assign(low=spread.min(axis=1), high=spread.max(axis=1))
    out = out.loc[spread.abs().max(axis=1).sort_values(ascending=False).index[:12]]
    print(f"\n{'case':>5} {'kernel':20} error of HBM reads, lowest to highest")
    for row in out.itertuples():
        print(f"{row.case:>5} {row.kernel:20} {row.low:+.1%} to {row.high:+.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(VARIANTS))
    parser.add_argument("--places", type=int, choices=range(2, len(PLACES_MIB) + 1))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - VARIANTS.keys()):
        parser.error(f"unknown variant {unknown[0]}; known: {', '.join(VARIANTS)}")
    rows = fused_rows()
    print("| variant | HBM reads, mean / p90 / worst % | hard rows % | HBM writes % (bias) | fabric % |")
    print("|---|---|---|---|---|")
    if arguments.places:
        places(rows, arguments.places)
        return
    for name in arguments.names or VARIANTS:
        print(line(VARIANTS[name].says, errors(rows, VARIANTS[name])), flush=True)


if __name__ == "__main__":
    main()
