"""The option of a ragged batch, and the problem that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from iosim.cli.options import PROBLEM, ProblemOptions
from iosim.errors import UsageError
from iosim.problem import AttentionProblem

SeqLens = Annotated[
    str | None,
    typer.Option(
        "--seq-lens",
        metavar="LIST|FILE",
        help="A ragged batch, 512,1024,37: keys of each sequence, and its queries unless --seq-q gives them.",
        rich_help_panel=PROBLEM,
    ),
]


def lengths_of(text: str | None, problem: ProblemOptions) -> tuple[int, ...]:
    """The lengths of a ragged batch; none without one."""
    from iosim.lengths import parse_lengths

    if text is None:
        return ()
    if problem.seq is not None or problem.seq_k is not None or problem.batch != "1":
        raise UsageError("--seq-lens: gives the batch and its lengths; leave out --seq, --seq-k and --batch")
    return parse_lengths(text)


def padded_problem(problem: ProblemOptions, lengths: Sequence[int]) -> AttentionProblem:
    """Every sequence as long as the longest."""
    return padded_sizes(problem, lengths).problem()


def padded_sizes(problem: ProblemOptions, lengths: Sequence[int]) -> ProblemOptions:
    """The options of the padded batch: --seq of the longest, or --seq-q as it was given and --seq-k of the longest."""
    longest, batch = str(max(lengths)), str(len(lengths))
    if problem.seq_q is None:
        return replace(problem, batch=batch, seq=longest)
    return replace(problem, batch=batch, seq_k=longest)
