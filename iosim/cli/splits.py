"""`iosim splits`: how many thread blocks should share the keys, as a table and a figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import Formats, StyleName, split, wrote
from iosim.cli.options import (
    OUTPUT,
    AlgorithmText,
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_problem
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.results import RunRecord

SHOWN = 24
"""Rows of the printed table; --json and the CSV have them all."""

Out = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="DIR", help="Draw bytes and busy SMs against the splits.", rich_help_panel=OUTPUT
    ),
]


@with_options
def splits(
    *,
    problem: ProblemOptions,
    algorithm: AlgorithmText = "decode",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    seq_lens: SeqLens = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Every split of the keys of a decode step: thread blocks, share of the SMs busy, bytes; the best one.

    --splits marks a count of your own instead of the best. With --seq-lens one count serves all sequences of the batch.
    """
    from iosim.cli.simulate import record_of
    from iosim.plots.files import check_formats, make_folder, save
    from iosim.plots.splits import splits_plot
    from iosim.plots.style import find_style

    look, kinds = find_style(style), check_formats(split(formats))
    if out is not None:
        make_folder(Path(out))
    lengths = lengths_of(seq_lens, problem)
    chosen = split_algorithms(algorithm)
    problem = problem.as_run_by(chosen)
    if len(chosen) != 1:
        raise UsageError(f"--algorithm: one at a time here, got {algorithm!r}")
    (options,) = replace(variants, splits=variants.splits or "best").options_for(chosen)
    record = record_of(
        padded_problem(problem, lengths) if lengths else problem.problem(),
        chosen[0],
        options,
        tiling,
        hardware,
        remarks=problem.remarks(),
        lengths=lengths,
        fixed_queries=problem.seq_q is not None,
    )
    if as_json:
        print_json(record.to_dict())
    else:
        warn(record.warnings)
        _show(record)
    if out is not None:
        plot = splits_plot(record, look)
        wrote(save(plot, Path(out) / plot.name, kinds))


def _show(record: RunRecord) -> None:
    from iosim.cli.simulate_table import describe, describe_lengths
    from iosim.units import counted, format_bytes

    found = record.notes["splits"]
    chosen, best, table = found["chosen"], found["best"], found["table"]
    wanted = {row["splits"] for row in table[:SHOWN]} if len(table) <= SHOWN else {chosen, best}
    wanted |= {1 << k for k in range(len(table).bit_length())} | {len(table)}
    print("\n".join([describe(record.problem), *describe_lengths(record)]))
    print(f"{record.algorithm}, {record.tiles} tiles, {record.profile}\n")
    print_table(
        ["splits", "thread blocks", "SMs busy", "bytes", "", "bytes / share", ""],
        [
            [
                str(row["splits"]),
                f"{row['thread_blocks']:,}",
                f"{row['sm_share']:.1%}",
                f"{row['total_bytes']:,}",
                format_bytes(row["total_bytes"], decimal=True),
                format_bytes(row["bytes_per_busy_share"], decimal=True),
                " ".join(word for word, n in (("best", best), ("chosen", chosen)) if n == row["splits"]),
            ]
            for row in table
            if row["splits"] in wanted
        ],
        right=(0, 1, 2, 3, 4, 5),
    )
    print(
        f"\nBest of {counted(len(table), 'split count')}: {best}, with the fewest bytes for the share of SMs busy"
        + ("" if chosen == best else f"; chosen: {chosen}")
    )
