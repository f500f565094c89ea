"""Memory held by the layer, against its length and the GPU's capacity."""

from __future__ import annotations

import pandas as pd

from iosim.capacity import PLOT_SEQS, Fit, memory_by_seq
from iosim.plots.memory import memory_by_seq_plot
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure
from iosim.report.gpu import MEMORY_ALGORITHMS, MEMORY_PASSES, GpuPart
from iosim.report.sections.facts import Facts
from iosim.units import format_bytes

NOTE = (
    "What one attention layer holds outside the chip: its own tensors alone, nothing of the rest of a model. Training "
    "keeps what the backward needs. With other options than the defaults the forms do not change."
)


def section(facts: Facts) -> Section:
    """A figure and a table a GPU; nothing for a ragged batch, which has no one length to hold it against."""
    if facts.batch.seq_lens:
        return Section(key="memory", title="Memory against length", nav="Memory", blocks=())
    blocks: list[Block] = [Text(text=NOTE, note=True)]
    table = memory_by_seq(facts.problem, MEMORY_ALGORITHMS, MEMORY_PASSES, PLOT_SEQS)
    for part in facts.parts:
        blocks += _of_gpu(facts, part, table)
    return Section(key="memory", title="Memory against length", nav="Memory", blocks=tuple(blocks))


def _of_gpu(facts: Facts, part: GpuPart, table: pd.DataFrame) -> list[Block]:
    gpu, capacity = part.profile.name, part.profile.hbm_capacity_bytes
    drawn = memory_by_seq_plot(table, facts.problem, facts.style, gpu=gpu, capacity_bytes=capacity)
    size = format_bytes(capacity, decimal=True)
    return [
        Heading(text=gpu),
        figure(gpu, drawn),
        Table(
            name=f"{gpu}_memory",
            frame=fit_table(part.memory),
            caption=f"Bytes held at the asked length, and the longest that fits in the {size} of {gpu}",
        ),
    ]


def fit_table(fits: tuple[Fit, ...]) -> pd.DataFrame:
    """One row an algorithm and pass."""
    return pd.DataFrame(
        [
            {
                "algorithm": fit.held.algorithm,
                "pass": fit.held.passes,
                "bytes": fit.held.total_bytes,
                "fits": fit.fits,
                "longest_layer": fit.largest_seq_layer,
                "longest_one_head": fit.largest_seq_head,
                **{f"fits_{name}": fits for name, fits in fit.fits_long.items()},
                "status": fit.held.status,
            }
            for fit in fits
        ]
    )
