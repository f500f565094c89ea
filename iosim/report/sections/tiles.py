"""Tiles: the papers', the best on paper, and the best that a kernel can hold."""

from __future__ import annotations

from iosim.report.blocks import Section, Table, Text
from iosim.report.sections.facts import Facts

NOTE = (
    "Footprint `paper` counts the tiles of Q, K, V and O in their dtypes; `kernel` counts staged operands in shared "
    "memory and accumulators in registers, in multiples of the MMA shape."
)


def section(facts: Facts) -> Section:
    """A table a GPU."""
    tables = [
        Table(name=f"{part.profile.name}_tiles", frame=part.tiles, caption=f"Tiles on {part.profile.name}")
        for part in facts.parts
    ]
    return Section(key="tiles", title="Tiles", nav="Tiles", blocks=(Text(text=NOTE, note=True), *tables))
