"""Small HTML tables for notebooks: every text escaped, no colours of their own, so they read on light and dark."""

from __future__ import annotations

from collections.abc import Sequence

Cells = Sequence[str]


def html_table(
    caption: str, headers: Cells, rows: Sequence[Cells], *, right: Sequence[int] = (), notes: Cells = ()
) -> str:
    """A table of plain text as HTML; `right` lists right-aligned columns, `notes` are lines below it."""
    return f"{_table(caption, headers, rows, right)}{_lines(notes)}"


def folded(summary: str, inner: str) -> str:
    """HTML from `html_table` behind a line that opens it on a click."""
    return f"<details><summary>{_escaped(summary)}</summary>{inner}</details>"


def _table(caption: str, headers: Cells, rows: Sequence[Cells], right: Sequence[int]) -> str:
    head = f"<thead>{_row('th', headers, right)}</thead>" if headers else ""
    body = "".join(_row("td", row, right) for row in rows)
    title = f'<caption style="text-align:left;font-weight:bold">{_escaped(caption)}</caption>'
    return f"<table>{title if caption else ''}{head}<tbody>{body}</tbody></table>"


def _row(tag: str, cells: Cells, right: Sequence[int]) -> str:
    sides = ("right" if index in right else "left" for index in range(len(cells)))
    inner = (
        f'<{tag} style="text-align:{side}">{_escaped(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{''.join(inner)}</tr>"


def _lines(notes: Cells) -> str:
    return f"<p>{'<br>'.join(map(_escaped, notes))}</p>" if notes else ""


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)
