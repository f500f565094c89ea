"""What every command prints with: JSON alone on stdout, tables, warnings on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

Rows = Sequence[Sequence[str]]


def version() -> str:
    """The installed version, or that this is a checkout that was never installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("iosim")
    except PackageNotFoundError:
        return "of a checkout that is not installed"


def print_json(value: Any) -> None:
    """One JSON document, and nothing else, to stdout."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def warn(lines: Sequence[str]) -> None:
    """Warnings for people, on stderr."""
    for line in lines:
        print(f"warning: {line}", file=sys.stderr)


@contextmanager
def quiet_stdout() -> Iterator[None]:
    """While a user's own file runs: what it prints goes to stderr, so that stdout stays ours.

    That holds for raw writes to file descriptor 1 too, where the process has one that is really stdout.
    """
    sys.stdout.flush()
    with redirect_stdout(sys.stderr), _descriptor_1_to_stderr():
        yield


@contextmanager
def _descriptor_1_to_stderr() -> Iterator[None]:
    try:
        kept = os.dup(1)
    except OSError:
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def print_table(headers: Sequence[str], rows: Rows, *, right: Sequence[int] = (), wrap: bool = False) -> None:
    """A rich table on a terminal; aligned plain text in a pipe, or where a table of numbers is wider than it.

    `right` lists right-aligned columns; `wrap` allows long cells of prose to take several lines.
    """
    plain = plain_table(headers, rows, right=right)
    if not sys.stdout.isatty():
        print("\n".join(plain))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    if not wrap and max(map(len, plain)) + 2 * len(headers) > console.width:
        print("\n".join(plain))  # broken lines of numbers cannot be read; the terminal may scroll instead
        return
    table = Table(box=box.SIMPLE_HEAD)
    for index, header in enumerate(headers):
        table.add_column(
            header, no_wrap=not wrap or index == 0, justify="right" if index in right else "left"
        )
    for row in rows:
        table.add_row(*row)
    console.print(table)


def plain_table(headers: Sequence[str], rows: Rows, *, right: Sequence[int] = ()) -> list[str]:
    """The lines of a table in aligned columns, without box drawing."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    out = []
    for row in (headers, *rows):
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.append("  ".join(cells).rstrip())
    return out


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr for work of `total` steps; silent where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, total: bar.update(task, completed=done, total=total)
