"""The constant before N²d²/M, and the M at which tiling stops being worse than standard attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iosim.scaling.elements import ITEMSIZE, NO_OPTIONS, Floats, Options, counted, split
from iosim.scaling.exponents import LARGE

FLASH = ("flash1", "flash2")
RULES = ("paper", "best")
HEAD_DIMS = (64, 128, 256)
_FAR = ([1 << 24], [64], [1 << 20])  # N, d, M: tiles of thousands of rows, and thousands of tiles
FAR_TEXT = "N = {:,}, d = {}, M = {:,} elements".format(*(axis[0] for axis in _FAR))
_PARTS = 16
_SEQ = 3 << 18  # long, and whole in tiles of 3d/4, d/2 and their doubles


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Matrix elements in units of N²d²/M.

    `value`: at one far point (`FAR_TEXT`), counted, not fitted. `smallest`, `largest`: over the grid of the exponents,
    on which N and M are smaller. The best tiles hold one row or column less than M/2d to make room for the other side,
    which costs more the smaller M is; so `value` may lie outside.
    """

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
    """The smallest M at which an algorithm moves no more than standard attention, one fp16 head at long N.

    `sram_elements` compares matrix elements, as the papers do; `over_d_squared` is that M over d². The two fields
    `…_by_bytes` compare bytes, in which the row statistics m and l count too, four bytes each.
    """

    algorithm: str
    tiles: str
    head_dim: int
    seq: int
    sram_elements: int
    over_d_squared: float
    sram_elements_by_bytes: int
    over_d_squared_by_bytes: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def constants(
    algorithms: Sequence[str] = FLASH, rules: Sequence[str] = RULES, options: Options = NO_OPTIONS
) -> tuple[Constant, ...]:
    """The counted constant of each algorithm and tile rule on the grid of the exponents."""
    return tuple(
        _constant(algorithm, tiles, options.get(algorithm, {})) for algorithm in algorithms for tiles in rules
    )


def _constant(algorithm: str, tiles: str, own: Mapping[str, str]) -> Constant:
    far = _in_units_of_the_law(algorithm, tiles, own, *_FAR)
    grid = _in_units_of_the_law(algorithm, tiles, own, LARGE.seq, LARGE.head_dim, LARGE.sram_elements)
    return Constant(
        algorithm=algorithm,
        tiles=tiles,
        value=float(far[0]),
        smallest=float(grid.min()),
        largest=float(grid.max()),
        points=len(grid),
    )


def _in_units_of_the_law(
    algorithm: str,
    tiles: str,
    own: Mapping[str, str],
    seq: Sequence[int],
    head_dim: Sequence[int],
    sram_elements: Sequence[int],
) -> Floats:
    table = counted(
        algorithm,
        seq=list(seq),
        head_dim=list(head_dim),
        sram_elements=list(sram_elements),
        tiles=tiles,
        options=own,
    )
    N, d = table["seq_q"].to_numpy(dtype=float), table["head_dim"].to_numpy(dtype=float)
    M = table["sram_bytes"].to_numpy(dtype=float) / ITEMSIZE
    moved = split(table, algorithm, own)["matrix elements"].to_numpy(dtype=float)
    out: Floats = moved * M / (N * d) ** 2
    return out


def crossings(
    algorithms: Sequence[str] = FLASH,
    rules: Sequence[str] = RULES,
    head_dims: Sequence[int] = HEAD_DIMS,
    options: Options = NO_OPTIONS,
) -> tuple[Crossing, ...]:
    """Search, on counts, where each algorithm meets the total of `standard`: in matrix elements and in bytes.

    Without those that no M up to 8 d² brings down to it.
    """
    found = (
        _crossing(algorithm, tiles, d, options)
        for algorithm in algorithms
        for tiles in rules
        for d in head_dims
    )
    return tuple(crossing for crossing in found if crossing is not None)


def _totals(
    algorithm: str, tiles: str, head_dim: int, sram_elements: Sequence[int], options: Options
) -> tuple[Floats, Floats]:
    """Matrix elements, and bytes of everything, at each M; NaN where no tile fits."""
    own = options.get(algorithm, {})
    table = counted(
        algorithm,
        seq=[_SEQ],
        head_dim=[head_dim],
        sram_elements=list(sram_elements),
        tiles=tiles,
        options=own,
    )
    elements: Floats = split(table, algorithm, own)["matrix elements"].to_numpy(dtype=float)
    moved: Floats = (table["sm_read_bytes"] + table["sm_write_bytes"]).to_numpy(dtype=float)
    return elements, moved


def _crossing(algorithm: str, tiles: str, head_dim: int, options: Options) -> Crossing | None:
    by_elements = _first_no_worse(algorithm, tiles, head_dim, options, in_bytes=False)
    by_bytes = _first_no_worse(algorithm, tiles, head_dim, options, in_bytes=True)
    if by_elements is None or by_bytes is None:
        return None
    return Crossing(
        algorithm=algorithm,
        tiles=tiles,
        head_dim=head_dim,
        seq=_SEQ,
        sram_elements=by_elements,
        over_d_squared=by_elements / head_dim**2,
        sram_elements_by_bytes=by_bytes,
        over_d_squared_by_bytes=by_bytes / head_dim**2,
    )


def _first_no_worse(
    algorithm: str, tiles: str, head_dim: int, options: Options, *, in_bytes: bool
) -> int | None:
    """More memory never costs traffic, so there is one crossing; cut its range into _PARTS until it is one element."""
    standard = _totals("standard", "best", head_dim, [head_dim**2], options)[in_bytes][0]
    low, high = 4 * head_dim, 8 * head_dim**2
    while high - low > 1:
        inner = np.unique(np.linspace(low, high, _PARTS + 1, dtype=np.int64))[1:]
        good = _totals(algorithm, tiles, head_dim, inner.tolist(), options)[in_bytes] <= standard
        if not good.any():
            return None
        first = int(np.argmax(good))
        low, high = int(inner[first - 1]) if first else low, int(inner[first])
    return high


def coefficient_of_n_squared(
    algorithm: str, tiles: str, head_dim: int, sram_elements: int, options: Options = NO_OPTIONS
) -> float:
    """Matrix elements over N² at long N: what to hold against the 4 of standard attention, the 7 of its backward."""
    return float(_totals(algorithm, tiles, head_dim, [sram_elements], options)[0][0]) / _SEQ**2
