"""Files of figures: the same bytes twice, fonts that publishers take, never half written, LaTeX that compiles."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from iosim.errors import RunError, UsageError
from iosim.plots import files
from iosim.plots.files import cell_text, latex_table, rendered, save, write_bytes
from iosim.plots.lines import plot_sweep
from iosim.plots.style import PAPER, SCREEN, STYLES, Style, find_style


def table() -> pd.DataFrame:
    rows = [(a, n, k * n * n) for k, a in ((3, "flash1"), (2, "flash2")) for n in (256, 1024, 4096)]
    return pd.DataFrame(rows, columns=["algorithm", "seq_q", "sm_bytes"])


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize("style", STYLES.values(), ids=list(STYLES))
def test_equal_figures_give_equal_bytes(kind: str, style: Style) -> None:
    first, second = (rendered(plot_sweep(table(), style, x="seq_q"), kind) for _ in range(2))
    assert first == second
    assert rendered(plot_sweep(table().iloc[:3], style, x="seq_q"), kind) != first


def test_the_paper_style_is_one_column_with_real_fonts() -> None:
    plot = plot_sweep(table(), PAPER, x="seq_q")
    assert plot.figure.get_size_inches()[0] == 3.25
    pdf = rendered(plot, "pdf")
    assert b"/CIDFontType2" in pdf  # what matplotlib makes of Type 42: embedded TrueType
    assert b"/Type3" not in pdf
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", pdf)
    assert box is not None
    assert float(box[1]) == pytest.approx(3.25 * 72)
    with pytest.raises(UsageError, match="screen, paper"):
        find_style("poster")


def test_no_dates_and_no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib as mpl

    plain = rendered(plot_sweep(table(), SCREEN, x="seq_q"), "svg")
    assert b"date" not in plain.lower()
    monkeypatch.setitem(mpl.rcParams, "lines.linewidth", 9)
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "pink")
    assert rendered(plot_sweep(table(), SCREEN, x="seq_q"), "svg") == plain
    assert mpl.rcParams["lines.linewidth"] == 9


def test_save_writes_each_format_and_the_data(tmp_path: Path) -> None:
    plot = plot_sweep(table(), SCREEN, x="seq_q")
    written = save(plot, tmp_path / "new" / "a.b")
    assert [p.name for p in written] == ["a.b.png", "a.b.svg", "a.b.pdf", "a.b.csv"]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert written[2].read_bytes().startswith(b"%PDF")
    ElementTree.fromstring(written[1].read_text(encoding="utf-8"))
    back = pd.read_csv(written[3])
    assert sorted(back["sm_bytes"]) == sorted(table()["sm_bytes"])
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == sorted(p.name for p in written)
    with pytest.raises(UsageError, match="png, svg, pdf"):
        save(plot, tmp_path / "x", ["jpg"])


def test_a_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "figure.png"
    target.write_bytes(b"old")
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        real(self, data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.Path, "write_bytes", full)
    with pytest.raises(RunError, match=r"figure\.png: cannot be written: no space left on device"):
        write_bytes(target, b"new content")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["figure.png"]


def test_a_file_in_place_of_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunError, match="cannot be written") as caught:
        write_bytes(tmp_path / "taken" / "x.csv", b"")
    assert "\n" not in str(caught.value)


def test_latex_tables_escape_what_latex_reads() -> None:
    source = pd.DataFrame({"a_b": ["50% & more", "N²d²/M"], "bytes": [1234567, 8]})
    text = latex_table(source, "cost in $ of #1")
    assert r"a\_b & bytes \\" in text
    assert r"50\% \& more & 1,234,567 \\" in text
    assert r"N\textsuperscript{2}d\textsuperscript{2}/M & 8 \\" in text
    assert r"\caption{cost in \$ of \#1}" in text
    assert r"\begin{tabular}{lr}" in text
    assert text.count(r"\begin") == text.count(r"\end") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (pd.NA, ""),
        (float("nan"), ""),
        (1234567, "1,234,567"),
        (np.int64(1234), "1,234"),
        (2.0 / 3, "0.6667"),
        (True, "True"),
        ("x", "x"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell_text(value) == text
