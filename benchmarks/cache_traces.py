"""Line-granular traces for timing cache simulators, the same for every simulator in the comparison."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

LINE = 128
MIB = 2**20

Bytes = NDArray[np.int64]


def flash_ranges(touches: int, kv_bytes: int, tile_bytes: int = 32 * 1024) -> tuple[Bytes, Bytes]:
    """(start, length) of tiles: a fresh Q tile, all of K and V again, a fresh O tile, until `touches`
    lines are reached."""
    rounds = -(-touches // ((2 * tile_bytes + kv_bytes) // LINE))
    fresh = np.arange(rounds) * tile_bytes
    start = np.column_stack([2**34 + fresh, np.zeros(rounds, np.int64), 2**35 + fresh])
    length = np.tile([tile_bytes, kv_bytes, tile_bytes], (rounds, 1))
    return start.ravel(), length.ravel()


def flash_lines(touches: int, kv_bytes: int) -> Bytes:
    """The same, one address a line."""
    start, length = flash_ranges(touches, kv_bytes)
    return np.concatenate([np.arange(s, s + n, LINE) for s, n in zip(start, length, strict=True)])[:touches]


def cyclic_lines(touches: int, footprint_bytes: int = 60 * MIB) -> Bytes:
    """One buffer over and over: LRU misses every touch once it is larger than the cache."""
    return np.resize(np.arange(0, footprint_bytes, LINE), touches)


def mixed_lines(touches: int, footprint_bytes: int = 30 * MIB, seed: int = 1) -> Bytes:
    """A fresh line and a random line of a buffer in turn."""
    draw = random.Random(seed)  # not NumPy's: the recorded miss ratios belong to this sequence
    lines = footprint_bytes // LINE
    out = np.empty(touches, np.int64)
    out[::2] = 2**36 + np.arange(len(out[::2])) * LINE
    out[1::2] = np.array([draw.randrange(lines) for _ in range(touches // 2)]) * LINE
    return out
