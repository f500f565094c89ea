"""The GPUs: the numbers used, with their sources."""

from __future__ import annotations

import pandas as pd

from iosim.report.blocks import Block, Heading, Section, Table, Text
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.units import format_bytes

PROFILE_KEYS = (
    "memory.sram.per_block",
    "memory.sram.per_sm",
    "memory.registers.per_sm",
    "compute.sm_count",
    "memory.l2.capacity",
    "memory.hbm.capacity",
    "memory.hbm.bandwidth",
    "compute.clocks.boost",
    "compute.board_power",
    "measured.hbm_read_bandwidth",
)


def section(facts: Facts) -> Section:
    """A table a GPU."""
    blocks: list[Block] = []
    for part in facts.parts:
        blocks += [
            Heading(text=part.profile.title, code=part.profile.name),
            Text(text=f"M = {format_bytes(part.sram_bytes)} for one thread block."),
            Table(
                name=f"{part.profile.name}_profile",
                frame=profile_table(part),
                caption=f"Numbers of {part.profile.name} and who says so",
                prose=("source",),
                code=("number",),
            ),
        ]
    return Section(key="gpus", title="The GPUs", nav="GPUs", blocks=tuple(blocks))


def profile_table(part: GpuPart) -> pd.DataFrame:
    """Number, value, kind, source."""
    known = part.profile.quantities
    rows = [known[key] for key in PROFILE_KEYS if key in known]
    return pd.DataFrame(
        [{"number": q.key, "value": str(q), "kind": str(q.kind), "source": q.source} for q in rows]
    )
