"""What problems, records and profiles look like in a notebook: escaped, plain, with units, and cheap to import."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import iosim
from iosim.display import folded, html_table
from iosim.levels import add_levels

PROBLEM = iosim.AttentionProblem.of(seq=1024, head_dim=64, batch=2, heads=8, kv_heads=2, mask="causal")
VOID = {"br"}


class _Reader(HTMLParser):
    """Cells by row, all text, attributes; fails where tags do not close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles |= {value or "" for name, value in attrs if name == "style"}
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        (found,) = [row for row in self.rows if row and row[0] == name]
        return found


def _read(thing: object) -> _Reader:
    return _Reader(thing._repr_html_())  # type: ignore[attr-defined]


def _record(**more: str) -> iosim.RunRecord:
    return iosim.analyze(PROBLEM, "flash2", tiles="128x64", profile="h200-sxm", **more)  # type: ignore[arg-type]


def test_every_text_is_escaped() -> None:
    evil = "<script>alert('1 & 2')</script>"
    found = _Reader(folded(evil, html_table(evil, (evil,), [[evil]], notes=(evil,))))
    assert "script" not in found.tags
    assert found.text.count(evil) == 5


def test_a_problem_shows_shapes_bytes_and_mask() -> None:
    found = _read(PROBLEM)
    assert found.row("Q")[1:4] == ["2 × 8 × 1,024 × 64", "fp16", f"{2 * 8 * 1024 * 64 * 2:,} B"]
    assert found.row("K")[1:4] == ["2 × 2 × 1,024 × 64", "fp16", f"{2 * 2 * 1024 * 64 * 2:,} B"]
    assert f"{1024 * 1025 // 2:,} pairs" in found.text
    assert "causal" in found.text


def test_a_record_shows_its_traffic_as_it_stands() -> None:
    record = _record()
    found = _read(record)
    for item in record.traffic_by_tensor:
        assert found.row(item.tensor) == [item.tensor, f"{item.read_bytes:,}", f"{item.write_bytes:,}"]
    assert found.row("total")[1] == f"{record.traffic.total_bytes:,} B"
    assert found.row("lower bound")[1] == f"{record.theory.lower_bound_bytes:,} B"
    assert "HBM" not in found.text


def test_a_record_with_levels_shows_them() -> None:
    record = add_levels(_record(), iosim.find_algorithm("flash2"), iosim.load_profile("h200-sxm"))
    assert record.level_bytes is not None
    read, written = record.level_bytes.hbm_read_bytes, record.level_bytes.hbm_write_bytes
    assert _read(record).row("at HBM") == ["at HBM", f"{read:,}", f"{written:,}"]


def test_warnings_of_a_record_are_text() -> None:
    record = replace(_record(), warnings=("a <b>bold</b> warning",))
    found = _read(record)
    assert "warning: a <b>bold</b> warning" in found.text
    assert "b" not in found.tags


def test_a_profile_shows_its_numbers_and_all_sources_behind_a_click() -> None:
    profile = iosim.load_profile("h100-sxm")
    found = _read(profile)
    assert [row[1] for row in found.rows if row and row[0] == "memory.l2.capacity"] == ["50 MiB", "50 MiB"]
    assert "details" in found.tags
    for quantity in profile.quantities.values():
        assert (quantity.unknown or quantity.source) in found.text


@pytest.mark.parametrize("thing", [PROBLEM, _record(), iosim.load_profile("b200")])
def test_nothing_sets_a_colour_or_loads_anything(thing: object) -> None:
    found = _read(thing)
    assert found.attributes <= {"style"}
    assert found.styles <= {"text-align:left", "text-align:right", "text-align:left;font-weight:bold"}
    assert found.tags <= {
        *["table", "caption", "thead", "tbody", "tr", "th", "td", "p", "br", "details", "summary"]
    }


def test_importing_the_package_costs_nothing_for_it() -> None:
    code = (
        "import sys, iosim; iosim.AttentionProblem, iosim.RunRecord, iosim.HardwareProfile;"
        "print(sorted({'html', 'pandas', 'matplotlib', 'numba', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
