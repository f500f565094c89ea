"""Times against the length: terms add up to the bar, the bound stands apart, nothing overlaps the data."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from iosim.plots.files import rendered
from iosim.plots.style import PAPER, SCREEN
from iosim.plots.time import time_by_seq, time_terms

TIMES = pd.DataFrame(
    [
        {"kernel": k, "seq": n, "seconds": s * n * n, "low_s": 0.9 * s * n * n, "high_s": 1.1 * s * n * n}
        | {"bound_s": 5e-12 * n * n, "limit": "tensor"}
        for k, s in (("one", 1e-11), ("two", 2e-11))
        for n in (512, 1024, 2048, 4096)
    ]
)
TERMS = pd.DataFrame(
    [
        {"kernel": "one", "seq": n, "term": term, "seconds": share * 1e-11 * n * n, "hidden": term == "HBM"}
        for n in (512, 1024, 2048, 4096)
        for term, share in (("tensor", 0.7), ("special functions", 0.3), ("HBM", 0.2))
    ]
)


@pytest.mark.parametrize("style", [SCREEN, PAPER], ids=lambda s: s.name)
def test_terms_add_up_to_the_whole(style: object) -> None:
    plot = time_terms(TERMS, TIMES, style, gpu="g", details="d = 64")  # type: ignore[arg-type]
    (axes,) = plot.figure.axes
    bars = [p for p in axes.patches if isinstance(p, Rectangle)]
    for position in range(4):
        own = [b for b in bars if abs(b.get_x() + b.get_width() / 2 - position) < 0.5]
        stack = [b for b in own if b.get_width() > 0.3]
        beside = sorted(round(b.get_height(), 9) for b in own if b.get_width() < 0.3)
        assert sum(b.get_height() for b in stack) == pytest.approx(1)
        assert beside == pytest.approx([0.2, 0.5])  # what is hidden, and the lower bound
    said = [t.get_text() for t in axes.texts]
    assert said[0] == "2.62 µs"  # 1e-11 * 512²
    assert len(said) == 4
    assert (plot.data["total_s"] > 0).all()
    assert rendered(plot, "svg") == rendered(plot, "svg")


@pytest.mark.parametrize("style", [SCREEN, PAPER], ids=lambda s: s.name)
def test_every_kernel_is_named_once(style: object) -> None:
    plot = time_by_seq(TIMES, style, gpu="g", details="d = 64")  # type: ignore[arg-type]
    (axes,) = plot.figure.axes
    beside = [t.get_text() for t in axes.texts]
    below = [t.get_text() for legend in plot.figure.legends for t in legend.get_texts()]
    assert sorted(beside + below) == ["lower bound", "one", "two"]
    assert axes.get_xlim() == (512, 4096)


def test_one_length_still_makes_a_figure() -> None:
    one = TIMES[TIMES["seq"] == 1024]
    assert len(time_by_seq(one, SCREEN, gpu="g", details="").data) == 2
    assert len(time_terms(TERMS[TERMS["seq"] == 1024], one, SCREEN, gpu="g", details="").data) == 3
