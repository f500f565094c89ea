"""The constant before N²d²/M, and the M at which tiling stops being worse than standard attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iosim.scaling.elements import ITEMSIZE, Floats, counted, split
from iosim.scaling.exponents import LARGE

FLASH = ("flash1", "flash2")
RULES = ("paper", "best")
HEAD_DIMS = (64, 128, 256)
_FAR = ([1 << 24], [64], [1 << 20])  # N, d, M: tiles of thousands of rows, and thousands of tiles
_PARTS = 16
_SEQ = 3 << 18  # long, and whole in tiles of 3d/4, d/2 and their doubles


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Matrix elements in units of N²d²/M: at one far point, and the range over the grid of the exponents."""

    algorithm: str
    tiles: str
    value: float
    smallest: float
    largest: float
    points: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The smallest M at which an algorithm moves no more than standard attention, one head at long N.

    `over_d_squared` is that M over d².
    """

    algorithm: str
    tiles: str
    head_dim: int
    seq: int
    sram_elements: int
    over_d_squared: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def constants(algorithms: Sequence[str] = FLASH, rules: Sequence[str] = RULES) -> tuple[Constant, ...]:
    """The counted constant of each algorithm and tile rule on the grid of the exponents."""
    return tuple(_constant(algorithm, tiles) for algorithm in algorithms for tiles in rules)


def _constant(algorithm: str, tiles: str) -> Constant:
    far = _in_units_of_the_law(algorithm, tiles, *_FAR)
    grid = _in_units_of_the_law(algorithm, tiles, LARGE.seq, LARGE.head_dim, LARGE.sram_elements)
    return Constant(
        algorithm=algorithm,
        tiles=tiles,
        value=float(far[0]),
        smallest=float(grid.min()),
        largest=float(grid.max()),
        points=len(grid),
    )


def _in_units_of_the_law(
    algorithm: str, tiles: str, seq: Sequence[int], head_dim: Sequence[int], sram_elements: Sequence[int]
) -> Floats:
    table = counted(
        algorithm,
        seq=list(seq),
        head_dim=list(head_dim),
        sram_elements=list(sram_elements),
        tiles=tiles,
    )
    N, d = table["seq_q"].to_numpy(dtype=float), table["head_dim"].to_numpy(dtype=float)
    M = table["sram_bytes"].to_numpy(dtype=float) / ITEMSIZE
    out: Floats = split(table, algorithm)["matrix elements"].to_numpy(dtype=float) * M / (N * d) ** 2
    return out


def crossings(
    algorithms: Sequence[str] = FLASH, rules: Sequence[str] = RULES, head_dims: Sequence[int] = HEAD_DIMS
) -> tuple[Crossing, ...]:
    """Search, on counted elements, where each algorithm meets the total of `standard`."""
    return tuple(
        _crossing(algorithm, tiles, d) for algorithm in algorithms for tiles in rules for d in head_dims
    )


def _elements(algorithm: str, tiles: str, head_dim: int, sram_elements: Sequence[int]) -> Floats:
    table = counted(
        algorithm, seq=[_SEQ], head_dim=[head_dim], sram_elements=list(sram_elements), tiles=tiles
    )
    out: Floats = split(table, algorithm)["matrix elements"].to_numpy(dtype=float)
    return out


def _crossing(algorithm: str, tiles: str, head_dim: int) -> Crossing:
    """More memory never costs traffic, so there is one crossing; cut its range into _PARTS until it is one element."""
    standard = _elements("standard", "best", head_dim, [head_dim**2])[0]
    low, high = 4 * head_dim, 8 * head_dim**2
    while high - low > 1:
        inner = np.unique(np.linspace(low, high, _PARTS + 1, dtype=np.int64))[1:]
        good = _elements(algorithm, tiles, head_dim, inner.tolist()) <= standard
        first = int(np.argmax(good))
        low, high = int(inner[first - 1]) if first else low, int(inner[first])
    return Crossing(
        algorithm=algorithm,
        tiles=tiles,
        head_dim=head_dim,
        seq=_SEQ,
        sram_elements=high,
        over_d_squared=high / head_dim**2,
    )


def coefficient_of_n_squared(algorithm: str, tiles: str, head_dim: int, sram_elements: int) -> float:
    """Matrix elements over N² at long N: what to hold against the 4 of standard attention."""
    return float(_elements(algorithm, tiles, head_dim, [sram_elements])[0]) / _SEQ**2
