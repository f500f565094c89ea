"""The roofline as numbers and as a figure: roofs by hand, fixed decades, named faults, nothing overlapping."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from time_cases import h200_rows

from iosim.errors import SimulationError, UsageError
from iosim.hardware import load_profile
from iosim.plots.roofline import plot_roofline
from iosim.plots.style import STYLES, Style
from iosim.roofline.chart import (
    Point,
    above_roofs,
    axis_decades,
    check_order,
    compute_roof,
    point,
    ridge,
    roofs,
)
from iosim.timing import measured_points

H200 = load_profile("h200-sxm")


def three_points(
    name: str, speed: float = 3e14, *, measured: bool = False, sram: float = 30.0
) -> list[Point]:
    """A kernel of 1e12 flops at FLOP/B of `sram`, 100 and 1000."""
    return [
        point(name, level, flops=1e12, bytes_moved=1e12 / at, seconds=1e12 / speed, measured=measured)
        for level, at in (("sram", sram), ("l2", 100.0), ("hbm", 1000.0))
    ]


# numbers ----------------------------------------------------------------------------------------------------------
def test_roofs_and_ridges_of_the_h200() -> None:
    found = {(r.name, r.measured): r for r in roofs(H200, "fp16", [64, 128])}
    clock = 132 * 1.98e9
    assert found["SRAM", False].value == pytest.approx(128 * clock)
    assert found["HBM", False].value == 4.8e12
    assert found["HBM", True].value == 4.64e12
    assert found["tensor fp16", False].value == pytest.approx(4096 * clock)
    assert found["FP32", False].value == pytest.approx(2 * 128 * clock)
    # at d = 64 a score takes 256 flops and one of 16 exponentials a clock: just what the tensor cores do
    assert found["exp at d 64", False].value == pytest.approx(found["tensor fp16", False].value)
    assert found["exp at d 128", False].value == pytest.approx(2 * found["tensor fp16", False].value)
    assert ridge(found["SRAM", False], compute_roof(list(found.values()))) == pytest.approx(32)


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200", "toy"])
def test_axes_are_whole_decades_of_the_hardware_alone(name: str) -> None:
    profile = load_profile(name)
    found = roofs(profile, "fp16", [128])
    edges = np.log10(np.array(axis_decades(found)))
    assert np.allclose(edges, np.round(edges))
    assert axis_decades(roofs(profile, "fp16", [32, 256])) == axis_decades(found)
    (left, right), (_, top) = axis_decades(found)
    flat = compute_roof(found)
    assert all(left < ridge(r, flat) < right for r in found if r.level)
    assert flat.value < top


def test_points_above_a_roof_are_named_with_causes() -> None:
    found = roofs(H200, "fp16", [128])
    (said,) = above_roofs(three_points("doubled", 1.5e15, sram=60), found, causal=True)[:1]
    assert said.startswith(
        "doubled: predicted at SRAM 1.40 times above the roof tensor fp16; likely: full N² flops"
    )
    resident = [point("decode", "hbm", flops=1e9, bytes_moved=1e9, seconds=1e-4, measured=True)]
    (said,) = above_roofs(resident, found)
    assert said == (
        "decode: measured at HBM 2.08 times above the roof HBM; likely: data that lay in the L2, another variant of "
        "this GPU, bytes of another kernel"
    )
    assert above_roofs(three_points("fine"), found, causal=True) == []


def test_intensity_must_grow_outwards() -> None:
    assert check_order(three_points("good")) == []
    with pytest.raises(
        SimulationError, match=r"roofline: odd: fewer bytes at SRAM .* than at L2 .*; this is a bug"
    ):
        check_order(three_points("odd", sram=200))
    (warning,) = check_order(three_points("odd", measured=True, sram=200))
    assert warning.startswith("odd: fewer bytes at SRAM")
    assert check_order(three_points("near", measured=True, sram=100.9)) == []  # within 1 %


def test_measured_rows_of_the_h200_lie_under_the_roofs_and_in_order() -> None:
    found = roofs(H200, "fp16", [64, 96, 128, 256])
    points = [
        p
        for row in h200_rows()
        if row.kernel == "flash_fwd" and row.problem.seq_q > 8
        for p in measured_points(row)[0]
    ]
    flat = compute_roof(found).value
    assert len(points) == 3 * 73
    assert all(p.flops_per_s < flat for p in points)
    assert not [s for s in above_roofs(points, found) if "HBM" in s]


def test_levels_without_bytes_are_named_and_left_out() -> None:
    row = next(r for r in h200_rows() if r.kernel == "flash_fwd")
    bare = replace(row, measured={"profiled_time_s": 1e-3, "hbm_read_bytes": 1e6, "hbm_write_bytes": 0.0})
    points, said = measured_points(bare)
    assert [p.level for p in points] == ["hbm"]
    assert [s.split(": ", 1)[1] for s in said] == [
        "no point at sram, its bytes there are 0",
        "no point at l2, its bytes there are 0",
    ]
    timeless = replace(row, measured={"hbm_read_bytes": 1e6})
    assert measured_points(timeless) == (
        [],
        [f"{row.implementation} {row.case}: no point, no time was measured"],
    )


# the figure -------------------------------------------------------------------------------------------------------
def draw(points: list[Point], style: Style, head_dims: tuple[int, ...] = (128,)) -> tuple[Figure, list[str]]:
    plot, said = plot_roofline(
        roofs(H200, "fp16", head_dims), points, style, heading="Roofline", details="test"
    )
    FigureCanvasAgg(plot.figure).draw()
    return plot.figure, said


def corners(text: Text, renderer: Any) -> np.ndarray:
    """The rotated box of a text in pixels, a little smaller than its glyphs' bounds."""
    angle = text.get_rotation()
    text.set_rotation(0)
    flat = text.get_window_extent(renderer)
    text.set_rotation(angle)
    if angle:  # anchored at its centre
        x, y = text.get_transform().transform(text.get_position())
        flat = Bbox.from_bounds(x - flat.width / 2, y - flat.height / 2, flat.width, flat.height)
    box = flat.expanded(0.98, 0.8)
    at = np.array([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])
    centre, turn = at.mean(axis=0), np.radians(angle)
    spin = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return np.asarray((at - centre) @ spin.T + centre)


def overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two rectangles meet: no side of either separates them."""
    for box in (a, b):
        for i in range(4):
            edge = box[(i + 1) % 4] - box[i]
            normal = np.array([-edge[1], edge[0]])
            if max(a @ normal) < min(b @ normal) or max(b @ normal) < min(a @ normal):
                return False
    return True


MANY = [p for i in range(12) for p in three_points(f"kernel {i}", 2e12 * 1.6**i, sram=4 + 2 * i)]
SCENES = {
    "few": [
        *three_points("alpha"),
        *three_points("beta", 6e14),
        *three_points("alpha", 2.5e14, measured=True),
    ],
    "many": MANY,
    "on the roof": [
        point("stream", "hbm", flops=1e12, bytes_moved=1e12 / at, seconds=1 / (4.8 * at), measured=False)
        for at in (1.0,)
    ],
    "none": [],
}


@pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))
@pytest.mark.parametrize("scene", SCENES)
def test_no_text_overlaps_another_or_leaves_the_figure(style: Style, scene: str) -> None:
    figure, _ = draw(SCENES[scene], style, (64, 128))
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [
        t for t in figure.findobj(Text) if isinstance(t, Text) and t.get_visible() and t.get_text().strip()
    ]
    axes = figure.axes[0]
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    ticks = {*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both")}
    shown = [
        t
        for t in texts
        if t not in ticks or left <= t.get_position()[0] <= right or bottom <= t.get_position()[1] <= top
    ]
    boxes = [(t.get_text(), corners(t, renderer)) for t in shown]
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        assert box.min() >= 0, text
        assert box[:, 0].max() <= width, text
        assert box[:, 1].max() <= height, text
    for (one, a), (two, b) in itertools.combinations(boxes, 2):
        assert one == two or not overlap(a, b), (one, two)


@pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))
def test_every_roof_and_kernel_is_named_somewhere(style: Style) -> None:
    figure, said = draw(SCENES["few"], style)
    words = " ".join(t.get_text() for t in figure.findobj(Text) if isinstance(t, Text))
    for name in (
        "SRAM 33.5 TB/s, ridge 32",
        "L2 9.4 TB/s",
        "HBM 4.8 TB/s, ridge 223",
        "tensor fp16",
        "FP32",
        "exp at d 128",
    ):
        assert name in words
    assert "alpha" in words
    assert "beta" in words
    assert said == []


def test_two_figures_of_one_gpu_have_the_same_axes() -> None:
    ends = [
        (figure.axes[0].get_xlim(), figure.axes[0].get_ylim())
        for figure, _ in (draw(points, STYLES["screen"]) for points in SCENES.values())
    ]
    assert len(set(ends)) == 1


def test_points_outside_the_axes_are_named() -> None:
    far = [point("far", "hbm", flops=1e15, bytes_moved=1e3, seconds=10, measured=False)]
    _, said = draw(far, STYLES["screen"])
    assert said == ["roofline: far at HBM lies outside the axes (1e+12 FLOP/B, 100 TFLOP/s)"]


def test_too_many_kernels() -> None:
    with pytest.raises(UsageError, match="roofline: 25 kernels are too many to tell apart; at most 24"):
        draw([p for i in range(25) for p in three_points(f"k{i}")], STYLES["screen"])
