"""The gallery under reports/: one folder a GPU, rebuilt byte for byte as long as version and profile stay the same.

Its files carry no date and no commit; `files.csv` of a folder names the version, the profile's hash and every file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from iosim import __version__
from iosim.audit.measurements import read_measurements
from iosim.gap import gap_of_rows, rows_of_case
from iosim.hardware import load_profile
from iosim.plots.files import Plot, csv_text, rendered
from iosim.plots.style import SCREEN
from iosim.plots.waterfall import waterfall
from iosim.report.content import DEFAULT_PROBLEM, Report, build_report, workload_text
from iosim.report.render import figures_of, report_files
from iosim.workers import default_processes

GPUS = ("a100-sxm-80gb", "h100-sxm", "h200-sxm")
PICTURES = {"a100-sxm-80gb": (), "h100-sxm": ("traffic_by_sram", "time_terms"), "h200-sxm": ()}
"""Figures that stand in a folder as PNG too, for pages that cannot show SVG."""
WATERFALL_ROW = "40"
"""The measured case whose waterfall heads the README: FlashAttention-2, causal, N = 2,048."""
MANIFEST = "files.csv"
LEFT_OUT = (".html", ".json", ".tex")
"""Endings of a report's files that the gallery does not keep: `iosim report` makes them in a minute."""
INDEX_NOTES = (
    "A folder has the report as Markdown, its figures as SVG and their data as CSV, its tables as CSV, and",
    f"`{MANIFEST}`, which names every file with its hash, the version and the profile. Made again with the same",
    "version, profiles and libraries the files are the same to the byte. The page for a browser, JSON, LaTeX and",
    "PDF are left out: `iosim report --hw h100-sxm` writes them.",
    "",
    "The H200's report is held against `validation/measurements/h200/rungs/attention.csv`: our own kernels, with",
    "counters and times, and torch's, with times, measured together (`iosim validate`).",
    "",
    "`h200-sxm/waterfall.png` is the waterfall of torch's FlashAttention-2, causal, N = 2,048, to its counters:",
    f"`iosim gap --row {WATERFALL_ROW} --file validation/measurements/h200/attention.csv`.",
)


def gallery_files(
    name: str,
    measurements: Path | None = None,
    *,
    headed_by: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, bytes]:
    """Every file of one GPU's folder. `measurements`: of this GPU, for predicted against measured.

    `headed_by`: the file whose case WATERFALL_ROW is drawn as a waterfall.
    """
    report = build_report(
        DEFAULT_PROBLEM,
        [name],
        SCREEN,
        measurements=measurements,
        processes=default_processes(),
        progress=progress,
    )
    made = report_files(report, ("svg",), progress=progress)
    files = {path: content for path, content in made.items() if not path.endswith(LEFT_OUT)}
    files["report.md"] = _without_json(files["report.md"])
    for figure in figures_of(report):
        if figure.plot.name in PICTURES.get(name, ()):
            files[f"{figure.plot.name}.png"] = rendered(figure.plot, "png", report.made_by)
    if headed_by is not None:
        files |= _measured_waterfall(headed_by, report)
    files[MANIFEST] = manifest(files, name).encode()
    return files


def _without_json(page: bytes) -> bytes:
    lines = page.decode().splitlines(keepends=True)
    return "".join(line for line in lines if "(report.json)" not in line).encode()


def _measured_waterfall(measurements: Path, report: Report) -> dict[str, bytes]:
    """The waterfall that ends at hardware counters."""
    rows = rows_of_case(read_measurements(measurements), WATERFALL_ROW, measurements.name)
    plot: Plot = waterfall(gap_of_rows(rows, report.parts[0].profile), SCREEN)
    return {
        "waterfall.png": rendered(plot, "png", report.made_by),
        "waterfall.svg": rendered(plot, "svg", report.made_by),
        "waterfall.csv": csv_text(plot.data).encode(),
    }


def manifest(files: Mapping[str, bytes], name: str) -> str:
    """One row a file: its hash, and the version and profile that it is of."""
    profile = load_profile(name)
    rows = [
        {
            "file": path,
            "sha256": hashlib.sha256(content).hexdigest(),
            "bytes": len(content),
            "iosim_version": __version__,
            "profile": profile.name,
            "profile_sha256": profile.sha256,
        }
        for path, content in sorted(files.items())
    ]
    return csv_text(pd.DataFrame(rows))


def gone(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Files of an earlier gallery, as its manifest names them, that are not made any more."""
    old = folder / MANIFEST
    if not old.is_file():
        return []
    return [folder / str(name) for name in pd.read_csv(old)["file"] if str(name) not in files]


def gallery_index(measured: Sequence[str]) -> str:
    """The page that leads to the folders. `measured`: GPUs with measurements beside the predictions."""
    lines = [
        "# Gallery",
        "",
        f"Reports made by `make gallery` with iosim {__version__}: {workload_text(DEFAULT_PROBLEM)}.",
        "",
        "| GPU | report | predicted against measured | profile, SHA-256 |",
        "|---|---|---|---|",
    ]
    for name in GPUS:
        profile = load_profile(name)
        there = f"[yes]({name}/report.md#predicted-against-measured)" if name in measured else "no"
        row = f"| {profile.title} | [{name}]({name}/report.md) | {there} | `{profile.sha256[:16]}` |"
        lines.append(row)
    return "\n".join([*lines, "", *INDEX_NOTES]) + "\n"
