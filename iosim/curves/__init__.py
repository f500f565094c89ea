"""Traffic against every capacity at once: SRAM and L2, from the trace of a tile program in one pass.

capacity   a stream of tile accesses through one LRU of every capacity: `in_turn_curve`, `alone_curve`, `merged_curve`
steps      where whole reads of a tensor drop out
study      the curves of one level of a GPU, its capacities and the bounds: what `iosim curve` shows
"""

from iosim.curves.capacity import CapacityCurve, Run, alone_curve, in_turn_curve, merged_curve
from iosim.curves.steps import Step, find_steps
from iosim.curves.study import CurveStudy, l2_study, sram_study

__all__ = [
    "CapacityCurve",
    "CurveStudy",
    "Run",
    "Step",
    "alone_curve",
    "find_steps",
    "in_turn_curve",
    "l2_study",
    "merged_curve",
    "sram_study",
]
