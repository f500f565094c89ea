"""The report's folder: all of it there, self-contained, the same twice, and never half written."""

from __future__ import annotations

import errno
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from iosim.analysis import analyze
from iosim.errors import ProfileError, RunError
from iosim.plots.style import SCREEN
from iosim.problem import AttentionProblem
from iosim.report import (
    DEFAULT_PROBLEM,
    DEFAULT_PROFILES,
    Report,
    build_report,
    report_files,
    workload_text,
    write_folder,
)
from iosim.report import write as writing

VOID = {"meta", "br", "img", "link", "hr", "path", "use", "rect"}


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def report(told: list[str]) -> Report:
    return build_report(DEFAULT_PROBLEM, ["a100-sxm-80gb"], SCREEN, progress=told.append)


@pytest.fixture(scope="module")
def files(report: Report) -> dict[str, bytes]:
    return report_files(report, ["svg"])


def test_defaults_are_named_in_full() -> None:
    assert workload_text(DEFAULT_PROBLEM) == "batch 1, 32 heads, N = 8,192, d = 128, fp16, mask none"
    assert DEFAULT_PROFILES == ("a100-sxm-80gb", "h100-sxm")
    one = AttentionProblem.of(seq_q=1, seq_k=8192, head_dim=64)
    assert workload_text(one) == "batch 1, 1 head, N = 1 query, 8,192 keys, d = 64, fp16, mask none"
    odd = AttentionProblem.of(
        seq_q=4, seq_k=10, head_dim=8, value_dim=16, heads=4, kv_heads=2, dtype_k="fp8", mask="causal"
    )
    assert workload_text(odd) == (
        "batch 1, 4 heads on 2 kv heads, N = 4 queries, 10 keys, d = 8, dv = 16, "
        "Q fp16, K fp8, V fp16, O fp16, mask causal"
    )


def test_every_file_is_there(files: dict[str, bytes]) -> None:
    names = ("bytes_by_tensor", "traffic_by_sram", "traffic_by_seq", "traffic_by_head_dim", "gap_by_sram")
    names += ("waterfall", "roofline", "time_terms", "time_by_seq", "memory_by_seq", "tune_time", "what_if")
    for name in names:
        ElementTree.fromstring(files[f"figures/a100-sxm-80gb_{name}.svg"])
        assert f"figures/a100-sxm-80gb_{name}.csv" in files
    for name in ("exponents", "constants", "crossings", "a100-sxm-80gb_traffic", "a100-sxm-80gb_tiles"):
        assert f"tables/{name}.csv" in files
        assert files[f"tables/{name}.tex"].startswith(b"\\begin{table}")
    assert {"report.html", "report.md", "report.json"} <= files.keys()


class Page(HTMLParser):
    """Open tags, links and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.links += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]
        self.ids += [given["id"]] if tag == "h2" and given.get("id") else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v for k, v in attrs if k in ("href", "src", "xlink:href") and v]

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += data


def test_the_page_is_well_formed_and_needs_no_network(files: dict[str, bytes]) -> None:
    text = files["report.html"].decode()
    page = Page()
    page.feed(text)
    assert page.open == []
    outside = [link for link in page.links if re.match(r"[a-z]+:|//", link)]
    assert outside == []
    local = {link for link in page.links if not link.startswith("#")}
    assert local <= files.keys()
    assert {link[1:] for link in page.links if link.startswith("#")} >= set(page.ids)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == 12  # as test_every_file_is_there lists them
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))  # figures share a page, so each has ids of its own
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_the_first_lines_name_workload_and_hardware(files: dict[str, bytes]) -> None:
    first = "\n".join(files["report.md"].decode().splitlines()[:6])
    assert "batch 1, 32 heads, N = 8,192, d = 128, fp16, mask none" in first
    assert "a100-sxm-80gb" in first
    page = Page()
    page.feed(files["report.html"].decode())
    assert page.text.index("32 heads") < page.text.index("What to do")


def test_links_of_the_markdown_exist(files: dict[str, bytes]) -> None:
    text = files["report.md"].decode()
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    assert links
    assert links <= files.keys()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) > 30
    assert "\n\n\n" not in text


def test_numbers_are_those_of_analyze(report: Report, files: dict[str, bytes]) -> None:
    document = json.loads(files["report.json"])
    runs = {run["algorithm"]: run for run in document["gpus"][0]["runs"]}
    for name in ("standard", "flash1", "flash2"):
        record = analyze(DEFAULT_PROBLEM, name, profile="a100-sxm-80gb")
        assert runs[name] == json.loads(json.dumps(record.to_dict()))
    assert runs["standard"]["traffic"] == {"sm_read_bytes": 8791261184, "sm_write_bytes": 8657043456}
    table = pd.read_csv(pd.io.common.BytesIO(files["tables/a100-sxm-80gb_traffic.csv"]))
    moved = table.set_index("algorithm")
    assert (
        moved.loc["standard", "sm_bytes"] == 17_448_304_640
    )  # 4 N² + 4 Nd elements, 32 heads, two bytes each
    assert (moved["compulsory_bytes"] == 268_435_456).all()
    assert (moved["gap"] >= 1).all()
    assert list(table.columns[:4]) == [
        "algorithm",
        "tile",
        "sm_bytes",
        "gap",
    ]  # what a reader looks for first
    levels = pd.read_csv(pd.io.common.BytesIO(files["tables/a100-sxm-80gb_levels.csv"]))
    assert list(levels.columns[2:5]) == ["hbm_read_bytes", "hbm_write_bytes", "l2_hit_rate"]
    assert any("17.45 GB" in answer for answer in report.answers)
    assert any("twice as much, so it loses" in answer for answer in report.answers)
    assert document["gpus"][0]["bound"]["under_a_bound"] == 0


def test_progress_is_told(report: Report, told: list[str]) -> None:
    assert report.parts
    assert any("exponents" in line for line in told)
    assert any("a100-sxm-80gb" in line for line in told)


def test_a_report_is_the_same_twice(report: Report, files: dict[str, bytes]) -> None:
    assert report_files(report, ["svg"]) == files


def test_an_unknown_gpu_is_one_line() -> None:
    with pytest.raises(ProfileError):
        build_report(DEFAULT_PROBLEM, ["a100"], SCREEN)


def test_a_folder_is_written_and_strangers_are_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "report"
    write_folder(out, {"a.txt": b"1", "sub/b.txt": b"2"})
    (out / "mine.txt").write_text("keep")
    paths = write_folder(out, {"a.txt": b"3", "sub/c.txt": b"4"})
    assert paths == [out / "a.txt", out / "sub" / "c.txt"]
    found = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert found == {"a.txt": b"3", "sub/b.txt": b"2", "sub/c.txt": b"4", "mine.txt": b"keep"}
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_a_full_disk_leaves_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "report"
    write_folder(out, {"a.txt": b"old a", "b.txt": b"old b"})
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.name == "b.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(writing.Path, "write_bytes", full)
    with pytest.raises(RunError, match="no space left on device") as caught:
        write_folder(out, {"a.txt": b"new a", "b.txt": b"new b"})
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {"a.txt": b"old a", "b.txt": b"old b"}
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RunError, match="is a file; --out needs a folder"):
        write_folder(tmp_path / "taken", {})
    with pytest.raises(RunError, match="cannot be written"):
        write_folder(tmp_path / "taken" / "below", {"a": b""})
