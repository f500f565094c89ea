"""How many thread blocks a program launches, and the share of the SMs that they keep busy."""

from __future__ import annotations

from iosim.interpret.trace import grids
from iosim.program.evaluate import Binding, Frame, Number
from iosim.program.expr import Expr, const, sum_over
from iosim.program.ir import Kernel, Program


def thread_blocks(program: Program, binding: Binding) -> dict[str, Number]:
    """Thread blocks of each kernel by name: an int each, or a column where a letter is one."""
    frame = Frame(binding)
    return {kernel.name: frame.value(_blocks(kernel)) for kernel in program.kernels}


def _blocks(kernel: Kernel) -> Expr:
    total = const(1)
    for loop in reversed(grids(kernel)):
        total = sum_over(loop.index, loop.start, loop.stop, total)
    return total


def busy_share(blocks: int, sms: int) -> float:
    """Share of the SMs that work, where each runs one block at a time: 12 blocks on 108 SMs are 0.11."""
    turns = -(-blocks // sms)
    return blocks / (turns * sms)
