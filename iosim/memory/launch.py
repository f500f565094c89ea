"""The order in which the thread blocks of a grid are launched, and which of them walk their keys backwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError
from iosim.interpret.trace import grids
from iosim.memory.schedule import launch_order
from iosim.program.ir import Kernel, Load, Loop, Store

if TYPE_CHECKING:
    from iosim.memory.hierarchy import Policies

Ints = NDArray[np.int64]


def grid_order(table: Mapping[str, Ints], policies: Policies) -> Ints:
    """Block numbers with the grid's axes permuted; tiles of keys in bands where the policy has one.

    `table`: the blocks as columns, one a grid index, batch and head first. With `head_group`: groups of that many
    heads one after the other, in each the last rows first.
    """
    if policies.head_group:
        if "i" not in table:
            raise SimulationError(
                "kernel: causal_groups orders row tiles, and the thread blocks of this program own none; "
                "leave it out of the card"
            )
        plane = table["batch"] * (int(table["head"].max(initial=0)) + 1) + table["head"]
        return np.lexsort((plane, -table["i"], plane // policies.head_group))
    names = list(table)
    axes = {"row_tile": names[2:], "head": [names[1]], "batch": [names[0]]}
    slowest_first = [name for axis in reversed(policies.grid_order) for name in axes[axis]]
    keys = [table[name] for name in slowest_first]
    if policies.column_band and names[2:] == ["i", "j"]:
        at = slowest_first.index("i")
        keys.insert(at, table["j"] // policies.column_band)
    return np.lexsort(keys[::-1])


def backward_blocks(order: Ints, policies: Policies) -> NDArray[np.bool_]:
    """For each block, whether it walks its keys backwards; a sawtooth turns at every other block of `order`."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    if policies.kv_walk == "sawtooth":
        return np.asarray(position % 2 == 1)
    return np.full(len(order), policies.kv_walk == "backward")


def launched(order: Ints, phases: Ints, steps: Ints, policies: Policies) -> Ints:
    """Blocks in the order of their launch; those without accesses are left out."""
    chosen = order[launch_order(steps[order], policies.launch)]
    return np.asarray(chosen[phases[chosen] > 0])


def outside_loops(kernel: Kernel) -> tuple[int, int]:
    """Accesses of a block before its first and after its last sequential loop."""
    body = kernel.body
    for loop in grids(kernel):
        body = loop.body
    moves = [isinstance(s, Load | Store) for s in body]
    loops = [i for i, s in enumerate(body) if isinstance(s, Loop)]
    return (sum(moves[: loops[0]]), sum(moves[loops[-1] + 1 :])) if loops else (0, 0)
