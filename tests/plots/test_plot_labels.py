"""Labels stand on no curve, on no other label, and nearest to their own curve; else they are handed back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from iosim.plots.axes import new_figure
from iosim.plots.labels import Line, place_labels
from iosim.plots.style import CYCLE, PAPER, SCREEN, Style, styled


def written(axes: Axes) -> Iterator[tuple[Text, tuple[float, float, float, float]]]:
    renderer = FigureCanvasAgg(axes.figure).get_renderer()
    for text in axes.texts:
        extent = text.get_window_extent(renderer)
        yield text, (extent.x0, extent.y0, extent.x1, extent.y1)


def distance(box: tuple[float, float, float, float], line: Line, axes: Axes) -> float:
    """From a box to a polyline in pixels, by brute force on fine steps."""
    points = axes.transData.transform(np.column_stack([line.x, line.y]))
    fine = np.concatenate([np.linspace(a, b, 200) for a, b in pairwise(points)])
    x0, y0, x1, y1 = box
    dx = np.maximum.reduce([x0 - fine[:, 0], fine[:, 0] - x1, np.zeros(len(fine))])
    dy = np.maximum.reduce([y0 - fine[:, 1], fine[:, 1] - y1, np.zeros(len(fine))])
    return float(np.hypot(dx, dy).min())


@pytest.mark.parametrize("style", [SCREEN, PAPER])
@settings(max_examples=15)
@given(
    slopes=st.lists(st.floats(-3, 3), min_size=2, max_size=7),
    starts=st.lists(st.floats(0, 10), min_size=7, max_size=7),
)
def test_labels_keep_clear(style: Style, slopes: list[float], starts: list[float]) -> None:
    with styled(style):
        figure, axes = new_figure(style)
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 10)
        x = np.linspace(0, 10, 5)
        lines = [
            Line(text=f"curve {k}", colour=CYCLE[k], x=x, y=starts[k] + slope * (x - 5))
            for k, slope in enumerate(slopes)
        ]
        left = place_labels(axes, lines, size_pt=style.small_pt, right_in=style.right_in)
        boxes = list(written(axes))
        assert {t.get_text() for t, _ in boxes} | {line.text for line in left} == {ln.text for ln in lines}
        room = axes.get_window_extent()
        for text, box in boxes:
            own = next(line for line in lines if line.text == text.get_text())
            assert room.x0 <= box[0]
            assert room.y0 <= box[1] <= box[3] <= room.y1
            assert box[2] <= figure.get_window_extent().x1
            for line in lines:
                assert distance(box, line, axes) > 0, f"{text.get_text()} on {line.text}"
            assert distance(box, own, axes) <= 10 * figure.dpi / 72
        for k, (_, a) in enumerate(boxes):
            for _, b in boxes[:k]:
                assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]


def test_two_equal_curves_cannot_both_be_labelled() -> None:
    with styled(SCREEN):
        _, axes = new_figure(SCREEN)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        x = np.array([0.0, 0.8])
        lines = [Line(text=name, colour=CYCLE[k], x=x, y=x / 2) for k, name in enumerate(("one", "two"))]
        left = place_labels(axes, lines, size_pt=SCREEN.small_pt)
        assert {line.text for line in left} == {"one", "two"}  # beside either, a label could mean the other


def test_a_curve_outside_the_axes_is_handed_back() -> None:
    with styled(SCREEN):
        _, axes = new_figure(SCREEN)
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        line = Line(text="far", colour="black", x=np.array([0.0, 1.0]), y=np.array([5.0, 6.0]))
        assert place_labels(axes, [line], size_pt=8) == [line]
        assert not axes.texts
