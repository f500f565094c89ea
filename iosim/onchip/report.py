"""The on-chip level of one run as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from iosim.errors import ProfileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.onchip.cycles import tile_cycles
from iosim.onchip.shared import OnChip, check_warps, on_chip
from iosim.onchip.special import special_ops
from iosim.onchip.steps import tile_steps
from iosim.problem import AttentionProblem, TileShape

_SCHEMES_OF = {"flash1": ("split-k",), "flash2": ("split-q", "wgmma"), "seed_flash": ("split-q", "wgmma")}


def schemes_of(algorithm: str, options: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The ways in which kernels of an algorithm divide a tile; none for what is no dense flash forward."""
    chosen = options or {}
    if chosen.get("pass", "fwd") != "fwd" or chosen.get("block-mask", "off") != "off":
        return ()
    return _SCHEMES_OF.get(algorithm, ())


def on_chip_report(
    problem: AttentionProblem,
    tiles: TileShape,
    schemes: Sequence[str],
    *,
    warps: int = 4,
    gpu: HardwareProfile | None = None,
    sequences: Sequence[AttentionProblem] = (),
) -> dict[str, Any]:
    """The JSON `on_chip`: every scheme that divides this tile, the others with the reason; special operations.

    `sequences`: those of a ragged batch, over which the totals are taken; `problem` is then their padded batch.
    With `gpu`, each scheme has the cycles of a tile; those whose rate the profile does not know are null.
    """
    check_warps(warps)
    found, refused = [], {}
    parts = Counter(sequences or [problem])
    steps = sum(tile_steps(p, tiles) * times for p, times in parts.items())
    special = sum(special_ops(p, tiles, pack=False) * times for p, times in parts.items())
    for scheme in schemes:
        try:
            use = replace(on_chip(problem, tiles, scheme, warps=warps), steps=steps)
        except UsageError as error:
            refused[scheme] = str(error)
            continue
        found.append(use.to_dict() | {"cycles": _cycles(problem, use, gpu)})
    return {
        "tiles": asdict(tiles),
        "warps": warps,
        "schemes": found,
        "refused": refused,
        # held against kernels that keep O on chip; a split-k kernel takes more exponentials a row
        "special_ops": None if tuple(schemes) == ("split-k",) else special,
        "special_ops_rule": "split-q and wgmma: executed scores x (1 + 4/cols) + 7 a padded row",
    }


def _cycles(problem: AttentionProblem, use: OnChip, gpu: HardwareProfile | None) -> dict[str, float] | None:
    if gpu is None:
        return None
    try:
        return asdict(tile_cycles(problem, use, gpu))
    except ProfileError:
        return None
