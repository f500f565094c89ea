"""What every command prints with: JSON alone on stdout, tables, warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
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


def print_table(headers: Sequence[str], rows: Rows, *, right: Sequence[int] = ()) -> None:
    """A rich table on a terminal; aligned plain text in a pipe. `right` lists right-aligned columns."""
    if sys.stdout.isatty():
        _print_rich(headers, rows, right)
        return
    print("\n".join(plain_table(headers, rows, right=right)))


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


def _print_rich(headers: Sequence[str], rows: Rows, right: Sequence[int]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for index, header in enumerate(headers):
        table.add_column(header, no_wrap=index == 0, justify="right" if index in right else "left")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)
