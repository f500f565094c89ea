"""The footprint reader: what is live on chip at the worst moment, in one of two named models.

`paper`   tiles of Q, K, V, O (and of S, P where they go through slow memory) in their dtypes count against M;
          scratch that never leaves the chip (S, P, m, l of FlashAttention) and row statistics do not.
          This is the accounting of the FlashAttention papers and of the bounds.
`kernel`  shared memory holds loaded matmul operands in their dtypes, those of an inner loop twice (the next tile
          arrives while this one is used); registers hold accumulators and scores in the accumulator dtype, P as
          the matmul reads it. Tiles are rounded up to the 16 x 16 of the MMA shape.

A named value is a buffer; an unnamed temporary is computed in place. A value lives from its definition to its
last use, or to the end of a loop that uses it and does not define it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, reduce

from iosim.program.evaluate import Binding, Frame, Number
from iosim.program.expr import Expr, add, cdiv, const, maximum, mul, param, product
from iosim.program.ir import (
    Accumulate,
    Assign,
    Buffer,
    Compute,
    Kernel,
    Load,
    Loop,
    Program,
    Statement,
    Store,
)

MODELS = ("paper", "kernel")
MMA = 16  # rows and columns of the smallest tensor-core operand tile in fp16 (m16n8k16, ldmatrix x4)
STAGES = 2  # copies of a streamed operand: one in use, one arriving


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A buffer with its bytes at the worst moment; `place` is sram or registers, `counted` whether M pays for it."""

    kernel: str
    name: str
    tensor: str | None
    place: str
    bytes: Number
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Live bytes on chip: `sram_bytes` against M, `register_bytes` against the register file (0 in `paper`)."""

    model: str
    sram_bytes: Number
    register_bytes: Number
    buffers: tuple[Held, ...]


@dataclass(slots=True)
class _Life:
    """First and last position at which a buffer is live, and how it is used."""

    first: int
    last: int = -1
    operand: bool = False  # read by a matmul
    left_operand: bool = False
    streamed: bool = False  # loaded inside a sequential loop


@dataclass(slots=True)
class _Walk:
    position: int = 0
    lives: dict[str, _Life] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)  # unnamed temporary -> where its matmul began


def _lives(kernel: Kernel) -> dict[str, _Life]:
    walk = _Walk()
    _visit(kernel, kernel.body, walk, sequential=False)
    return {name: life for name, life in walk.lives.items() if name in kernel.buffers}


def _visit(kernel: Kernel, body: tuple[Statement, ...], walk: _Walk, *, sequential: bool) -> None:
    for statement in body:
        walk.position += 1
        here = walk.position
        match statement:
            case Loop():
                before = dict.fromkeys(walk.lives)
                _visit(kernel, statement.body, walk, sequential=sequential or not statement.parallel)
                for name in before:  # defined outside, used inside: needed again by the next iteration
                    if walk.lives[name].last > here:
                        walk.lives[name].last = walk.position
            case Load():
                walk.lives[statement.value] = _Life(here, here, streamed=sequential)
                if statement.through is not None:
                    _use(walk, statement.through.value, here)
            case Store() | Accumulate():
                _use(walk, statement.value, here)
            case Assign():
                _use(walk, statement.source, here)
                _use(walk, statement.value, here)
            case Compute():
                _compute(statement, walk, here)


def _compute(statement: Compute, walk: _Walk, here: int) -> None:
    """A named result occupies its space from where its first matmul began: the accumulator is not in place."""
    started = min([walk.starts[o] for o in statement.operands if o in walk.starts], default=here)
    for place, operand in enumerate(statement.operands):
        _use(walk, operand, here)
        if statement.op == "matmul" and place < 2 and operand in walk.lives:
            walk.lives[operand].operand = True
            walk.lives[operand].left_operand |= place == 0
    if statement.named:
        walk.lives[statement.value] = _Life(started, here)
    elif statement.op == "matmul" or started < here:
        walk.starts[statement.value] = started


def _use(walk: _Walk, name: str, here: int) -> None:
    if name in walk.lives:
        walk.lives[name].last = max(walk.lives[name].last, here)


def _live_sets(lives: dict[str, _Life]) -> Iterator[frozenset[str]]:
    """The distinct sets of buffers live together; a set inside another can never be the worst."""
    moments = {life.first for life in lives.values()}
    sets = {frozenset(n for n, life in lives.items() if life.first <= t <= life.last) for t in moments}
    yield from (s for s in sets if not any(s < other for other in sets))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sized:
    kernel: str
    buffer: Buffer
    place: str
    bytes: Expr
    counted: bool


def _paper(kernel: Kernel, buffer: Buffer, life: _Life) -> _Sized:
    tensor = buffer.tensor
    counted = tensor is not None and not tensor.is_statistic
    itemsize = tensor.itemsize if tensor is not None else param("s_acc")
    size = product([itemsize, buffer.rows, buffer.cols])
    return _Sized(kernel=kernel.name, buffer=buffer, place="sram", bytes=size, counted=counted)


def _kernel(kernel: Kernel, buffer: Buffer, life: _Life) -> _Sized:
    def rounded(size: Expr) -> Expr:
        return size if size.op == "const" else mul(cdiv(size, MMA), MMA)

    in_sram = buffer.loaded and life.operand
    area = product([rounded(buffer.rows), rounded(buffer.cols)])
    if in_sram and buffer.tensor is not None:
        size = product([STAGES if life.streamed else 1, buffer.tensor.itemsize, area])
    else:
        is_p = not buffer.loaded and buffer.tensor is None and life.left_operand
        size = product([param("s_v") if is_p else param("s_acc"), area])
    place = "sram" if in_sram else "registers"
    return _Sized(kernel=kernel.name, buffer=buffer, place=place, bytes=size, counted=in_sram)


@lru_cache(maxsize=512)
def _moments(program: Program, model: str) -> tuple[tuple[_Sized, ...], ...]:
    sizing = {"paper": _paper, "kernel": _kernel}[model]
    out = []
    for kernel in program.kernels:
        lives = _lives(kernel)
        for names in _live_sets(lives):
            ordered = sorted(names, key=lambda n: lives[n].first)
            out.append(tuple(sizing(kernel, kernel.buffers[n], lives[n]) for n in ordered))
    return tuple(out)


def _terms(moment: tuple[_Sized, ...], place: str) -> list[Expr]:
    """Bytes of each buffer of one moment in one place; in `paper` only what counts against M."""
    return [i.bytes for i in moment if i.place == place and (i.counted or place == "registers")]


def _sum(terms: list[Expr]) -> Expr:
    return reduce(add, terms, const(0))


@lru_cache(maxsize=512)
def live_bytes(program: Program, model: str, place: str = "sram") -> Expr:
    """The worst moment's bytes in one place, as an expression of the tile and the problem."""
    every = {frozenset(Counter(_terms(m, place)).items()): _terms(m, place) for m in _moments(program, model)}
    sums = [terms for key, terms in every.items() if not any(key < other for other in every)]
    return reduce(maximum, map(_sum, sums), const(0))


def footprint(program: Program, model: str, binding: Binding) -> Footprint:
    """Live bytes at the worst moment, with the buffers of that moment (of SRAM) listed one by one."""
    frame = Frame(binding)
    moments = _moments(program, model)
    worst = max(
        moments, key=lambda m: [frame.value(_sum(_terms(m, p))) for p in ("sram", "registers")], default=()
    )
    held = tuple(
        Held(
            kernel=item.kernel,
            name=item.buffer.display,
            tensor=item.buffer.tensor.name if item.buffer.tensor else None,
            place=item.place,
            bytes=frame.value(item.bytes),
            counted=item.counted,
        )
        for item in worst
    )
    return Footprint(
        model=model,
        sram_bytes=frame.value(live_bytes(program, model)),
        register_bytes=frame.value(live_bytes(program, model, "registers")),
        buffers=held,
    )
