"""`iosim sweep`: a grid of problems, algorithms and hardware as one table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.level_options import LevelOptions
from iosim.cli.options import (
    DEFAULT_SEQ,
    OUTPUT,
    AlgorithmText,
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    parse_size,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, progress_bar, quiet_stdout, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_sizes
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError
from iosim.problem import DType

if TYPE_CHECKING:
    import pandas as pd

    from iosim.grid import Grid

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Write .csv or .parquet, and FILE.json beside it.",
        rich_help_panel=OUTPUT,
    ),
]


@with_options
def sweep(
    *,
    problem: ProblemOptions,
    algorithm: AlgorithmText = "flash2",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    levels: LevelOptions,
    seq_lens: SeqLens = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Run every combination of the axes and write one row each.

    Sizes, --sram, --mask, --tiles, --algorithm and --hw take lists and ranges: 64,128 or 512:131072:x2 (times 2) or
    16:256:16 (plus 16). With --seq-lens every point is that ragged batch. Without --out the table goes to stdout as
    CSV. A sweep into a file that was cut off goes on where it stopped when the same command is run again.
    """
    from iosim.sweep import sweep as run
    from iosim.sweep_file import sweep_to_file

    with quiet_stdout():
        problem = problem.as_run_by(split_algorithms(algorithm))
        warnings = problem.remarks()
        lengths = lengths_of(seq_lens, problem)
        asked = padded_sizes(problem, lengths) if lengths else problem
        grid = _grid(asked.completed(), algorithm, tiling, variants, hardware, warnings)
        grid = replace(grid, seq_lens=lengths)
        _prove_own(grid)
    if levels.wanted:
        if levels.kernel is not None:
            raise UsageError("--kernel: a sweep simulates tiles of its own; use simulate --kernel")
        grid = replace(grid, levels=True, level_policies=levels.policies())
    warn(warnings)
    with progress_bar("sweep", len(grid)) as progress, quiet_stdout():
        if out is None:
            table = run(grid, progress)
        else:
            table = sweep_to_file(grid, out, command=f"iosim {shlex.join(sys.argv[1:])}", progress=progress)
    failed = table[table["error"] != ""]
    if len(failed) == len(table):
        raise UsageError(f"no point of the grid can run: {failed['error'].iloc[0]}")
    if len(failed):
        warn(
            [
                f"{len(failed)} of {len(table)} points cannot run (column error), the first: {failed['error'].iloc[0]}"
            ]
        )
    _show(table, out, as_json=as_json)


def _prove_own(grid: Grid) -> None:
    """Refuse a user's program that is wrong under any mask of the grid, before a row of it is saved."""
    from iosim.algorithms.registry import find_algorithm
    from iosim.cli.simulate import prove_own
    from iosim.problem import AttentionProblem

    for name in grid.algorithm:
        for mask in grid.mask:
            point = AttentionProblem.of(seq=8, head_dim=4, heads=2, kv_heads=1, mask=mask)
            prove_own([find_algorithm(name)], [dict(grid.options.get(name, {}))], point)


def _show(table: pd.DataFrame, out: Path | None, *, as_json: bool) -> None:
    if as_json and out is None:
        print_json([_plain(row) for row in table.to_dict("records")])
    elif as_json:
        errors = int((table["error"] != "").sum())
        print_json({"out": str(out), "sidecar": f"{out}.json", "rows": len(table), "rows_with_error": errors})
    elif out is None:
        table.to_csv(sys.stdout, index=False, lineterminator="\n")
    else:
        from iosim.units import counted

        print(f"{counted(len(table), 'row')} in {out} (how they were made: {out}.json)")


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """A row as JSON has it: missing values are null, whole numbers ints."""
    import pandas as pd

    return {
        str(name): None
        if pd.isna(v)
        else v
        if isinstance(v, str | bool)
        else bool(v)
        if name == "fits"
        else int(v)
        for name, v in row.items()
    }


def _grid(
    problem: ProblemOptions,
    algorithm: str,
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    warnings: list[str],
) -> Grid:
    """The options as axes."""
    from iosim.grid import Grid, parse_axis
    from iosim.units import parse_sram

    def sizes(name: str, text: str) -> tuple[int, ...]:
        return parse_axis(f"--{name}", text, lambda item: parse_size(name, item))

    def maybe(name: str, text: str | None) -> Sequence[int | None]:
        return (None,) if text is None else sizes(name, text)

    dtypes = {
        f"dtype_{t}": given if (given := getattr(problem, f"dtype_{t}")) is not None else problem.dtype or ""
        for t in "qkvo"
    }
    width = DType.parse(dtypes["dtype_k"]).itemsize
    algorithms = split_algorithms(algorithm)
    names = [name.strip() for name in algorithm.split(",")]
    lengths = (problem.seq, problem.seq_q, problem.seq_k)
    seq = str(DEFAULT_SEQ) if all(text is None for text in lengths) else problem.seq
    sram: Callable[[str], int] = lambda item: parse_sram(item, width, warnings)  # noqa: E731
    return Grid(
        algorithm=names,
        profile=_words("hw", hardware.hw),
        mask=_words("mask", problem.mask or ""),
        tiles=_words("tiles", tiling.tiles),
        batch=sizes("batch", problem.batch),
        heads=sizes("heads", problem.heads or ""),
        kv_heads=maybe("kv-heads", problem.kv_heads),
        head_dim=sizes("head-dim", problem.head_dim or ""),
        value_dim=maybe("value-dim", problem.value_dim),
        seq=None if seq is None else sizes("seq", seq),
        seq_q=None if problem.seq_q is None else sizes("seq-q", problem.seq_q),
        seq_k=None if problem.seq_k is None else sizes("seq-k", problem.seq_k),
        sram_bytes=(None,) if hardware.sram is None else parse_axis("--sram", hardware.sram, sram),
        granularity=tiling.step(),
        footprint_model=tiling.footprint,
        dtypes=dtypes | {"dtype_acc": problem.dtype_acc},
        options=dict(zip(names, variants.options_for(algorithms), strict=True)),
        overrides=hardware.overrides or (),
    )


def _words(name: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"--{name}: empty item in {text!r}")
    return list(dict.fromkeys(words))
