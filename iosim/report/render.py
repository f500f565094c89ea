"""From a report to its files: templates filled, figures rendered, tables as CSV and LaTeX."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from iosim.plots.files import FORMATS, cell_text, csv_text, latex_table, rendered
from iosim.report.blocks import Block, Figure, Heading, Items, Table, Text
from iosim.report.content import Report
from iosim.scaling.study import records

LATEX_ROWS = 40  # longer tables are data, not something to paste into a paper


def report_files(
    report: Report, formats: Sequence[str] = FORMATS, progress: Callable[[str], None] | None = None
) -> dict[str, bytes]:
    """Every file of the report by its path in the folder."""
    tell = progress or (lambda _: None)
    files: dict[str, bytes] = {}
    svgs: dict[str, str] = {}
    for drawn in figures_of(report):
        tell(f"rendering {drawn.stem}")
        svg = rendered(drawn.plot, "svg", report.made_by)
        svgs[drawn.stem] = inline_svg(svg.decode(), drawn.plot.caption, drawn.stem)
        for kind in formats:
            content = svg if kind == "svg" else rendered(drawn.plot, kind, report.made_by)
            files[f"figures/{drawn.stem}.{kind}"] = content
        files[f"figures/{drawn.stem}.csv"] = csv_text(drawn.plot.data).encode()
    for table in tables_of(report):
        files[f"tables/{table.name}.csv"] = csv_text(table.frame).encode()
        if len(table.frame) <= LATEX_ROWS:
            files[f"tables/{table.name}.tex"] = latex_table(table.frame, table.caption).encode()
    tell("rendering pages")
    view = _view(report, svgs, formats)
    files["report.html"] = _environment(html=True).get_template("report.html.j2").render(view).encode()
    text = _environment(html=False).get_template("report.md.j2").render(view)
    files["report.md"] = re.sub(r"\n{3,}", "\n\n", text).encode()
    text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    files["report.json"] = (text + "\n").encode()
    return files


def figures_of(report: Report) -> Iterator[Figure]:
    """Every figure in the order of the page."""
    for section in report.sections:
        yield from (block for block in section.blocks if isinstance(block, Figure))


def tables_of(report: Report) -> Iterator[Table]:
    """Every table in the order of the page, those that only stand in files as well."""
    for section in report.sections:
        yield from (block for block in section.blocks if isinstance(block, Table))


def inline_svg(text: str, caption: str, stem: str) -> str:
    """An SVG as part of a page: without prolog and fixed size, ids of its own, and a name for those who cannot see."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1, flags=re.DOTALL)
    body = re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1, flags=re.DOTALL)
    body = re.sub(r'( id="|href="#|url\(#)', rf"\1{stem}-", body)
    return body.replace("<svg ", f'<svg role="img" aria-label="{escape(caption)}" ', 1)


def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("iosim.report", "templates"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    return environment


def _code(text: str) -> Markup:
    """Escaped, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False)))


def _view(report: Report, svgs: dict[str, str], formats: Sequence[str]) -> dict[str, Any]:
    return {
        "workload": report.workload,
        "hardware": [part.profile.name for part in report.parts],
        "made_by": report.made_by,
        "answers": report.answers,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "nav": section.nav,
                "blocks": [v for block in section.blocks if (v := _block_view(block, svgs)) is not None],
            }
            for section in report.sections
        ],
        "tables": [table.name for table in tables_of(report)],
        "formats": [*formats, "csv"],
        "image": next((kind for kind in ("png", "svg") if kind in formats), None),
    }


def _block_view(block: Block, svgs: dict[str, str]) -> dict[str, Any] | None:
    """A block as the templates take it; None for what stands in files only."""
    match block:
        case Heading():
            return {"kind": "heading", "text": block.text, "code": block.code}
        case Text():
            return {"kind": "text", "text": block.text, "note": block.note}
        case Items():
            return {"kind": "items", "lines": block.lines, "note": block.note}
        case Figure():
            plot = block.plot
            svg = Markup(svgs[block.stem])
            return {"kind": "figure", "stem": block.stem, "caption": plot.caption, "svg": svg}
        case Table():
            return _table_view(block) if block.shown else None


def _table_view(table: Table) -> dict[str, Any]:
    """A table as text, with the numbers to sort by beside it."""
    frame = table.frame if table.most is None else table.frame.head(table.most)
    columns = [str(c) for c in frame.columns]
    numeric = [
        bool(pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind))
        for kind in frame.dtypes
    ]
    styles = [
        "n" if number else "prose" if name in table.prose else ""
        for name, number in zip(columns, numeric, strict=True)
    ]
    rows = [
        [
            {
                "text": cell_text(value),
                "sort": value if isinstance(value, int | float) else "",
                "code": name in table.code,
                "badge": str(value).replace(" ", "-") if name == table.badge else "",
            }
            for name, value in row.items()
        ]
        for row in records(frame)
    ]
    left = len(table.frame) - len(frame)
    return {
        "kind": "table",
        "name": table.name,
        "caption": table.caption,
        "columns": columns,
        "rows": rows,
        "numeric": numeric,
        "styles": styles,
        "left_out": left,
    }
