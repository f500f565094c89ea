"""Does a program leave slow memory as it should? Checked on the trace of a small problem, element by element.

A load stays inside its tensor and reads only what is an input or was stored before. A store may overwrite what
is already there only after the same thread block has read it (a running O, as in FlashAttention-1); a second
store without a read is lost work or a race. Every output element is stored. Definition before use is checked
while the program is built. Two exceptions, each declared by the program: initial contents (zeros) may be
overwritten unread, and an accumulation may add to what other thread blocks of its kernel accumulate, if the
first contents come from an earlier kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import VerificationError
from iosim.interpret.binding import bind, tensor_heads
from iosim.interpret.trace import INITIAL, SHARED, blocks, trace
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import evaluate
from iosim.program.ir import Program, Tensor


@dataclass(slots=True)
class _Memory:
    """For each element: who stored it last (−1 nobody, −2 it is an input), who read it since, and by what rule."""

    tensor: Tensor
    owner: npt.NDArray[np.int64]
    reader: npt.NDArray[np.int64]
    rule: npt.NDArray[np.int8]


_NOBODY, _INPUT = -1, -2


def verify(program: Program, problem: AttentionProblem, tiles: TileShape) -> None:
    """Walk every access of the program on `problem`; raises `VerificationError` at the first wrong one."""
    binding = bind(problem, tiles)
    memories = [_allocate(t, problem, binding) for t in program.tensors.values()]
    block_number = 0
    for kernel in program.kernels:
        first_block = block_number
        for block in blocks(kernel, binding):
            for piece in trace(program, kernel, block, binding):
                for access in piece:
                    memory = memories[access["tensor"]]
                    _check_bounds(memory, access, kernel.name)
                    check = _store if access["store"] else _load
                    check(memory, access, block_number, first_block, kernel.name)
            block_number += 1
    for memory in memories:
        if memory.tensor.role == "output" and (missing := np.argwhere(memory.owner == _NOBODY)).size:
            batch, head, row, col = missing[0]
            raise VerificationError(
                f"{program.name}: {memory.tensor.name}[{row}, {col}] of batch {batch}, head {head} is never stored; "
                f"{len(missing)} elements are missing at seq_q={problem.seq_q}, tiles {tiles}"
            )


def _allocate(tensor: Tensor, problem: AttentionProblem, binding: dict[str, int]) -> _Memory:
    heads = tensor_heads(tensor, problem)
    shape = (problem.batch, heads, int(evaluate(tensor.rows, binding)), int(evaluate(tensor.cols, binding)))
    owner = np.full(shape, _INPUT if tensor.role == "input" else _NOBODY, dtype=np.int64)
    return _Memory(tensor, owner, np.full(shape, _NOBODY, dtype=np.int64), np.zeros(shape, dtype=np.int8))


def _box(access: Any) -> tuple[int, int, slice, slice]:
    rows = slice(access["row_start"], access["row_stop"])
    return access["batch"], access["head"], rows, slice(access["col_start"], access["col_stop"])


def _where(memory: _Memory, access: Any, kernel: str) -> str:
    rows = f"{access['row_start']}:{access['row_stop']}, {access['col_start']}:{access['col_stop']}"
    return f"kernel {kernel}: {memory.tensor.name}[{rows}] of batch {access['batch']}, head {access['head']}"


def _check_bounds(memory: _Memory, access: Any, kernel: str) -> None:
    rows, cols = memory.owner.shape[2:]
    inside = 0 <= access["row_start"] <= access["row_stop"] <= rows
    if not (inside and 0 <= access["col_start"] <= access["col_stop"] <= cols):
        raise VerificationError(
            f"{_where(memory, access, kernel)} leaves the tensor, which is {rows} x {cols}"
        )


def _load(memory: _Memory, access: Any, block: int, first_block: int, kernel: str) -> None:
    box = _box(access)
    owners = memory.owner[box]
    if (owners == _NOBODY).any():
        raise VerificationError(f"{_where(memory, access, kernel)} is read before anything was stored there")
    foreign = (owners >= first_block) & (owners != block)
    if access["rule"] == SHARED:  # adding to what others add is in order; adding to what they store is not
        foreign &= memory.rule[box] != SHARED
    if foreign.any():
        raise VerificationError(
            f"{_where(memory, access, kernel)} is read in the kernel in which another thread block stores it"
        )
    memory.reader[box] = block


def _store(memory: _Memory, access: Any, block: int, first_block: int, kernel: str) -> None:
    box = _box(access)
    if memory.tensor.role == "input":
        raise VerificationError(f"{_where(memory, access, kernel)} is an input and must not be stored")
    stored = (memory.owner[box] != _NOBODY) & (memory.rule[box] != INITIAL)
    if (stored & (memory.reader[box] != block)).any():
        raise VerificationError(
            f"{_where(memory, access, kernel)} is stored twice without being read in between by its thread block"
        )
    memory.owner[box] = block
    memory.reader[box] = _NOBODY
    memory.rule[box] = access["rule"]
