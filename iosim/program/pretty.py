"""A program as the listing that a person would write: one row a named step, temporaries folded into their user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from iosim.program.ir import Accumulate, Assign, Compute, Kernel, Load, Loop, Program, Statement, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the listing: `line` is the paper's line number, `depth` the indentation.

    `parts`: positions of its statements in program order (loops included), its own last; empty for a kernel.
    """

    kernel: str
    line: str
    depth: int
    text: str
    parts: tuple[int, ...]

    def __str__(self) -> str:
        return f"{'  ' * self.depth}{self.text}"


@dataclass(slots=True)
class _Listing:
    """What one kernel's walk has seen: how values are written, and temporaries that wait for their user."""

    kernel: Kernel
    texts: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def text_of(self, value: str) -> str:
        buffer = self.kernel.buffers.get(value)
        return buffer.display if buffer else self.texts[value]

    def take(self, *values: str) -> tuple[int, ...]:
        """The statements of the temporaries among `values`; a temporary used twice goes to its first user."""
        return tuple(part for value in values for part in self.waiting.pop(value, ()))


def listing(program: Program) -> list[Row]:
    """The rows of a program in order. Every statement is a part of exactly one row."""
    rows: list[Row] = []
    position = 0
    for kernel in program.kernels:
        rows.append(Row(kernel=kernel.name, line="", depth=0, text=f"kernel {kernel.name}", parts=()))
        state = _Listing(kernel)
        for row in _walk(kernel.body, 1, position, state):
            rows.append(row)
        position += _size(kernel.body)
        rows += _unused(state)
    return rows


def _size(body: tuple[Statement, ...]) -> int:
    return sum(1 + (_size(s.body) if isinstance(s, Loop) else 0) for s in body)


def _walk(body: tuple[Statement, ...], depth: int, position: int, state: _Listing) -> Iterator[Row]:
    for statement in body:
        shown = _row(statement, position, state)
        if shown is not None:
            text, parts = shown
            yield Row(kernel=state.kernel.name, line=statement.line, depth=depth, text=text, parts=parts)
        position += 1
        if isinstance(statement, Loop):
            yield from _walk(statement.body, depth + 1, position, state)
            position += _size(statement.body)


def _row(statement: Statement, position: int, state: _Listing) -> tuple[str, tuple[int, ...]] | None:
    """The text and parts of a statement's row; None for a temporary, which waits for its user."""
    match statement:
        case Loop():
            word = "grid" if statement.parallel else "for"
            return f"{word} {statement.index} in [{statement.start}, {statement.stop})", (position,)
        case Load():
            name = state.text_of(statement.value)
            by = f" by {state.text_of(statement.through.value)}" if statement.through else ""
            return f"load {name} <- {statement.region}{by}", (position,)
        case Store():
            text = f"store {statement.region} <- {state.text_of(statement.value)}"
            return text, (*state.take(statement.value), position)
        case Accumulate():
            text = f"add {statement.region} += {state.text_of(statement.value)}"
            return text, (*state.take(statement.value), position)
        case Assign():
            return statement.text, (*state.take(statement.source), position)
        case Compute():
            parts = (*state.take(*statement.operands), position)
            state.texts[statement.value] = statement.text
            if statement.named:
                return statement.text, parts
            state.waiting[statement.value] = parts
            return None


def _unused(state: _Listing) -> list[Row]:
    """Temporaries that nothing reads: work without a result, shown so that the sums are complete."""
    return [
        Row(kernel=state.kernel.name, line="", depth=1, text=f"unused: {state.texts[value]}", parts=parts)
        for value, parts in state.waiting.items()
    ]
