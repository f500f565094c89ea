"""Direct labels on curves: every label beside its own curve, over none, apart from all others, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]

_STEP_PT = 3.0  # curves are followed in steps of this
_GAP_PT = 2.2  # between a label and its curve
_CLEAR_PT = 1.4  # around a label nothing is drawn
_FAR_PT = 9.0  # no label stands farther from its curve
_CROWDED_PT = 3.0
_AMBIGUOUS = 40.0
_SIDES = ((0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A drawn curve in data coordinates; an empty `text` makes it an obstacle only.

    A label never stands nearer to a curve of another colour than to its own, unless at its right end; a `loose`
    curve (a pale band under others, a vertical mark) takes no part in that.
    """

    text: str
    colour: str
    x: Floats
    y: Floats
    loose: bool = False


@dataclass(slots=True)
class _Scene:
    """What is drawn, in pixels."""

    frame: Box
    scale: float  # pixels a point
    lines: Sequence[Line]
    paths: list[Floats]
    taken: list[Box] = field(default_factory=list)


def place_labels(
    axes: Axes, lines: Sequence[Line], *, size_pt: float, right_in: float = 0.0, taken: Sequence[Box] = ()
) -> list[Line]:
    """Write each line's text beside it; return those for which there is no free place.

    The axes must have their limits and final size. `right_in`: room for labels right of the axes, in inches.
    `taken`: boxes in pixels that hold other text.
    """
    figure = axes.figure
    renderer: Any = cast(Any, FigureCanvasAgg(cast(Figure, figure))).get_renderer()
    dpi = float(figure.dpi)
    bbox = axes.get_window_extent(renderer)
    scale = dpi / 72
    frame = (bbox.x0, bbox.y0, bbox.x1, bbox.y1)
    room = (bbox.x0 + 2 * scale, bbox.y0 + 2 * scale, bbox.x1 + right_in * dpi, bbox.y1 - scale)
    scene = _Scene(room, scale, lines, [_pixels(axes, line, frame, scale) for line in lines], list(taken))
    left = []
    for position, line in enumerate(lines):
        if not line.text:
            continue
        text = axes.text(0, 0, line.text, color=line.colour, fontsize=size_pt, ha="center", va="center")
        extent = text.get_window_extent(renderer)
        spot = _best_spot(scene, position, extent.width, extent.height)
        if spot is None:
            text.remove()
            left.append(line)
            continue
        x, y = axes.transData.inverted().transform(spot)
        text.set_position((x, y))
        half_w, half_h = extent.width / 2, extent.height / 2
        scene.taken.append((spot[0] - half_w, spot[1] - half_h, spot[0] + half_w, spot[1] + half_h))
    return left


def _pixels(axes: Axes, line: Line, frame: Box, scale: float) -> Floats:
    """The curve as pixel points at even steps, cut to the frame."""
    good = np.isfinite(line.x) & np.isfinite(line.y) & (line.y > 0 if axes.get_yscale() == "log" else True)
    points = axes.transData.transform(np.column_stack([line.x[good], line.y[good]]))
    if len(points) < 2:
        return np.asarray(points, dtype=float).reshape(-1, 2)
    lengths = np.r_[0, np.cumsum(np.hypot(*np.diff(points, axis=0).T))]
    count = max(2, int(lengths[-1] / (_STEP_PT * scale)) + 1)
    at = np.linspace(0, lengths[-1], count)
    dense = np.column_stack([np.interp(at, lengths, points[:, k]) for k in (0, 1)])
    x0, y0, x1, y1 = frame
    keep = (dense[:, 0] >= x0) & (dense[:, 0] <= x1) & (dense[:, 1] >= y0) & (dense[:, 1] <= y1)
    kept: Floats = dense[keep]
    return kept


