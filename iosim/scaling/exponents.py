"""Exponents of N, d and M, fitted to counted elements by least squares on logarithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from iosim.algorithms.registry import Algorithm, find_algorithm
from iosim.scaling.elements import ITEMSIZE, SERIES, Floats, counted, split


@dataclass(frozen=True, slots=True, kw_only=True)
class Regime:
    """A grid of N, d and M (elements) on which one law should hold, and where that is."""

    where: str
    seq: tuple[int, ...]
    head_dim: tuple[int, ...]
    sram_elements: tuple[int, ...]


# N >= 64·M/d everywhere, so that the compulsory Nd terms stay below 1 % of the traffic
LARGE = Regime(
    where="M > d²",
    seq=(1 << 18, 1 << 19, 1 << 20),
    head_dim=(32, 64, 128),
    sram_elements=(1 << 15, 1 << 16, 1 << 17),
)
SMALL = Regime(where="M < d²", seq=(1024, 2048), head_dim=(512, 1024), sram_elements=(1024, 2048, 4096, 8192))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One series ∝ N^a · d^b · M^c: the exponents, R² of the fit on logarithms, and what was fitted where.

    `elements` is the meaning of the series; R² is 1 for a series that does not vary.
    """

    algorithm: str
    tiles: str
    series: str
    elements: str
    exponent_n: float
    exponent_d: float
    exponent_m: float
    r_squared: float
    points: int
    where: str
    grid: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def regime_of(algorithm: Algorithm, *, spills_scores: bool) -> Regime:
    """Blocked matmuls are fitted below M = d², where they belong; everything else above."""
    blocked = algorithm.tiled and (spills_scores or algorithm.computes == "scores")
    return SMALL if blocked else LARGE


def fit_exponents(
    algorithm: str, *, tiles: str = "best", options: Mapping[str, str] | None = None
) -> tuple[Fit, ...]:
    """Fit each series of an algorithm (a name, or `./mine.py:program`) that moves anything.

    One head, fp16, no mask, granularity 1, `paper` footprint, N >= 64·M/d. Matmuls in pieces (`small_cache`,
    `gemm`) are fitted by what their matmuls read, the passes over S and P apart; all others by their matrix
    elements in total. Row statistics are a series of their own. `UsageError` for an unknown name or option.
    """
    chosen = find_algorithm(algorithm)
    program = chosen.program("none", chosen.resolve(options or {}))
    regime = regime_of(chosen, spills_scores=program.spills_scores)
    table = counted(
        algorithm,
        seq=list(regime.seq),
        head_dim=list(regime.head_dim),
        sram_elements=list(regime.sram_elements),
        tiles=tiles,
        options=options,
    )
    table = table[table["sm_read_bytes"].notna()].reset_index(drop=True)
    series = split(table, algorithm, options)
    wanted = ["operand reads", "score passes"] if regime is SMALL else ["matrix elements"]
    axes = [
        table["seq_q"].to_numpy(dtype=float),
        table["head_dim"].to_numpy(dtype=float),
        table["sram_bytes"].to_numpy(dtype=float) / ITEMSIZE,
    ]
    return tuple(
        _fit(chosen.name, tiles, name, series[name].to_numpy(dtype=float), axes, regime)
        for name in [*wanted, "row statistics"]
        if len(table) and (series[name] > 0).all()
    )


def _fit(
    algorithm: str, tiles: str, series: str, elements: Floats, axes: list[Floats], regime: Regime
) -> Fit:
    design = np.column_stack([np.ones(len(elements)), *(np.log(axis) for axis in axes)])
    target = np.log(elements)
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    spread = float(((target - target.mean()) ** 2).sum())
    left = float(((target - design @ solution) ** 2).sum())
    _, n, d, m = (float(x) for x in solution)
    return Fit(
        algorithm=algorithm,
        tiles=tiles,
        series=series,
        elements=SERIES[series],
        exponent_n=n,
        exponent_d=d,
        exponent_m=m,
        r_squared=1 - left / spread if spread else 1.0,
        points=len(elements),
        where=regime.where,
        grid=_grid_text(regime),
    )


def _grid_text(regime: Regime) -> str:
    def ends(values: tuple[int, ...]) -> str:
        return f"{values[0]:,} to {values[-1]:,}"

    return (
        f"N {ends(regime.seq)}, d {ends(regime.head_dim)}, M {ends(regime.sram_elements)} elements; "
        "N >= 64·M/d, granularity 1, paper footprint"
    )
