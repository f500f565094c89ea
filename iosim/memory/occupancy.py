"""How many thread blocks of a kernel are resident on one SM, and what limits them: the CUDA occupancy
rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from iosim.errors import SimulationError
from iosim.hardware.profile import HardwareProfile
from iosim.kernels.facts import WARP_THREADS

REGISTER_GRANULE = 256
"""Registers are handed to warps in pieces of this many (CUDA occupancy calculator, compute capability 7.0
to 10.0)."""
WARP_GRANULE = 4
"""Warps are spread over the four quarters of an SM, each with a quarter of its registers."""
SHARED_GRANULE_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class SmLimits:
    """What one SM has for the thread blocks on it, and what one block may ask for."""

    registers: int
    registers_per_thread: int
    shared_bytes: int
    shared_bytes_per_block: int
    shared_reserved_bytes_per_block: int
    warps: int
    blocks: int
    threads_per_block: int

    @classmethod
    def of(cls, profile: HardwareProfile) -> Self:
        """The limits that a hardware profile states."""
        return cls(
            registers=profile.registers_per_sm,
            registers_per_thread=profile.max_registers_per_thread,
            shared_bytes=profile.sram_per_sm_bytes,
            shared_bytes_per_block=profile.sram_per_block_bytes,
            shared_reserved_bytes_per_block=profile.sram_reserved_per_block_bytes,
            warps=min(profile.max_warps_per_sm, profile.max_threads_per_sm // WARP_THREADS),
            blocks=profile.max_blocks_per_sm,
            threads_per_block=profile.max_threads_per_block,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNeeds:
    """What one thread block of a kernel takes on its SM."""

    threads: int
    registers_per_thread: int
    shared_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident blocks an SM, and which resource allows no more."""

    blocks_per_sm: int
    warps_per_sm: int
    limited_by: str
    """`registers`, `shared memory`, `warps` or `blocks`; the first of them on a tie."""


def occupancy(needs: BlockNeeds, limits: SmLimits) -> Occupancy:
    """Blocks resident on one SM; raises `SimulationError` naming the resource if not even one fits.

    Registers go to warps in pieces and to the four quarters of the SM; every block's shared memory is
    rounded up and carries the part that the driver reserves (CUDA C++ Programming Guide and occupancy
    calculator).
    """
    _check_block(needs, limits)
    warps = -(-needs.threads // WARP_THREADS)
    warp_registers = _up(needs.registers_per_thread * WARP_THREADS, REGISTER_GRANULE)
    shared = _up(needs.shared_bytes + limits.shared_reserved_bytes_per_block, SHARED_GRANULE_BYTES)
    quarter_warps = limits.registers // WARP_GRANULE // warp_registers if warp_registers else limits.warps
    fits = {
        "registers": quarter_warps * WARP_GRANULE // warps,
        "shared memory": limits.shared_bytes // shared if shared else limits.blocks,
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
    }
    limited_by = min(fits, key=lambda name: fits[name])
    if fits[limited_by] == 0:
        raise SimulationError(
            f"kernel: one block of {needs.threads} threads, {needs.registers_per_thread} registers each and "
            f"{needs.shared_bytes} B of shared memory is not resident: too much of {limited_by}; "
            "use a smaller tile or fewer threads"
        )
    blocks = fits[limited_by]
    return Occupancy(blocks_per_sm=blocks, warps_per_sm=blocks * warps, limited_by=limited_by)


def _check_block(needs: BlockNeeds, limits: SmLimits) -> None:
    for name, value, low, high in (
        ("threads", needs.threads, 1, limits.threads_per_block),
        ("registers per thread", needs.registers_per_thread, 0, limits.registers_per_thread),
        ("shared memory bytes", needs.shared_bytes, 0, limits.shared_bytes_per_block),
    ):
        if not low <= value <= high:
            raise SimulationError(
                f"kernel: {name} of a block: {value} is outside {low} to {high}; "
                "such a block is never resident, use a smaller tile or fewer threads"
            )


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
