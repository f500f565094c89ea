"""How units of an SM hide each other: warps of a scheduler, and warpgroups or blocks that queue for two of them."""

from __future__ import annotations

import math

from iosim.roofline.machine import SCHEDULERS

NEVER_HIDDEN = 0.25
"""Of the time in which warps read operands. Up to two warps a scheduler hide each other's reads, as in each kernel that
the constants were fitted to; with more, tiles of our own mma.sync kernel show that a part stays (docs/tuning.md)."""


def overlapped(one: float, other: float, customers: int, disorder: float) -> float:
    """Cycles of a tile between two units: warpgroups at the tensor cores and the softmax, or blocks at what they share.

    One customer takes both in turn. Of several in perfect order the longer unit is all there is. As chance has it they
    wait for each other: with r = shorter / longer and W customers a round takes
    longer x (1 + r + .. + r^W) / (1 + r + .. + r^(W-1)), the closed network of two exponential servers.
    """
    longer, shorter = max(one, other), min(one, other)
    if customers <= 1 or not longer:
        return longer + shorter
    ratio = shorter / longer
    waiting = longer * ratio**customers / math.fsum(ratio**k for k in range(customers))
    return longer + disorder * waiting


def hiding(warps: int, residents: int) -> float:
    """Warps of a scheduler that hide each other's reads of shared memory, less what never hides."""
    each = max(1.0, warps * residents / SCHEDULERS)
    return 1 / max(1 / each, NEVER_HIDDEN + (1 - 2 * NEVER_HIDDEN) / each)