def _best_spot(scene: _Scene, own: int, width: float, height: float) -> tuple[float, float] | None:
    """The centre of the label with the least cost, None where every place is over something."""
    path = scene.paths[own]
    if not len(path):
        return None
    gap = _GAP_PT * scene.scale
    centres = np.concatenate(
        [path + np.array([sx * (width / 2 + gap), sy * (height / 2 + gap)]) for sx, sy in _SIDES]
    )
    side = np.repeat(np.arange(len(_SIDES)), len(path))
    at_end = (side == _SIDES.index((1, 0))) & (np.tile(np.arange(len(path)), len(_SIDES)) == len(path) - 1)
    free = _inside(centres, width, height, scene.frame) & ~_hits(
        centres, width, height, scene.taken, 2 * scene.scale
    )
    centres, side, at_end = centres[free], side[free], at_end[free]
    if not len(centres):
        return None
    clear = _CLEAR_PT * scene.scale
    own_gap = _distance(centres, width, height, path)
    far = np.full(len(centres), np.inf)
    gaps = [_distance(centres, width, height, q) if len(q) else far for q in scene.paths]
    any_gap = np.min([far, *(g for k, g in enumerate(gaps) if k != own)], axis=0)
    foreign = [g for k, g in enumerate(gaps) if _foreign(scene.lines[own], scene.lines[k])]
    other_gap = np.min([far, *foreign], axis=0)
    at_end &= not _crowded_end(scene, own)
    cost = own_gap + side * 0.2 * scene.scale + np.maximum(0, 8 * scene.scale - any_gap)
    cost = cost + _AMBIGUOUS * scene.scale * (~at_end & (other_gap < own_gap + scene.scale))
    over = (any_gap < clear) | (own_gap < clear) | (own_gap > _FAR_PT * scene.scale)
    cost = np.where(over, np.inf, cost)
    best = int(np.argmin(cost))
    if not np.isfinite(cost[best]) or cost[best] >= _AMBIGUOUS * scene.scale:
        return None
    return float(centres[best, 0]), float(centres[best, 1])


def _crowded_end(scene: _Scene, own: int) -> bool:
    """Whether another curve passes the right end of this one so closely that a label there could mean either."""
    end = scene.paths[own][-1]
    return any(
        float(np.hypot(*(path - end).T).min()) < _CROWDED_PT * scene.scale
        for line, path in zip(scene.lines, scene.paths, strict=True)
        if len(path) and _foreign(scene.lines[own], line)
    )


def _foreign(own: Line, other: Line) -> bool:
    kin = own.colour == other.colour and not other.text
    return own is not other and not kin and not (own.loose or other.loose)


def _inside(centres: Floats, width: float, height: float, frame: Box) -> npt.NDArray[np.bool_]:
    x0, y0, x1, y1 = frame
    out: npt.NDArray[np.bool_] = (
        (centres[:, 0] - width / 2 >= x0)
        & (centres[:, 0] + width / 2 <= x1)
        & (centres[:, 1] - height / 2 >= y0)
        & (centres[:, 1] + height / 2 <= y1)
    )
    return out


def _hits(
    centres: Floats, width: float, height: float, taken: Sequence[Box], margin: float
) -> npt.NDArray[np.bool_]:
    hit = np.zeros(len(centres), dtype=bool)
    for x0, y0, x1, y1 in taken:
        across = (centres[:, 0] + width / 2 + margin > x0) & (centres[:, 0] - width / 2 - margin < x1)
        hit |= (
            across & (centres[:, 1] + height / 2 + margin > y0) & (centres[:, 1] - height / 2 - margin < y1)
        )
    return hit


def _distance(centres: Floats, width: float, height: float, path: Floats) -> Floats:
    """From each label's box to the nearest point of a path; 0 inside."""
    dx = np.maximum(0, np.abs(centres[:, None, 0] - path[None, :, 0]) - width / 2)
    dy = np.maximum(0, np.abs(centres[:, None, 1] - path[None, :, 1]) - height / 2)
    out: Floats = np.hypot(dx, dy).min(axis=1)
    return out
