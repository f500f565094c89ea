"""`iosim bound`: the bound checked on counted bytes; exponents, constants, crossings, gaps, and figures of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import Formats, StyleName, say, split, wrote
from iosim.cli.options import OUTPUT, AsJson, HardwareOptions, ProblemOptions, with_options
from iosim.cli.output import print_json, print_table, quiet_stdout, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_problem
from iosim.cli.variants import VariantOptions

if TYPE_CHECKING:
    from iosim.scaling import BoundStudy

Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Write figures and tables here.", rich_help_panel=OUTPUT),
]
Elements = Annotated[
    bool, typer.Option("--elements", help="Show M in elements on the axes.", rich_help_panel=OUTPUT)
]
Also = Annotated[
    str,
    typer.Option(
        "--algorithm",
        metavar="LIST",
        help="More algorithms to count, fit and draw: names, or ./mine.py:program.",
        rich_help_panel="Algorithm",
    ),
]


@with_options
def bound(
    *,
    problem: ProblemOptions,
    algorithm: Also = "",
    variants: VariantOptions,
    hardware: HardwareOptions,
    seq_lens: SeqLens = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    elements: Elements = False,
    as_json: AsJson = False,
) -> None:
    """Check the N²d²/M bound: fitted exponents, constants, crossings with standard attention, gaps to the bounds.

    An algorithm's own options hold for every algorithm that has them; with --pass bwd those of the backward are
    studied, against its bounds. With --block-mask or --seq-lens bytes and bounds are those of the masked problem or of
    the true lengths, and the fitted laws those of dense attention over one sequence.
    """
    from iosim.algorithms.registry import find_algorithm
    from iosim.hardware import load_profile
    from iosim.scaling import Lengths, study_bound
    from iosim.scaling.study import FITTED

    lengths = lengths_of(seq_lens, problem)
    batch = Lengths(seq_lens=lengths, fixed_queries=bool(lengths) and problem.seq_q is not None)
    asked = padded_problem(problem, lengths) if lengths else problem.problem()
    warnings = problem.remarks()
    gpu = load_profile(hardware.hw, hardware.overrides or ())
    M = hardware.sram_bytes(asked, warnings)
    also = split(algorithm)
    names = list(dict.fromkeys([*FITTED, *also]))
    with quiet_stdout():
        options = dict(
            zip(names, variants.options_for([find_algorithm(name) for name in names]), strict=True)
        )
    if out is not None:
        _check_drawing(Path(out), style, formats)
    with quiet_stdout():
        study = study_bound(asked, gpu, sram_bytes=M, also=also, options=options, batch=batch, progress=say)
    warnings = [*gpu.warnings, *warnings]
    if as_json:
        print_json({**study.to_dict(), "warnings": warnings})
    else:
        warn(warnings)
        _show(study)
    if out is not None:
        wrote(_draw(study, Path(out), style, formats, elements))


def _check_drawing(out: Path, style: str, formats: str) -> None:
    """Wrong names and folders are found before the counting starts."""
    from iosim.plots.files import check_formats, make_folder
    from iosim.plots.style import find_style

    find_style(style)
    check_formats(split(formats))
    make_folder(out)


def _draw(study: BoundStudy, out: Path, style: str, formats: str, elements: bool) -> list[Path]:
    from iosim.plots.bound import gap_by_sram, traffic_by_head_dim, traffic_by_seq, traffic_by_sram
    from iosim.plots.files import csv_text, save, write_bytes
    from iosim.plots.style import find_style

    look = find_style(style)
    plots = (
        traffic_by_sram(study, look, elements=elements),
        *([traffic_by_seq(study, look)] if len(study.by_seq) else []),
        traffic_by_head_dim(study, look),
        gap_by_sram(study, look, elements=elements),
    )
    paths = [path for plot in plots for path in save(plot, out / plot.name, split(formats))]
    for name in ("exponents", "constants", "crossings", "gaps"):
        paths.append(write_bytes(out / f"{name}.csv", csv_text(study.tables()[name]).encode()))
    return paths


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-0.000", "+0.000")


def _show(study: BoundStudy) -> None:
    from iosim.scaling.constants import FAR_TEXT
    from iosim.units import counted, format_bytes

    p = study.problem
    print(
        f"N = {p.seq_q}, d = {p.head_dim}, {counted(p.heads, 'head')}, batch {p.batch}, {p.dtype_k}, mask {p.mask}; "
        f"{study.profile}, M = {format_bytes(study.sram_bytes)} a thread block"
        + (f"\nOptions: {study.options_text}" if study.options else "")
    )
    print("\nExponents, fitted on counted elements")
    print_table(
        ["algorithm", "series", "N", "d", "M", "R²", "where", "points"],
        [
            [
                f.algorithm,
                f.series,
                _signed(f.exponent_n),
                _signed(f.exponent_d),
                _signed(f.exponent_m),
                f"{f.r_squared:.6f}",
                f.where,
                str(f.points),
            ]
            for f in study.laws.fits
        ],
        right=(2, 3, 4, 5, 7),
    )
    for grid in dict.fromkeys(f"{f.where}: {f.grid}" for f in study.laws.fits):
        print(f"  {grid}")
    print("\nConstants, in units of N²d²/M matrix elements")
    print_table(
        ["algorithm", "tiles", "far point", "over the grid of the exponents"],
        [
            [c.algorithm, c.tiles, f"{c.value:.3f}", f"{c.smallest:.3f} to {c.largest:.3f}"]
            for c in study.laws.constants
        ],
        right=(2,),
    )
    print(f"  far point: {FAR_TEXT}; the grid's M are smaller, and small tiles cost a little more")
    print(
        "\nCrossings with standard attention: the first M, in elements, at which tiling moves no more of it"
    )
    print_table(
        [
            "algorithm",
            "tiles",
            "d",
            "matrix elements",
            "M / d²",
            "fp16 bytes with m and l" if not study.options else "fp16 bytes",
            "M / d²",
        ],
        [
            [
                c.algorithm,
                c.tiles,
                str(c.head_dim),
                f"{c.sram_elements:,}",
                f"{c.over_d_squared:.3f}",
                f"{c.sram_elements_by_bytes:,}",
                f"{c.over_d_squared_by_bytes:.3f}",
            ]
            for c in study.laws.crossings
        ],
        right=(2, 3, 4, 5, 6),
    )
    print("\nIn words")
    for sentence in study.sentences:
        print(f"- {sentence}")
