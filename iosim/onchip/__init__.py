"""The on-chip level: shared memory, barriers and special functions of one thread block."""

from iosim.onchip.cycles import TileCycles, tile_cycles
from iosim.onchip.report import on_chip_report, schemes_of
from iosim.onchip.shared import SCHEMES, OnChip, SharedStep, on_chip
from iosim.onchip.special import GENERAL, SpecialFacts, special_ops
from iosim.onchip.wavefronts import Wavefronts, shared_wavefronts

__all__ = [
    "GENERAL",
    "SCHEMES",
    "OnChip",
    "SharedStep",
    "SpecialFacts",
    "TileCycles",
    "Wavefronts",
    "on_chip",
    "on_chip_report",
    "schemes_of",
    "shared_wavefronts",
    "special_ops",
    "tile_cycles",
]
