"""Curves from a saved sweep: axes in whole decades, long names, and errors that say what to do."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from iosim.errors import UsageError
from iosim.plots.axes import SRAM_RANGE_BYTES, decades
from iosim.plots.files import Plot
from iosim.plots.lines import complete_by, plot_sweep, varying_axis
from iosim.plots.style import ALGORITHM_COLOURS, PAPER, SCREEN, Style
from iosim.plots.words import listed, value_text


def sweep_table(algorithms: list[str], factor: int = 1) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "algorithm": a,
                "seq_q": n,
                "head_dim": d,
                "sram_bytes": 65536,
                "sm_read_bytes": factor * (k + 1) * n * n * d,
                "sm_write_bytes": n * d,
            }
            for k, a in enumerate(algorithms)
            for n in (512, 1024, 2048)
            for d in (64, 128)
        ]
    )


@pytest.mark.parametrize("style", [SCREEN, PAPER])
def test_twelve_long_names_neither_overlap_nor_leave_the_figure(style: Style) -> None:
    """Report B44: long names, many curves; every name is readable, and the data is in the plot's table."""
    names = [f"kernel_{k:02d}_with_a_name_that_goes_on_and_on_and_on_and_on_{k}" for k in range(12)]
    table = sweep_table(names)
    plot = plot_sweep(table, style, x="seq_q", where={"head_dim": "64"})
    figure = plot.figure
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    figure.draw(renderer)
    width, height = figure.get_window_extent().width, figure.get_window_extent().height
    texts = [t for legend in figure.legends for t in legend.get_texts()] + list(figure.axes[0].texts)
    assert len(texts) == 12
    boxes = [t.get_window_extent(renderer) for t in texts]
    for k, a in enumerate(boxes):
        assert min(a.x0, a.y0) >= 0
        assert a.x1 <= width
        assert a.y1 <= height
        assert not any(a.overlaps(b) for b in boxes[:k])
    assert len(plot.data) == 12 * 3


def test_axes_are_whole_decades_and_the_same_for_near_results() -> None:
    """Report B43: two plots of one kind compare, because their axes do not follow the data."""
    one, two = (
        plot_sweep(sweep_table(["flash1", "flash2"], f), SCREEN, x="seq_q", where={"head_dim": "64"})
        for f in (4, 5)
    )
    assert one.figure.axes[0].get_ylim() == two.figure.axes[0].get_ylim()
    assert one.figure.axes[0].get_xlim() == two.figure.axes[0].get_xlim()
    low, high = one.figure.axes[0].get_ylim()
    assert math.log10(low) == pytest.approx(round(math.log10(low)))
    assert math.log10(high) == pytest.approx(round(math.log10(high)))
    assert one.data["sm_bytes"].between(low, high).all()


@pytest.mark.parametrize(
    ("values", "ends"),
    [([1], (1, 10)), ([10], (10, 100)), ([9.99, 11], (1, 100)), ([1e3, 1e6], (1e3, 1e6)), ([0, 5], (1, 10))],
)
def test_decades(values: list[float], ends: tuple[float, float]) -> None:
    assert decades(values) == pytest.approx(ends)


def test_the_sram_axis_never_moves() -> None:
    table = sweep_table(["flash2"])
    table["sram_bytes"] = range(32768, 32768 + len(table))
    plot = plot_sweep(table, SCREEN, x="sram_bytes", y="sm_read_bytes")
    assert plot.figure.axes[0].get_xlim() == pytest.approx(SRAM_RANGE_BYTES)


