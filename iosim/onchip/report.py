"""The on-chip level of one run as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from iosim.errors import UsageError
from iosim.onchip.shared import on_chip
from iosim.onchip.special import special_ops
from iosim.problem import AttentionProblem, TileShape

_SCHEMES_OF = {"flash1": ("split-k",), "flash2": ("split-q", "wgmma"), "seed_flash": ("split-q", "wgmma")}


def schemes_of(algorithm: str) -> tuple[str, ...]:
    """The ways in which kernels of an algorithm divide a tile; none for what is not a flash attention."""
    return _SCHEMES_OF.get(algorithm, ())


def on_chip_report(
    problem: AttentionProblem, tiles: TileShape, schemes: Sequence[str], *, warps: int = 4
) -> dict[str, Any]:
    """The JSON `on_chip`: every scheme that divides this tile, the others with the reason; special operations."""
    found, refused = [], {}
    for scheme in schemes:
        try:
            found.append(on_chip(problem, tiles, scheme, warps=warps).to_dict())
        except UsageError as error:
            refused[scheme] = str(error)
    return {
        "tiles": asdict(tiles),
        "warps": warps,
        "schemes": found,
        "refused": refused,
        "special_ops": special_ops(problem, tiles),
        "special_ops_rule": "executed scores x (1 + 4/cols) + 7 a padded row",
    }
