"""The listing reader: the program as a person reads it, with exact bytes and operations on every line."""

from __future__ import annotations

from dataclasses import dataclass

from iosim.interpret.count import lines
from iosim.program.evaluate import Binding, Frame
from iosim.program.expr import Expr
from iosim.program.ir import Program
from iosim.program.pretty import Row, listing


@dataclass(frozen=True, slots=True, kw_only=True)
class CostedRow:
    """One row of the listing with what it costs in the whole run, over all iterations and thread blocks."""

    row: Row
    read_bytes: int
    write_bytes: int
    tensor_flops: int
    vector_flops: int
    special_ops: int


def costed_listing(program: Program, binding: Binding) -> list[CostedRow]:
    """Every row with its totals for one point; the columns add up to what `count` gives for the program."""
    frame = Frame(binding)
    costs = lines(program)

    def total(nodes: list[Expr]) -> int:
        return sum(int(frame.value(node)) for node in nodes)

    out = []
    for row in listing(program):
        own = [costs[part] for part in row.parts]
        work = {
            unit: total([c.work[unit] for c in own if unit in c.work])
            for unit in ("tensor", "vector", "special")
        }
        out.append(
            CostedRow(
                row=row,
                read_bytes=total([c.read_bytes for c in own]),
                write_bytes=total([c.write_bytes for c in own]),
                tensor_flops=work["tensor"],
                vector_flops=work["vector"],
                special_ops=work["special"],
            )
        )
    return out
