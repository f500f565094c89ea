"""Other memories: what a share of the compute bound needs, and time by SRAM and HBM bandwidth."""

from __future__ import annotations

import pandas as pd

from iosim.plots.what_if import what_if_map
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.design import REACH
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.units import format_bytes, format_rate
from iosim.whatif import Answer, Requirement

NOTE = (
    f"What is needed: the least of one memory at which FlashAttention-2 reaches {REACH:.0%} of its compute bound, all "
    "units overlapping perfectly, so no kernel needs less (`iosim require`). The map: predicted time of the fastest "
    "tile that fits (`iosim what-if`), everything but the two memories as on the GPU named."
)
WORDS = {"sram": "SRAM of a thread block", "l2": "L2", "hbm": "HBM bandwidth"}


def section(facts: Facts) -> Section:
    """A table and a map a GPU; no blocks where neither is known anywhere."""
    blocks: list[Block] = []
    for part in facts.parts:
        blocks += _of_gpu(facts, part)
    if blocks:
        blocks.insert(0, Text(text=NOTE, note=True))
    return Section(
        key="what-if", title="What if the memories were others", nav="What if", blocks=tuple(blocks)
    )


def _of_gpu(facts: Facts, part: GpuPart) -> list[Block]:
    gpu, design = part.profile.name, part.design
    if not design.needed and design.what_if is None:
        return []
    blocks: list[Block] = [Heading(text=gpu)]
    if design.needed:
        fixed = "; ".join(design.needed[0].fixed)
        caption = f"The least that reaches {REACH:.0%} of the compute bound on {gpu}; fixed: {fixed}"
        blocks.append(
            Table(
                name=f"{gpu}_require",
                frame=need_table(design.needed),
                caption=caption,
                prose=("why_not",),
            )
        )
    if design.what_if is not None:
        blocks.append(figure(gpu, what_if_map(design.what_if, facts.style)))
    tiles_said = design.remarks if design.tuned is not None else design.remarks[1:]
    return [*blocks, *items(tiles_said, note=True)]


def need_table(needed: tuple[Requirement, ...]) -> pd.DataFrame:
    """One row a memory and reading."""
    return pd.DataFrame([_row(item, answer) for item in needed for answer in item.answers])


def _row(item: Requirement, answer: Answer) -> dict[str, object]:
    def text(value: float) -> str:
        return format_rate(value) if item.unit == "B/s" else format_bytes(value)

    own = answer.own
    return {
        "memory": WORDS[item.solve],
        "bytes_come_from": answer.reading,
        "needed": text(answer.value) if answer.value is not None else "never",
        "this_gpu": text(own.value) if own else "",
        "reached_there": f"{own.reached:.1%}" if own else "",
        "limited_there_by": own.limit if own else "",
        "most_with_any": f"{answer.ceiling:.1%}",
        "why_not": "" if answer.value is not None else answer.reason,
    }
