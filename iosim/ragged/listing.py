"""The listing of a program over a ragged batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from iosim.interpret.binding import bind
from iosim.interpret.listing import CostedRow, costed_listing
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.ragged.batch import distinct


def ragged_listing(
    program: Program,
    padded: AttentionProblem,
    lengths: Sequence[int],
    tiles: TileShape,
    *,
    fixed_queries: bool,
) -> list[CostedRow]:
    """The listing of a program with what every line costs over all sequences."""
    batch = distinct(padded, lengths, fixed_queries=fixed_queries)
    each = [costed_listing(program, bind(p, tiles)) for p in batch.problems]
    costs = ("read_bytes", "write_bytes", "tensor_flops", "vector_flops", "special_ops")
    return [
        replace(
            rows[0], **{c: batch.added(np.array([getattr(r, c) for r in rows], dtype=object)) for c in costs}
        )
        for rows in zip(*each, strict=True)
    ]
