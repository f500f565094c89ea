"""`iosim audit`: measurements against the model, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.options import HARDWARE, OUTPUT, AsJson
from iosim.cli.output import print_json, print_table, progress_bar, warn

if TYPE_CHECKING:
    from iosim.audit.compare import Comparison, ErrorSummary

PAST_LIMIT = 4  # exit code when --max-error is passed over
ROWS_SHOWN = 20
CELLS_A_LINE = 2
PAIR_WIDTH = len("34,426.8M / 34,428.3M")

Measurements = Annotated[
    Path, typer.Argument(metavar="FILE", help="A CSV of measurements, one row a kernel.")
]
Hw = Annotated[
    str | None,
    typer.Option(
        "--hw", "--gpu", metavar="NAME", help="A profile [the file's GPU].", rich_help_panel=HARDWARE
    ),
]
MaxError = Annotated[
    list[str] | None,
    typer.Option(
        "--max-error",
        metavar="COLUMN=FRACTION",
        help="Exit with code 4 when a row is further off: hbm_read_bytes=0.05 (repeatable).",
        rich_help_panel=OUTPUT,
    ),
]
AllRows = Annotated[
    bool, typer.Option("--all", help=f"Print every row, not the {ROWS_SHOWN} worst.", rich_help_panel=OUTPUT)
]


def audit(
    file: Measurements,
    hw: Hw = None,
    max_error: MaxError = None,
    all_rows: AllRows = False,
    as_json: AsJson = False,
) -> None:
    """Predict every measured kernel and print predicted, measured and error at each level, worst first.

    Errors are predicted/measured - 1. What the model cannot know, as with unknown tiles, is left out.
    Times are of one launch (profiled) and of repeated ones under the power limit (median). The summary covers
    fused forward kernels with at least 8 queries; the others have their own lines.
    """
    from iosim.audit import audit_file
    from iosim.audit.compare import parse_limits, past_limits
    from iosim.audit.predict import COLUMNS

    limits = parse_limits(max_error or (), COLUMNS)
    with progress_bar("audit", 1) as progress:
        result = audit_file(file, hw, progress=progress)
    warn(result.faults)
    if as_json:
        print_json(result.to_dict())
    else:
        _show_rows(result.items, None if all_rows else ROWS_SHOWN)
        _show_summary("all fused", result.summary)
        for name, group in result.by_kernel.items():
            _show_summary(name, group)
    passed = past_limits(result.items, limits)
    if passed:
        warn(passed)
        raise typer.Exit(PAST_LIMIT)


def _show_rows(items: Sequence[Comparison], most: int | None) -> None:
    from iosim.audit.predict import COLUMNS
    from iosim.units import counted

    ordered = sorted(items, key=lambda item: -item.worst(COLUMNS))
    print("predicted / measured, error; worst first\n")
    for item in ordered[:most]:
        print("\n".join(_block(item)) + "\n")
    if most is not None and len(ordered) > most:
        print(f"... and {counted(len(ordered) - most, 'row')} with smaller errors (--all)\n")


def _block(item: Comparison) -> list[str]:
    """A row's heading, then what is known of it, two columns of the measurement beside each other."""
    row = item.row
    lines = [f"case {row.case}  {row.implementation}/{row.kernel}  {_shape(item)}"]
    cells = _cells(item)
    for k in range(0, len(cells), CELLS_A_LINE):
        lines.append(("  " + "  ".join(cells[k : k + CELLS_A_LINE])).rstrip())
    return lines if cells else [*lines, "  nothing predicted"]


def _shape(item: Comparison) -> str:
    p = item.row.problem
    heads = f"{p.heads}" if p.heads == p.kv_heads else f"{p.heads}:{p.kv_heads}"
    return f"B{p.batch} H{heads} {p.seq_q}x{p.seq_k} d{p.head_dim} {p.mask}"


def _cells(item: Comparison) -> list[str]:
    """What is both predicted and measured, in cells of one width."""
    from iosim.audit.predict import COLUMNS

    width = max(map(len, COLUMNS))
    out = []
    for column in COLUMNS:
        predicted, measured, error = (
            item.predicted.get(column),
            item.row.measured.get(column),
            item.error(column),
        )
        if predicted is not None and measured is not None and error is not None:
            pair = f"{_short(column, predicted)} / {_short(column, measured)}"
            out.append(f"{column:{width}}  {pair:>{PAIR_WIDTH}}  {error:>+7.1%}")
    return out


def _short(column: str, value: float) -> str:
    if column.endswith("_s"):
        return f"{value * 1e6:,.1f}us"
    return f"{value / 1e6:,.1f}M"


def _show_summary(name: str, columns: dict[str, ErrorSummary]) -> None:
    known: dict[str, Any] = {column: s for column, s in columns.items() if s.n}
    if not known:
        print(f"{name}: nothing predicted\n")
        return
    rows = [[column, str(s.n), *(f"{value:.2%}" for value in _shares(s))] for column, s in known.items()]
    print_table([name, "n", "mean", "median", "p90", "worst", "bias"], rows, right=range(1, 7))
    print()


def _shares(summary: Any) -> tuple[float, ...]:
    s = summary
    return (s.mean_abs_error, s.median_abs_error, s.p90_abs_error, s.max_abs_error, s.bias)
