"""`iosim plot`: curves from a saved sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import Formats, StyleName, say, split, wrote
from iosim.cli.options import OUTPUT, AsJson
from iosim.cli.output import print_json
from iosim.errors import RunError, UsageError

if TYPE_CHECKING:
    import pandas as pd


def plot(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A table of `iosim sweep`: CSV or Parquet.")],
    x: Annotated[
        str | None,
        typer.Option("--x", metavar="COLUMN", help="Column along the x axis [seq_q, or what varies]."),
    ] = None,
    y: Annotated[
        str, typer.Option("--y", metavar="COLUMN", help="Column along the y axis; sm_bytes is read + write.")
    ] = "sm_bytes",
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="LIST", help="Columns that tell curves apart; what else varies is added."
        ),
    ] = "algorithm",
    where: Annotated[
        list[str] | None,
        typer.Option("--where", metavar="COLUMN=VALUE", help="Only rows with this value (repeatable)."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="STEM", help="Files to write, without an ending [FILE].", rich_help_panel=OUTPUT
        ),
    ] = None,
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Draw one column of a saved sweep against another, a curve for each combination of all others that vary."""
    from iosim.plots.files import check_formats, save
    from iosim.plots.lines import complete_by, plot_sweep, varying_axis
    from iosim.plots.style import find_style

    look, kinds = find_style(style), check_formats(split(formats))
    table, kept = _read(file), _conditions(where or [])
    x = x or varying_axis(table, kept)
    asked = split(by)
    full = complete_by(table, x=x, y=y, by=asked, where=kept)
    if added := [column for column in full if column not in asked]:
        say(
            f"{', '.join(added)} tell{'s' * (len(added) == 1)} curves apart too; --where COLUMN=VALUE takes one value"
        )
    stem = Path(out) if out else Path(file).with_suffix("")
    stem = stem.with_suffix("") if stem.suffix.lower() in (".png", ".svg", ".pdf", ".csv") else stem
    if Path(file).resolve() == stem.with_name(f"{stem.name}.csv").resolve():
        stem = stem.with_name(f"{stem.name}_{y}_by_{x}")
    drawn = plot_sweep(table, look, x=x, y=y, by=full, where=kept, name=stem.name)
    paths = save(drawn, stem, kinds)
    wrote(paths)
    if as_json:
        data: dict[str, Any] = {"caption": drawn.caption, "files": [str(p) for p in paths]}
        print_json(data)


def _conditions(texts: list[str]) -> dict[str, str]:
    out = {}
    for text in texts:
        column, sign, value = text.partition("=")
        if not sign or not column:
            raise UsageError(f"--where: cannot read {text!r}; write COLUMN=VALUE, as head_dim=128")
        out[column.strip()] = value.strip()
    return out


def _read(file: str) -> pd.DataFrame:
    import pandas as pd

    path = Path(file)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise UsageError(f"{file}: only .csv and .parquet tables can be plotted")
    try:
        return pd.read_csv(path) if path.suffix.lower() == ".csv" else pd.read_parquet(path)
    except OSError as error:
        raise RunError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, pd.errors.ParserError, UnicodeDecodeError):
        raise UsageError(
            f"{file}: is not a table that iosim wrote; expected CSV or Parquet by its ending"
        ) from None
