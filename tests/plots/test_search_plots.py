"""The figures of tune and what-if: every cell is a design, names lie over nothing, equal input gives equal bytes."""

from __future__ import annotations

from itertools import combinations
from typing import Any, cast

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from iosim.hardware import load_profile
from iosim.plots.files import rendered
from iosim.plots.style import PAPER, SCREEN, Style
from iosim.plots.tune import HATCHES, tune_map
from iosim.plots.what_if import what_if_map
from iosim.problem import AttentionProblem
from iosim.tune import TuneTable, tune
from iosim.whatif import Map, what_if

H200 = load_profile("h200-sxm")
PROBLEM = AttentionProblem.of(seq=2048, heads=16, head_dim=128)


@pytest.fixture(scope="module")
def table() -> TuneTable:
    return tune(PROBLEM, H200, kernel_class="mma-sync")


@pytest.fixture(scope="module")
def where() -> Map:
    return what_if(PROBLEM, H200)


@pytest.mark.parametrize("style", [SCREEN, PAPER])
def test_every_tile_has_a_cell_and_the_winner_a_frame(table: TuneTable, style: Style) -> None:
    plot = tune_map(table, style)
    tiles = {(r.design.tile.rows, r.design.tile.cols) for r in table.rows}
    fitting = {(r.design.tile.rows, r.design.tile.cols) for r in table.feasible}
    cells = [p for p in plot.figure.axes[0].patches if isinstance(p, Rectangle)]
    assert len(cells) == len(tiles) + 1  # and the frame
    hatched = [c for c in cells if c.get_hatch()]
    assert {c.get_hatch() for c in hatched} <= set(HATCHES.values())
    assert len(hatched) == len(tiles - fitting)
    won = plot.data[plot.data["winner"]]
    assert won[["rows", "cols"]].to_numpy().tolist() == [
        [table.winner.design.tile.rows, table.winner.design.tile.cols]
    ]


def boxes(texts: list[Any], figure: Any) -> list[Any]:
    renderer: Any = cast(Any, FigureCanvasAgg(figure)).get_renderer()
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts if t.get_text().strip()]


@pytest.mark.parametrize("style", [SCREEN, PAPER])
def test_names_of_gpus_never_overlap_and_none_is_lost(where: Map, style: Style) -> None:
    figure = what_if_map(where, style).figure
    said = " ".join(t.get_text() for t in figure.texts)
    for axes in figure.axes[:2]:
        found = boxes(list(axes.texts), figure)
        for (_, a), (_, b) in combinations(found, 2):
            assert not a.overlaps(b)
        named = {text for text, _ in found}
        assert all(d.name in named or d.name in said for d in where.dots)
    for part in where.fixed:
        assert part in said


@pytest.mark.parametrize("style", [SCREEN, PAPER])
def test_words_stay_inside_the_figure(where: Map, table: TuneTable, style: Style) -> None:
    for plot in (what_if_map(where, style), tune_map(table, style)):
        figure = plot.figure
        FigureCanvasAgg(figure).draw()  # places the labels of the axes
        width, height = figure.get_size_inches() * figure.dpi
        texts = [*figure.texts, *(t for axes in figure.axes for t in axes.texts)]
        texts += [t for axes in figure.axes for t in (axes.xaxis.label, axes.yaxis.label)]
        texts += [t for legend in figure.legends for t in legend.get_texts()]
        for text, box in boxes(texts, figure):
            assert min(box.x0, box.y0) >= -1, text
            assert box.x1 <= width + 1, text
            assert box.y1 <= height + 1, text


def test_equal_input_gives_equal_bytes(where: Map, table: TuneTable) -> None:
    assert rendered(tune_map(table, SCREEN), "svg") == rendered(tune_map(table, SCREEN), "svg")
    assert rendered(what_if_map(where, SCREEN), "svg") == rendered(what_if_map(where, SCREEN), "svg")
