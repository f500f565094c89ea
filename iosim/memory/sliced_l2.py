"""The L2 of a GPU line by line: partitions from its profile, and the inside that an H200 was found to have.

What is known and how:

* Two partitions of 30 MiB, LRU, a copy in every partition that reads: the counters of a buffer that all
  SMs read (`validation/measurements/h200/l2_scan.csv`; `benchmarks/l2_scan.py` compares).
* The inside of a partition: slices of 512 KiB (256 sets of 16 lines of 128 B). Granules of 16 KiB go to
  the sets in order, once round in 4 MiB; of the 128 lines of a granule each of 60 slices gets two or
  three. This one index gives both curves of the scan: a contiguous range has no misses at 28 MiB (seven
  turns: 14 or 15 lines for 16 ways), 74 % at 32 (eight turns: 16 to 18 lines) and all at 36, while
  scattered 64 KiB pieces meet by chance, half of them at 28.
* Every turn of 4 MiB is scrambled by a hash of its number. Without it the heads of causal attention, which
  lie at power-of-two strides, meet on the same sets, and HBM reads come out up to 3.7 times too high.
* A written line stays at home and near its writer. Where the SMs of one side alone write, only the lines at
  home on that side are pushed out (`validation/measurements/h200/l2_probe.csv`): no copy in every partition,
  though that would fit attention's HBM writes better; a copy at home alone makes far too few misses.
* Of 16 lines of a set 8 may be dirty: 28 MiB of 60 stay dirty however much is written, from one side or from
  both (the same file). One more, and the two oldest are written back and stay, clean.

For other GPUs the sizes are theirs and the rest is extrapolated.
"""

from __future__ import annotations

from iosim.hardware.profile import HardwareProfile
from iosim.memory.config import CacheConfig, IndexFunction

WAYS = 16
SETS_PER_SLICE = 256
TURN_BYTES = 4 * 2**20
"""A contiguous range of this size uses every set alike."""
DIRTY_WAYS = WAYS // 2
"""Dirty lines that a set keeps: 28 MiB of 60 stay dirty however much is written (`l2_probe.csv`)."""
SPAN_BYTES = 4 * TURN_BYTES
"""Within it, the lines left over from full rounds of the slices fall on different slices."""


def sliced_l2(profile: HardwareProfile, *, sampled_slices: int = 0) -> CacheConfig:
    """The L2 of a profile, at line granularity.

    `sampled_slices`: simulate only so many slices a partition and scale up (0: all). An L2 whose partition
    is smaller than a turn, as in a toy, is indexed by line number. Raises `ProfileError` where the profile
    does not know its L2.
    """
    line = profile.l2_line_bytes
    partition = profile.l2_capacity_bytes // profile.l2_partitions // (WAYS * line) * (WAYS * line)
    sets = partition // (WAYS * line)
    per_slice = min(SETS_PER_SLICE, sets & -sets)  # the largest power of two that divides the sets
    if partition < TURN_BYTES or per_slice < 2:
        index, granule, sampled = IndexFunction(), line, 0
    else:
        granule = TURN_BYTES // per_slice
        index = IndexFunction(
            kind="sliced", slices=sets // per_slice, granule_bytes=granule, span_bytes=SPAN_BYTES
        )
        sampled = min(sampled_slices, index.slices)
    return CacheConfig(
        capacity_bytes=partition,
        line_bytes=line,
        sector_bytes=profile.l2_sector_bytes,
        ways=WAYS,
        index=index,
        partitions=profile.l2_partitions,
        home_bytes=granule,
        write_copies="near",
        dirty_ways=DIRTY_WAYS,
        sampled_slices=sampled,
    )
