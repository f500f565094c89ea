"""`iosim on-chip`: one thread block's shared memory, barriers and special functions, by how warps divide a tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from iosim.cli.options import ALGORITHM, AsJson, Hw, Overrides, ProblemOptions, with_options
from iosim.cli.output import print_json, print_table, warn
from iosim.errors import UsageError

DEFAULT_TILE = "128x128"
ROWS = (
    ("fills (bytes written by copies)", "fill_bytes"),
    ("Q read", "q_read_bytes"),
    ("K read", "k_read_bytes"),
    ("V read", "v_read_bytes"),
    ("operands read", "operand_read_bytes"),
    ("exchange written (statistics, partial O)", "exchange_write_bytes"),
    ("exchange read", "exchange_read_bytes"),
    ("all bytes of a tile", "total_bytes"),
    ("block-wide barriers: a tile has arrived", "arrival_barriers"),
    ("block-wide barriers: warps exchange", "exchange_barriers"),
    ("producer/consumer barriers", "async_barriers"),
)
CYCLES = (
    ("cycles of the tensor cores", "tensor_cycles"),
    ("cycles of the special functions", "special_cycles"),
    ("cycles of shared memory", "shared_cycles"),
)

Tile = Annotated[
    str, typer.Option("--tiles", metavar="TILE", help="Rows of Q x rows of K.", rich_help_panel=ALGORITHM)
]
Warps = Annotated[
    int,
    typer.Option(
        "--warps", metavar="NUMBER", help="Warps of split-k and split-q.", rich_help_panel=ALGORITHM
    ),
]


@with_options
def on_chip(
    *,
    problem: ProblemOptions,
    tiles: Tile = DEFAULT_TILE,
    warps: Warps = 4,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """What one thread block moves through shared memory for a tile, by how its warps divide it.

    split-k: every warp some keys (FlashAttention-1). split-q: every warp some queries (FlashAttention-2).
    wgmma: every Hopper warpgroup 64 queries.
    """
    from iosim.hardware import load_profile
    from iosim.onchip import SCHEMES, on_chip_report
    from iosim.problem import TileShape

    asked, shape = problem.problem(), TileShape.parse(tiles)
    gpu = load_profile(hw, overrides or ())
    found = on_chip_report(asked, shape, SCHEMES, warps=warps, gpu=gpu)
    if not found["schemes"]:
        raise UsageError("; ".join(dict.fromkeys(found["refused"].values())))
    warnings = [*gpu.warnings, *problem.remarks(), *found["refused"].values()]
    if as_json:
        head = {"schema_version": 1, "problem": asked.to_dict(), "profile": gpu.name}
        print_json(head | found | {"warnings": warnings})
        return
    from iosim.cli.simulate_table import describe

    warn(warnings)
    print(f"{describe(asked)}, tile {shape} (rows of Q x rows of K); {gpu.name}")
    print("for one tile of one thread block, unless a line says otherwise\n")
    print_on_chip(found)


def print_on_chip(found: Mapping[str, Any]) -> None:
    """The table of an `on_chip` report: one column a scheme."""
    schemes: Sequence[Mapping[str, Any]] = found["schemes"]
    rows = [[title, *(f"{s['step'][key]:,}" for s in schemes)] for title, key in ROWS]
    rows += [
        [title, *(f"{s['cycles'][key]:,.0f}" if s["cycles"] else "?" for s in schemes)]
        for title, key in CYCLES
    ]
    rows.append(["warps or warpgroups that share operands", *(str(s["readers"]) for s in schemes)])
    rows.append(["flops that rescale O, a tile", *(f"{s['rescale_flops_per_step']:,}" for s in schemes)])
    rows.append(
        ["flops that divide by l, a row tile", *(f"{s['final_flops_per_row_tile']:,}" for s in schemes)]
    )
    rows.append(["tiles of all heads", *(f"{s['steps']:,}" for s in schemes)])
    rows.append(["shared-memory bytes of all heads", *(f"{s['shared_bytes']:,}" for s in schemes)])
    print_table(["", *(s["scheme"] for s in schemes)], rows, right=range(1, len(schemes) + 1))
    if found["special_ops"] is not None:
        print(f"\nspecial-function operations of all heads: {found['special_ops']:,}")
        print(f"  ({found['special_ops_rule']}; every lane that holds a row counts)")
