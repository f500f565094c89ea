"""Other memories: how much a workload needs of one, and its time on a map of two."""

from iosim.whatif.answer import Answer, Requirement
from iosim.whatif.grid import Dot, Map, what_if
from iosim.whatif.require import require

__all__ = ["Answer", "Dot", "Map", "Requirement", "require", "what_if"]
