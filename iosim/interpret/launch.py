"""How many thread blocks a program launches, how often each goes round, and the share of SMs they keep busy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from iosim.interpret.trace import block_table, grids
from iosim.program.evaluate import Binding, Frame, Number
from iosim.program.expr import Expr, const, sum_over
from iosim.program.ir import Kernel, Loop, Program

MOST_BLOCKS = 4_000_000


def thread_blocks(program: Program, binding: Binding) -> dict[str, Number]:
    """Thread blocks of each kernel by name: an int each, or a column where a letter is one."""
    frame = Frame(binding)
    return {kernel.name: frame.value(_blocks(kernel)) for kernel in program.kernels}


def _blocks(kernel: Kernel) -> Expr:
    total = const(1)
    for loop in reversed(grids(kernel)):
        total = sum_over(loop.index, loop.start, loop.stop, total)
    return total


def loop_trips(kernel: Kernel, binding: Binding) -> NDArray[np.int64]:
    """How often each thread block goes round its outermost sequential loops, in grid order; no access is followed.

    Errors: `ProgramError` for too many blocks.
    """
    table = block_table(kernel, binding, MOST_BLOCKS)
    body = kernel.body
    for grid in grids(kernel):
        body = grid.body
    total = np.zeros(len(next(iter(table.values()))), dtype=np.int64)
    frame = Frame({**binding, **table})
    for loop in body:
        if isinstance(loop, Loop):
            total += np.maximum(0, np.asarray(frame.value(loop.stop)) - np.asarray(frame.value(loop.start)))
    return total


def busy_share(blocks: int, sms: int) -> float:
    """Share of the SMs that work, where each runs one block at a time: 12 blocks on 108 SMs are 0.11."""
    turns = -(-blocks // sms)
    return blocks / (turns * sms)
