"""`iosim require`: the least SRAM, L2 or HBM bandwidth at which a workload reaches a share of its compute bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import ticker, wrote
from iosim.cli.options import (
    OUTPUT,
    AsJson,
    FootprintModel,
    HardwareOptions,
    ProblemOptions,
    Text,
    Tiles,
    algorithm_option,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.whatif import Answer, Requirement

One = Annotated[
    str,
    algorithm_option(
        "--algorithm", metavar="NAME", help="An algorithm with tiles, or your own ./mine.py:program."
    ),
]
Solve = Annotated[
    str,
    typer.Option(
        "--solve",
        metavar="MEMORY",
        help="sram (bytes of a thread block), l2 (bytes) or hbm (bandwidth).",
        rich_help_panel="Question",
    ),
]
Reach = Annotated[
    str,
    typer.Option(
        "--reach",
        metavar="SHARE",
        help="Of the compute bound: useful matmul flops at the tensor peak.",
        rich_help_panel="Question",
    ),
]
Out = Annotated[
    Text,
    typer.Option("--out", metavar="DIR", help="Write the curves as require.csv.", rich_help_panel=OUTPUT),
]


@with_options
def require(
    *,
    solve: Solve = "sram",
    reach: Reach = "90%",
    problem: ProblemOptions,
    algorithm: One = "flash2",
    tiles: Tiles = "best",
    footprint: FootprintModel = "kernel",
    variants: VariantOptions,
    hardware: HardwareOptions,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """The inverse question: how much SRAM, L2 or HBM bandwidth a workload needs to reach a share of its compute bound.

    Units are taken to overlap perfectly, so no kernel needs less; a real one reaches less (iosim explain).
    Where the share is never reached, the unit that limits it is named.
    """
    from iosim.cli.output import quiet_stdout
    from iosim.hardware import load_profile
    from iosim.problem import TileShape
    from iosim.proving import prove
    from iosim.whatif import require as find

    chosen = split_algorithms(algorithm)
    if len(chosen) != 1:
        raise UsageError(f"--algorithm: one at a time here, got {algorithm!r}")
    (options,) = variants.options_for(chosen)
    gpu = load_profile(hardware.hw, hardware.overrides or ())
    asked, said = problem.problem(), [*gpu.warnings, *problem.remarks()]
    share = _share(reach)
    with quiet_stdout():
        if chosen[0].user_defined:
            prove(chosen[0], asked, options)
        found = find(
            asked,
            chosen[0],
            gpu,
            solve=solve,
            reach=share,
            options=options,
            footprint_model=footprint,
            sram_bytes=hardware.sram_bytes(asked, said),
            tile=None if tiles == "best" else TileShape.parse(tiles),
            progress=ticker("through the L2"),
        )
    paths = _save(found, Path(out)) if out is not None else []
    warn(said)
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)
    wrote(paths)


def _share(text: str) -> float:
    """`90%` or `0.9`."""
    word = text.strip()
    try:
        value = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
        if not word.isascii():
            raise ValueError(word)
    except ValueError:
        raise UsageError(f"--reach: cannot read {text!r}; write a share, as 90% or 0.9") from None
    if not 0 < value <= 1:
        raise UsageError(f"--reach: a share above 0 % and at most 100 %, got {text!r}")
    return value


def _amount(found: Requirement, value: float) -> str:
    from iosim.units import format_bytes, format_rate

    return format_rate(value) if found.unit == "B/s" else format_bytes(value)


def _name(found: Requirement) -> str:
    return {"sram": "SRAM of a thread block", "l2": "L2", "hbm": "HBM bandwidth"}[found.solve]


def _show(found: Requirement) -> None:
    from iosim.cli.simulate_table import describe
    from iosim.units import format_seconds

    print(describe(found.problem))
    print(
        f"{found.algorithm}, {found.footprint} footprint, on {found.profile}; compute bound "
        f"{format_seconds(found.compute_s)}, {found.reach:.1%} of it asked for\n"
    )
    for answer in found.answers:
        _show_answer(found, answer)
    print(f"stays fixed: {'; '.join(found.fixed)}")
    for note in found.notes:
        print(f"assumed: {note}")


def _show_answer(found: Requirement, answer: Answer) -> None:
    from iosim.whatif.answer import points_of

    if answer.value is None:
        print(f"{answer.reading}: {found.reach:.1%} is never reached: {answer.reason}")
    elif answer.value == 0:
        print(f"{answer.reading}: none is needed, {found.reach:.1%} is reached without")
    else:
        print(f"{answer.reading}: {_name(found)} {_amount(found, answer.value)} reaches {found.reach:.1%}")
    rows = []
    for p in points_of(answer):
        marks = [name for name, on in (("least", p is answer.at), (found.profile, p is answer.own)) if on]
        rows.append([_amount(found, p.value), f"{p.reached:.1%}", p.limit, str(p.tile), ", ".join(marks)])
    print_table([found.solve.upper(), "reached", "limited by", "tile", ""], rows, right=(0, 1))
    print()


def _save(found: Requirement, folder: Path) -> list[Path]:
    from iosim.plots.files import csv_text, write_bytes

    return [write_bytes(folder / "require.csv", csv_text(found.to_frame()).encode())]
