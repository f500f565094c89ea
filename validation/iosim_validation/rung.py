"""A rung: one of our kernels, what it is built for, and how a problem becomes its launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from iosim.problem import AttentionProblem, TileShape
from iosim_validation.launch import Build, GpuFacts, Plan


class Rung(ABC):
    """`name` is also its kernel card in iosim; `algorithm` and `options` name the tile program that predicts it.

    `kernels`: the names its launches have in a measurements file, in order (`flash_fwd` for a fused forward).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    algorithm: ClassVar[str]
    options: ClassVar[Mapping[str, str]] = {}
    kernels: ClassVar[tuple[str, ...]] = ("flash_fwd",)

    @abstractmethod
    def builds(self) -> tuple[Build, ...]:
        """Everything it is built for: what the compile tests compile."""

    @abstractmethod
    def tiles(self, problem: AttentionProblem, gpu: GpuFacts) -> tuple[TileShape, ...]:
        """The tiles that can be launched for a problem on a GPU, the default first; empty when there is none."""

    @abstractmethod
    def plan(self, problem: AttentionProblem, gpu: GpuFacts, tile: TileShape | None = None) -> Plan:
        """The launches of a problem. Errors: `UsageError` in one line for what it is not built for.

        The line names the argument, the bytes of shared memory or the registers that do not fit, and what would.
        """

    def masked(self, pattern: str) -> Rung | None:
        """The same rung over a block mask, written as in `iosim.block_mask`; None where it takes none."""
        return None
