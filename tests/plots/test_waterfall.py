"""The waterfall figure: one bar a line, no text over text, the same bytes every time."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from iosim.audit.measurements import read_measurements
from iosim.gap import Gap, gap, gap_of_rows, rows_of_case
from iosim.hardware import load_profile
from iosim.plots.files import rendered
from iosim.plots.style import STYLES, Style
from iosim.plots.waterfall import waterfall
from iosim.problem import AttentionProblem

H200 = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"


@pytest.fixture(scope="module")
def gaps() -> dict[str, Gap]:
    rows = rows_of_case(read_measurements(H200), "44", "x")
    return {
        "exact": gap(AttentionProblem.of(seq=4096, head_dim=128, mask="causal"), levels=False),
        "measured": gap_of_rows(rows, load_profile("h200-sxm")),
        "small": gap(AttentionProblem.of(seq=64, head_dim=64), profile="h200-sxm"),
    }


def texts(figure: Figure) -> list[Text]:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    hidden = {  # ticks past the end of an axis exist, but are not drawn
        id(tick.label1)
        for axes in figure.axes
        for tick in axes.xaxis.get_major_ticks()
        if not axes.get_xlim()[0] <= tick.get_loc() <= axes.get_xlim()[1]
    }
    return [
        t
        for t in figure.findobj(Text)
        if isinstance(t, Text) and t.get_visible() and t.get_text().strip() and id(t) not in hidden
    ]


@pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))
@pytest.mark.parametrize("which", ["exact", "measured", "small"])
def test_every_line_has_its_bar_and_no_text_lies_over_another(
    gaps: dict[str, Gap], which: str, style: Style
) -> None:
    found = gaps[which]
    plot = waterfall(found, style)
    (axes,) = plot.figure.axes
    assert len(axes.patches) >= len(found.entries)
    shown = texts(plot.figure)
    words = {t.get_text() for t in shown}
    assert {e.title for e in found.entries} <= words
    boxes = [(t, t.get_window_extent()) for t in shown]
    width, height = plot.figure.canvas.get_width_height()
    for text, box in boxes:
        inside = box.x0 >= -0.5 and box.x1 <= width + 0.5 and box.y0 >= -0.5 and box.y1 <= height + 0.5
        assert inside, text.get_text()
    for (a, first), (b, second) in combinations(boxes, 2):
        apart = (
            first.x1 <= second.x0 + 1
            or second.x1 <= first.x0 + 1
            or first.y1 <= second.y0 + 1
            or second.y1 <= first.y0 + 1
        )
        assert apart, (a.get_text(), b.get_text())


def test_bars_of_steps_hang_between_the_amounts(gaps: dict[str, Gap]) -> None:
    found = gaps["measured"]
    (axes,) = waterfall(found, STYLES["screen"]).figure.axes
    bars = {round(p.get_y() + p.get_height() / 2): p for p in axes.patches}  # type: ignore[attr-defined]
    for position, entry in enumerate(found.entries):
        ends = sorted((0 if entry.kind == "total" else entry.after_bytes - entry.bytes, entry.after_bytes))
        bar = bars[position]
        assert [bar.get_x(), bar.get_x() + bar.get_width()] == pytest.approx(ends)  # type: ignore[attr-defined]


def test_equal_figures_give_equal_bytes(gaps: dict[str, Gap]) -> None:
    one, two = (rendered(waterfall(gaps["exact"], STYLES["screen"]), "svg") for _ in range(2))
    assert one == two
