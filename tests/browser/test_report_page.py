"""The report as a reader sees it: opened from disk in a browser, on a phone and on a desktop, light and dark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from devtools import Browser, find_chromium

from iosim.plots.style import SCREEN
from iosim.report import DEFAULT_PROBLEM, build_report, report_files, write_folder

MEASURED = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
NEEDED = "IOSIM_NEED_BROWSER"  # set where a missing browser is a failure
CHECKS = (Path(__file__).parent / "page_checks.js").read_text(encoding="utf-8")
WINDOWS = {"phone": (390, 844), "desktop": (1440, 900)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None and not os.environ.get(NEEDED),
        reason="no Chromium: install the package chromium, or name a browser in CHROMIUM",
    ),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a whole report, on disk."""
    folder = tmp_path_factory.mktemp("report")
    report = build_report(DEFAULT_PROBLEM, ["h200-sxm"], SCREEN, measurements=_some_rows(folder))
    write_folder(folder, report_files(report, ["svg"]))
    return (folder / "report.html").as_uri()


def _some_rows(folder: Path) -> Path:
    """A measurements file with every second case: all kinds of figures, in half the time."""
    header, *rows = MEASURED.read_text(encoding="utf-8").splitlines()
    out = folder / "measured.csv"
    out.write_text("\n".join([header, *(row for row in rows if int(row.split(",")[0]) % 2 == 0)]) + "\n")
    return out


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = find_chromium()
    assert program, "no Chromium: install the package chromium, or name a browser in CHROMIUM"
    with Browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_is_clipped_or_covered(
    browser: Browser, page: str, window: str, dark: bool, tmp_path: Path
) -> None:
    width, height = WINDOWS[window]
    browser.open(page, width=width, height=height, dark=dark)
    if folder := os.environ.get("IOSIM_SCREENSHOTS"):
        browser.screenshot(Path(folder) / f"{window}_{'dark' if dark else 'light'}.png")
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate(CHECKS) == []
    assert browser.complaints() == []
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    bright = sum(map(int, background.strip("rgb()").split(","))) > 3 * 128
    assert bright != dark


def test_the_checks_find_what_is_wrong(browser: Browser, page: str) -> None:
    browser.open(page, width=390, height=844, dark=False)
    browser.evaluate(
        "document.querySelector('h1').style.width = '900px';"
        "document.querySelector('h2').style.marginTop = '-80px';"
        "document.querySelector('figure svg').innerHTML = '';"
        "(t => t[0].after(t[0].cloneNode(true)))(document.querySelectorAll('#figure-h200-sxm_roofline g[id*=-text_]'));"
        "document.querySelector('p').style.color = '#eeeeee';"
        "document.querySelector('#table-h200-sxm_traffic td').style.maxWidth = '12px'; 1"
    )
    found = "\n".join(browser.evaluate(CHECKS))
    for fault in ("leaves the window", "lies over", "is empty", "has a contrast of"):
        assert fault in found
    browser.evaluate("console.error('heard'); fetch('https://example.invalid/').catch(() => 0); 1")
    assert "figure-h200-sxm_roofline: " in found
    assert "heard" in str(browser.complaints())
    assert "example.invalid" in str(browser.complaints())


def test_tables_sort_by_a_click(browser: Browser, page: str) -> None:
    browser.open(page, width=1440, height=900, dark=False)
    column = "Array.from(document.querySelectorAll('#table-h200-sxm_traffic td:nth-child(3)'))"
    before = browser.evaluate(f"{column}.map(c => Number(c.dataset.v))")
    assert len(before) >= 3
    assert before != sorted(before)
    for wanted in (sorted(before), sorted(before, reverse=True)):
        where = browser.evaluate(
            "(() => { const b = document.querySelector('#table-h200-sxm_traffic th:nth-child(3) button');"
            "b.scrollIntoView({block: 'center'}); const r = b.getBoundingClientRect();"
            "return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        browser.click(*where)
        assert browser.evaluate(f"{column}.map(c => Number(c.dataset.v))") == wanted
    words = "Array.from(document.querySelectorAll('#table-claims td:nth-child(3)')).map(c => c.textContent)"
    browser.evaluate("document.querySelector('#table-claims th:nth-child(3) button').click()")
    assert browser.evaluate(words) == sorted(browser.evaluate(words))


def test_links_lead_to_what_is_there(browser: Browser, page: str) -> None:
    browser.open(page, width=1440, height=900, dark=False)
    broken = browser.evaluate(
        "Array.from(document.querySelectorAll('nav a')).filter(a => !document.getElementById(a.hash.slice(1)))"
        ".map(a => a.href)"
    )
    assert broken == []
    folder = Path(page.removeprefix("file://")).parent
    links = browser.evaluate("Array.from(document.querySelectorAll('a')).map(a => a.getAttribute('href'))")
    assert [link for link in links if not link.startswith("#") and not (folder / link).is_file()] == []
