"""`iosim roofline`: the hierarchical roofline of a GPU, from predictions, measurements, or both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import Formats, StyleName, split, wrote
from iosim.cli.explain import Kernels, timings
from iosim.cli.options import OUTPUT, AsJson, Hw, Overrides, ProblemOptions, with_options
from iosim.cli.output import print_json, print_table, warn

if TYPE_CHECKING:
    from iosim.audit.measurements import MeasuredRow
    from iosim.hardware import HardwareProfile
    from iosim.problem import AttentionProblem
    from iosim.roofline.chart import Point, Roof

Measurements = Annotated[
    str | None,
    typer.Option(
        "--measurements",
        metavar="FILE",
        help="A CSV as of `iosim audit`: its rows become points.",
        rich_help_panel=OUTPUT,
    ),
]
Cases = Annotated[
    str | None,
    typer.Option("--case", metavar="LIST", help="Only these cases of the file.", rich_help_panel=OUTPUT),
]
Out = Annotated[
    str,
    typer.Option("--out", metavar="DIR", help="Folder of the figure, roofline.*.", rich_help_panel=OUTPUT),
]


@with_options
def roofline(
    *,
    problem: ProblemOptions,
    kernel: Kernels = None,
    hw: Hw = "h100-sxm",
    overrides: Overrides = None,
    measurements: Measurements = None,
    case: Cases = None,
    out: Out = ".",
    style: StyleName = "screen",
    formats: Formats = "png,svg,pdf",
    as_json: AsJson = False,
) -> None:
    """Draw speed against flops a byte of SRAM, L2 and HBM, under the roofs of memories, tensor cores, FP32 and exp.

    With --measurements and no --kernel only the file's rows are drawn. A point above a roof is named in a warning.
    """
    from iosim.hardware import load_profile
    from iosim.plots.files import check_formats, save
    from iosim.plots.roofline import plot_roofline
    from iosim.plots.style import find_style
    from iosim.roofline.chart import above_roofs, check_order, roofs

    look, kinds = find_style(style), check_formats(split(formats))
    gpu = load_profile(hw, overrides or ())
    points, said, asked = _predicted(problem.problem(), kernel, gpu, measurements)
    said = [*gpu.warnings, *said]
    rows = _rows(measurements, case, gpu)
    for row in rows:
        from iosim.timing import measured_points

        own, more = measured_points(row)
        points, said = points + own, said + more
    dims = {p.head_dim for p in [*asked, *(row.problem for row in rows)]}
    dtype = str(asked[0].dtype_k if asked else rows[0].problem.dtype_k)
    found = roofs(gpu, dtype, dims)
    causal = any(p.mask.is_causal for p in [*asked, *(row.problem for row in rows)])
    said += check_order(points) + above_roofs(points, found, causal=causal)
    # a figure's file is taken as its name, as it was before folders
    named = Path(out).suffix.lower() in (".png", ".svg", ".pdf", ".csv")
    stem = Path(out).with_suffix("") if named else Path(out) / "roofline"
    details = _details(asked, measurements)
    drawn, more = plot_roofline(
        found, points, look, heading=f"Roofline of {gpu.name}", details=details, name=stem.name
    )
    warn(said + more)
    paths = save(drawn, stem, kinds)
    wrote(paths)
    if as_json:
        data: dict[str, Any] = {"schema_version": 1, "profile": gpu.name, "dtype": dtype}
        data |= {"roofs": [r.to_dict() for r in found], "points": [p.to_dict() for p in points]}
        print_json(data | {"warnings": said + more, "files": [str(p) for p in paths]})
    else:
        _show(found, points)


def _predicted(
    problem: AttentionProblem,
    kernel: str | None,
    gpu: HardwareProfile,
    measurements: str | None,
) -> tuple[list[Point], list[str], list[AttentionProblem]]:
    """Points and warnings of the kernels asked for; the problem where there are any."""
    from iosim.timing import timing_points

    if measurements is not None and kernel is None:
        return [], [], []
    points: list[Point] = []
    said: list[str] = []
    for timing in timings(problem, kernel, gpu):
        own, more = timing_points(timing)
        points, said = points + own, said + more
    return points, said, [problem]


def _rows(measurements: str | None, case: str | None, gpu: HardwareProfile) -> list[MeasuredRow]:
    from iosim.audit import rows_of_gpu
    from iosim.audit.measurements import read_measurements
    from iosim.errors import UsageError

    if measurements is None:
        if case is not None:
            raise UsageError("--case: needs --measurements FILE")
        return []
    file = read_measurements(Path(measurements))
    mine, faults = rows_of_gpu(file.rows, gpu, Path(measurements).name)
    warn([*file.faults, *faults])
    chosen = [row for row in mine if case is None or row.case in split(case)]
    if not chosen:
        raise UsageError(f"--case: no row of {Path(measurements).name} is left for {gpu.name}")
    return chosen


def _details(asked: list[AttentionProblem], measurements: str | None) -> str:
    parts = [
        f"batch {p.batch}, heads {p.heads}, {p.seq_q} x {p.seq_k}, d {p.head_dim}, {p.mask}, {p.dtype_k}"
        for p in asked
    ]
    return "; ".join([*parts, *([f"measured: {Path(measurements).name}"] if measurements else [])])


def _show(found: list[Roof], points: list[Point]) -> None:
    from iosim.roofline.chart import TITLES, compute_roof, ridge
    from iosim.units import format_rate

    flat = compute_roof(found)
    rows = [
        [
            r.name,
            "measured" if r.measured else "theoretical",
            format_rate(r.value, "B/s" if r.level else "FLOP/s"),
            f"{ridge(r, flat):,.1f}" if r.level else "-",
            r.source,
        ]
        for r in found
    ]
    print_table(["roof", "kind", "value", "ridge, FLOP/B", "source"], rows, right=(2, 3))
    print()
    rows = [
        [
            p.kernel,
            "measured" if p.measured else "predicted",
            TITLES[p.level],
            f"{p.intensity:,.2f}",
            format_rate(p.flops_per_s, "FLOP/s"),
        ]
        for p in points
    ]
    print_table(["kernel", "kind", "level", "FLOP/B", "speed"], rows, right=(3, 4))
