"""The sequences of a ragged batch, and what is added over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from iosim.interpret.binding import bind
from iosim.interpret.count import Tally, count
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Number
from iosim.program.ir import Program


@dataclass(frozen=True, slots=True)
class Batch:
    """The distinct lengths as problems of one sequence each, and how often each occurs."""

    problems: list[AttentionProblem]
    copies: npt.NDArray[np.int64]

    def added(self, values: Number) -> int:
        """A number a problem, added over the whole batch."""
        column = np.broadcast_to(np.asarray(values), self.copies.shape)
        return sum(int(v) * int(n) for v, n in zip(column, self.copies, strict=True))

    def tally(self, program: Program, tiles: TileShape) -> Tally:
        """The count of the program over the batch."""
        one = count(program, self.binding(tiles))
        return Tally(
            read_bytes={t: self.added(v) for t, v in one.read_bytes.items()},
            write_bytes={t: self.added(v) for t, v in one.write_bytes.items()},
            tensor_flops=self.added(one.tensor_flops),
            vector_flops=self.added(one.vector_flops),
            special_ops=self.added(one.special_ops),
        )

    def binding(self, tiles: TileShape) -> dict[str, Number]:
        """Letters with the lengths as columns."""
        queries, keys = (np.array([getattr(p, s) for p in self.problems]) for s in ("seq_q", "seq_k"))
        return {**bind(self.problems[0], tiles), "N": queries, "Nk": keys}


def sequences_of(
    padded: AttentionProblem, lengths: Sequence[int], *, fixed_queries: bool
) -> list[AttentionProblem]:
    """The sequences of a batch, in order, as one problem each."""
    return [replace(padded, batch=1, seq_k=n, seq_q=padded.seq_q if fixed_queries else n) for n in lengths]


def distinct(padded: AttentionProblem, lengths: Sequence[int], *, fixed_queries: bool) -> Batch:
    sizes, copies = np.unique(np.asarray(lengths, dtype=np.int64), return_counts=True)
    return Batch(sequences_of(padded, sizes.tolist(), fixed_queries=fixed_queries), copies)
