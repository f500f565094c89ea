"""The gallery: the same bytes whoever makes it, small, linked, and of today's profiles."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import iosim
from iosim.hardware import load_profile
from iosim.report.gallery import GPUS, MANIFEST, gallery_index, gone, manifest

REPORTS = Path(__file__).resolve().parents[2] / "reports"
MOST_BYTES = 10_000_000
BUILD = (
    "from iosim.report.gallery import gallery_files; import sys;"
    "files = gallery_files('a100-sxm-80gb');"
    "sys.stdout.write(files['files.csv'].decode() + '\\n' + '\\n'.join(sorted(files)))"
)


@pytest.mark.slow
def test_two_builds_give_the_same_bytes() -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (run.communicate(timeout=300)[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert first == second
    assert "figures/a100-sxm-80gb_roofline.svg" in first
    assert ".html" not in first


def rows_of(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / MANIFEST).read_text(encoding="utf-8"))))


@pytest.mark.parametrize("name", GPUS)
def test_a_folder_is_what_its_manifest_says(name: str) -> None:
    folder = REPORTS / name
    rows = rows_of(folder)
    there = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert there == {row["file"] for row in rows} | {MANIFEST}, "run: make gallery"
    for row in rows:
        assert hashlib.sha256((folder / row["file"]).read_bytes()).hexdigest() == row["sha256"], row["file"]
    assert {row["iosim_version"] for row in rows} == {iosim.__version__}
    assert {row["profile_sha256"] for row in rows} == {load_profile(name).sha256}, "run: make gallery"


def test_the_index_leads_to_every_report() -> None:
    text = (REPORTS / "README.md").read_text(encoding="utf-8")
    assert text == gallery_index(["h200-sxm"]), "run: make gallery"
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (REPORTS / link).is_file()


@pytest.mark.parametrize("name", GPUS)
def test_links_of_a_report_exist(name: str) -> None:
    text = (REPORTS / name / "report.md").read_text(encoding="utf-8")
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    assert len(links) > 20
    assert [link for link in sorted(links) if not (REPORTS / name / link).is_file()] == []
    assert f"iosim {iosim.__version__}" in text
    assert load_profile(name).sha256 in text


def test_it_stays_small() -> None:
    files = [p for name in GPUS for p in (REPORTS / name).rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < MOST_BYTES


def test_files_that_are_made_no_more_are_found(tmp_path: Path) -> None:
    assert gone(tmp_path, {}) == []
    old = {"a.csv": b"1", "b.csv": b"2"}
    (tmp_path / MANIFEST).write_text(manifest(old, "h100-sxm"))
    assert gone(tmp_path, {"a.csv": b"3"}) == [tmp_path / "b.csv"]