def test_sm_bytes_is_reads_and_writes() -> None:
    table = sweep_table(["flash2"])
    plot = plot_sweep(table, SCREEN, x="seq_q", by=["algorithm", "head_dim"])
    assert plot.data["sm_bytes"].sum() == table["sm_read_bytes"].sum() + table["sm_write_bytes"].sum()
    assert "bytes" in plot.figure.axes[0].get_ylabel()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": "seqq"}, "did you mean 'seq_q'"),
        ({"x": "seq_q", "y": "colour"}, "has no column 'colour'; it has: algorithm"),
        ({"x": "seq_q"}, "what varies too: head_dim; add it to --by, or fix it with --where"),
        ({"x": "seq_q", "by": []}, "what varies too: algorithm, head_dim"),
        ({"x": "seq_q", "where": {"head_dim": "7"}}, "no row has head_dim=7; it has: 128, 64"),
        ({"x": "seq_q", "y": "algorithm"}, "no row has both seq_q and algorithm"),
    ],
)
def test_errors_say_what_to_do(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        plot_sweep(sweep_table(["flash1", "flash2"]), SCREEN, **arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_too_many_curves_are_refused() -> None:
    table = sweep_table([f"a{k}" for k in range(30)])
    with pytest.raises(UsageError, match="30 curves are too many"):
        plot_sweep(table, SCREEN, x="seq_q", where={"head_dim": "64"})


def drawn_labels(plot: Plot) -> set[str]:
    texts = [t.get_text() for legend in plot.figure.legends for t in legend.get_texts()]
    return {*texts, *(t.get_text() for t in plot.figure.axes[0].texts)}


def test_what_varies_is_added_and_said_in_words() -> None:
    table = pd.concat(
        [
            sweep_table(["flash1", "flash2"], 64 * 1024 // m).assign(sram_bytes=m, mask="none")
            for m in (32768, 65536)
        ]
    )
    full = complete_by(table, x="seq_q", where={"head_dim": "64"})
    assert full == ("algorithm", "sram_bytes")
    plot = plot_sweep(table, SCREEN, x="seq_q", by=full, where={"head_dim": "64"})
    assert drawn_labels(plot) == {f"{a}, M = {m} KiB" for a in ("flash1", "flash2") for m in (32, 64)}
    assert [t.get_text() for t in plot.figure.texts] == ["Bytes moved against N", "d = 64"]
    assert plot.caption == "Bytes moved against N, one curve for each algorithm and M."
    assert complete_by(table, x="seq_q", by=[]) == ("algorithm", "head_dim", "sram_bytes")


def test_a_column_that_follows_another_is_not_added() -> None:
    table = sweep_table(["flash2"])
    table["value_dim"] = table["head_dim"]
    table["seq_k"] = table["seq_q"]
    table["profile"] = "h100-sxm"
    assert complete_by(table, x="seq_q") == ("algorithm", "head_dim")
    two = pd.concat([table, table.assign(profile="a100-sxm-80gb", sram_bytes=166912)])
    assert complete_by(two, x="seq_q", where={"head_dim": "64"}) == ("algorithm", "profile")


@pytest.mark.parametrize("count", [2, 8, 9, 20])
def test_every_curve_looks_different_and_dashes_come_last(count: int) -> None:
    table = sweep_table(["flash2"])
    table = pd.concat(
        [table.assign(heads=k, sm_read_bytes=k * table["sm_read_bytes"]) for k in range(1, count + 1)]
    )
    plot = plot_sweep(table, SCREEN, x="seq_q", by=["heads"], where={"head_dim": "64"})
    curves = [c for c in plot.figure.axes[0].get_lines() if not str(c.get_label()).startswith("_")]
    assert len({(c.get_color(), c.get_linestyle(), c._unscaled_dash_pattern) for c in curves}) == count  # type: ignore[attr-defined]
    assert all(c.get_linestyle() == "-" for c in curves[:8])
    assert all(c.get_linestyle() != "-" for c in curves[8:])


def test_algorithms_alone_keep_their_colours() -> None:
    plot = plot_sweep(sweep_table(["standard", "flash2"]), SCREEN, x="seq_q", where={"head_dim": "64"})
    found = {c.get_label(): c.get_color() for c in plot.figure.axes[0].get_lines()}
    assert {name: found[name] for name in ("standard", "flash2")} == {
        name: ALGORITHM_COLOURS[name] for name in ("standard", "flash2")
    }


def test_the_axis_is_what_varies() -> None:
    table = sweep_table(["flash2"])
    assert varying_axis(table) == "seq_q"
    assert varying_axis(table, {"seq_q": "512"}) == "head_dim"
    assert varying_axis(table, {"seq_q": "512", "head_dim": "64"}) == "seq_q"


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("sram_bytes", 32768, "M = 32 KiB"),
        ("sram_bytes", 32768.0, "M = 32 KiB"),
        ("head_dim", 128, "d = 128"),
        ("seq_q", 8192, "N = 8,192"),
        ("seq_k", 8192, "8,192 keys"),
        ("algorithm", "flash2", "flash2"),
        ("mask", "none", "no mask"),
        ("mask", "window:64", "window:64"),
        ("tiles", "128x64", "128x64 tiles"),
        ("dtype_q", "fp8", "dtype q = fp8"),
    ],
)
def test_values_in_words(column: str, value: object, text: str) -> None:
    assert value_text(column, value) == text


def test_lists_in_words() -> None:
    assert listed(["algorithm"]) == "algorithm"
    assert listed(["algorithm", "head_dim", "sram_bytes"]) == "algorithm, d and M"
