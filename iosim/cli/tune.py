"""`iosim tune`: the best tile of a fused kernel on a GPU, and every other one beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import Formats, StyleName, split, ticker, wrote
from iosim.cli.explain import Pass
from iosim.cli.options import (
    OUTPUT,
    AsJson,
    Hw,
    Overrides,
    ProblemOptions,
    Text,
    algorithm_option,
    parse_size,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.tune import Choices, TuneRow, TuneTable

SORTS = ("best", "time", "sm", "hbm", "tile", "registers", "shared", "blocks")
CHOICES = "What to choose from"


def _choice(*names: str, help: str) -> Any:
    return typer.Option(*names, metavar="LIST", help=help, rich_help_panel=CHOICES)


Kernel = Annotated[
    Text,
    algorithm_option(
        "--kernel",
        metavar="CLASS",
        help="mma-sync, wgmma or wgmma-ping-pong, or a kernel card whose class is meant [by GPU].",
    ),
]
Objective = Annotated[
    str, algorithm_option("--objective", metavar="WHAT", help="time (one run, predicted) or bytes.")
]
Level = Annotated[
    str,
    algorithm_option(
        "--level",
        metavar="LEVEL",
        help="Where bytes are counted: sm (exact) or hbm (simulated for the best).",
    ),
]
Top = Annotated[
    int, typer.Option("--top", metavar="NUMBER", help="Rows of the printed table.", rich_help_panel=OUTPUT)
]
All = Annotated[
    bool,
    typer.Option(
        "--all", help="Print every design, those that do not fit with the reason.", rich_help_panel=OUTPUT
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort", metavar="COLUMN", help=f"Of the table: {', '.join(SORTS)}.", rich_help_panel=OUTPUT
    ),
]
Out = Annotated[
    Text,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Write all designs as tune.csv, and a map of the tiles.",
        rich_help_panel=OUTPUT,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceOptions:
    """Lists that narrow the search."""

    rows: Annotated[
        Text, _choice("--rows", help="Rows of Q a tile [multiples of the instruction's rows].")
    ] = None
    cols: Annotated[Text, _choice("--cols", help="Rows of K a tile [multiples of 16 up to 256].")] = None
    warps: Annotated[
        Text, _choice("--warps", help="Warps that compute [mma-sync: 4,8; few rows: 1,2,4].")
    ] = None
    stages: Annotated[str, _choice("--stages", help="Copies of K and V in shared memory.")] = "2"
    splits: Annotated[Text, _choice("--splits", help="Splits of the keys, for few rows [powers of two].")] = (
        None
    )
    order: Annotated[
        Text, _choice("--order", help="Launch orders: grid, longest-first [both under a mask].")
    ] = None
    kv_walk: Annotated[
        Text, _choice("--kv-walk", help="Walks over the keys: forward, backward, sawtooth [forward].")
    ] = None

    def choices(self) -> Choices:
        """The lists as numbers and names; `UsageError` names the option that is wrong."""
        from iosim.tune import Choices

        return Choices(
            rows=_sizes("--rows", self.rows),
            cols=_sizes("--cols", self.cols),
            warps=_sizes("--warps", self.warps),
            stages=_sizes("--stages", self.stages) or (2,),
            splits=_sizes("--splits", self.splits),
            orders=_names("--order", self.order),
            walks=_names("--kv-walk", self.kv_walk),
        )


def _sizes(name: str, text: str | None) -> tuple[int, ...] | None:
    found = _names(name, text)
    return None if found is None else tuple(sorted({parse_size(name.lstrip("-"), word) for word in found}))


def _names(name: str, text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    if not (words := split(text)):
        raise UsageError(f"{name}: an empty list; write one or more, with commas")
    return tuple(dict.fromkeys(words))


@with_options
def tune(
    *,
    problem: ProblemOptions,
    kernel: Kernel = None,
    objective: Objective = "time",
    level: Level = "sm",
    pass_name: Pass = "fwd",
    chosen: ChoiceOptions,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    top: Top = 20,
    every: All = False,
    sort: Sort = "best",
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Every tile of a fused kernel that fits on an SM, by predicted time or by bytes; the winner marked.

    Tiles are multiples of the tensor-core instruction; registers and shared memory decide what fits and how many blocks
    an SM holds. Where few rows leave SMs idle, keys are split; under a mask, launch orders are compared.
    """
    from iosim.hardware import load_profile
    from iosim.plots.files import check_formats
    from iosim.plots.style import find_style
    from iosim.tune import tune as search

    find_style(style), check_formats(split(formats))
    if sort not in SORTS:
        raise UsageError(f"--sort: unknown column {sort!r}; allowed: {', '.join(SORTS)}")
    if top < 1:
        raise UsageError(f"--top: must be at least 1, got {top}")
    gpu = load_profile(hw, overrides or ())
    found = search(
        problem.problem(),
        gpu,
        kernel_class=class_of(kernel),
        objective=objective,
        level=level,
        passes=pass_name,
        choices=chosen.choices(),
        progress=ticker("simulating"),
    )
    paths = _save(found, Path(out), style, split(formats)) if out is not None else []
    warn([*gpu.warnings, *problem.remarks()])
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found, top=None if every else top, every=every, sort=sort)
    wrote(paths)


