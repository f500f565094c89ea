"""What could be chosen otherwise: tiles by predicted time, the memory that is needed, other memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.problem import AttentionProblem
from iosim.scaling.elements import Options
from iosim.scaling.sentences import options_text
from iosim.scaling.studied_options import pass_of
from iosim.tune import TuneTable, tune
from iosim.whatif import Map, Requirement, require, what_if

REACH = 0.9
"""The share of the compute bound that is asked for."""
MEMORIES = ("sram", "l2", "hbm")
MOST_PAIRS = 1 << 32
"""Scores of all heads up to which the L2 is simulated for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Best tiles, what is needed, and the map of other memories; None where it cannot be, and a remark why."""

    tuned: TuneTable | None = None
    needed: tuple[Requirement, ...] = ()
    what_if: Map | None = None
    remarks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "tune": self.tuned.to_dict() if self.tuned else None,
            "require": [item.to_dict() for item in self.needed],
            "what_if": self.what_if.to_dict() if self.what_if else None,
            "remarks": list(self.remarks),
        }


def find_design(problem: AttentionProblem, gpu: HardwareProfile, options: Options) -> Design:
    """Everything that can be said; what cannot is a remark, never an error."""
    own = {name: {k: v for k, v in given.items() if k != "pass"} for name, given in options.items()}
    if any(own.values()):
        why = f"Tiles and other memories are searched for kernels without {options_text(own)}."
        return Design(remarks=(why,))
    passes, remarks = pass_of(options), []
    tuned = None
    try:
        objective = "time" if _has_times(gpu) else "bytes"
        tuned = tune(problem, gpu, objective=objective, passes=passes, kernel_class=_class_of(passes))
    except UsageError as error:
        remarks.append(f"No search of tiles: {error}.")
    if passes != "fwd":
        remarks.append(
            "What a share of the compute bound needs, and other memories: of the forward pass alone."
        )
        return Design(tuned=tuned, remarks=tuple(remarks))
    needed = []
    short = problem.batch * problem.heads * problem.seq_q * problem.seq_k <= MOST_PAIRS
    if not short:
        remarks.append(
            "What a share of the compute bound needs: too long to simulate here; iosim require does it."
        )
    for memory in MEMORIES if short else ():
        try:
            needed.append(require(problem, find_algorithm("flash2"), gpu, solve=memory, reach=REACH))
        except UsageError as error:
            remarks.append(f"No answer for {memory}: {error}.")
    found = None
    try:
        found = what_if(problem, gpu)
    except UsageError as error:
        remarks.append(f"No map of other memories: {error}.")
    return Design(tuned=tuned, needed=tuple(needed), what_if=found, remarks=tuple(remarks))


def _has_times(gpu: HardwareProfile) -> bool:
    """Whether any class of kernel has constants on this architecture."""
    from iosim.kernels import CLASSES

    return any(gpu.architecture in c.tensor_share for c in CLASSES.values())


def _class_of(passes: str) -> str | None:
    """The backward is known for one class; the forward takes what suits the GPU."""
    return None if passes == "fwd" else "mma-sync"
