"""The time that no kernel beats: each unit's work over its peak at the highest clock, the largest of them.

No constant but the hardware's. It holds for every tiling, order and overlap. What it assumes is said beside it: dense
arithmetic in the dtype given, exponentials on the special-function unit where that term is asked for.
Source: the roofline model (Williams, Waterman, Patterson 2009) with the special-function roof of FlashAttention-3,
section 3.1, and FlashAttention-4's per-clock rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from iosim.errors import UsageError
from iosim.problem import AttentionProblem
from iosim.roofline.machine import Machine
from iosim.roofline.terms import Term, inputs, longest

PASSES = ("fwd", "bwd", "fwd+bwd")


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """Seconds, the terms behind them, and what must hold for the bound to be one."""

    terms: tuple[Term, ...]
    conditions: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The largest term: perfect overlap."""
        return longest(self.terms).seconds

    @property
    def limit(self) -> str:
        """The unit that sets it."""
        return longest(self.terms).name

    def to_dict(self) -> dict[str, Any]:
        """Plain values; shares are of the bound."""
        return {
            "seconds": self.seconds,
            "limit": self.limit,
            "terms": [t.to_dict(self.seconds) for t in self.terms],
            "conditions": list(self.conditions),
        }


def attention_bound(
    problem: AttentionProblem,
    machine: Machine,
    *,
    passes: str = "fwd",
    cold: bool = True,
    recompute: bool = False,
    exp_on_special_units: bool = True,
    sequences: Sequence[AttentionProblem] = (),
) -> LowerBound:
    """The least time of exact softmax attention.

    `sequences`: those of a ragged batch, one problem each, in place of `problem`: what a unit has to do adds up.
    `passes`: fwd, bwd or fwd+bwd. `cold`: the inputs lie in HBM at the start; otherwise as much of them as fits may
    lie in the L2. Results may stay in the L2. `exp_on_special_units`: False for kernels that compute part of the
    exponentials on other units (FlashAttention-4). Errors: `UsageError` for an unknown pass.
    """
    if passes not in PASSES:
        raise UsageError(f"pass: unknown pass {passes!r}; allowed: {', '.join(PASSES)}")
    flops = exponentials = read = written = 0
    for part, copies in Counter(sequences or (problem,)).items():
        own_flops, own_exponentials = _operations(part, passes, recompute)
        own_read, own_written = compulsory_bytes(part, passes)
        flops, exponentials = flops + copies * own_flops, exponentials + copies * own_exponentials
        read, written = read + copies * own_read, written + copies * own_written
    bounded = [_tensor(flops, machine)]
    conditions = [f"dense {machine.unit} arithmetic at {machine.clock_hz / 1e9:g} GHz"]
    if exp_on_special_units:
        bounded.append(_special(exponentials, machine))
        conditions.append("every exponential on the special-function units")
    bounded.append(hbm_bound(read, written, machine, cold=cold))
    conditions.append("inputs in HBM at the start" if cold else "inputs may lie in the L2 at the start")
    return LowerBound(terms=tuple(bounded), conditions=tuple(conditions))


def kernel_bound(
    *,
    flops: int,
    special_ops: int,
    read_bytes: int,
    write_bytes: int,
    machine: Machine,
    cold: bool = True,
) -> LowerBound:
    """The least time of any kernel with this work, such as one of the three of unfused attention."""
    return LowerBound(
        terms=(
            _tensor(flops, machine),
            _special(special_ops, machine),
            hbm_bound(read_bytes, write_bytes, machine, cold=cold),
        ),
        conditions=("inputs in HBM at the start" if cold else "inputs may lie in the L2 at the start",),
    )


def hbm_bound(read_bytes: int, write_bytes: int, machine: Machine, *, cold: bool = True) -> Term:
    """Bytes that must cross the memory's pins at the printed bandwidth. What is written may stay in the L2."""
    read = read_bytes if cold else max(0, read_bytes - machine.l2_bytes)
    written = max(0, write_bytes - machine.l2_bytes)
    return Term(
        name="HBM",
        seconds=(read + written) / machine.hbm_peak_bytes_per_s,
        formula="(bytes read + bytes written beyond the L2) / printed bandwidth",
        inputs=inputs(
            ("read", read, "B"),
            ("written beyond the L2", written, "B"),
            ("bandwidth", machine.hbm_peak_bytes_per_s, "B/s"),
        ),
    )


def _tensor(flops: int, machine: Machine) -> Term:
    return Term(
        name="tensor",
        seconds=flops / machine.tensor_flops_per_s,
        formula="useful flops / (FLOP a clock and SM x SMs x clock)",
        inputs=inputs(
            ("flops", flops, "FLOP"),
            ("rate", machine.tensor_flops_per_clk_sm, "FLOP/clk/SM"),
            ("SMs", machine.sms, ""),
            ("clock", machine.clock_hz, "Hz"),
        ),
    )


def _special(ops: int, machine: Machine) -> Term:
    return Term(
        name="special functions",
        seconds=ops / machine.special_ops_per_s,
        formula="unmasked scores / (results a clock and SM x SMs x clock)",
        inputs=inputs(
            ("exponentials", ops, "op"),
            ("rate", machine.special_ops_per_clk_sm, "op/clk/SM"),
            ("SMs", machine.sms, ""),
            ("clock", machine.clock_hz, "Hz"),
        ),
    )


def _operations(p: AttentionProblem, passes: str, recompute: bool) -> tuple[int, int]:
    """Matmul flops and exponentials of the unmasked scores. Backward: dP and dV, dQ and dK are twice the forward."""
    scores = p.pairs * p.heads * p.batch
    flops, exponentials = {
        "fwd": (p.useful_flops, scores),
        "bwd": (2 * p.useful_flops, 0),
        "fwd+bwd": (3 * p.useful_flops, scores),
    }[passes]
    if recompute and passes != "fwd":
        return flops + 2 * p.head_dim * scores, exponentials + scores
    return flops, exponentials


def compulsory_bytes(p: AttentionProblem, passes: str = "fwd") -> tuple[int, int]:
    """Bytes (read, written) that must move once; keys and queries that no mask lets through stay out."""
    q_rows, k_rows = p.batch * p.heads * p.visible_queries, p.batch * p.kv_heads * p.visible_keys
    q, o = q_rows * p.head_dim * p.dtype_q.itemsize, q_rows * p.value_dim * p.dtype_o.itemsize
    k, v = k_rows * p.head_dim * p.dtype_k.itemsize, k_rows * p.value_dim * p.dtype_v.itemsize
    forward, backward = (q + k + v, o), (q + k + v + 2 * o, q + k + v)  # O and dO in, dQ, dK and dV out
    if passes == "fwd":
        return forward
    if passes == "bwd":
        return backward
    return q + k + v + o, o + q + k + v  # dO is new; what the forward read may have stayed on chip
