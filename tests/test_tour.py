"""The notebook of the documentation runs from its first cell to its last, and is kept without results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat

DOCS = Path(__file__).parents[1] / "docs"
TOUR = DOCS / "tour.ipynb"


def _tour() -> Any:
    return nbformat.read(TOUR, as_version=4)


def test_the_notebook_is_well_formed_and_holds_no_results() -> None:
    tour = _tour()
    nbformat.validate(tour)
    code = [cell for cell in tour.cells if cell.cell_type == "code"]
    assert len(code) > 5
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


def test_its_links_lead_somewhere() -> None:
    text = "\n".join(cell.source for cell in _tour().cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    assert [link for link in links if not (DOCS / link).exists()] == []


def test_every_cell_runs_and_shows_something() -> None:
    from nbclient import NotebookClient

    tour = _tour()
    NotebookClient(
        tour, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(DOCS)}}
    ).execute()
    shown = [cell.outputs for cell in tour.cells if cell.cell_type == "code"]
    assert all(shown)
    assert not [out for outs in shown for out in outs if out.get("name") == "stderr"]
    kinds = [set(out.get("data", {})) for outs in shown for out in outs]
    assert sum("text/html" in kind for kind in kinds) >= 5  # problem, profile, records and tables
    assert sum("image/png" in kind for kind in kinds) == 2  # roofline and sweep
