"""The numeric reader: runs a program in NumPy, to prove that it computes what it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import ProgramError, VerificationError
from iosim.interpret.binding import bind, tensor_heads
from iosim.interpret.pages import pool, rows_of
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Frame
from iosim.program.expr import Expr, index
from iosim.program.ir import (
    Accumulate,
    Assign,
    Compute,
    Load,
    Loop,
    Program,
    Region,
    Span,
    Statement,
    Store,
)
from iosim.program.ops import OPS

Array = npt.NDArray[Any]
_BATCH = index("batch")


def run(
    program: Program,
    problem: AttentionProblem,
    tiles: TileShape,
    inputs: dict[str, Array],
    *,
    keep: Array | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> dict[str, Array]:
    """Run the program on `inputs` (name -> [batch, heads or kv_heads, rows, cols]); returns every stored tensor.

    Tensors that the program writes start as NaN, so reading what was never written shows. What is loaded through a
    page table is first laid out page by page where `PAGES` says, and only loads through its entries can find it.
    `keep` [batch, heads, N, Nk] is the dropout pattern, if the program has a dropout pass.
    """
    frame = Frame(bind(problem, tiles))
    memory: dict[str, Array] = {}
    for tensor in program.tensors.values():
        heads = tensor_heads(tensor, problem)
        shape = (problem.batch, heads, _int(frame, tensor.rows), _int(frame, tensor.cols))
        if tensor.role != "input":
            memory[tensor.name] = np.full(shape, np.nan, dtype)
        else:
            given = inputs[tensor.name].astype(dtype)
            memory[tensor.name] = _pack(given, problem.kv_heads) if tensor.packed else given
    pools = {
        name: pool(memory.pop(name), inputs["PAGES"], _int(frame, page))
        for name, page in _paged(program).items()
    }
    machine = _Machine(problem, memory, pools, keep, dtype)
    for kernel in program.kernels:
        machine.run(kernel.body, frame, {})
    return {
        t.name: _unpack(memory[t.name], problem) if t.packed and t.role == "output" else memory[t.name]
        for t in program.tensors.values()
        if t.role != "input"
    }


def _paged(program: Program) -> dict[str, Expr]:
    """The tensors that are loaded through a page table, and the rows of a page."""

    def loads(body: tuple[Statement, ...]) -> Iterator[Load]:
        for statement in body:
            if isinstance(statement, Loop):
                yield from loads(statement.body)
            elif isinstance(statement, Load):
                yield statement

    every = [load for kernel in program.kernels for load in loads(kernel.body)]
    return {load.region.tensor.name: load.through.page for load in every if load.through is not None}


def _pack(tensor: Array, kv_heads: int) -> Array:
    """[batch, heads, N, cols] as [batch, kv_heads, N·group, cols], the head of the group fastest."""
    batch, heads, rows, cols = tensor.shape
    grouped = tensor.reshape(batch, kv_heads, heads // kv_heads, rows, cols)
    return grouped.swapaxes(2, 3).reshape(batch, kv_heads, -1, cols)


def _unpack(tensor: Array, problem: AttentionProblem) -> Array:
    """The inverse of `_pack`."""
    group, cols = problem.group_size, tensor.shape[-1]
    grouped = tensor.reshape(problem.batch, problem.kv_heads, problem.seq_q, group, cols)
    return grouped.swapaxes(2, 3).reshape(problem.batch, problem.heads, problem.seq_q, cols)


def _int(frame: Frame, node: Expr) -> int:
    return int(frame.value(node))


@dataclass(slots=True)
class _Machine:
    problem: AttentionProblem
    memory: dict[str, Array]
    pools: dict[str, Array]
    keep: Array | None
    dtype: npt.DTypeLike

    def run(self, body: tuple[Statement, ...], frame: Frame, chip: dict[str, Array]) -> None:
        for statement in body:
            match statement:
                case Loop():
                    for i in range(_int(frame, statement.start), _int(frame, statement.stop)):
                        # a thread block starts with an empty chip; a sequential loop goes on with its own
                        inside = dict(chip) if statement.parallel else chip
                        self.run(statement.body, Frame({statement.index: i}, frame), inside)
                case _:
                    try:
                        self._step(statement, frame, chip)
                    except (ValueError, IndexError) as error:
                        raise VerificationError(self._misfit(statement, frame, chip)) from error

    def _step(self, statement: Statement, frame: Frame, chip: dict[str, Array]) -> None:
        match statement:
            case Load():
                chip[statement.value] = self._load(statement, frame, chip)
            case Store():
                self._view(statement.region, frame)[...] = chip[statement.value]
            case Accumulate():
                self._view(statement.region, frame)[...] += chip[statement.value]
            case Assign():
                if chip[statement.value].shape != chip[statement.source].shape:
                    raise ValueError
                chip[statement.value] = chip[statement.source]
            case Compute():
                chip[statement.value] = self._compute(statement, frame, chip)

    def _misfit(self, statement: Statement, frame: Frame, chip: dict[str, Array]) -> str:
        """In the words of the listing: which statement, and the shapes that do not belong together."""

        def size(*values: str) -> str:
            return " and ".join(" x ".join(map(str, chip[value].shape)) for value in values)

        match statement:
            case Store() | Accumulate():
                rows, cols = (_slice(span, frame) for span in (statement.region.rows, statement.region.cols))
                place = f"{statement.region.tensor.name}[{rows.start}:{rows.stop}, {cols.start}:{cols.stop}]"
                return f"a value of {size(statement.value)} is stored into {place}; they must have one shape"
            case Assign():
                return f"{statement.text}: a value of {size(statement.value)} is set to one of {size(statement.source)}"
            case Compute():
                return f"{statement.text}: the shapes {size(*statement.operands)} do not belong together"
            case Load():
                return f"load {statement.region}: leaves the tensor"
            case _:
                return "a loop cannot be run"

    def _load(self, load: Load, frame: Frame, chip: dict[str, Array]) -> Array:
        if load.through is None:
            return self._view(load.region, frame).copy()
        rows, cols = _slice(load.region.rows, frame), _slice(load.region.cols, frame)
        first, page = _int(frame, load.through.span.start), _int(frame, load.through.page)
        at = rows_of(rows, chip[load.through.value], first, page)
        return self.pools[load.region.tensor.name][_int(frame, load.region.head), at, cols]

    def _view(self, region: Region, frame: Frame) -> Array:
        if region.tensor.name in self.pools:
            raise ProgramError(f"{region}: lies in pages, so every load of it goes through their entries")
        batch, head = _int(frame, _BATCH), _int(frame, region.head)
        rows, cols = _slice(region.rows, frame), _slice(region.cols, frame)
        return self.memory[region.tensor.name][batch, head, rows, cols]

    def _compute(self, statement: Compute, frame: Frame, chip: dict[str, Array]) -> Array:
        function = OPS[statement.op].function
        operands = [chip[name] for name in statement.operands]
        if statement.op == "matmul":
            turned = (*statement.transposed, False)
            operands = [a.T if turn else a for a, turn in zip(operands, turned, strict=False)]
        if statement.op == "fill":
            assert statement.spans is not None
            shape = tuple(_int(frame, span.length) for span in statement.spans)
            return function(shape, statement.number, self.dtype)
        if statement.op == "scale":
            number = statement.number if statement.number is not None else self.problem.softmax_scale
            return function(operands[0], np.asarray(number, dtype=operands[0].dtype))
        if statement.op == "first_columns":
            assert statement.spans is not None
            return np.asarray(function(operands[0], _slice(statement.spans[1], frame)))
        if statement.op in ("mask", "keep", "alibi"):
            assert statement.spans is not None
            rows, cols = (_slice(span, frame) for span in statement.spans)
            match statement.op:
                case "mask":
                    operands.append(self._seen(rows, cols, packed=statement.spans[0].packed))
                case "keep":
                    operands.append(self._kept(rows, cols, statement, frame))
                case _:
                    operands.append(self._alibi(rows, cols, statement, frame))
        return np.asarray(function(*operands))

    def _seen(self, rows: slice, cols: slice, *, packed: bool) -> Array:
        """Which pairs of a tile the mask shows, rows and columns being those of the whole problem."""
        query = np.arange(rows.start, rows.stop)[:, None] // (self.problem.group_size if packed else 1)
        own = query + self.problem.key_offset
        key = np.arange(cols.start, cols.stop)[None, :]
        seen = key <= own
        window, prefix = self.problem.mask.window, self.problem.mask.prefix
        if prefix is not None:
            return seen | (key < prefix)
        return seen if window is None else seen & (key > own - window)

    def _alibi(self, rows: slice, cols: slice, statement: Compute, frame: Frame) -> Array:
        """−slope · |distance|, the slope 2^(−8(h + 1)/H) for query head h of H (Press et al. 2022)."""
        assert statement.head is not None
        slope = 2.0 ** (-8 * (_int(frame, statement.head) + 1) / self.problem.heads)
        own = np.arange(rows.start, rows.stop)[:, None] + self.problem.key_offset
        return np.asarray(-slope * np.abs(own - np.arange(cols.start, cols.stop)[None, :]))

    def _kept(self, rows: slice, cols: slice, statement: Compute, frame: Frame) -> Array:
        if self.keep is None:
            return np.ones((rows.stop - rows.start, cols.stop - cols.start))
        assert statement.head is not None
        return np.asarray(self.keep[_int(frame, _BATCH), _int(frame, statement.head), rows, cols])


def _slice(span: Span, frame: Frame) -> slice:
    return slice(_int(frame, span.start), _int(frame, span.stop))
