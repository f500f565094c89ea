"""A batch of sequences of different lengths: a column of problems of one program, counted exactly and added up.

One tile serves all sequences, as one launch has one tile. Beside it stands the padded alternative: every sequence as
long as the longest, with the same tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iosim import block_mask
from iosim.algorithms.registry import Algorithm
from iosim.analysis import (
    DEFAULT_GRANULARITY,
    analyze,
    bounds_of,
    theory_beside,
    traffic_by_tensor,
    traffic_of,
    work_of,
)
from iosim.hardware import HardwareProfile
from iosim.interpret.count import Tally
from iosim.interpret.launch import busy_share, thread_blocks
from iosim.notes import splits_note
from iosim.placement import memory_bytes, untiled
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.ragged.batch import Batch, distinct
from iosim.results import BoundValue, RunRecord, Theory
from iosim.splits import best_split, split_table
from iosim.theory.bounds import Seen
from iosim.work import useful_flops

TRIED = 64
"""Most lengths whose best tile is tried for the whole batch."""


def analyze_ragged(
    padded: AttentionProblem,
    lengths: Sequence[int],
    algorithm: Algorithm,
    *,
    tiles: str | TileShape,
    profile: HardwareProfile,
    options: Mapping[str, str],
    footprint_model: str = "paper",
    granularity: int = DEFAULT_GRANULARITY,
    sram_bytes: int | None = None,
    fixed_queries: bool = False,
    pad_head_dim: int | None = None,
) -> RunRecord:
    """The record of a ragged batch; `padded` is its padded alternative (batch = sequences, seq_k = the longest).

    Keys are as long as `lengths` say; so are queries, unless all sequences have the same number of them, that of
    `padded` (`fixed_queries`: a decode step). `ragged` among the notes compares with `padded`.
    Errors: as `analyze`.
    """
    batch = distinct(padded, lengths, fixed_queries=fixed_queries)
    best_splits = options.get("splits") == "best"
    options = {
        **options,
        **({"splits": "1"} if best_splits else {}),
    }  # for the tile; splits are alike on chip
    resolved = algorithm.resolve(options)
    program = algorithm.program(padded.mask.kind, resolved)

    def run(problem: AttentionProblem, tile: str | TileShape) -> RunRecord:
        return analyze(
            problem,
            algorithm,
            tiles=tile,
            profile=profile,
            options=options,
            footprint_model=footprint_model,
            granularity=granularity,
            sram_bytes=sram_bytes,
            pad_head_dim=pad_head_dim,
        )

    tile: str | TileShape = tiles
    if tiles == "best" and algorithm.tiled:
        step = max(1, len(batch.problems) // TRIED)
        shapes = {run(p, "best").tiles for p in [*batch.problems[::step], batch.problems[-1]]}
        fitting = [s for s in shapes if s is not None]
        tile = min(fitting, key=lambda s: (batch.tally(program, s).total_bytes, s.rows, s.cols))
    whole = run(padded, tile)
    bound = whole.tiles or untiled(resolved, padded.seq_k)
    splits = {}
    if "splits" in resolved:
        each = dict(zip(batch.problems, batch.copies.tolist(), strict=True))
        table = split_table(padded, algorithm, resolved, bound, profile.sm_count, batch=each)
        if best_splits:
            options = {**options, "splits": str(best_split(table).splits)}
            resolved = algorithm.resolve(options)
            program, whole = algorithm.program(padded.mask.kind, resolved), run(padded, bound)
        splits = {"splits": splits_note(int(resolved["splits"]), table)}
    tally = batch.tally(program, bound)
    work = work_of(
        batch.added(np.array([useful_flops(p, algorithm, resolved, whole.tiles) for p in batch.problems])),
        tally,
    )
    if pad_head_dim is not None:
        wide = Batch([p.padded(pad_head_dim) for p in batch.problems], batch.copies)
        work = replace(work, padded_executed_flops=int(wide.tally(program, bound).tensor_flops))
    on_chip = memory_bytes(footprint_model, whole.sram.capacity_bytes, profile.register_bytes_per_sm)
    theories = [
        theory_beside(
            algorithm,
            program,
            p,
            resolved,
            whole.tiles,
            sram_bytes=on_chip,
            fits=whole.sram.fits,
        )
        for p in batch.problems
    ]
    joint = (
        {}
        if algorithm.computes == "linear attention"
        else _joint(batch, algorithm, program, resolved, whole.tiles, on_chip)
    )
    return replace(
        whole,
        traffic=traffic_of(tally),
        traffic_by_tensor=traffic_by_tensor(tally),
        work=work,
        theory=_added(batch, theories, joint),
        notes={
            **{name: note for name, note in whole.notes.items() if name in ("softmax", "pass", "padding")},
            "launch": _launch(batch, program, bound, profile.sm_count),
            "ragged": _comparison(lengths, tally, whole),
            **splits,
        },
    )


def _joint(
    batch: Batch,
    algorithm: Algorithm,
    program: Program,
    options: Mapping[str, str],
    tiles: TileShape | None,
    sram_bytes: int,
) -> dict[str, int]:
    """The bounds in M over the pairs of all sequences together: M bytes are left from before once, not for each."""
    if algorithm.computes == "scores":
        return {}
    pattern = options.get("block-mask", "off")
    each = [
        p.pairs if pattern == "off" or tiles is None else block_mask.pairs(p, tiles, pattern)
        for p in batch.problems
    ]
    seen = Seen(pairs=batch.added(np.array(each)), queries=0, keys=0)
    found = bounds_of(algorithm, program, batch.problems[0], options, sram_bytes=sram_bytes, seen=seen)
    return {b.name: b.bytes for b in found if b.name in ("fused", "matmul") and b.bytes is not None}


def _added(batch: Batch, theories: Sequence[Theory], joint: Mapping[str, int]) -> Theory:
    """Sequences share nothing, so what holds for each adds up; a bound that one of them lacks is lost for all.

    `joint`: bounds by name that hold for all sequences together.
    """

    def total(values: Sequence[int | None]) -> int | None:
        return None if None in values else batch.added(np.array(values))

    bounds = []
    for column in zip(*(t.bounds for t in theories), strict=True):
        lacking = next((b for b in column if not b.valid), column[0])
        bounds.append(
            BoundValue(
                name=lacking.name,
                bytes=_larger(total([b.bytes for b in column]), joint.get(lacking.name)),
                valid=all(b.valid for b in column),
                reason=lacking.reason,
                source=lacking.source,
            )
        )
    return Theory(
        closed_form_bytes=total([t.closed_form_bytes for t in theories]),
        compulsory_bytes=batch.added(np.array([t.compulsory_bytes for t in theories])),
        lower_bound_bytes=max(
            batch.added(np.array([t.lower_bound_bytes for t in theories])),
            *(b.bytes for b in bounds if b.valid and b.bytes is not None),
        ),
        bounds=tuple(bounds),
    )


def _larger(added: int | None, joint: int | None) -> int | None:
    return added if added is None or joint is None else max(added, joint)


def _launch(batch: Batch, program: Program, tiles: TileShape, sm_count: int) -> dict[str, Any]:
    blocks = {name: batch.added(n) for name, n in thread_blocks(program, batch.binding(tiles)).items()}
    share = busy_share(next(iter(blocks.values())), sm_count)
    return {"thread_blocks": blocks, "sm_count": sm_count, "sm_share": share}


def _comparison(lengths: Sequence[int], tally: Tally, padded: RunRecord) -> dict[str, Any]:
    """What padding would add."""
    mine, theirs = int(tally.total_bytes), padded.traffic.total_bytes
    flops, padded_flops = int(tally.tensor_flops), padded.work.executed_flops
    return {
        "sequences": len(lengths),
        "shortest": min(lengths),
        "longest": max(lengths),
        "tokens": sum(lengths),
        "padded_tokens": len(lengths) * max(lengths),
        "padded_bytes": theirs,
        "padding_bytes": theirs - mine,
        "padded_executed_flops": padded_flops,
        "padding_executed_flops": padded_flops - flops,
    }
