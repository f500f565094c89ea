"""`iosim what-if`: the time of an attention on a map of SRAM by HBM bandwidth, with real GPUs as dots."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import Formats, StyleName, split, wrote
from iosim.cli.options import OUTPUT, AsJson, Hw, Overrides, ProblemOptions, Text, with_options
from iosim.cli.output import print_json, print_table, warn
from iosim.cli.tune import Kernel, class_of

if TYPE_CHECKING:
    from iosim.whatif import Map

EVERY = 8
"""Rows and columns of the printed table: one of so many of the map."""

Out = Annotated[
    Text,
    typer.Option("--out", metavar="DIR", help="Draw the map, and write its points.", rich_help_panel=OUTPUT),
]


@with_options
def what_if(
    *,
    problem: ProblemOptions,
    kernel: Kernel = None,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Time by SRAM of a thread block and HBM bandwidth, everything else as on one GPU; real GPUs as dots.

    At each point the fastest tile that fits is taken. Two readings: every byte from HBM, and with the GPU's L2.
    """
    from iosim.hardware import load_profile
    from iosim.plots.files import check_formats
    from iosim.plots.style import find_style
    from iosim.whatif import what_if as find

    find_style(style), check_formats(split(formats))
    gpu = load_profile(hw, overrides or ())
    found = find(problem.problem(), gpu, kernel_class=class_of(kernel))
    paths = _draw(found, Path(out), style, split(formats)) if out is not None else []
    warn([*gpu.warnings, *problem.remarks()])
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
    wrote(paths)


def _show(found: Map) -> None:
    from iosim.cli.simulate_table import describe
    from iosim.units import format_bytes, format_rate, format_seconds

    print(describe(found.problem))
    print(f"{found.kernel_class}, fwd; compute of {found.profile}")
    for name, seconds in found.seconds.items():
        own = found.own_s[name]
        at = f"at {found.profile}'s own memories {format_seconds(own)}" if math.isfinite(own) else ""
        print(f"\n{name}, us: down SRAM of a thread block, across HBM bandwidth; {at}")
        rows = []
        for size, row in list(zip(found.sram_bytes, seconds.tolist(), strict=True))[::EVERY]:
            cells = [f"{v * 1e6:,.0f}" if math.isfinite(v) else "-" for v in row[::EVERY]]
            rows.append([format_bytes(size), *cells])
        headers = ["", *(format_rate(v) for v in found.hbm_bytes_per_s[::EVERY])]
        print_table(headers, rows, right=range(len(headers)))
    missing = any(not math.isfinite(v) for seconds in found.seconds.values() for v in seconds.flat)
    print("\n- no tile fits" if missing else "")
    print(f"stays fixed: {'; '.join(found.fixed)}")
    for note in found.notes:
        print(f"assumed: {note}")


def _draw(found: Map, folder: Path, style: str, formats: list[str]) -> list[Path]:
    from iosim.plots.files import save
    from iosim.plots.style import find_style
    from iosim.plots.what_if import what_if_map

    plot = what_if_map(found, find_style(style))
    return save(plot, folder / plot.name, formats)
