"""What a kernel moves, apart from what it computes: kernels that move the same need one simulation."""

from __future__ import annotations

from dataclasses import replace

from iosim.program.ir import Accumulate, Load, Loop, Statement, Store


def moves_of(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The loops, loads and stores of a kernel's body, without names and operations; equal where they move the same."""
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            kept.append(replace(statement, body=moves_of(statement.body), line=""))
        elif isinstance(statement, Load | Store | Accumulate):
            kept.append(replace(statement, value="", line=""))
    return tuple(kept)
