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
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A CSV of measurements, one row a kernel; or what ncu --csv printed, or an .ncu-rep, of your own kernel.",
    ),
]
OWN = "Your own kernel"
Cases = Annotated[
    list[str] | None,
    typer.Option(
        "--case",
        metavar="TEXT",
        help="Shape and tile of an export: batch=2,heads=16,N=4096,d=128,causal,tiles=128x64 "
        "(once for all launches, or once each).",
        rich_help_panel=OWN,
    ),
]
Card = Annotated[
    str | None,
    typer.Option(
        "--card",
        metavar="NAME|FILE",
        help="A kernel card: tiles, warps, order (iosim kernels).",
        rich_help_panel=OWN,
    ),
]
KernelName = Annotated[
    str | None,
    typer.Option(
        "--kernel-name",
        metavar="TEXT",
        help="The kernel of the export that is meant: a part of its name.",
        rich_help_panel=OWN,
    ),
]
PrintCommand = Annotated[
    bool,
    typer.Option(
        "--print-ncu-command",
        help="Print the profiler's command line with the right metrics, and nothing else.",
        rich_help_panel=OWN,
    ),
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
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=256,
        help="Processes that predict at once; the numbers are the same [the cores, at most 8].",
        rich_help_panel=HARDWARE,
    ),
]
AllRows = Annotated[
    bool, typer.Option("--all", help=f"Print every row, not the {ROWS_SHOWN} worst.", rich_help_panel=OUTPUT)
]


def audit(
    file: Measurements = None,
    hw: Hw = None,
    processes: Processes = None,
    case: Cases = None,
    card: Card = None,
    kernel_name: KernelName = None,
    print_ncu_command: PrintCommand = False,
    max_error: MaxError = None,
    all_rows: AllRows = False,
    as_json: AsJson = False,
) -> None:
    """Predict every measured kernel and print predicted, measured and error at each level, worst first.

    Errors are predicted/measured - 1. What the model cannot know, as with unknown tiles, is left out.
    Times are of one launch (profiled) and of repeated ones under the power limit (median). The summary covers
    fused forward kernels with at least 8 queries; the others have their own lines.

    For your own kernel: run the command of --print-ncu-command, then audit its export with --case.
    """
    from iosim.audit.compare import parse_limits, past_limits
    from iosim.audit.predict import COLUMNS
    from iosim.errors import UsageError

    if print_ncu_command:
        from iosim.cli.audit_export import print_ncu_command as show_command

        show_command(kernel_name, as_json=as_json)
        return
    if file is None:
        raise UsageError("audit: no FILE; a CSV of measurements or a profiler's export (--print-ncu-command)")
    most = None if all_rows else ROWS_SHOWN
    items: Sequence[Comparison]
    if _is_own(file, case, card, kernel_name):
        from iosim.cli.audit_export import audit_own
        from iosim.profiler import COLUMNS as OWN_COLUMNS

        limits = parse_limits(max_error or (), OWN_COLUMNS)
        found = audit_own(file, case or (), card, hw, kernel_name, as_json=as_json, most=most)
        items = found.comparisons
    else:
        limits = parse_limits(max_error or (), COLUMNS)
        items = _audit_measurements(file, hw, processes, as_json=as_json, most=most)
    passed = past_limits(items, limits)
    if passed:
        warn(passed)
        raise typer.Exit(PAST_LIMIT)


def _is_own(file: Path, *said: object) -> bool:
    from iosim.errors import UsageError
    from iosim.profiler import is_export

    if is_export(file):
        return True
    if any(said) and file.is_file():
        raise UsageError(
            f"{file.name}: --case, --card and --kernel-name are for a profiler's export, which this is not"
        )
    return False


def _audit_measurements(
    file: Path, hw: str | None, processes: int | None, *, as_json: bool, most: int | None
) -> Sequence[Comparison]:
    from iosim.audit import audit_file
    from iosim.workers import default_processes

    with progress_bar("audit", 1) as progress:
        result = audit_file(file, hw, progress=progress, processes=processes or default_processes())
    warn(result.faults)
    if as_json:
        print_json(result.to_dict())
        return result.items
    _show_rows(result.items, most)
    show_summary("all fused", result.summary)
    for name, group in result.by_kernel.items():
        show_summary(name, group)
    return result.items


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
    lines = [f"case {row.case}  {row.implementation}/{row.kernel}  {shape(item)}"]
    from iosim.audit.predict import COLUMNS

    known = cells(item, COLUMNS)
    for k in range(0, len(known), CELLS_A_LINE):
        lines.append(("  " + "  ".join(known[k : k + CELLS_A_LINE])).rstrip())
    return lines if known else [*lines, "  nothing predicted"]


def shape(item: Comparison) -> str:
    """The problem of a row in a few words."""
    p = item.row.problem
    heads = f"{p.heads}" if p.heads == p.kv_heads else f"{p.heads}:{p.kv_heads}"
    return f"B{p.batch} H{heads} {p.seq_q}x{p.seq_k} d{p.head_dim} {p.mask}"


def cells(item: Comparison, columns: Sequence[str]) -> list[str]:
    """What is both predicted and measured, in cells of one width."""
    width = max(map(len, columns))
    out = []
    for column in columns:
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
    return f"{value / 1e6:,.1f}M" if value >= 1e5 else f"{value:,.0f}"


def show_summary(name: str, columns: dict[str, ErrorSummary]) -> None:
    """Errors of a group of rows, a line a column."""
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
