"""`iosim claims`: what people say about FlashAttention, with verdicts that follow from computed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from iosim.cli.drawing import split
from iosim.cli.options import OUTPUT, AsJson
from iosim.cli.output import print_json
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.claims import Evidence

FORMATS = ("text", "markdown", "html")

Only = Annotated[
    str,
    typer.Option(
        "--only", metavar="KEYS", help="Some claims by key, with commas; --json shows the keys [all]."
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"Of {', '.join(FORMATS)}: a table to paste.",
        rich_help_panel=OUTPUT,
    ),
]


def claims(only: Only = "", format: Format = "text", as_json: AsJson = False) -> None:
    """Every claim with its verdict, the numbers that decide it, its source, and the command that shows it.

    Verdicts: holds, holds with a condition, does not hold, cannot be decided from bytes. Numbers are computed on the
    spot.
    """
    from iosim.claims import check_claims, claims_html, claims_markdown

    if format not in FORMATS:
        raise UsageError(f"--format: unknown format {format!r}; allowed: {', '.join(FORMATS)}")
    found = check_claims(split(only))
    if as_json:
        print_json({"schema_version": 1, "claims": [item.to_dict() for item in found]})
    elif format == "markdown":
        print(claims_markdown(found), end="")
    elif format == "html":
        print(claims_html(found), end="")
    else:
        _show(found)


def _show(found: Sequence[Evidence]) -> None:
    from textwrap import fill

    for section, group in groupby(found, key=lambda item: item.claim.section):
        print(f"{section}\n{'-' * len(section)}")
        for item in group:
            print(f"{item.claim.sentence}  [{item.claim.key}]")
            text = f"{item.verdict.upper()}. {item.text}"
            print(fill(text, 110, initial_indent="    ", subsequent_indent="    "))
            print(f"    source: {item.claim.source}\n    try: {item.claim.command}\n")
    verdicts = [item.verdict for item in found]
    counts = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
    print(f"{len(found)} claims: {', '.join(counts)}")
