"""Forward and backward together, each with its own tiles: they are kernels of their own, and share slow memory only.

One tile for both, as a single run of `fwd+bwd` has it, would count the forward with what fits beside the gradients.
Under the paper's rule, which keeps Br at d in a backward, the forward of FlashAttention-2 would read K and V N/d times.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.grid import Grid
from iosim.sweep import sweep

BOTH = "fwd+bwd"
_SIDES = ("tile_rows", "tile_cols")
_ADDED = ("flops", "ops", "_bytes")


def sweep_passes(grid: Grid) -> pd.DataFrame:
    """The rows of `sweep`, for a grid of one algorithm; under pass=fwd+bwd a tiled algorithm's passes are added up.

    The tile is then the forward's, and `backward_tile_rows` and `backward_tile_cols` are the other; the lower bound is
    the sum of both, since nothing stays on chip in between. A point at which one pass cannot run is missing.
    """
    (name,) = grid.algorithm
    algorithm, own = find_algorithm(name), dict(grid.options.get(name, {}))
    if own.get("pass") != BOTH or not algorithm.tiled:
        return sweep(grid)
    # what the forward saves for the backward, it writes
    saved = {"lse": "on"} if "lse" in algorithm.options else {}
    forward, backward = (
        sweep(_with(grid, name, own | chosen)) for chosen in ({**saved, "pass": "fwd"}, {"pass": "bwd"})
    )
    out = forward.copy()
    for column in backward.columns:
        if column.endswith(_ADDED) and column not in ("sram_bytes", "sram_live_bytes"):
            out[column] = forward.get(column, 0) + backward[column]
    for column in forward.columns.difference(backward.columns):
        out[column] = forward[column].where(backward["sm_read_bytes"].notna())
    live = forward["sram_live_bytes"]
    out["sram_live_bytes"] = live.where(live >= backward["sram_live_bytes"], backward["sram_live_bytes"])
    out["fits"] = forward["fits"] & backward["fits"]
    for side in _SIDES:
        out[f"backward_{side}"] = backward[side]
    return out


def _with(grid: Grid, name: str, options: dict[str, str]) -> Grid:
    return replace(grid, options={**grid.options, name: options})
