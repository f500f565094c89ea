"""Options and messages that bound, plot and report share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
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


def check_drawing(out: Path, style: str, formats: str) -> None:
    """Before any work: the style and the formats are known, and the folder can be made. Errors as of `save`."""
    from iosim.plots.files import check_formats, make_folder
    from iosim.plots.style import find_style

    find_style(style)
    check_formats(split(formats))
    make_folder(out)


def say(message: str) -> None:
    """Progress, on stderr."""
    print(f"iosim: {message}", file=sys.stderr, flush=True)


def ticker(what: str, seconds: float = 2.0) -> Callable[[int, int], None]:
    """A progress function that says on stderr how far long work is, every few seconds."""
    last = time.monotonic()

    def tick(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            say(f"{what}: {100 * done // max(1, total)} % of {total:,}")

    return tick


def wrote(paths: list[Path]) -> None:
    """Where the files are, on stderr."""
    for path in paths:
        say(f"wrote {path}")
