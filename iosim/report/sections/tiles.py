"""Tiles: the papers', the best on paper, the best that a kernel can hold, and the fastest by predicted time."""

from __future__ import annotations

import pandas as pd

from iosim.plots.tune import tune_map
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.gpu import GpuPart
from iosim.report.sections.facts import Facts
from iosim.tune import TuneTable
from iosim.units import format_seconds

NOTE = (
    "By bytes: footprint `paper` counts the tiles of Q, K, V and O in their dtypes; `kernel` counts staged operands in "
    "shared memory and accumulators in registers, in multiples of the MMA shape. By time: every tile that registers, "
    "shared memory and the MMA shape allow, priced by the prediction (`iosim tune`)."
)
MOST_ROWS = 12
COLUMNS = (
    "winner",
    "rows",
    "cols",
    "warps",
    "stages",
    "splits",
    "order",
    "blocks_per_sm",
    "limited_by",
    "registers_per_thread",
    "shared_bytes",
    "sm_bytes",
    "hbm_bytes",
    "seconds",
    "low_s",
    "high_s",
    "limit",
)


def section(facts: Facts) -> Section:
    """Two tables and a map a GPU."""
    blocks: list[Block] = [Text(text=NOTE, note=True)]
    for part in facts.parts:
        blocks += [Heading(text=part.profile.name), *_of_gpu(facts, part)]
    return Section(key="tiles", title="Tiles", nav="Tiles", blocks=tuple(blocks))


def _of_gpu(facts: Facts, part: GpuPart) -> list[Block]:
    gpu, tuned = part.profile.name, part.design.tuned
    blocks: list[Block] = []
    if tuned is not None:
        blocks += [
            *items([winner_text(tuned)]),
            figure(gpu, tune_map(tuned, facts.style)),
            Table(
                name=f"{gpu}_designs",
                frame=design_table(tuned),
                caption=f"Designs that fit on {gpu}, best first, by {tuned.objective}",
                most=MOST_ROWS,
            ),
        ]
    blocks.append(Table(name=f"{gpu}_tiles", frame=part.tiles, caption=f"Tiles by bytes on {gpu}"))
    return [*blocks, *items(part.design.remarks[:1] if tuned is None else (), note=True)]


def winner_text(tuned: TuneTable) -> str:
    """The winner, and how much the choice matters."""
    best, fitting = tuned.winner, tuned.feasible
    d = best.design
    text = f"Best of {len(fitting)} designs for {tuned.kernel_class}: tile {d.tile}, {d.warps} warps"
    text += f", {d.splits} splits" if d.splits > 1 else ""
    text += f", order {d.order}" if d.order != "grid" else ""
    slowest = max((r.times.seconds for r in fitting if r.times), default=None)
    if best.times is None or slowest is None:
        return f"{text}."
    return (
        f"{text}: {format_seconds(best.times.seconds)}; the slowest that fits takes "
        f"{slowest / best.times.seconds:.2f} times as long. {tuned.alike} of them lie within the range of the "
        "winner's prediction, so bytes may decide."
    )


def design_table(tuned: TuneTable) -> pd.DataFrame:
    """One row a design that fits, best first."""
    table = tuned.to_frame()
    table = table[table["fits"]]
    table = table[[c for c in COLUMNS if c in table]].reset_index(drop=True)
    return table.astype({"sm_bytes": "Int64", "hbm_bytes": "Int64"})
