"""Figures and tables to files: the same bytes every time, and never half a file."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from iosim.errors import RunError, UsageError
from iosim.plots.style import Style, styled

FORMATS = ("png", "svg", "pdf")
_NO_DATES: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A finished figure, what it shows as a table, and one sentence that says how to read it."""

    name: str
    figure: Figure
    data: pd.DataFrame
    caption: str
    style: Style

    def _repr_png_(self) -> bytes:
        """The figure itself, in a notebook."""
        return rendered(self, "png")


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """The formats, known and each once; `UsageError` otherwise."""
    for name in formats:
        if name not in FORMATS:
            raise UsageError(f"format: unknown format {name!r}; allowed: {', '.join(FORMATS)}")
    if not formats:
        raise UsageError(f"format: none given; allowed: {', '.join(FORMATS)}")
    return tuple(dict.fromkeys(formats))


_ABOUT = {"png": "Description", "svg": "Description", "pdf": "Subject"}


def rendered(plot: Plot, kind: str, about: str = "") -> bytes:
    """The figure in one format, without dates: equal figures give equal bytes. `about` goes into its metadata."""
    metadata = {**_NO_DATES[kind], **({_ABOUT[kind]: about} if about else {})}
    out = io.BytesIO()
    with styled(plot.style):
        FigureCanvasAgg(plot.figure)
        mpl.rcParams["svg.hashsalt"] = f"iosim {plot.name}"
        plot.figure.savefig(out, format=kind, metadata=metadata, dpi=plot.style.dpi)
    return out.getvalue()


def save(plot: Plot, stem: Path, formats: Sequence[str] = FORMATS) -> list[Path]:
    """Write `stem`.png, .svg, .pdf and, always, the plotted data as `stem`.csv. `RunError` where that fails."""
    written = []
    for kind in check_formats(formats):
        written.append(write_bytes(stem.with_name(f"{stem.name}.{kind}"), rendered(plot, kind)))
    written.append(write_bytes(stem.with_name(f"{stem.name}.csv"), csv_text(plot.data).encode()))
    return written


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV; whole numbers whole, fractions with all of their digits."""
    return str(table.to_csv(index=False, lineterminator="\n"))


def write_bytes(path: Path, content: bytes) -> Path:
    """Write to a temporary name beside `path`, then rename. `RunError` names the path and the reason."""

    def fill(where: Path) -> None:
        where.write_bytes(content)

    return _replacing(path, fill)


def make_folder(path: Path) -> Path:
    """Create a folder before the work that fills it. `RunError` where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise RunError(f"{path}: cannot write there: {(error.strerror or str(error)).lower()}") from None


def _replacing(path: Path, fill: Callable[[Path], None]) -> Path:
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        fill(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError):
            blocks = next((p for p in path.parents if p.exists()), path.parent)
            raise RunError(f"{path}: cannot be written: {blocks} is not a folder; choose another") from None
        raise RunError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "²": r"\textsuperscript{2}",
    "−": r"$-$",
    "×": r"$\times$",
    "Θ": r"$\Theta$",
    "≤": r"$\le$",
    "√": r"$\surd$",
    "·": r"$\cdot$",
    "ᵀ": r"\textsuperscript{T}",
}


def latex_table(table: pd.DataFrame, caption: str) -> str:
    """A table for a paper: booktabs rules, numbers to the right, nothing that LaTeX would misread."""
    kinds = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in table.dtypes)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_tex(caption)}}}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        " & ".join(_tex(str(name)) for name in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(_tex(cell_text(v)) for v in row) + r" \\" for row in table.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)


def cell_text(value: object) -> str:
    """A cell for people: whole numbers with separators, fractions to four digits, nothing for what is missing."""
    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, np.generic):
        return cell_text(value.item())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
