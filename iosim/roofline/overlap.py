"""How units of an SM hide each other: warps of a scheduler, and warpgroups or blocks that queue for two of them."""

from __future__ import annotations

import math

from iosim.roofline.machine import SCHEDULERS

NEVER_HIDDEN = 0.25
"""Of the time in which warps read operands. Up to two warps a scheduler hide each other's reads, as in each kernel that
the constants were fitted to; with more, tiles of our own mma.sync kernel show that a part stays (docs/tuning.md)."""


def overlapped(tensor: float, softmax: float, warpgroups: int, disorder: float) -> float:
    """Cycles of a tile whose warpgroups go from the tensor cores to the softmax and back, or blocks between two units.

    In perfect order the longer of the two is all there is. As chance has it, customers of two counters wait for each
    other: with r = shorter / longer and W customers a round takes longer x (1 + r + .. + r^W) / (1 + r + .. + r^(W-1)),
    the closed network of two exponential servers. One customer alone takes both in turn.
    """
    longer, shorter = max(tensor, softmax), min(tensor, softmax)
    if not longer:
        return 0.0
    ratio = shorter / longer
    one_less = math.fsum(ratio**k for k in range(max(1, warpgroups)))
    chance = longer * (1 + ratio ** max(1, warpgroups) / one_less)
    return longer + disorder * (chance - longer)


def hiding(warps: int, residents: int) -> float:
    """Warps of a scheduler that hide each other's reads of shared memory, less what never hides."""
    each = max(1.0, warps * residents / SCHEDULERS)
    return 1 / max(1 / each, NEVER_HIDDEN + (1 - 2 * NEVER_HIDDEN) / each)
