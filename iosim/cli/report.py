"""`iosim report`: the whole study as one folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from iosim.cli.bound import Also
from iosim.cli.drawing import Formats, StyleName, say, split
from iosim.cli.options import (
    HARDWARE,
    OUTPUT,
    PROBLEM,
    AsJson,
    Overrides,
    ProblemOptions,
    Sram,
    Text,
    with_options,
)
from iosim.cli.output import print_json, quiet_stdout, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_problem
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

DEFAULT_SEQ = "8192"
DEFAULT_HEADS = "32"
DEFAULT_HW = "a100-sxm-80gb,h100-sxm"
DEFAULT_OUT = "iosim-report"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportProblem(ProblemOptions):
    """The problem options with the report's own defaults."""

    heads: Annotated[
        Text,
        typer.Option(
            "--heads", metavar="SIZE", help=f"Query heads [{DEFAULT_HEADS}].", rich_help_panel=PROBLEM
        ),
    ] = None
    seq: Annotated[
        Text,
        typer.Option(
            "--seq",
            metavar="SIZE",
            help=f"Queries and keys of a sequence [{DEFAULT_SEQ}].",
            rich_help_panel=PROBLEM,
        ),
    ] = None

    def filled(self) -> ProblemOptions:
        """With the default length and heads where neither the user nor a model gave any."""
        given = (self.seq, self.seq_q, self.seq_k)
        out = replace(self, seq=DEFAULT_SEQ) if given == (None, None, None) else self
        return replace(out, heads=DEFAULT_HEADS) if (out.heads, out.model) == (None, None) else out


@with_options
def report(
    *,
    problem: ReportProblem,
    algorithm: Also = "",
    variants: VariantOptions,
    hw: Annotated[
        list[str] | None,
        typer.Option(
            "--hw",
            "--gpu",
            metavar="NAME",
            help=f"Profiles or YAML files; a comma list, or repeated [{DEFAULT_HW}].",
            rich_help_panel=HARDWARE,
        ),
    ] = None,
    sram: Sram = None,
    overrides: Overrides = None,
    measurements: Annotated[
        Path | None,
        typer.Option(
            "--measurements",
            metavar="FILE",
            help="A CSV as of `iosim audit`: predicted against measured; its GPU where --hw is not given.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    seq_lens: SeqLens = None,
    out: Annotated[
        str, typer.Option("--out", metavar="DIR", help="The report's folder.", rich_help_panel=OUTPUT)
    ] = DEFAULT_OUT,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Count, check the bound, draw, and write report.html, report.md, report.json, tables and figures.

    Of standard, FlashAttention-1 and -2 and what --algorithm adds: decode, mla, linear. An algorithm's own options hold
    for every algorithm that has them, as in `iosim bound`. With --seq-lens the report has bytes, levels and bounds of
    the batch and its least time, but no predicted ones.
    """
    from iosim.algorithms.registry import find_algorithm
    from iosim.plots.files import check_formats
    from iosim.plots.style import find_style
    from iosim.report import build_report, report_files, workload_text, write_folder
    from iosim.report.gpu import ALGORITHMS
    from iosim.scaling import Lengths
    from iosim.scaling.studied_options import check_also, checked_options
    from iosim.scaling.study import FITTED
    from iosim.units import counted, parse_sram
    from iosim.workers import default_processes

    look, kinds = find_style(style), check_formats(split(formats))
    lengths = lengths_of(seq_lens, problem)
    batch = Lengths(seq_lens=lengths, fixed_queries=bool(lengths) and problem.seq_q is not None)
    asked = padded_problem(problem.filled(), lengths) if lengths else problem.filled().problem()
    warnings = problem.remarks()
    M = None if sram is None else parse_sram(sram, asked.dtype_k.itemsize, warnings)
    names = split(",".join(hw)) if hw else _default_gpus(measurements)
    if not names or len(set(names)) < len(names):
        raise UsageError("--hw: give one or more profiles, each once")
    also = split(algorithm)
    studied = list(dict.fromkeys([*ALGORITHMS, *FITTED, *also]))
    with quiet_stdout():
        given = variants.options_for([find_algorithm(name) for name in studied])
    options = checked_options(dict(zip(studied, given, strict=True)), also)
    if len(names) > 1 and variants.splits == "best":
        raise UsageError("--splits: best is found for one GPU; give one --hw, or a number (`iosim splits`)")
    with quiet_stdout():
        check_also(asked, also, {})
    warn(warnings)
    folder = Path(out)
    write_folder(folder, {})  # an unwritable folder is found before the work
    if not as_json:
        print(f"Workload: {workload_text(asked, options, batch)}\nHardware: {', '.join(names)}", flush=True)
    with quiet_stdout():
        done = build_report(
            asked,
            names,
            look,
            sram_bytes=M,
            overrides=overrides or (),
            options=options,
            measurements=measurements,
            batch=batch,
            also=also,
            processes=default_processes(),
            progress=say,
        )
    paths = write_folder(folder, report_files(done, kinds, progress=say))
    if as_json:
        print_json(done.to_dict())
        return
    for answer in done.answers:
        print(f"- {answer}")
    print(f"\n{counted(len(paths), 'file')} in {folder}; start with {folder / 'report.html'}")


def _default_gpus(measurements: Path | None) -> list[str]:
    """The GPU of the measurements, or the two that everybody knows."""
    from iosim.report.measured import gpu_of_file

    return split(DEFAULT_HW) if measurements is None else [gpu_of_file(measurements)]
