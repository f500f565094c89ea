"""From a report to its files: templates filled, figures rendered, tables as CSV and LaTeX."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from iosim.plots.files import FORMATS, Plot, cell_text, csv_text, latex_table, rendered
from iosim.report.content import NOT_MODELLED, PROFILE_KEYS, GpuPart, Report, traffic_table
from iosim.scaling.constants import FAR_TEXT
from iosim.scaling.study import records
from iosim.units import format_bytes

Tables = dict[str, tuple[pd.DataFrame, str]]

LATEX_ROWS = 40  # longer tables are data, not something to paste into a paper

EXPONENT_COLUMNS = [
    "algorithm",
    "series",
    "exponent_n",
    "exponent_d",
    "exponent_m",
    "r_squared",
    "points",
    "where",
]


def report_files(
    report: Report, formats: Sequence[str] = FORMATS, progress: Callable[[str], None] | None = None
) -> dict[str, bytes]:
    """Every file of the report by its path in the folder."""
    tell = progress or (lambda _: None)
    files: dict[str, bytes] = {}
    svgs: dict[str, str] = {}
    for part in report.parts:
        tell(f"rendering figures of {part.profile.name}")
        for plot in part.plots:
            stem = figure_stem(part, plot)
            svg = rendered(plot, "svg")
            svgs[stem] = inline_svg(svg.decode(), plot.caption)
            for kind in formats:
                files[f"figures/{stem}.{kind}"] = svg if kind == "svg" else rendered(plot, kind)
            files[f"figures/{stem}.csv"] = csv_text(plot.data).encode()
    tables = report_tables(report)
    for name, (table, caption) in tables.items():
        files[f"tables/{name}.csv"] = csv_text(table).encode()
        if len(table) <= LATEX_ROWS:
            files[f"tables/{name}.tex"] = latex_table(table, caption).encode()
    tell("rendering pages")
    view = _view(report, svgs, tables, formats)
    files["report.html"] = _environment(html=True).get_template("report.html.j2").render(view).encode()
    files["report.md"] = _environment(html=False).get_template("report.md.j2").render(view).encode()
    text = json.dumps(report.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    files["report.json"] = (text + "\n").encode()
    return files


def figure_stem(part: GpuPart, plot: Plot) -> str:
    """The file name of a figure without its ending."""
    return f"{part.profile.name}_{plot.name}"


def report_tables(report: Report) -> Tables:
    """Every table with its caption."""
    out: Tables = {}
    if report.parts:
        laws = report.parts[0].study.tables()
        out["exponents"] = (
            laws["exponents"][EXPONENT_COLUMNS].round(4),  # an exponent of 1e-16 is 0
            "Fitted exponents of N, d and M, on counted elements",
        )
        out["constants"] = (
            laws["constants"],
            (
                f"Matrix elements in units of N²d²/M: value counted at one far point ({FAR_TEXT}); smallest "
                "and largest over the grid of the exponents, whose smaller tiles cost up to 2 % more"
            ),
        )
        out["crossings"] = (
            laws["crossings"],
            (
                "Smallest M, in elements, at which tiling moves no more than standard attention: counted in matrix "
                "elements, and in fp16 bytes with the row statistics m and l in fp32"
            ),
        )
    for part in report.parts:
        gpu = part.profile.name
        out[f"{gpu}_traffic"] = (traffic_table(part.records), f"Bytes by algorithm and tensor on {gpu}")
        if len(part.levels):
            out[f"{gpu}_levels"] = (part.levels, f"Bytes at every level on {gpu}")
        out[f"{gpu}_tiles"] = (part.tiles, f"Tiles on {gpu}")
        out[f"{gpu}_gaps"] = (part.study.gaps, f"Gap to the bounds on {gpu}")
    return out


def inline_svg(text: str, caption: str) -> str:
    """An SVG as part of a page: without its prolog and fixed size, with a name for those who cannot see it."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1, flags=re.DOTALL)
    body = re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1, flags=re.DOTALL)
    name = caption.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return body.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)


def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("iosim.report", "templates"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["bytes"] = lambda n: format_bytes(n, decimal=True)
    return environment


def _view(report: Report, svgs: dict[str, str], tables: Tables, formats: Sequence[str]) -> dict[str, Any]:
    return {
        "workload": report.workload,
        "hardware": [part.profile.name for part in report.parts],
        "answers": report.answers,
        "laws": [_cells(*tables[name]) for name in ("exponents", "constants", "crossings") if name in tables],
        "law_sentences": _shared_sentences(report),
        "gpus": [_gpu_view(part, svgs, tables) for part in report.parts],
        "not_modelled": NOT_MODELLED,
        "tables": list(tables),
        "formats": [*formats, "csv"],
        "image": next((kind for kind in ("png", "svg") if kind in formats), None),
    }


def _own_sentences(part: GpuPart) -> list[str]:
    """Those that hold for this GPU's M."""
    return [
        s
        for s in part.study.sentences
        if part.profile.name in s
        or "strongest valid bound" in s
        or "times its bound" in s
        or "under a valid" in s
    ]


def _shared_sentences(report: Report) -> list[str]:
    """Those that hold on every GPU, once."""
    own = {s for part in report.parts for s in _own_sentences(part)}
    first = report.parts[0].study.sentences if report.parts else ()
    return [s for s in first if s not in own]


def _gpu_view(part: GpuPart, svgs: dict[str, str], tables: Tables) -> dict[str, Any]:
    name = part.profile.name
    figures = [
        {"stem": stem, "caption": plot.caption, "svg": Markup(svgs[stem])}
        for plot in part.plots
        for stem in (figure_stem(part, plot),)
    ]
    quantities = [part.profile.quantities[key] for key in PROFILE_KEYS if key in part.profile.quantities]
    return {
        "name": name,
        "title": part.profile.title,
        "sram": format_bytes(part.sram_bytes),
        "facts": [[q.key, str(q), q.kind, q.source] for q in quantities],
        "traffic": _cells(*tables[f"{name}_traffic"]),
        "tiles": _cells(*tables[f"{name}_tiles"]),
        "levels": _cells(*tables[f"{name}_levels"]) if f"{name}_levels" in tables else None,
        "level_remark": part.level_remark,
        "warnings": list(dict.fromkeys(w for record in part.records for w in record.warnings)),
        "sentences": _own_sentences(part),
        "waterfall": next((f for f in figures if f["stem"].endswith("_waterfall")), None),
        "figures": [f for f in figures if not f["stem"].endswith("_waterfall")],
    }


def _cells(table: pd.DataFrame, caption: str) -> dict[str, Any]:
    """A table as text, with the numbers to sort by beside it."""
    rows = [
        [{"text": cell_text(value), "sort": value if isinstance(value, int | float) else ""} for value in row]
        for row in (list(record.values()) for record in records(table))
    ]
    numeric = [
        bool(pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind))
        for kind in table.dtypes
    ]
    return {"caption": caption, "columns": [str(c) for c in table.columns], "rows": rows, "numeric": numeric}
