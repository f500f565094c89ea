"""The claims as a table: for people, for Markdown, for the report's page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from iosim.claims.claim import Evidence

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("claim", "verdict", "because", "source", "command")


def _cells(item: Evidence) -> tuple[str, ...]:
    c = item.claim
    return (c.sentence, item.verdict, item.text, c.source, c.command)


def claims_frame(found: Sequence[Evidence]) -> pd.DataFrame:
    """One row a claim: section, key and COLUMNS."""
    import pandas as pd

    rows = [
        {"section": e.claim.section, "key": e.claim.key} | dict(zip(COLUMNS, _cells(e), strict=True))
        for e in found
    ]
    return pd.DataFrame(rows)


def claims_markdown(found: Sequence[Evidence]) -> str:
    """A table a section; the command as code."""
    lines = []
    for section, group in groupby(found, key=lambda e: e.claim.section):
        lines += [
            f"## {section}",
            "",
            "| claim | verdict | because | source | shown by |",
            "|---|---|---|---|---|",
        ]
        for item in group:
            *words, command = (cell.replace("|", "\\|") for cell in _cells(item))
            words[1] = f"**{words[1]}**"
            lines.append(f"| {' | '.join(words)} | `{command}` |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def claims_html(found: Sequence[Evidence]) -> str:
    """One table for a page: no styles of its own, the verdict as a class such as `verdict-does-not-hold`."""
    head = "".join(f"<th>{name}</th>" for name in ("section", *COLUMNS))
    body = []
    for item in found:
        claim, verdict, because, source, command = map(escape, _cells(item))
        name = verdict.replace(" ", "-")
        body.append(
            f'<tr><td>{escape(item.claim.section)}</td><td>{claim}</td><td class="verdict-{name}">{verdict}</td>'
            f"<td>{because}</td><td>{source}</td><td><code>{command}</code></td></tr>"
        )
    rows = "\n".join(body)
    return f'<table class="claims">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n'
