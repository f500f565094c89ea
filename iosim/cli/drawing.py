"""Options and messages that bound, plot and report share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.options import OUTPUT

if TYPE_CHECKING:
    from pathlib import Path

StyleName = Annotated[
    str,
    typer.Option(
        "--style",
        metavar="STYLE",
        help="screen, or paper (a 3.25-inch column, Type 42 fonts).",
        rich_help_panel=OUTPUT,
    ),
]
Formats = Annotated[
    str,
    typer.Option(
        "--formats",
        metavar="LIST",
        help="Of png, svg, pdf; a CSV is always beside them.",
        rich_help_panel=OUTPUT,
    ),
]


def split(text: str) -> list[str]:
    """A comma list without blanks."""
    return [part.strip() for part in text.split(",") if part.strip()]


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"iosim: {message}", file=sys.stderr, flush=True)


def wrote(paths: list[Path]) -> None:
    """Where the files are, on stderr."""
    for path in paths:
        say(f"wrote {path}")
