"""Bytes by algorithm, tensor and level, and the waterfall that names each of them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from iosim.plots.bound import problem_text
from iosim.plots.tensors import bytes_by_tensor
from iosim.plots.waterfall import waterfall
from iosim.report.blocks import Block, Heading, Section, Table, Text, figure, items
from iosim.report.gpu import GRANULARITY, GpuPart
from iosim.report.sections.facts import Facts
from iosim.results import RunRecord
from iosim.units import format_bytes

TABLE_ONLY = ("seed_flash", "small_cache")
"""Counted and listed, but not drawn."""


def section(facts: Facts) -> Section:
    """For each GPU the waterfall, the bytes by tensor, and those of every level."""
    blocks: list[Block] = []
    for part in facts.parts:
        blocks += [Heading(text=part.profile.name), *_of_gpu(facts, part)]
    return Section(
        key="bytes", title="Bytes by algorithm, tensor and level", nav="Bytes", blocks=tuple(blocks)
    )


def _of_gpu(facts: Facts, part: GpuPart) -> list[Block]:
    gpu, style = part.profile.name, facts.style
    shown = [r for r in part.records if r.algorithm not in TABLE_ONLY]
    rule = part.study.short_options_text or f"best tiles in steps of {GRANULARITY}"
    details = f"{problem_text(facts.problem, facts.batch.seq_lens)}; {gpu}, M = {format_bytes(part.sram_bytes)}, {rule}"
    warnings = list(dict.fromkeys(w for record in part.records for w in record.warnings))
    blocks: list[Block] = []
    if part.gap is not None:
        blocks.append(figure(gpu, waterfall(part.gap, style)))
    blocks += [
        figure(gpu, bytes_by_tensor(shown, style, details)),
        Table(
            name=f"{gpu}_traffic",
            frame=traffic_table(part.records),
            caption=f"Bytes by algorithm and tensor on {gpu}",
        ),
        *items(warnings, note=True),
    ]
    if len(part.levels):
        caption = f"Bytes at every level on {gpu}"
        blocks.append(Table(name=f"{gpu}_levels", frame=part.levels, caption=caption))
    return [*blocks, Text(text=part.level_remark, note=True)]


def traffic_table(records: Sequence[RunRecord]) -> pd.DataFrame:
    """One row an algorithm: tile, total, gap and bounds first, then reads, writes and bytes of each tensor."""
    tensors = list(dict.fromkeys(t.tensor for r in records for t in r.traffic_by_tensor))
    rows = []
    for record in records:
        moved = {t.tensor: t.read_bytes + t.write_bytes for t in record.traffic_by_tensor}
        total, bound = record.traffic.total_bytes, record.theory.lower_bound_bytes
        rows.append(
            {
                "algorithm": record.algorithm,
                "tile": str(record.tiles) if record.tiles else "none",
                "sm_bytes": total,
                "gap": total / bound if bound else None,
                "lower_bound_bytes": bound,
                "compulsory_bytes": record.theory.compulsory_bytes,
                "sm_read_bytes": record.traffic.sm_read_bytes,
                "sm_write_bytes": record.traffic.sm_write_bytes,
                **{f"{t}_bytes": moved.get(t, 0) for t in tensors},
                "fits": record.sram.fits,
            }
        )
    return pd.DataFrame(rows)
