"""Fully associative LRU over named tiles, compiled: one capacity (`lru`) and all of them (`distances`).

Tiles are numbers from 0; `sizes` holds their bytes. `tiles` and `stack_distance` are the doors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.memory.jit import kernel

Int = Any
"""An int64 scalar; mypy does not follow how numba widens them."""
Ints = NDArray[np.int64]
Octets = NDArray[np.uint8]

FAR = 2**62
"""The distance of a first touch: no capacity holds it."""

# `links` [tiles + 1, 2]: older and newer neighbour in the recency ring (the last row is its anchor), -1
# outside
OLDER, NEWER = 0, 1
# `counts` of lru
USED_B, READ_B, FETCH_B, WRITE_B, BACK_B = range(5)
# `flags` of lru
DIRTY = 1


@kernel
def lru(
    tiles: Ints, writes: Octets, sizes: Ints, capacity: Int, links: Ints, flags: Octets, counts: Ints
) -> None:
    """Touch tiles in order. `counts` [5] and the rest of the state live on between calls."""
    anchor = sizes.size
    newest = links[anchor, OLDER]
    for i in range(tiles.size):
        tile = tiles[i]
        size = sizes[tile]
        if writes[i]:
            counts[WRITE_B] += size
        else:
            counts[READ_B] += size
        if tile != newest:
            older, newer = links[tile, OLDER], links[tile, NEWER]
            if older >= 0:
                links[older, NEWER], links[newer, OLDER] = newer, older
            else:
                counts[USED_B] += size
                if not writes[i]:
                    counts[FETCH_B] += size
            links[tile, OLDER], links[tile, NEWER] = newest, anchor
            links[newest, NEWER] = tile
            newest = tile
        flags[tile] |= writes[i]
        while counts[USED_B] > capacity:
            last = links[anchor, NEWER]
            after = links[last, NEWER]
            if last == newest:
                newest = anchor
            links[anchor, NEWER], links[after, OLDER] = after, anchor
            links[last, OLDER] = links[last, NEWER] = -1
            counts[USED_B] -= sizes[last]
            if flags[last] == DIRTY:
                counts[BACK_B] += sizes[last]
                flags[last] = 0
    links[anchor, OLDER] = newest


@kernel
def add(tree: Ints, at: Int, value: Int) -> None:
    """Fenwick tree: add `value` at position `at` (from 1)."""
    while at < tree.size:
        tree[at] += value
        at += at & -at


@kernel
def total(tree: Ints, at: Int) -> Int:
    """Fenwick tree: the sum of positions 1 to `at`."""
    value: Int = 0
    while at > 0:
        value += tree[at]
        at &= at - 1
    return value


@kernel
def renumber(tree: Ints, owner: Ints, when: Ints, sizes: Ints) -> Int:
    """Close the gaps between live positions; returns the last used position."""
    last = 0
    for at in range(1, owner.size):
        tile = owner[at]
        if tile >= 0:
            last += 1
            owner[at] = -1
            owner[last] = tile
            when[tile] = last
    for at in range(1, tree.size):
        tree[at] = sizes[owner[at]] if at <= last else 0
    for at in range(1, tree.size):
        parent = at + (at & -at)
        if parent < tree.size:
            tree[parent] += tree[at]
    return last


@kernel
def distances(
    tiles: Ints,
    writes: Octets,
    sizes: Ints,
    tree: Ints,
    owner: Ints,
    when: Ints,
    farthest: Ints,
    state: Ints,
    reads_at: Ints,
    backs_at: Ints,
) -> None:
    """Reuse distance of every touch, in bytes of distinct tiles from the last touch on, the tile itself
    included.

    A touch hits in every LRU of at least that capacity. `reads_at`: the distance of a read, 0 for a write.
    `backs_at`: a write's bytes that an earlier write left dirty are written back in between by every capacity
    smaller than this (0 if none were dirty). State: `tree`, `owner` [positions + 1] over time, `when`
    [tiles] the position of a tile (0 never), `farthest` [tiles] the largest distance since its last write
    (-1 clean), `state` the last position and the bytes of all touched tiles.
    """
    for i in range(tiles.size):
        tile = tiles[i]
        size, before = sizes[tile], when[tile]
        reads_at[i] = backs_at[i] = 0
        if before == 0:
            distance = FAR
            state[1] += size
        elif before == state[0]:
            distance = size
        else:
            distance = state[1] - total(tree, before) + size
        if not writes[i]:
            reads_at[i] = distance
        if farthest[tile] >= 0 and distance > farthest[tile]:
            farthest[tile] = distance
        if writes[i]:
            if farthest[tile] >= 0:
                backs_at[i] = farthest[tile]
            farthest[tile] = 0
        if before == state[0] and before > 0:
            continue
        if state[0] == owner.size - 1:
            state[0] = renumber(tree, owner, when, sizes)
            before = when[tile]
        if before > 0:
            add(tree, before, -size)
            owner[before] = -1
        state[0] += 1
        add(tree, state[0], size)
        owner[state[0]] = tile
        when[tile] = state[0]


@kernel
def depths(sizes: Ints, tree: Ints, when: Ints, state: Ints, depth: Ints) -> None:
    """Bytes from the most recent tile down to each touched tile, itself included; 0 for a tile never
    touched."""
    for tile in range(sizes.size):
        depth[tile] = state[1] - total(tree, when[tile]) + sizes[tile] if when[tile] > 0 else 0
