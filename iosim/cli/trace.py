"""`iosim trace`: the tile accesses of a run, as Parquet or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from iosim.cli.drawing import ticker, wrote
from iosim.cli.level_options import BlocksPerSm, KvWalk, LevelOptions, Order, profile_of
from iosim.cli.one_run import one_run
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

Out = Annotated[
    str,
    typer.Option("--out", metavar="FILE", help="A .parquet or .csv file.", rich_help_panel=OUTPUT),
]
Merged = Annotated[
    bool,
    typer.Option(
        "--merged",
        help="All blocks in the order of time, with slot and order; else one after the other.",
        rich_help_panel=OUTPUT,
    ),
]


@with_options
def trace(
    *,
    out: Out = "trace.parquet",
    merged: Merged = False,
    problem: ProblemOptions,
    algorithm: AlgorithmText = "flash2",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    order: Order = None,
    kv_walk: KvWalk = None,
    blocks_per_sm: BlocksPerSm = None,
    as_json: AsJson = False,
) -> None:
    """Every tile access of a run as one row: kernel, block, step, tensor, head, rows, columns, bytes, store.

    Blocks follow one another in grid order, or with --merged run side by side as the schedule places them.
    """
    schedule = LevelOptions(order=order, kv_walk=kv_walk, blocks_per_sm=blocks_per_sm).policies()
    path = Path(out)
    if path.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out: {path.name!r} must end in .parquet or .csv")
    if schedule and not merged:
        raise UsageError("--order, --kv-walk, --blocks-per-sm: a schedule is of use with --merged only")
    record, run = one_run(problem, algorithm, tiling, variants, hardware)

    from iosim.levels import generic_policies
    from iosim.trace_file import COLUMNS, MERGED_COLUMNS, write_trace

    gpu = profile_of(hardware.hw, hardware.overrides)
    policies = generic_policies(gpu, record.sram.live_bytes, **schedule) if merged else None
    rows = write_trace(path, run.program, run.problem, run.tile, policies=policies, progress=ticker("trace"))
    wrote([path])
    columns = {**MERGED_COLUMNS, **COLUMNS} if merged else dict(COLUMNS)
    if as_json:
        document: dict[str, Any] = {
            "schema_version": 1,
            "problem": record.problem.to_dict(),
            "algorithm": record.algorithm,
            "options": dict(record.options),
            "tiles": {"rows": record.tiles.rows, "cols": record.tiles.cols} if record.tiles else None,
            "file": str(path),
            "rows": rows,
            "columns": columns,
            "policies": policies.to_dict() if policies else None,
            "warnings": list(record.warnings),
        }
        print_json(document)
        return
    warn(record.warnings)
    print(f"{path}: {rows:,} tile accesses\n")
    print_table(["column", "what it is"], [[name, text] for name, text in columns.items()], wrap=True)