def class_of(kernel: str | None) -> str | None:
    """A class by its name, or that of a card."""
    from iosim.kernels import CLASSES, kernel_names, load_kernel

    if kernel is None or kernel in CLASSES:
        return kernel
    if kernel in kernel_names() or kernel.endswith((".yaml", ".yml")):
        return load_kernel(kernel).kernel_class
    known = [name for name in CLASSES if name != "unfused"]
    raise UsageError(
        f"--kernel: unknown {kernel!r}; a class ({', '.join(known)}), a card ({', '.join(kernel_names())}) or a file"
    )


def _show(found: TuneTable, *, top: int | None, every: bool, sort: str) -> None:
    from iosim.cli.simulate_table import describe
    from iosim.units import counted

    print(describe(found.problem))
    what = {
        "time": "least predicted time",
        "bytes": "fewest bytes at " + ("HBM" if found.level == "hbm" else "the SMs"),
    }[found.objective]
    print(f"{found.kernel_class}, {found.passes}, on {found.profile}; best: {what}\n")
    _table(found, _sorted(found, sort)[:top])
    refused = [r for r in found.rows if not r.fit.fits]
    hidden = 0 if top is None else max(0, len(found.feasible) - top)
    said = [f"{counted(len(found.feasible), 'design')} fit" + (f" ({hidden} not shown)" if hidden else "")]
    if refused:
        why = Counter(r.fit.reason_class for r in refused)
        said.append(f"{len(refused)} do not: " + ", ".join(f"{name} {n}" for name, n in why.most_common()))
    print(f"\n{'; '.join(said)}" + ("" if every else "; --all shows them"))
    if every and refused:
        print()
        print_table(
            ["tile", "warps", "stages", "reason"],
            [[str(r.design.tile), str(r.design.warps), str(r.design.stages), r.fit.reason] for r in refused],
            right=(1, 2),
        )
    if found.alike > 1:
        print(f"{found.alike} designs lie within the range of the winner's prediction")
    if found.no_time:
        print(f"no times: {found.no_time}")
    for note in found.notes:
        print(f"assumed: {note}")


def _sorted(found: TuneTable, sort: str) -> list[TuneRow]:
    last = float("inf")
    keys = {
        "time": lambda r: r.times.seconds if r.times else last,
        "sm": lambda r: r.sm_bytes,
        "hbm": lambda r: r.hbm_bytes,
        "tile": lambda r: (r.design.tile.rows, r.design.tile.cols),
        "registers": lambda r: r.fit.needs.registers,
        "shared": lambda r: r.fit.needs.shared_bytes,
        "blocks": lambda r: -r.fit.blocks_per_sm,
    }
    return list(found.feasible) if sort == "best" else sorted(found.feasible, key=keys[sort])


def _table(found: TuneTable, rows: Sequence[TuneRow]) -> None:
    from iosim.units import format_bytes

    best = min(s for r in found.feasible if (s := found.score(r)) is not None)
    shown = {
        "splits": len({r.design.splits for r in found.feasible}) > 1,
        "order": len({r.design.order for r in found.feasible}) > 1,
        "walk": len({r.design.walk for r in found.feasible}) > 1,
    }
    extra = [name for name, on in shown.items() if on]
    headers = ["", "tile", "warps", "stages", *extra, "blocks/SM", "limited by", "registers", "shared"]
    headers += ["SM bytes", "HBM bytes", "", "time, us", "range, us", "limit", "over least"]
    lines = []
    for r in rows:
        t = r.times
        score = found.score(r)
        lines.append(
            [
                "*" if r is found.winner else "",
                str(r.design.tile),
                str(r.design.warps),
                str(r.design.stages),
                *(str(getattr(r.design, name)) for name in extra),
                str(r.fit.blocks_per_sm),
                r.fit.limited_by,
                f"{r.fit.needs.registers}{' tight' if r.fit.needs.tight else ''}",
                format_bytes(r.fit.needs.shared_bytes),
                format_bytes(r.sm_bytes or 0, decimal=True),
                format_bytes(r.hbm_bytes or 0, decimal=True),
                r.hbm,
                f"{t.seconds * 1e6:,.1f}" if t else "-",
                f"{t.low_s * 1e6:,.0f} to {t.high_s * 1e6:,.0f}" if t else "-",
                t.limit if t else "-",
                f"{score / best:.3f}" if score is not None else "-",
            ]
        )
    numbers = ("warps", "stages", "splits", "blocks/SM", "registers", "shared", "SM bytes", "HBM bytes")
    right = [i for i, h in enumerate(headers) if h in (*numbers, "time, us", "range, us", "over least")]
    print_table(headers, lines, right=right)


def _save(found: TuneTable, folder: Path, style: str, formats: list[str]) -> list[Path]:
    from iosim.plots.files import csv_text, save, write_bytes
    from iosim.plots.style import find_style
    from iosim.plots.tune import tune_map

    table = write_bytes(folder / "tune.csv", csv_text(found.to_frame()).encode())
    plot = tune_map(found, find_style(style))
    return [table, *save(plot, folder / plot.name, formats)]
