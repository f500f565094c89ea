"""The simulated part of the waterfall: one assumption of the hierarchy switched on at a time.

A run's HBM bytes are what it fetches, what it writes back, and what it leaves dirty in the L2. The first reading has
one undivided L2, blocks in step and no spilled registers; each later one adds what a real GPU has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from iosim.algorithms.registry import Algorithm
from iosim.gap.record import Ladder
from iosim.hardware import HardwareProfile
from iosim.levels import LevelTraffic, simulate_levels
from iosim.memory.hierarchy import Policies
from iosim.problem import AttentionProblem, TileShape
from iosim.units import format_bytes

_PARTITIONS = "memory.l2.partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """HBM bytes of one reading; `owed_bytes`: with what is still dirty in the L2 at the end."""

    owed_bytes: int
    dirty_bytes: int


class Machine(Protocol):
    """Something that can be read with the partitions of the L2, the jitter and the spills switched off."""

    def run(self, *, copies: bool, jitter: bool, spills: bool) -> Outcome:
        """One reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedMachine:
    """One program under one schedule on one GPU."""

    algorithm: Algorithm
    problem: AttentionProblem
    options: Mapping[str, str]
    tile: TileShape
    profile: HardwareProfile
    policies: Policies
    in_step: float | None
    full: LevelTraffic

    @staticmethod
    def of(
        algorithm: Algorithm,
        problem: AttentionProblem,
        options: Mapping[str, str],
        tile: TileShape,
        profile: HardwareProfile,
        policies: Policies,
        in_step: float | None,
    ) -> FusedMachine:
        """Simulate the whole machine once; ablations are simulated when they are asked for."""
        full = simulate_levels(algorithm, problem, options, tile, profile, policies, in_step=in_step)
        return FusedMachine(
            algorithm=algorithm,
            problem=problem,
            options=options,
            tile=tile,
            profile=profile,
            policies=policies,
            in_step=in_step,
            full=full,
        )

    def run(self, *, copies: bool, jitter: bool, spills: bool) -> Outcome:
        """One reading; the full machine's is the prediction itself."""
        policies = self.policies
        if not jitter:
            policies = replace(policies, skew=0.0)
        if not spills:
            policies = replace(policies, spill_bytes_per_step=0, spill_bytes_per_block=0)
        profile = self.profile if copies else undivided(self.profile)
        if policies == self.policies and profile is self.profile:
            found = self.full
        else:
            found = simulate_levels(
                self.algorithm,
                self.problem,
                self.options,
                self.tile,
                profile,
                policies,
                in_step=self.in_step,
            )
        owed = found.hbm_read_bytes + found.hbm_write_bytes + found.dirty_bytes
        return Outcome(owed_bytes=owed, dirty_bytes=found.dirty_bytes)

    @property
    def has_spills(self) -> bool:
        """Whether the kernel writes registers to memory."""
        return bool(self.policies.spill_bytes_per_step or self.policies.spill_bytes_per_block)


def undivided(profile: HardwareProfile) -> HardwareProfile:
    """The same GPU with one L2 instead of partitions that keep copies of each other's data."""
    one = replace(profile.quantity(_PARTITIONS), value=1)
    if profile.l2_partitions == 1:
        return profile
    return replace(profile, quantities={**profile.quantities, _PARTITIONS: one})


def descend(
    machine: Machine, profile: HardwareProfile, policies: Policies, ladder: Ladder, *, has_spills: bool
) -> None:
    """L2 hits, partition copies, schedule, spills and what is not yet written back; ends at the predicted HBM bytes."""
    size = format_bytes(profile.l2_capacity_bytes)
    ideal = machine.run(copies=False, jitter=False, spills=False)
    ladder.step(
        "l2_hits",
        "hierarchy",
        "less L2 hits",
        ideal.owed_bytes,
        f"one L2 of {size}, blocks in step",
        f"found in one L2 of {size}, {policies.slots} blocks in step",
        "copies in partitions, jitter, spills",
    )
    last = ideal
    if profile.l2_partitions > 1:
        last = machine.run(copies=True, jitter=False, spills=False)
        ladder.step(
            "partition_copies",
            "hierarchy",
            "partition copies",
            last.owed_bytes,
            f"{profile.l2_partitions} partitions keep copies: less room",
            f"{profile.l2_partitions} partitions each keep what their SMs read: less room",
            "jitter, spills",
        )
    if policies.skew:
        last = machine.run(copies=True, jitter=True, spills=False)
        ladder.step(
            "schedule",
            "hierarchy",
            "schedule",
            last.owed_bytes,
            "blocks drift apart",
            f"blocks drift apart: a tile's time varies by {policies.skew:.0%}",
            "spills" if has_spills else "",
        )
    if has_spills:
        last = machine.run(copies=True, jitter=True, spills=True)
        ladder.step(
            "spills",
            "hierarchy",
            "spilled registers",
            last.owed_bytes,
            "not in the line of the SMs above",
            "written to memory by every block; not among the bytes into the SMs above",
        )
    ladder.step(
        "still_in_l2",
        "hierarchy",
        "still in L2 at the end",
        last.owed_bytes - last.dirty_bytes,
        "written, not yet out to HBM",
        "written, but not yet out to HBM when the kernel ends; later work pays for it",
    )
