"""`iosim reproduce`: the numbers that papers print, beside the model's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import split
from iosim.cli.options import OUTPUT, AsJson
from iosim.cli.output import print_json, print_table, progress_bar, warn
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.published import Check, Group

PAST_LIMIT = 4  # exit code when --max-error is passed over

Only = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="GROUPS",
        help="Of runtime, memory, figure-2, flash2-speed, flash3, flash4-cycles, softmax; with commas [all].",
    ),
]
MaxError = Annotated[
    str | None,
    typer.Option(
        "--max-error",
        metavar="FRACTION",
        help="Exit with code 4 when a counted number is further off, as 0.06.",
        rich_help_panel=OUTPUT,
    ),
]


def reproduce(only: Only = "", max_error: MaxError = None, as_json: AsJson = False) -> None:
    """Run the model against the figures and tables of the papers, and print paper, model and error.

    Numbers in brackets are not counted: the model should not meet them, and the line says why.
    """
    from iosim.published import past_limit
    from iosim.published import reproduce as run

    limit = _fraction(max_error)
    with progress_bar("reproduce", 1) as progress:
        groups = run(split(only), progress)
    passed = [] if limit is None else past_limit(groups, limit)
    if as_json:
        print_json({"schema_version": 1, "groups": [g.to_dict() for g in groups], "past_limit": list(passed)})
    else:
        for group in groups:
            _show(group)
    if passed:
        warn(passed)
        raise typer.Exit(PAST_LIMIT)


def _fraction(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"--max-error: {text!r}: write a fraction of at least 0, as 0.06")
    return value


def _show(group: Group) -> None:
    print(f"{group.title}\n  {group.source}\n  model: {group.method}\n  try: {group.command}")
    rows = [
        [c.place, c.what, f"{c.paper:,.6g}", f"{c.model:,.6g}", _error(c), c.unit, c.note]
        for c in group.checks
    ]
    print_table(["", "", "paper", "model", "error", "unit", ""], rows, right=(2, 3, 4))
    if group.mean_error is not None and group.worst_error is not None:
        kept = [c.holds for c in group.counted if c.holds is not None]
        within = f"; {sum(kept)} of {len(kept)} within their limit" if kept else ""
        print(
            f"{len(group.counted)} counted: mean error {group.mean_error:.2%}, worst {group.worst_error:.2%}{within}"
        )
    for caveat in group.caveats:
        print(f"note: {caveat}")
    print()


def _error(check: Check) -> str:
    text = f"{check.difference:+.2f} {check.unit}" if check.absolute else f"{check.error:+.1%}"
    return text if check.counted else f"({text})"
