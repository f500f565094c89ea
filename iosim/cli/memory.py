"""`iosim memory`: what an attention layer holds in the GPU's memory, and how long a sequence fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import Formats, StyleName, split, wrote
from iosim.cli.options import (
    ALGORITHM,
    HARDWARE,
    OUTPUT,
    AsJson,
    Hw,
    Overrides,
    ProblemOptions,
    Text,
    with_options,
)
from iosim.cli.output import print_json, print_table, warn
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.capacity import Fit
    from iosim.problem import AttentionProblem

DEFAULT_ALGORITHMS = "standard,flash1,flash2"
DEFAULT_PASSES = "fwd,fwd+bwd"

Algorithms = Annotated[
    str,
    typer.Option(
        "--algorithm",
        metavar="NAMES",
        help="Of standard, flash1, flash2, block_sparse_flash1; with commas.",
        rich_help_panel=ALGORITHM,
    ),
]
Passes = Annotated[
    str,
    typer.Option(
        "--pass",
        metavar="PASSES",
        help="fwd (inference, nothing kept), bwd, fwd+bwd (training); with commas.",
        rich_help_panel=ALGORITHM,
    ),
]
Reserve = Annotated[
    Text,
    typer.Option(
        "--reserve",
        metavar="SIZE",
        help="Memory taken by something else, as 16GB for weights [0].",
        rich_help_panel=HARDWARE,
    ),
]
Out = Annotated[
    str | None,
    typer.Option("--out", metavar="DIR", help="Draw memory against length.", rich_help_panel=OUTPUT),
]


def capacity_of(hw: str, overrides: Sequence[str] | None, reserve: str | None) -> tuple[str, int, list[str]]:
    """The GPU's name, the bytes of its memory that are free, and warnings of its profile."""
    from iosim.capacity import usable_bytes
    from iosim.hardware import load_profile
    from iosim.units import Dimension, parse_quantity

    gpu = load_profile(hw, overrides or ())
    try:
        taken = 0 if reserve is None else int(parse_quantity(reserve, Dimension.BYTES))
    except UsageError as error:
        raise UsageError(f"--reserve: {error}") from None
    return gpu.name, usable_bytes(gpu.hbm_capacity_bytes, taken), list(gpu.warnings)


@with_options
def memory(
    *,
    problem: ProblemOptions,
    algorithm: Algorithms = DEFAULT_ALGORITHMS,
    passes: Passes = DEFAULT_PASSES,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    reserve: Reserve = None,
    out: Out = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Bytes that one attention layer holds in the GPU's memory, and the longest sequence that fits.

    Training by standard and flash1 follows FlashAttention's Table 21; the rest lists the tensors an algorithm keeps.
    Only the attention's own tensors count.
    """
    from iosim.capacity import memory_fits

    asked = problem.problem()
    name, capacity, warnings = capacity_of(hw, overrides, reserve)
    algorithms, which = _words("algorithm", algorithm), _words("pass", passes)
    found = memory_fits(asked, algorithms, which, capacity)
    warnings += problem.remarks({"mask"})
    paths = [] if out is None else _draw(asked, algorithms, which, name, capacity, Path(out), style, formats)
    if as_json:
        print_json(_to_dict(asked, name, capacity, found, warnings))
    else:
        warn(warnings)
        _show(asked, name, capacity, found)
    wrote(paths)


def _words(option: str, text: str) -> list[str]:
    words = split(text)
    if not words or len(set(words)) < len(words):
        raise UsageError(f"--{option}: give one or more, each once, got {text!r}")
    return words


def _draw(
    asked: AttentionProblem,
    algorithms: Sequence[str],
    passes: Sequence[str],
    gpu: str,
    capacity: int,
    out: Path,
    style: str,
    formats: str,
) -> list[Path]:
    from iosim.capacity import PLOT_SEQS, memory_by_seq
    from iosim.plots.files import check_formats, save
    from iosim.plots.memory import memory_by_seq_plot
    from iosim.plots.style import find_style

    look, kinds = find_style(style), check_formats(split(formats))
    table = memory_by_seq(asked, algorithms, passes, PLOT_SEQS)
    plot = memory_by_seq_plot(table, asked, look, gpu=gpu, capacity_bytes=capacity)
    return save(plot, out / plot.name, kinds)


def _to_dict(
    asked: AttentionProblem, gpu: str, capacity: int, found: Sequence[Fit], warnings: Sequence[str]
) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "problem": asked.to_dict(),
        "profile": gpu,
        "capacity_bytes": capacity,
        "memory": [fit.to_dict() for fit in found],
        "warnings": list(warnings),
    }


def _show(asked: AttentionProblem, gpu: str, capacity: int, found: Sequence[Fit]) -> None:
    from iosim.capacity import LONG_SEQS
    from iosim.cli.simulate_table import describe
    from iosim.units import format_bytes

    print(describe(asked))
    print(f"{gpu}, {format_bytes(capacity, decimal=True)} of memory for this layer's tensors alone\n")
    long = [name.upper() for name in LONG_SEQS]
    print_table(
        ["algorithm", "pass", "bytes held", "", "fits", "longest, one head", "longest, layer", *long, "rule"],
        [
            [
                fit.held.algorithm,
                fit.held.passes,
                f"{fit.held.total_bytes:,}",
                format_bytes(fit.held.total_bytes),
                _yes(fit.fits),
                f"{fit.largest_seq_head:,}",
                f"{fit.largest_seq_layer:,}",
                *map(_yes, fit.fits_long.values()),
                fit.held.status,
            ]
            for fit in found
        ],
        right=(2, 3, 5, 6),
    )
    for fit in found:
        parts = ", ".join(f"{part.name} {format_bytes(part.bytes)}" for part in fit.held.parts)
        print(f"\n{fit.held.algorithm} {fit.held.passes}: {parts}\n  {fit.held.source}")


def _yes(value: bool) -> str:
    return "yes" if value else "no"
