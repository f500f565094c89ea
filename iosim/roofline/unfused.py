"""The time of the kernels of unfused attention: each streams its matrices, or computes, whichever takes longer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from iosim.errors import UsageError
from iosim.kernels import Constant, KernelClass
from iosim.problem import AttentionProblem
from iosim.roofline.lower_bound import LowerBound, kernel_bound
from iosim.roofline.machine import Machine
from iosim.roofline.prediction import BANDWIDTH_SPREAD, RESIDUAL_ELSEWHERE, Prediction, one_launch
from iosim.roofline.terms import Term, inputs, longest

GEMMS = ("qk_gemm", "pv_gemm")
KERNELS = ("qk_gemm", "softmax", "pv_gemm")
ALIGNED_BYTES = 16
"""Rows of a matrix that do not start on this boundary go to another GEMM of the library, which is not modelled."""
SOFTMAX_NOTE = "the softmax of a library is slower than its bandwidth floor; how much depends on the library"


def gemm_flops(kernel: str, problem: AttentionProblem) -> int:
    """Flops of one of the two GEMMs: all scores, whatever the mask. `UsageError` for another name."""
    if kernel not in GEMMS:
        raise UsageError(f"kernel: {kernel!r} is no GEMM of unfused attention; allowed: {', '.join(GEMMS)}")
    inner = problem.head_dim if kernel == "qk_gemm" else problem.value_dim
    return 2 * inner * problem.seq_q * problem.seq_k * problem.heads * problem.batch


def aligned(problem: AttentionProblem) -> bool:
    """Whether every row of S starts on a boundary of ALIGNED_BYTES."""
    return problem.seq_k * problem.dtype_o.itemsize % ALIGNED_BYTES == 0


def predict_gemm(
    kernel: str,
    problem: AttentionProblem,
    machine: Machine,
    constants: KernelClass,
    *,
    hbm_read_bytes: float,
    hbm_write_bytes: float,
) -> Prediction:
    """One launch of a GEMM: matmul and memory overlap, so the longer of the two, and a start.

    Holds where rows are `aligned`. Errors: `ProfileError` for an architecture on which the class is not known.
    """
    stream = constants.stream_share
    share = constants.share_on(machine.architecture)
    if machine.unit == "vector" and constants.vector_share is not None:
        share = constants.vector_share
    flops = gemm_flops(kernel, problem)
    compute = Term(
        name="tensor" if machine.unit == "tensor" else "vector",
        seconds=flops / (share.value * machine.tensor_flops_per_s),
        formula="flops / (share of peak x peak)",
        inputs=inputs(
            ("flops", flops, "FLOP"),
            ("share of peak", share.value, ""),
            ("peak", machine.tensor_flops_per_s, "FLOP/s"),
        ),
    )
    hbm = stream_term(machine, hbm_read_bytes, hbm_write_bytes, stream)
    spread = (stream.spread / stream.value if stream else 0.0, share.spread / share.value)
    return _summed(compute, hbm, machine, spread)


def streaming_time(
    machine: Machine, hbm_read_bytes: float, hbm_write_bytes: float, bound: LowerBound | None = None
) -> Prediction:
    """A kernel that does little but move its bytes at the measured bandwidth.

    A prediction for decode kernels that split the keys over all SMs; a floor for a softmax (SOFTMAX_NOTE). `bound`: the
    least times of its other units, which many query heads that share their keys can make the longer ones.
    """
    hbm = stream_term(machine, hbm_read_bytes, hbm_write_bytes, None)
    units = [term for term in bound.terms if term.name != hbm.name] if bound else []
    nothing = Term(name="compute", seconds=0.0, formula="behind the memory")
    return _summed(longest(units) if units else nothing, hbm, machine, (0.0, 0.0))


def unfused_bound(
    kernel: str, problem: AttentionProblem, machine: Machine, *, cold: bool = True
) -> LowerBound:
    """The least time of one of KERNELS, whose operands all come from and go to slow memory."""
    p = problem
    heads, kv_heads = p.batch * p.heads, p.batch * p.kv_heads
    scores = heads * p.seq_q * p.seq_k
    matrix = scores * p.dtype_o.itemsize
    q, o = (
        heads * p.seq_q * p.head_dim * p.dtype_q.itemsize,
        heads * p.seq_q * p.value_dim * p.dtype_o.itemsize,
    )
    k = kv_heads * p.seq_k * p.head_dim * p.dtype_k.itemsize
    v = kv_heads * p.seq_k * p.value_dim * p.dtype_v.itemsize
    rows = {"qk_gemm": (q + k, matrix), "softmax": (matrix, matrix), "pv_gemm": (matrix + v, o)}
    if kernel not in rows:
        raise UsageError(f"kernel: {kernel!r} is not of unfused attention; allowed: {', '.join(rows)}")
    read, written = rows[kernel]
    return kernel_bound(
        flops=gemm_flops(kernel, p) if kernel in GEMMS else 0,
        special_ops=scores if kernel == "softmax" else 0,
        read_bytes=read,
        write_bytes=written,
        machine=machine,
        cold=cold,
    )


def total_s(parts: Sequence[Prediction]) -> float:
    """Kernels run one after the other."""
    return math.fsum(p.seconds for p in parts)


def stream_term(machine: Machine, read: float, written: float, share: Constant | None) -> Term:
    """Bytes at the measured bandwidth, of which a kernel reaches a share."""
    part = share.value if share else 1.0
    seconds = (read / machine.hbm_read_bytes_per_s + written / machine.hbm_write_bytes_per_s) / part
    return Term(
        name="HBM",
        seconds=seconds,
        formula="(bytes read / read bandwidth + bytes written / write bandwidth) / share of bandwidth",
        inputs=inputs(
            ("read", read, "B"),
            ("read bandwidth", machine.hbm_read_bytes_per_s, "B/s"),
            ("written", written, "B"),
            ("write bandwidth", machine.hbm_write_bytes_per_s, "B/s"),
            ("share of bandwidth", part, ""),
        ),
    )


def _summed(compute: Term, hbm: Term, machine: Machine, spreads: tuple[float, float]) -> Prediction:
    behind = hbm.seconds < compute.seconds
    busy = max(compute.seconds, hbm.seconds)
    relative = math.hypot(BANDWIDTH_SPREAD, spreads[1] if behind else spreads[0])
    if machine.assumed:
        relative = math.hypot(relative, RESIDUAL_ELSEWHERE)
    terms = (replace(compute, hidden=not behind), replace(hbm, hidden=behind))
    return one_launch(terms, machine, spread_s=relative * busy, limit=compute.name if behind else "HBM")
