"""Building a tile program in ordinary Python: loops run their body once, with symbolic indices.

A program is a function of one argument, the `Builder`:

    def attention(p):
        Q, K, V, O = p.tensors("Q K V O")
        for i in p.blocks(Q):                         # one thread block a (batch, head, row tile)
            q = p.load("Q_i", Q.tile(i))
            ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from iosim.errors import ProgramError
from iosim.program.expr import (
    Expr,
    Like,
    cdiv,
    const,
    floordiv,
    index,
    lift,
    number,
    param,
)
from iosim.program.ir import (
    Accumulate,
    Assign,
    Buffer,
    Compute,
    Kernel,
    Load,
    Loop,
    PageEntries,
    Program,
    Region,
    Span,
    Statement,
    Store,
    Tensor,
)
from iosim.program.operations import Operations
from iosim.program.tensors import STATISTIC_BYTES, attention_tensors
from iosim.program.tile_loops import TileLoops
from iosim.program.value import Value
from iosim.program.visible import GROUP

__all__ = ["Builder", "ProgramFunction", "Value", "build"]


@dataclass(slots=True)
class _Open:
    """A loop whose body is being filled."""

    id: int
    body: list[Statement]


class Builder(TileLoops, Operations):
    """Collects the statements of one program.

    `mask_kind` (none, causal, window, prefix) and `options` are known while building, so a program may branch on them.
    Every size is a letter that is bound later: B, H, Hk, N, Nk, d, dv, Br, Bc, w, pre.
    """

    def __init__(self, name: str, mask_kind: str, options: Mapping[str, str]) -> None:
        self.name = name
        self.mask_kind = mask_kind
        self.options = dict(options)
        self.N, self.Nk, self.d, self.dv = param("N"), param("Nk"), param("d"), param("dv")
        self.Br, self.Bc = param("Br"), param("Bc")
        given = self.options.get("block-mask", "off")
        self.block_mask = "" if given == "off" else given
        self._tensors: dict[str, Tensor] = {}
        self._kernels: list[Kernel] = []
        self._buffers: dict[str, Buffer] = {}
        self._stack: list[_Open] = []
        self._open_indices: list[str] = []
        self._count = 0
        self._line = ""
        self._head: Expr | None = None  # of queries
        self._kv_head: Expr | None = None

    # --- slow memory -------------------------------------------------------------------------------------------

    def number(self, option: str) -> Expr:
        """The value of an option that is a count, open to be bound to other counts."""
        return number(option, int(self.options[option]))

    def packed(self, names: str) -> list[Tensor]:
        """Tensors of queries with the heads of a group packed into one matrix a kv-head: N·group rows."""
        rows = self.N * GROUP
        tensors = [self._known(name) for name in names.split()]
        return [self.declare(replace(t, rows=rows, shared=True, packed=True)) for t in tensors]

    def partial(self, name: str, like: Tensor, copies: Expr, cols: Expr) -> Tensor:
        """Scratch for partial results in fp32: `copies` of the rows of `like`, one after another."""
        tensor = replace(like, name=name, rows=copies * like.rows, cols=cols, role="scratch")
        return self.declare(replace(tensor, itemsize=const(STATISTIC_BYTES)))

    def tensors(self, names: str) -> list[Tensor]:
        """The inputs and outputs of attention by name: Q K V dO (read), O LSE M L dQ dK dV (written), D (both)."""
        return [self.declare(self._known(name)) for name in names.split()]

    def saved(self, names: str) -> list[Tensor]:
        """What the backward reads of the forward: the tensors of this program, or inputs if it does not make them."""
        out = []
        for name in names.split():
            known = self._tensors.get(name)
            out.append(known or self.declare(replace(self._known(name), role="input")))
        return out

    def _known(self, name: str) -> Tensor:
        known = attention_tensors()
        if name not in known:
            raise ProgramError(
                f"tensor {name!r} is not part of attention; known: {', '.join(known)}, or p.scratch"
            )
        return known[name]

    def scratch(self, name: str, itemsize: Like | None = None, role: str = "scratch") -> Tensor:
        """A queries x keys matrix in slow memory, such as S or P; elements as wide as O's unless told."""
        size = param("s_o") if itemsize is None else lift(itemsize)
        return self.declare(Tensor(name, self.N, self.Nk, size, role, row_tile=self.Br, col_tile=self.Bc))

    def declare(self, tensor: Tensor) -> Tensor:
        """Add a tensor to the program."""
        if tensor.name in self._tensors:
            raise ProgramError(f"tensor {tensor.name} is declared twice")
        self._tensors[tensor.name] = tensor
        return tensor

    def load(self, name: str, region: Region, through: Value | None = None) -> Value:
        """Bring a region on chip under `name`; `through`: the loaded page entries that say where its rows lie."""
        entries = None
        if through is not None:
            self._check(through)
            entries = PageEntries(through.name, through.rows, self.number("page"))
        value = self._fresh(name, region.rows, region.cols)
        self._buffer(value, name, region.tensor, loaded=True)
        self._append(Load(value.name, self._of_head(region), self._line, entries))
        return value

    def store(self, region: Region, value: Value, *, initial: bool = False) -> None:
        """Write a value to slow memory; `initial` contents, zeros, may be overwritten without being read."""
        self._check(value)
        self._append(Store(value.name, self._of_head(region), self._line, initial))

    def accumulate(self, region: Region, value: Value) -> None:
        """Add a value to what slow memory holds: a read and a write, by any number of thread blocks in any order."""
        self._check(value)
        self._append(Accumulate(value.name, self._of_head(region), self._line))

    def _of_head(self, region: Region) -> Region:
        """The region in the matrix of the head in hand."""
        head = self._kv_head if region.tensor.shared else self._head
        if region.tensor.single:
            head = const(0)
        if head is None:
            raise ProgramError(f"{region}: which head? stand inside p.heads, p.blocks or p.query_heads")
        return replace(region, head=head)

    # --- control -----------------------------------------------------------------------------------------------

    def kernel(self, name: str) -> Iterator[None]:
        """`for _ in p.kernel("softmax"):` opens one launch; nothing on chip survives it."""
        if self._stack:
            raise ProgramError(f"kernel {name}: kernels cannot be nested")
        self._buffers = {}
        frame = self._push()
        yield None
        self._stack.pop()
        self._kernels.append(Kernel(name, tuple(frame.body), self._buffers))

    def grid(self, name: str, start: Like, stop: Like) -> Iterator[Expr]:
        """A parallel loop: one thread block for each index, in no order."""
        return self._loop(name, start, stop, parallel=True)

    def loop(self, name: str, start: Like, stop: Like) -> Iterator[Expr]:
        """A sequential loop inside a thread block."""
        return self._loop(name, start, stop, parallel=False)

    def heads(self) -> Iterator[None]:
        """The grid over batch entries and query heads; loads and stores inside refer to that head."""
        for _ in self.grid("batch", 0, param("B")):
            for head in self.grid("head", 0, param("H")):
                yield from self._inside(head, floordiv(head, GROUP))

    def kv_heads(self) -> Iterator[None]:
        """The grid over batch entries and key/value heads; `query_heads` inside goes over the heads of its group."""
        for _ in self.grid("batch", 0, param("B")):
            for kv_head in self.grid("kv_head", 0, param("Hk")):
                yield from self._inside(None, kv_head)

    def query_heads(self) -> Iterator[None]:
        """A sequential loop over the query heads that share the kv-head in hand."""
        kv_head = self._kv_head
        if kv_head is None:
            raise ProgramError("query_heads: stands inside p.kv_heads")
        for g in self.loop("g", 0, GROUP):
            yield from self._inside(kv_head * GROUP + g, kv_head)

    def _inside(self, head: Expr | None, kv_head: Expr) -> Iterator[None]:
        before = self._head, self._kv_head
        self._head, self._kv_head = head, kv_head
        yield None
        self._head, self._kv_head = before

    def blocks(self, tensor: Tensor) -> Iterator[Expr]:
        """A kernel with one thread block a (batch, head, row tile of `tensor`); yields the row tile."""
        for _ in self.kernel(self.name):
            for _ in self.heads():
                yield from self.grid("i", 0, cdiv(tensor.rows, tensor.row_tile))

    def _loop(self, name: str, start: Like, stop: Like, *, parallel: bool) -> Iterator[Expr]:
        if not self._stack:
            raise ProgramError(f"loop {name} stands outside a kernel")
        if name in self._open_indices:
            raise ProgramError(f"loop {name}: that index is already in use by an enclosing loop")
        line, frame = self._line, self._push()
        self._open_indices.append(name)
        yield index(name)
        self._open_indices.pop()
        self._stack.pop()
        self._append(Loop(name, lift(start), lift(stop), parallel, tuple(frame.body), line))

    def line(self, number: str) -> None:
        """The statements that follow are this line of the paper's listing."""
        self._line = number

    # --- operations --------------------------------------------------------------------------------------------

    def let(self, name: str, value: Value) -> Value:
        """Name a computed value: it becomes a buffer, and a line of the listing."""
        frame = self._stack[-1].body
        last = frame[-1] if frame else None
        if not isinstance(last, Compute) or last.value != value.name or last.named:
            raise ProgramError(f"let {name}: give it the operation that was just written")
        frame[-1] = replace(last, named=True, text=f"{name} = {last.text}")
        self._buffer(value, name, None, loaded=False)
        return replace(value, text=name)

    def fill(
        self, name: str, number: float, rows: Span, cols: Span | None = None, of: Tensor | None = None
    ) -> Value:
        """A new value of one number: a row vector, or a matrix with `cols`; `of` is the tensor it accumulates."""
        cols = cols or Span.whole(const(1))
        text = f"{name} = {number:g}".replace("inf", "∞")
        value = self._compute(
            "fill", (), rows, cols, const(0), text, number=number, spans=(rows, cols), named=True
        )
        self._buffer(value, name, of, loaded=False)
        return replace(value, text=name)

    def set(self, target: Value, value: Value) -> None:
        """Give `target`, defined before the loop, its next contents."""
        self._check(target)
        self._check(value)
        self._append(Assign(target.name, value.name, f"{target.text} = {value.text}", self._line))

    # --- bookkeeping -------------------------------------------------------------------------------------------

    def _compute(
        self,
        op: str,
        operands: tuple[Value, ...],
        rows: Span,
        cols: Span,
        cost: Expr,
        text: str,
        *,
        transposed: tuple[bool, bool] = (False, False),
        spans: tuple[Span, Span] | None = None,
        number: float | None = None,
        named: bool = False,
    ) -> Value:
        for operand in operands:
            self._check(operand)
        value = self._fresh(text, rows, cols)
        names = tuple(o.name for o in operands)
        line, head = self._line, self._head
        self._append(Compute(value.name, op, names, cost, text, named, line, transposed, spans, number, head))
        return value

    def _check(self, value: Value) -> None:
        scope = tuple(frame.id for frame in self._stack)
        if not isinstance(value, Value) or value.builder is not self:
            raise ProgramError(f"{value!r} is not a value of this program")
        if value.scope != scope[: len(value.scope)]:
            raise ProgramError(
                f"{value.text} is used before it is defined on every path: it was defined inside a loop or kernel "
                "that has ended; define it before the loop and p.set it inside"
            )

    def _fresh(self, text: str, rows: Span, cols: Span) -> Value:
        self._count += 1
        return Value(f"%{self._count}", text, rows, cols, tuple(frame.id for frame in self._stack), self)

    def _buffer(self, value: Value, display: str, tensor: Tensor | None, *, loaded: bool) -> None:
        buffer = Buffer(value.name, display, value.rows.widest, value.cols.widest, tensor, loaded)
        self._buffers[value.name] = buffer

    def _push(self) -> _Open:
        self._count += 1
        frame = _Open(self._count, [])
        self._stack.append(frame)
        return frame

    def _append(self, statement: Statement) -> None:
        if not self._stack:
            raise ProgramError("loads, stores and operations stand inside a kernel")
        self._stack[-1].body.append(statement)

    def finish(self) -> Program:
        """The program, after its function has run."""
        if not self._kernels:
            raise ProgramError(f"{self.name}: the program has no kernel")
        if not any(t.role == "output" for t in self._tensors.values()):
            raise ProgramError(f"{self.name}: the program has no output tensor")
        return Program(self.name, dict(self._tensors), tuple(self._kernels))


ProgramFunction: TypeAlias = "Callable[[Builder], None]"


def build(function: ProgramFunction, name: str, mask_kind: str, options: Mapping[str, str]) -> Program:
    """Run a program function once and return what it built."""
    builder = Builder(name, mask_kind, options)
    function(builder)
    return builder.finish()
