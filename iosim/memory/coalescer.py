"""The request coalescer in front of the L2 (Hopper and later): what it takes off the reads, by a formula."""

from __future__ import annotations

import math

MERGED_AT_MOST = 0.5
"""Two neighbouring SMs that read the same tile in step cost one L2 read, so at most half goes away."""


def merged_share(steps: float, in_step: float, *, same_length: bool, backward: bool) -> float:
    """Share of the K and V bytes that the coalescer takes off.

    Blocks of a head start together and drift apart like a random walk: of `steps` K/V tiles they are in step for
    c/√steps, `in_step` being c, a constant of the kernel. Blocks of different length (`same_length` False) that
    walk from the diagonal back never meet; those that walk forward meet for about half a step at the start.
    """
    if steps <= 0:
        return 0.0
    if same_length:
        return min(MERGED_AT_MOST, in_step / math.sqrt(steps))
    return 0.0 if backward else min(MERGED_AT_MOST, 0.5 / steps)
