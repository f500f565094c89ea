"""The figures of the bound: what is drawn is what was counted, and the legend names what can be seen."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes

from iosim.analysis import analyze
from iosim.hardware import load_profile
from iosim.plots.bound import traffic_by_seq, traffic_by_sram
from iosim.plots.style import SCREEN
from iosim.plots.tensors import bytes_by_tensor
from iosim.problem import AttentionProblem
from iosim.scaling import BoundStudy, study_bound

PROBLEM = AttentionProblem.of(seq=1024, head_dim=64)


@pytest.fixture(scope="module")
def study() -> BoundStudy:
    return study_bound(PROBLEM, load_profile("a100-sxm-80gb"))


def curve(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (line,) = [item for item in axes.get_lines() if item.get_label() == label]
    return list(np.asarray(line.get_xdata(), float)), list(np.asarray(line.get_ydata(), float))


def test_the_bound_of_each_class_is_drawn_against_n(study: BoundStudy) -> None:
    plot = traffic_by_seq(study, SCREEN)
    for label, algorithm in (("bound, scores on chip", "flash1"), ("bound, scores written", "standard")):
        x, y = curve(plot.figure.axes[0], label)
        for N, drawn in zip(x, y, strict=True):
            square = AttentionProblem.of(seq=int(N), head_dim=64)
            record = analyze(square, algorithm, profile="a100-sxm-80gb")
            assert drawn == record.theory.lower_bound_bytes
    assert "fp16" in plot.caption
    assert any("fp16" in text.get_text() for text in plot.figure.texts)


def test_standard_is_thick_from_4_d_squared_on(study: BoundStudy) -> None:
    x, y = curve(traffic_by_sram(study, SCREEN).figure.axes[0], "standard")
    assert min(m for m in x if np.isfinite(m)) == 4 * 64**2 * 2
    assert len(x) == len(y)
    assert "M = 4d²" in traffic_by_sram(study, SCREEN).caption


def test_a_legend_names_no_bar_that_cannot_be_seen() -> None:
    def names(N: int) -> list[str]:
        records = [analyze(AttentionProblem.of(seq=N, head_dim=64), a) for a in ("standard", "flash1")]
        (legend,) = bytes_by_tensor(records, SCREEN, "").figure.legends
        return [text.get_text() for text in legend.get_texts()]

    assert names(64) == ["Q", "K", "V", "O", "S", "P", "M", "L", "writes"]  # 512 of about 60,000 bytes
    assert names(8192) == ["Q", "O", "S", "P", "writes"]  # K and V of flash1 once, against 4 N²
