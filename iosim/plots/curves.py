"""Traffic against every capacity of SRAM or L2, with the GPU's capacities, the bounds and the steps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from iosim.curves import CapacityCurve, CurveStudy, Step, find_steps
from iosim.plots.axes import Mark, bytes_axis, capacity_axis, finish, mark, new_figure
from iosim.plots.bound import problem_text
from iosim.plots.files import Plot
from iosim.plots.labels import Line
from iosim.plots.style import BLACK, BLUE, GREY, VERMILLION, Style, styled
from iosim.units import format_bytes

Floats = npt.NDArray[np.float64]

RANGES_BYTES = {"sram": (1e3, 1e7), "l2": (1e5, 1e9)}
"""The axis of every figure of a level; it grows by whole decades where a curve still falls beyond it."""
_LABELS = {
    "sram": ("M: bytes on chip, tile and LRU", "bytes moved to and from the chip"),
    "l2": ("L2: bytes of one LRU", "bytes moved to and from HBM"),
}
_HEADINGS = {"sram": "Bytes moved against on-chip memory", "l2": "HBM bytes against L2 capacity"}
_NAMES = {"in turn": "all blocks in turn", "alone": "each block alone", "merged": "blocks merged"}
_COLOURS = {"in turn": BLUE, "alone": VERMILLION, "merged": BLUE}
_BOUND_DASHES = {"compulsory": (0, (1, 1.2)), "fused": "-", "matmul": (0, (6, 2))}
_BOUND_GREY = "#8A8A8A"
_BOUND_POINTS = 160
_MARKERS = "osD^"  # of the largest steps
_MARK_PT = 1.2  # half a mark, in widths of the curve


def capacity_plot(study: CurveStudy, style: Style) -> Plot:
    """Bytes moved, both ways, against the capacity of one level; both axes logarithmic."""
    tables = [study.table(curve) for curve in study.curves]
    low, high = _range(study)
    bounds = study.bounds([int(v) for v in np.geomspace(low, high, _BOUND_POINTS)])
    bounds = bounds[bounds["bytes"] > 0]
    with styled(style):
        figure, axes = new_figure(style)
        x_label, y_label = _LABELS[study.level]
        capacity_axis(axes, low, high, x_label)
        paths = [_path(table, low, high) for table in tables]
        least = bounds[bounds["bound"] == "compulsory"]["bytes"]
        bytes_axis(axes, [*np.concatenate([y for _, y in paths]), *least], y_label)
        streams = [curve.stream if len(tables) > 1 else "" for curve in study.curves]
        drawn = zip(study.curves, paths, streams, strict=True)
        lines = [_curve(axes, style, c, p, _NAMES.get(s, "")) for c, p, s in reversed([*drawn])]
        lines += _bounds(axes, style, bounds)
        for curve in study.curves[:1]:
            lines += _steps(axes, style, study, curve)
        for found in study.capacities:
            text = f"{found.name}: {format_bytes(found.capacity_bytes)}"
            lines.append(mark(axes, style, Mark(text=text, x=found.capacity_bytes)))
        finish(axes, style, lines, _HEADINGS[study.level], _details(study))
    return Plot(
        name=f"{study.level}_curve",
        figure=figure,
        data=pd.concat([*tables, _bound_rows(study, bounds)], ignore_index=True),
        caption=_caption(study),
        style=style,
    )


def _range(study: CurveStudy) -> tuple[float, float]:
    low, high = RANGES_BYTES[study.level]
    last = max(int(c.capacities_bytes.max(initial=0)) for c in study.curves) + study.inside_bytes
    while high < last:
        high *= 10
    return low, high


def _path(table: pd.DataFrame, low: float, high: float) -> tuple[Floats, Floats]:
    """The curve on the axis: flat from each capacity of the table to the next, where it drops."""
    x, y = table["capacity_bytes"].to_numpy(float), table["total_bytes"].to_numpy(float)
    first = max(0, int(np.searchsorted(x, low, side="right")) - 1)
    x, y = np.maximum(x[first:], low), y[first:]
    return np.repeat(np.append(x, high), 2)[1:-1], np.repeat(y, 2)


def _curve(axes: Axes, style: Style, curve: CapacityCurve, path: tuple[Floats, Floats], text: str) -> Line:
    colour, dashes = _COLOURS[curve.stream], (0, (4, 1.6)) if curve.stream == "alone" else "-"
    axes.plot(*path, color=colour, ls=dashes, lw=style.line_pt, label=text or "_", zorder=3)
    return Line(text=text, colour=colour, x=path[0], y=path[1])


def _bounds(axes: Axes, style: Style, bounds: pd.DataFrame) -> list[Line]:
    out = []
    for name, rows in bounds.groupby("bound", sort=False):
        x, y = rows["capacity_bytes"].to_numpy(float), rows["bytes"].to_numpy(float)
        seen = (y >= axes.get_ylim()[0]) & (y <= axes.get_ylim()[1])
        if not seen.any():
            continue
        text = f"{name} bound" if name != "compulsory" else "compulsory"
        dashes = _BOUND_DASHES.get(str(name), (0, (4, 2)))
        axes.plot(x, y, color=_BOUND_GREY, ls=dashes, lw=style.thin_pt * 1.2, label=text)
        out.append(Line(text=text, colour=GREY, x=x[seen], y=y[seen]))
    return out


def _steps(axes: Axes, style: Style, study: CurveStudy, curve: CapacityCurve) -> list[Line]:
    """A mark where each step ends, and beside it what is read less often from there on."""
    steps = sorted(find_steps(curve), key=lambda s: -s.dropped_bytes)[: len(_MARKERS)]
    out = []
    for step, marker in zip(sorted(steps, key=lambda s: s.capacity_bytes), _MARKERS, strict=False):
        x = np.array([step.capacity_bytes + study.inside_bytes], dtype=float)
        y = curve.total_bytes(np.array([step.capacity_bytes])).astype(float)
        text = step_text(step, study.inside_bytes)
        axes.plot(
            x,
            y,
            ls="",
            marker=marker,
            ms=2 * _MARK_PT * style.line_pt,
            mfc="white",
            mec=BLACK,
            mew=style.thin_pt,
            zorder=4,
            label=text,
        )
        ring = _ring(axes, x, y, _MARK_PT * style.line_pt)
        out.append(Line(text=text, colour=BLACK, x=ring[0], y=ring[1], loose=True))
    return out


def _ring(axes: Axes, x: Floats, y: Floats, radius_pt: float) -> tuple[Floats, Floats]:
    """A circle around a mark, in data: labels keep off it."""
    figure = axes.figure
    assert figure is not None
    angle = np.linspace(0, 2 * np.pi, 25)
    turn = radius_pt * figure.dpi / 72 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = axes.transData.inverted().transform(axes.transData.transform(np.stack([x, y], axis=1)) + turn)
    return np.asarray(points[:, 0]), np.asarray(points[:, 1])


def step_text(step: Step, inside_bytes: int = 0) -> str:
    """A step in a label: what is read less often, from which capacity on."""
    texts = step.texts()
    more = ", …" if len(texts) > 1 else ""
    return f"{texts[0]}{more} at {format_bytes(step.capacity_bytes + inside_bytes, digits=3)}"


def _details(study: CurveStudy) -> str:
    run = study.run
    parts = [run.algorithm.name, *([f"tile {run.tile}"] if run.algorithm.tiled else [])]
    parts += [problem_text(run.problem), study.profile + (" (extrapolated)" if study.extrapolated else "")]
    return ", ".join(parts)


def _caption(study: CurveStudy) -> str:
    what = (
        "One fully associative LRU of whole tiles beside the tile that the program itself holds. Solid: all thread "
        "blocks one after the other through one memory. Dashed: each thread block through a memory of its own."
        if study.level == "sram"
        else f"All thread blocks, {study.policies.slots if study.policies else 0} at once, merged by the schedule, "
        "through one fully associative LRU of whole tiles: no sets, and no copies for partitions."
    )
    return (
        f"Bytes read and written against capacity ({_details(study)}). {what} The program's tile is fixed. Marks: "
        "where whole reads of a tensor have dropped out. Grey: lower bounds for all that is on chip. Dotted vertical "
        "lines: the GPU's capacities."
    )


def _bound_rows(study: CurveStudy, bounds: pd.DataFrame) -> pd.DataFrame:
    """Bounds in the columns of the curves, so that one file holds all that is drawn."""
    rows = bounds.rename(columns={"bound": "stream", "bytes": "total_bytes"})
    return rows.assign(level=study.level, stream=rows["stream"] + " (bound)")
