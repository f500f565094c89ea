"""The kernel that joins the splits of a decode: too small for any bandwidth, it is a chain of loads.

    logarithms of all splits, 32 at a time  ->  O of split 1  ->  O of split 2  ->  ...  ->  O

One warp a row. The loop over the splits is written to have four of them under way, but in the machine code each load
waits for the sum before it: its registers are those of the last. So a split is one answer of the memory.
"""

from __future__ import annotations

import math

from iosim.roofline.machine import Machine
from iosim.roofline.prediction import RESIDUAL_ELSEWHERE, Prediction, one_launch
from iosim.roofline.terms import Term, inputs

LANES = 32


def combine_time(machine: Machine, splits: int, *, again: bool) -> Prediction:
    """One launch. `again`: right after the kernel that wrote the parts, which are then in the L2; else from HBM.

    The first answer is part of the start.
    """
    rounds = math.ceil(splits / LANES) + splits - 1
    latency = machine.l2_latency_clk if again else machine.hbm_latency_clk
    loads = Term(
        name="loads",
        seconds=rounds * latency / machine.clock_hz,
        formula="(splits / 32, rounded up, + splits - 1) x latency / clock",
        inputs=inputs(
            ("splits", splits, ""),
            ("latency of the L2" if again else "latency of HBM", latency, "clk"),
            ("clock", machine.clock_hz, "Hz"),
        ),
    )
    spread_s = RESIDUAL_ELSEWHERE * (loads.seconds + machine.start_s)
    return one_launch((loads,), machine, spread_s=spread_s, limit="loads", sustained=again)
