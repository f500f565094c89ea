"""The grammar of tile programs: tensors, spans, values and seven kinds of statement.

kernel(name)  one launch; standard attention has three          grid(var)  one thread block each, unordered
loop(var)     sequential, inside a thread block                  load       slow memory -> chip
compute       an operation of the table on values on chip        store      chip -> slow memory
accumulate    slow memory += chip: a read and a write, by several thread blocks in any order
assign        gives a value that lives across a loop its next contents
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from iosim.program.expr import Expr, const, extent, index, is_const, minimum, param, product, tile_start


@dataclass(frozen=True, slots=True)
class Span:
    """Rows or columns [start, stop) of a tensor: tile `tile_index` of an axis, a single row, or all of it."""

    start: Expr
    stop: Expr
    length: Expr
    widest: Expr  # the length of a whole tile: what must be kept free on chip
    label: str
    packed: bool = False  # rows are (query, query head of the group), the head fastest

    @staticmethod
    def tile(i: Expr, tile: Expr, size: Expr, *, packed: bool = False) -> Span:
        """Tile i of an axis of `size` in tiles of `tile`."""
        length = extent(i, tile, size)
        stop = tile_start(i + const(1), tile, size)
        return Span(tile_start(i, tile, size), stop, length, minimum(tile, size), str(i), packed)

    def copy_of(self, k: Expr, size: Expr) -> Span:
        """The same rows in copy k of an axis of `size`, where several copies lie one after another."""
        start, stop = k * size + self.start, k * size + self.stop
        return Span(start, stop, self.length, self.widest, f"{k}, {self.label}", self.packed)

    @staticmethod
    def one(i: Expr | int) -> Span:
        """The single row or column i."""
        i = const(i) if isinstance(i, int) else i
        return Span(i, i + const(1), const(1), const(1), str(i))

    @staticmethod
    def whole(size: Expr) -> Span:
        """All of an axis."""
        return Span(const(0), size, size, size, ":")


@dataclass(frozen=True, slots=True)
class Tensor:
    """A matrix a head in slow memory: `rows` x `cols` elements of `itemsize` bytes.

    `shared` tensors (K, V) are stored once a kv-head; `packed` ones too, with the rows of all query heads of its
    group in one matrix, row query·group + head; `single` ones once a batch entry. `role` is input, output, or
    scratch (written and read back, such as S).
    """

    name: str
    rows: Expr
    cols: Expr
    itemsize: Expr
    role: str
    shared: bool = False
    row_tile: Expr = field(default_factory=lambda: const(1))
    col_tile: Expr | None = None
    packed: bool = False
    single: bool = False

    @property
    def is_statistic(self) -> bool:
        """True for one number a row: m, l, the log-sum-exp."""
        return is_const(self.cols, 1)

    def tile(self, i: Expr, j: Expr | None = None) -> Region:
        """Rows of tile i; all columns, or those of tile j."""
        cols = (
            Span.whole(self.cols)
            if j is None or self.col_tile is None
            else Span.tile(j, self.col_tile, self.cols)
        )
        return Region(self, Span.tile(i, self.row_tile, self.rows, packed=self.packed), cols)

    def part(self, rows: Span | None = None, cols: Span | None = None) -> Region:
        """Any rows and columns; all where not given."""
        return Region(self, rows or Span.whole(self.rows), cols or Span.whole(self.cols))


@dataclass(frozen=True, slots=True)
class Region:
    """What one load or store touches. `head`: of the tensor's heads (kv-heads where shared), set by the builder."""

    tensor: Tensor
    rows: Span
    cols: Span
    head: Expr = field(default_factory=lambda: index("head"))

    @property
    def elements(self) -> Expr:
        """Elements touched."""
        return product([self.rows.length, self.cols.length])

    @property
    def bytes(self) -> Expr:
        """Bytes moved."""
        return product([self.tensor.itemsize, self.rows.length, self.cols.length])

    def __str__(self) -> str:
        cols = "" if self.cols.label == ":" else f", {self.cols.label}"
        return f"{self.tensor.name}[{self.rows.label}{cols}]"


@dataclass(frozen=True, slots=True)
class PageEntries:
    """Entries of a page table on chip: `value` holds those of the pages `span`, each of `page` rows."""

    value: str
    span: Span
    page: Expr


@dataclass(frozen=True, slots=True)
class Load:
    """`value` = region, from slow memory; `through` the page entries that say where its rows lie."""

    value: str
    region: Region
    line: str = ""
    through: PageEntries | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """region = `value`, to slow memory; `initial` contents may be overwritten unread."""

    value: str
    region: Region
    line: str = ""
    initial: bool = False


@dataclass(frozen=True, slots=True)
class Accumulate:
    """region += `value` in slow memory, across thread blocks: the only store that they may share."""

    value: str
    region: Region
    line: str = ""


@dataclass(frozen=True, slots=True)
class Compute:
    """`value` = op(operands); `cost` is in the op's unit. `text` is how a person writes it."""

    value: str
    op: str
    operands: tuple[str, ...]
    cost: Expr
    text: str
    named: bool
    line: str = ""
    transposed: tuple[bool, bool] = (False, False)  # matmul: which operands are transposed
    spans: tuple[Span, Span] | None = None  # where the result lies among queries and keys
    number: float | None = None  # fill, scale: the constant; None in scale is the softmax scale
    head: Expr | None = None  # the query head in hand


@dataclass(frozen=True, slots=True)
class Assign:
    """The loop-carried `value` takes the contents of `source`."""

    value: str
    source: str
    text: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """`body` for each index in [start, stop); `parallel` marks a grid: one thread block each."""

    index: str
    start: Expr
    stop: Expr
    parallel: bool
    body: tuple[Statement, ...]
    line: str = ""

    @property
    def variable(self) -> Expr:
        """The index as an expression."""
        return index(self.index)


Statement: TypeAlias = "Load | Store | Accumulate | Compute | Assign | Loop"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named value on chip: its largest shape, and the tensor whose tile it is (None for S, P, m, l …)."""

    name: str
    display: str
    rows: Expr
    cols: Expr
    tensor: Tensor | None
    loaded: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: its statements and the named values it keeps on chip."""

    name: str
    body: tuple[Statement, ...]
    buffers: dict[str, Buffer]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A whole algorithm, built once with its sizes left open."""

    name: str
    tensors: dict[str, Tensor]
    kernels: tuple[Kernel, ...]

    @property
    def spills_scores(self) -> bool:
        """True where a tensor of queries x keys (S, P) goes through slow memory."""
        return any(t.role == "scratch" and t.cols is param("Nk") for t in self.tensors.values())

    @property
    def packed(self) -> bool:
        """True where a row tile is cut from the rows of all query heads of a group."""
        return any(t.packed for t in self.tensors.values())
