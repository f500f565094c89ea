"""Names of roofs: along the slanted ones, at the right end of the flat ones, over no marker, line or other name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from iosim.plots.labels import Box, Floats, Line
from iosim.plots.style import BLACK, GREY, Style
from iosim.roofline.chart import LEVELS, Point, Roof, compute_roof, ridge
from iosim.units import format_rate

MARKER_SHARE = 0.75
"""Size of a marker, as a share of the small font."""
_TRIES = 60
_GAP_PT = 1.5
_SAME = 0.01
_LINES_APART = 1.7
_LABEL_SHARE = 0.7
"""Of the axes, that the name of a flat roof may take; a longer one leaves the sustained speed to the table."""


def label_roofs(
    axes: Axes, style: Style, found: Sequence[Roof], points: Sequence[Point], drawn: Sequence[Line]
) -> tuple[list[Box], list[str]]:
    """Write the names; returns the boxes in pixels that names and markers take, and the names without a place.

    `drawn`: all roofs and kernels as lines.
    """
    pen = _Pen(axes, style, points, drawn)
    flat = compute_roof(found)
    sustained = {r.name: r.value for r in found if not r.level and r.measured}
    for group in _clusters(pen, [r for r in found if not r.level and not r.measured]):
        pen.flat(group, flat, sustained)
    unplaced = []
    for level in LEVELS:
        own = [r for r in found if r.level == level]
        if own:
            printed = min(own, key=lambda r: r.measured)
            text = f"{printed.name} {format_rate(printed.value, digits=3)}, ridge {ridge(printed, flat):.3g}"
            if not pen.slanted(printed, flat, text, below_first=level == "hbm"):
                unplaced.append(text)
    return [*pen.taken, *pen.marker_boxes()], unplaced


def _clusters(pen: _Pen, roofs: Sequence[Roof]) -> list[list[Roof]]:
    """Flat roofs, highest first, in groups between which a line of text has room."""
    ordered = sorted(roofs, key=lambda r: -r.value)
    groups: list[list[Roof]] = []
    for roof in ordered:
        if groups and pen.apart(groups[-1][-1].value, roof.value) < _LINES_APART * pen.font:
            groups[-1].append(roof)
        else:
            groups.append([roof])
    return groups


class _Pen:
    def __init__(self, axes: Axes, style: Style, points: Sequence[Point], drawn: Sequence[Line]) -> None:
        self.axes, self.style = axes, style
        figure = cast(Figure, axes.figure)
        self.renderer: Any = cast(Any, FigureCanvasAgg(figure)).get_renderer()
        self.pt = float(figure.dpi) / 72
        self.font = style.small_pt * self.pt
        self.marks = self._pixels([(p.intensity, p.flops_per_s) for p in points])
        self.lines = self._pixels([xy for line in drawn for xy in self._dense(line)])
        self.taken: list[Box] = []

    def _dense(self, line: Line) -> list[tuple[float, float]]:
        if not len(line.x):
            return []
        at = np.linspace(0, len(line.x) - 1, 240)
        step = np.arange(len(line.x))
        return list(
            zip(
                np.exp(np.interp(at, step, np.log(line.x))),
                np.exp(np.interp(at, step, np.log(line.y))),
                strict=True,
            )
        )

    def _pixels(self, data: Sequence[tuple[float, float]]) -> Floats:
        array = np.array(data, dtype=float).reshape(-1, 2)
        return np.asarray(self.axes.transData.transform(array) if len(array) else array, dtype=float)

    def apart(self, high: float, low: float) -> float:
        """Pixels between two speeds."""
        x = self.axes.get_xlim()[0]
        ends = self._pixels([(x, high), (x, low)])
        return float(ends[0, 1] - ends[1, 1])

    def marker_boxes(self) -> list[Box]:
        """Boxes in pixels of all markers."""
        half = 0.5 * MARKER_SHARE * self.font
        return [(x - half, y - half, x + half, y + half) for x, y in self.marks]

    def slanted(self, roof: Roof, flat: Roof, text: str, *, below_first: bool) -> bool:
        """Along the roof, as far left as nothing is in the way; False where there is no such place."""
        low = max(self.axes.get_xlim()[0], self.axes.get_ylim()[0] / roof.value)
        high = ridge(roof, flat)
        start, end = self._pixels([(low, roof.at(low)), (high, roof.at(high))])
        length = float(np.hypot(*(end - start)))
        along = (end - start) / length
        label = self.axes.text(
            0, 0, text, fontsize=self.style.small_pt, color=GREY if roof.measured else BLACK
        )
        size = label.get_window_extent(self.renderer)
        offset = size.height / 2 + _GAP_PT * self.pt
        normal = np.array([-along[1], along[0]])
        for side in (-normal, normal) if below_first else (normal, -normal):
            for at in np.linspace(0, max(0.0, length - size.width), _TRIES):
                centre = start + along * (at + size.width / 2) + side * offset
                spots = centre + np.linspace(-0.5, 0.5, 13)[:, None] * along * size.width
                if size.width <= length and self._free(spots, size.height / 2):
                    label.set(ha="center", va="center", rotation=math.degrees(math.atan2(along[1], along[0])))
                    label.set_rotation_mode("anchor")
                    label.set_position(tuple(self.axes.transData.inverted().transform(centre)))
                    half = size.height / 2
                    self.taken += [(x - half, y - half, x + half, y + half) for x, y in spots]
                    return True
        label.remove()
        return False

    def _free(self, spots: Floats, half: float) -> bool:
        """Whether text of this half height along the spots touches no line, marker, name or edge of the axes."""
        frame = self.axes.get_window_extent(self.renderer)
        inside = (
            (spots[:, 0] > frame.x0 + half)
            & (spots[:, 0] < frame.x1 - half)
            & (spots[:, 1] > frame.y0 + half)
            & (spots[:, 1] < frame.y1 - half)
        )
        rim = half + 0.5 * MARKER_SHARE * self.font + self.pt
        names = np.array(
            [((a + c) / 2, (b + d) / 2) for a, b, c, d in self.taken if d - b < 3 * half]
        ).reshape(-1, 2)
        return (
            bool(inside.all())
            and _gap(spots, self.lines) > half
            and _gap(spots, self.marks) > rim
            and _gap(spots, names) > 2 * half
        )

    def flat(self, group: Sequence[Roof], matmul: Roof, sustained: Mapping[str, float]) -> None:
        """At the right end, above the highest of a group, one line of text a speed; the matmul roof is drawn thick.

        `sustained`: measured speeds by the name of the printed roof, which tells of both: there is no room between.
        """
        right = self.axes.get_xlim()[1]
        low, high = self.axes.get_ylim()
        shown = [r for r in group if low <= r.value <= high]
        rows: list[list[Roof]] = []
        for roof in shown:
            if rows and abs(roof.value / rows[-1][0].value - 1) < _SAME:
                rows[-1].append(roof)
            else:
                rows.append([roof])
        if not rows:
            return
        texts = [
            f"{' and '.join(r.name for r in row)} {format_rate(row[0].value, 'FLOP/s', digits=3)}"
            + (" (thick)" if matmul in row and len(rows) > 1 else "")
            for row in rows
        ]
        both = [
            text
            + "".join(
                f", sustained {format_rate(sustained[r.name], 'FLOP/s', digits=3)}"
                for r in row
                if r.name in sustained
            )
            for row, text in zip(rows, texts, strict=True)
        ]
        ((x, y),) = self._pixels([(right, shown[0].value)])
        gap = (_GAP_PT + self.style.line_pt / 2) * self.pt
        x, y = self.axes.transData.inverted().transform((x - 2 * self.pt, y + gap))
        label = self.axes.text(
            x, y, "\n".join(both), fontsize=self.style.small_pt, ha="right", va="bottom", linespacing=1.15
        )
        frame = self.axes.get_window_extent(self.renderer)
        if label.get_window_extent(self.renderer).width > _LABEL_SHARE * frame.width:
            label.set_text("\n".join(texts))
        box = label.get_window_extent(self.renderer)
        self.taken.append((box.x0, box.y0, box.x1, box.y1))


def _gap(spots: Floats, others: Floats) -> float:
    """The least distance between two sets of pixels."""
    if not len(others):
        return math.inf
    return float(np.hypot(*(spots[:, None, :] - others[None, :, :]).transpose(2, 0, 1)).min())
