"""`iosim gap`: the IO waterfall of an algorithm, of a user's own program, or of a measured kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import Formats, StyleName, check_drawing, split, wrote
from iosim.cli.level_options import LEVELS, LevelOptions
from iosim.cli.options import (
    OUTPUT,
    AsJson,
    FootprintModel,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    algorithm_option,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, print_table, quiet_stdout, warn
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.gap import Gap

One = Annotated[
    str,
    algorithm_option(
        "--algorithm", metavar="NAME", help="See `iosim algorithms list`, or your own ./mine.py:program."
    ),
]
Row = Annotated[
    str | None,
    typer.Option(
        "--row",
        metavar="CASE",
        help="A case of the measurements in --file, instead of a problem and an algorithm.",
        rich_help_panel=OUTPUT,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="A CSV of measurements, as for `iosim audit`.", rich_help_panel=OUTPUT
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Draw the waterfall into this folder.", rich_help_panel=OUTPUT),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", help="Under each line, how it was read and what it leaves out.", rich_help_panel=OUTPUT
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GapTiles(TileOptions):
    """As everywhere, but by default a tile that a kernel could use."""

    footprint: FootprintModel = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLevels(LevelOptions):
    """As everywhere, but the levels are simulated unless they are not wanted."""

    levels: Annotated[
        bool,
        typer.Option(
            "--levels/--no-levels",
            help="Go on to HBM (simulated), or end at the SMs (exact).",
            rich_help_panel=LEVELS,
        ),
    ] = True


@with_options
def gap(
    *,
    problem: ProblemOptions,
    algorithm: One = "flash2",
    tiling: GapTiles,
    variants: VariantOptions,
    hardware: HardwareOptions,
    levels: GapLevels,
    row: Row = None,
    file: File = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    explain: Explain = False,
    as_json: AsJson = False,
) -> None:
    """A name for every byte between the least that is possible and HBM.

    Each line is the difference of two readings of one program: counted up to the SMs, below that one assumption of
    the simulated hierarchy at a time. With --row and --file it ends at the hardware counters of a measured kernel.
    """
    if (row is None) != (file is None):
        raise UsageError("--row: give --row CASE together with --file FILE")
    if row is not None:
        _nothing_else(problem, tiling, variants, levels, replace(hardware, overrides=None))
        if algorithm != "flash2":
            raise UsageError(f"--algorithm: {FROM_THE_FILE}")
    if out is not None:
        check_drawing(Path(out), style, formats)
    with quiet_stdout():
        found = (
            _asked(problem, algorithm, tiling, variants, hardware, levels)
            if row is None or file is None
            else _measured(row, file, hardware)
        )
    if as_json:
        print_json(found.to_dict())
    else:
        warn(found.warnings)
        _show(found, explain)
    if out is not None:
        wrote(_draw(found, Path(out), style, formats))


FROM_THE_FILE = "with --row the file says what ran; leave it out"


def _asked(
    problem: ProblemOptions,
    algorithm: str,
    tiling: GapTiles,
    variants: VariantOptions,
    hardware: HardwareOptions,
    levels: GapLevels,
) -> Gap:
    from iosim.gap import gap as find
    from iosim.proving import prove

    asked = problem.problem()
    chosen = split_algorithms(algorithm)
    if len(chosen) != 1:
        raise UsageError(f"--algorithm: one algorithm, got {algorithm!r}")
    (options,) = variants.options_for(chosen)
    facts = levels.facts()
    if facts is not None and facts.algorithm != chosen[0].name:
        raise UsageError(f"--kernel: {facts.name} is {facts.algorithm}, not {chosen[0].name}")
    if chosen[0].user_defined:
        prove(chosen[0], asked, options)
    said = problem.remarks()
    found = find(
        asked,
        chosen[0],
        tiles=tiling.tiles,
        profile=hardware.hw,
        options=options,
        footprint_model=tiling.footprint,
        granularity=tiling.step(),
        sram_bytes=hardware.sram_bytes(asked, said),
        overrides=hardware.overrides or (),
        kernel=facts,
        chosen=levels.policies(),
        levels=levels.levels,
    )
    return replace(found, warnings=(*found.warnings, *said))


def _nothing_else(*groups: Any) -> None:
    for group in groups:
        for field in fields(group):
            if getattr(group, field.name) != field.default:
                raise UsageError(f"--{field.name.strip('_').replace('_', '-')}: {FROM_THE_FILE}")


def _measured(row: str, file: Path, hardware: HardwareOptions) -> Gap:
    from iosim.audit.measurements import read_measurements
    from iosim.gap import gap_of_rows, rows_of_case
    from iosim.hardware import load_profile

    rows = rows_of_case(read_measurements(file), row, file.name)
    return gap_of_rows(rows, load_profile(rows[0].gpu, hardware.overrides or ()))


def _show(found: Gap, explain: bool) -> None:
    from iosim.cli.simulate_table import describe
    from iosim.units import format_bytes

    print(describe(found.problem))
    tile = f", tile {found.tiles}" if found.tiles else ""
    kernel = f"{found.kernel}: " if found.kernel else ""
    print(f"{kernel}{found.algorithm}{tile} on {found.profile}, M = {format_bytes(found.sram_bytes)}")
    print(f"{found.headline}\n")
    base = found.entries[0].bytes
    rows = []
    for entry in found.entries:
        total = entry.kind == "total"
        rows.append(
            [
                entry.title if total else f"  {entry.title}",
                "" if total else f"{entry.bytes:+,}",
                f"{entry.after_bytes:,}",
                f"{entry.after_bytes / base:.3g}x",
                "" if entry.measured_bytes is None else f"{entry.measured_bytes:,}",
                entry.note,
            ]
        )
    headers = ["", "step, bytes", "amount, bytes", "/ compulsory", "counter", ""]
    print_table(headers, rows, right=(1, 2, 3, 4))
    if explain:
        for entry in found.entries:
            without = f" Leaves out: {entry.leaves_out}." if entry.leaves_out else ""
            print(f"\n{entry.title}: {entry.reading}.{without}")


def _draw(found: Gap, out: Path, style: str, formats: str) -> list[Path]:
    from iosim.plots.files import save
    from iosim.plots.style import find_style
    from iosim.plots.waterfall import waterfall

    plot = waterfall(found, find_style(style))
    return save(plot, out / plot.name, split(formats))
