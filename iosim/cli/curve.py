"""`iosim curve`: traffic against every capacity of SRAM or L2."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import Formats, StyleName, say, split, ticker, wrote
from iosim.cli.level_options import BlocksPerSm, KvWalk, LevelOptions, Order, profile_of
from iosim.cli.options import (
    OUTPUT,
    AlgorithmText,
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.curves import CurveStudy
    from iosim.results import RunRecord

LEVELS = ("sram", "l2")

Level = Annotated[
    str,
    typer.Option(
        "--level", metavar="LEVEL", help="sram (bytes on chip) or l2 (HBM bytes).", rich_help_panel=OUTPUT
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Draw the curve, with its data.", rich_help_panel=OUTPUT),
]


@with_options
def curve(
    *,
    level: Level = "sram",
    problem: ProblemOptions,
    algorithm: AlgorithmText = "flash2",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    order: Order = None,
    kv_walk: KvWalk = None,
    blocks_per_sm: BlocksPerSm = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Traffic against every capacity at once, from the trace of the tile program.

    The memory is one fully associative LRU of the program's whole tiles; the tile itself stays fixed. sram: all
    thread blocks in turn through one memory, and each through its own. l2: all blocks merged by the schedule.
    """
    from iosim.cli.one_run import one_run
    from iosim.plots.files import check_formats, make_folder
    from iosim.plots.style import find_style

    schedule = LevelOptions(order=order, kv_walk=kv_walk, blocks_per_sm=blocks_per_sm)
    _check(level, schedule)
    look, kinds = find_style(style), check_formats(split(formats))
    folder = None if out is None else make_folder(Path(out))
    record, run = one_run(problem, algorithm, tiling, variants, hardware)

    from iosim.curves import l2_study, sram_study
    from iosim.levels import generic_policies

    gpu = profile_of(hardware.hw, hardware.overrides)
    if level == "sram":
        study = sram_study(run, gpu, ticker, sram_bytes=record.sram.capacity_bytes)
    else:
        policies = generic_policies(gpu, record.sram.live_bytes, **schedule.policies())
        study = l2_study(run, gpu, policies, ticker)
    warnings = list(record.warnings)
    if study.extrapolated:
        warnings.append(f"curve: extrapolated, {gpu.name} has no counter data to hold the schedule against")
    if as_json:
        print_json(study.to_dict() | {"warnings": warnings})
    else:
        warn(warnings)
        _show(record, study)
    if folder is not None:
        from iosim.plots.curves import capacity_plot
        from iosim.plots.files import save

        plot = capacity_plot(study, look)
        wrote(save(plot, folder / plot.name, kinds))
        say(plot.caption)


def _check(level: str, schedule: LevelOptions) -> None:
    if level not in LEVELS:
        raise UsageError(f"--level: unknown level {level!r}; allowed: {', '.join(LEVELS)}")
    if level == "sram" and schedule.policies():
        raise UsageError("--order, --kv-walk, --blocks-per-sm: a schedule is of use with --level l2 only")


def _show(record: RunRecord, study: CurveStudy) -> None:
    from iosim.cli.simulate_table import describe
    from iosim.units import format_bytes

    tile = f", tile {record.tiles}" if record.tiles else ""
    print(describe(record.problem))
    print(
        f"{record.algorithm}{tile} on {study.profile}: {format_bytes(study.run.live_bytes)} of tiles on chip"
    )
    print("one fully associative LRU of whole tiles; bytes at every capacity are those of simulating it\n")
    inside = study.level == "sram"
    first = ["on chip", "of it LRU"] if inside else ["L2"]
    heads = [*first, *(f"{c.stream}: {what}" for c in study.curves for what in ("read", "written"))]
    rows = []
    for capacity, lru, text in study.notable():
        sizes = [format_bytes(capacity), *([format_bytes(lru)] if inside else [])]
        cells = [f"{int(f(lru)):,}" for c in study.curves for f in (c.read_bytes, c.write_bytes)]
        rows.append([*sizes, *cells, text])
    print_table([*heads, ""], rows, right=range(len(heads)))
    for found in study.capacities:
        bounds = study.bounds([found.capacity_bytes])
        texts = [f"{name} {value:,}" for name, value in zip(bounds["bound"], bounds["bytes"], strict=True)]
        print(f"\nlower bounds at {format_bytes(found.capacity_bytes)}, read and written: {', '.join(texts)}")
