"""The two GEMMs of a plain standard attention: a thread block is one tile, and nothing of it overlaps its own loads.

    one block     turn | load | multiply (k-loop) | stage, store       turn: from a block's end to the next one's start
    its SM        block A  ......XXXXXXX......XXXXXXX......            X: computes; the SM computes for one at a time
                  block B  XXXXXX.......XXXXXX.......XXXXXX            .: waits for memory or for its turn

So a block takes max(C, (C + M) / R): R blocks share an SM, C are the cycles in which it computes, M those in which it
waits. S = Q K^T loads both of its tiles whole before it multiplies; O = P V walks the keys and loads ahead, so that of
its loads only the first are in M. Rates are those of mma.sync kernels; instructions are counted in the machine code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from iosim.kernels import CLASSES, Constant, KernelFacts
from iosim.kernels.facts import WARP_THREADS
from iosim.memory.sm_time import busiest_sm_cycles
from iosim.onchip.wavefronts import WAVEFRONT_BYTES
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline.machine import ISSUE_LANES, Machine
from iosim.roofline.overlap import hiding
from iosim.roofline.prediction import RESIDUAL_ELSEWHERE, Prediction, one_launch
from iosim.roofline.terms import Term, inputs, longest
from iosim.roofline.unfused import stream_term

PARTS = {"qk_gemm": "scores", "pv_gemm": "output"}
"""Kernels of unfused attention -> parts of a card whose instructions are counted."""
STEP_KEYS = 64
"""Keys of a step of O = P V."""
WARP_COLUMNS = 32
"""Columns of the output tile that a warp owns; the other warps lie below one another."""
MOST_COLUMNS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledGemm:
    """One launch. Of a block: `operand_bytes` read from shared memory, `staged_bytes` through it on the way out,
    `instructions` of all its threads, `first_bytes` loaded before anything is multiplied, `out_bytes` stored.
    `blocks_a_head`: where all of them are at work at once nobody has loaded their tiles before, and HBM answers.
    """

    blocks: int
    residents: int
    warps: int
    flops: float
    operand_bytes: float
    staged_bytes: float
    instructions: float
    first_bytes: float
    out_bytes: float
    blocks_a_head: int


def tiled_gemm(
    kernel: str, problem: AttentionProblem, facts: KernelFacts, tile: TileShape, *, residents: int
) -> TiledGemm | None:
    """The work of one of PARTS by a kernel whose card counts its instructions; None where it does not."""
    p = problem
    step, block = facts.instructions_of(PARTS[kernel], p.head_dim)
    if not block:
        return None
    heads, size = p.batch * p.heads, p.dtype_k.itemsize
    row_tiles = -(-p.seq_q // tile.rows)
    rows = p.seq_q / row_tiles  # that a block has on average
    warps = facts.threads_per_block // WARP_THREADS
    if kernel == "qk_gemm":
        columns, depth, steps = tile.cols, p.head_dim, 0.0
        column_tiles = -(-p.seq_k // tile.cols)
        width = p.seq_k / column_tiles
        first = (rows + width) * depth * size
    else:
        columns, depth = min(p.value_dim, MOST_COLUMNS), p.seq_k
        column_tiles, width = -(-p.value_dim // columns), columns
        steps = -(-p.seq_k // STEP_KEYS)
        first = min(STEP_KEYS, p.seq_k) * (rows + width) * size
    across = max(1, columns // WARP_COLUMNS)
    below = max(1, warps // across)
    return TiledGemm(
        blocks=heads * row_tiles * column_tiles,
        blocks_a_head=row_tiles * column_tiles,
        residents=residents,
        warps=warps,
        flops=2.0 * tile.rows * columns * depth,
        operand_bytes=depth * size * (tile.rows * across + columns * below),
        staged_bytes=2.0 * tile.rows * columns * p.dtype_o.itemsize,
        instructions=(block + steps * step) * facts.threads_per_block,
        first_bytes=first,
        out_bytes=rows * width * p.dtype_o.itemsize,
    )


def predict_tiled_gemm(
    work: TiledGemm,
    machine: Machine,
    stream: Constant | None,
    *,
    hbm_read_bytes: float,
    hbm_write_bytes: float,
) -> Prediction:
    """One launch. `stream`: the share of the bandwidth that a GEMM of the class reaches.

    Errors: `ProfileError` on an architecture on which no mma.sync kernel is known.
    """
    share = CLASSES["mma-sync"].share_on(machine.architecture)
    machine = machine.at_work(0.0)
    terms = _terms(work, machine, share, stream.value if stream else 1.0)
    seconds = math.fsum(t.seconds for t in terms)
    hbm = stream_term(machine, hbm_read_bytes, hbm_write_bytes, stream)
    behind = hbm.seconds < seconds
    spread_s = RESIDUAL_ELSEWHERE * max(seconds, hbm.seconds)
    limit = longest(terms).name if behind else "HBM"
    shown = (*(replace(t, hidden=not behind) for t in terms), replace(hbm, hidden=behind))
    return one_launch(shown, machine, spread_s=spread_s, limit=limit)


def _terms(w: TiledGemm, m: Machine, share: Constant, stream: float) -> list[Term]:
    """Seconds of the SM that ends last, by unit."""
    hidden = hiding(w.warps, w.residents)
    tensor = w.flops / (share.value * m.tensor_flops_per_clk_sm)
    shared = (w.operand_bytes + w.staged_bytes) / m.shared_bytes_per_clk_sm / hidden
    vector = w.instructions / ISSUE_LANES
    compute = tensor + shared + vector
    write_share = stream * m.hbm_write_bytes_per_s / m.sms / m.clock_hz
    cold = w.blocks_a_head <= m.sms * w.residents
    latency = m.hbm_latency_clk if cold else m.l2_latency_clk
    waits = m.block_turn_clk + latency + w.first_bytes / m.l2_bytes_per_clk_sm + w.out_bytes / write_share
    path = (w.operand_bytes + w.staged_bytes + w.first_bytes) / WAVEFRONT_BYTES
    block = max(compute, (compute + waits) / w.residents, path)
    alone = block / (compute + waits)
    busiest = busiest_sm_cycles(np.full(w.blocks, block), m.sms, w.residents, alone=min(1.0, alone))
    each = w.blocks / m.sms / m.clock_hz  # seconds a cycle of a block is worth
    return [
        Term(
            name="tensor",
            seconds=tensor * each,
            formula="blocks an SM x flops a block / (share of peak x FLOP/clk/SM) / clock",
            inputs=inputs(
                ("blocks an SM", w.blocks / m.sms, ""),
                ("flops a block", w.flops, "FLOP"),
                ("share of peak", share.value, ""),
                ("rate", m.tensor_flops_per_clk_sm, "FLOP/clk/SM"),
                ("clock", m.clock_hz, "Hz"),
            ),
        ),
        Term(
            name="shared memory",
            seconds=shared * each,
            formula="blocks an SM x (operands + staged output) / (B/clk/SM) / warps that hide each other / clock",
            inputs=inputs(
                ("operands", w.operand_bytes, "B"),
                ("staged output", w.staged_bytes, "B"),
                ("warps that hide each other", hidden, ""),
            ),
        ),
        Term(
            name="vector",
            seconds=vector * each,
            formula="blocks an SM x instructions of a block / issue rate / clock",
            inputs=inputs(
                ("instructions of a block", w.instructions, ""), ("issue", ISSUE_LANES, "instructions/clk/SM")
            ),
        ),
        Term(
            name="waits",
            seconds=(block - compute) * each,
            formula="blocks an SM x (max(C, (C + turn + latency + loads + stores) / residents) - C) / clock",
            inputs=inputs(
                ("C, the terms above", compute, "clk"),
                ("turn", m.block_turn_clk, "clk"),
                ("latency of HBM" if cold else "latency of the L2", latency, "clk"),
                ("loads before the first product", w.first_bytes, "B"),
                ("L2", m.l2_bytes_per_clk_sm, "B/clk/SM"),
                ("stores", w.out_bytes, "B"),
                ("HBM write", write_share, "B/clk/SM"),
                ("residents", w.residents, ""),
            ),
        ),
        Term(
            name="waves and tail",
            seconds=busiest / m.clock_hz - block * each,
            formula="busiest SM - mean SM, blocks in launch order to the first free place",
            inputs=inputs(("blocks", w.blocks, ""), ("places", m.sms * w.residents, "")),
        ),
    ]
