"""Time: kernels against the lower bound, the terms at the asked length, and both against the length."""

from __future__ import annotations

import pandas as pd

from iosim.plots.bound import problem_text
from iosim.plots.time import time_by_seq, time_terms
from iosim.problem import AttentionProblem
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.report.times import Times, all_terms, limit_of, range_of
from iosim.units import format_seconds

NOTE = (
    "Two numbers that are never mixed: the lower bound has no constants but the hardware's; the prediction adds "
    "measured rates and the way the kernel is written, and has a range. Terms add up; a hidden one runs behind the "
    "others. `iosim explain` prints the formulas."
)


def section(facts: Facts) -> Section:
    """For each GPU two figures and two tables."""
    blocks: list[Block] = [Text(text=NOTE, note=True)]
    for part in facts.parts:
        blocks += [Heading(text=part.profile.name), *_of_gpu(facts, part)]
    return Section(key="time", title="Time", nav="Time", blocks=tuple(blocks))


def _of_gpu(facts: Facts, part: GpuPart) -> list[Block]:
    gpu, times, p = part.profile.name, part.times, facts.problem
    blocks: list[Block] = []
    square, details = p.seq_q == p.seq_k, without_length(p)
    if len(times.terms):
        drawn = time_terms(times.terms, times.by_seq, facts.style, gpu=gpu, details=details, square=square)
        blocks.append(figure(gpu, drawn))
    if len(times.by_seq):
        drawn = time_by_seq(times.by_seq, facts.style, gpu=gpu, details=details, square=square)
        blocks.append(figure(gpu, drawn))
    if times.timings:
        caption = f"Kernels on {gpu}: predicted time of one run, and the least possible"
        blocks.append(Table(name=f"{gpu}_time", frame=kernel_table(times), caption=caption))
    if times.main is not None:
        caption = f"Terms of {times.main.kernel} on {gpu}, one run"
        frame = term_table(times)
        blocks.append(Table(name=f"{gpu}_terms", frame=frame, caption=caption, prose=("formula",)))
        blocks += items([f"Assumed: {line}." for line in times.main.assumed], note=True)
    elif times.bound is not None:
        least = f"The least that any kernel needs is {format_seconds(times.bound.seconds)}"
        blocks += items([f"{least}, set by {times.bound.limit}."], note=True)
    return [*blocks, *items(times.remarks, note=True)]


def without_length(p: AttentionProblem) -> str:
    """The problem in a heading where the length is an axis."""
    length = f"N = {p.seq_q:,}" + (f" × {p.seq_k:,}" if p.seq_k != p.seq_q else "")
    kept = "" if p.seq_k == p.seq_q else f"{p.seq_q:,} queries, " if p.seq_q > 1 else "1 query, "
    return problem_text(p).replace(f"{length}, ", kept)


def kernel_table(times: Times) -> pd.DataFrame:
    """One row a kernel."""
    rows = []
    for t in times.timings:
        low, high = range_of(t)
        known = t.once_s is not None
        rows.append(
            {
                "kernel": t.kernel,
                "time": format_seconds(t.once_s) if t.once_s else "unknown",
                "range": f"{format_seconds(low)} to {format_seconds(high)}" if known else "",
                "lower_bound": format_seconds(t.bound.seconds),
                "bound_over_time": t.bound.seconds / t.once_s if t.once_s else None,
                "limited_by": limit_of(t) if known else "",
                "bound_set_by": t.bound.limit,
                "seconds": t.once_s,
                "repeated_s": t.repeated_s,
                "hbm_bytes": t.hbm_bytes,
            }
        )
    return pd.DataFrame(rows).astype({"hbm_bytes": "Int64"})


def term_table(times: Times) -> pd.DataFrame:
    """The terms of the preferred kernel, and of the lower bound under them."""
    main = times.main
    if main is None or not main.once_s:
        return pd.DataFrame()
    predicted = [
        {
            "of": "prediction",
            "term": t.name,
            "time": format_seconds(t.seconds),
            "share": f"{t.seconds / main.once_s:.1%}",
            "hidden": t.hidden,
            "seconds": t.seconds,
            "formula": t.formula,
        }
        for t in all_terms(main)
        if t.seconds
    ]
    least = [
        {
            "of": "lower bound",
            "term": t.name,
            "time": format_seconds(t.seconds),
            "share": f"{t.seconds / main.bound.seconds:.1%}",
            "hidden": t.name != main.bound.limit,
            "seconds": t.seconds,
            "formula": t.formula,
        }
        for t in main.bound.terms
    ]
    return pd.DataFrame([*predicted, *least])
