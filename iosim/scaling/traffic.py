"""Counted bytes along M, N and d beside the bounds: one long table a sweep, ready to plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.grid import Grid
from iosim.problem import AttentionProblem
from iosim.scaling.passes import sweep_passes
from iosim.theory.backward_bounds import backward_bounds, both_bounds
from iosim.theory.bounds import Bound, bounds, ideal_reads_sram_bytes
from iosim.theory.shapes import SHAPES

EVALUATIONS = 1 << 21  # of the count, for one point of a curve
MASKED_ROWS = 48  # with a mask both sides of a tile are searched, so about this many steps a side
BLOCKED_GRANULARITY = 8  # small_cache chooses both sides of its tile, so its search is coarser
_DTYPES = ("dtype_q", "dtype_k", "dtype_v", "dtype_o", "dtype_acc")
_KEPT = (
    "algorithm",
    "tiles",
    "seq_q",
    "seq_k",
    "head_dim",
    "value_dim",
    "sram_bytes",
    "tile_rows",
    "tile_cols",
)
COLUMNS = (
    *_KEPT,
    *("sm_read_bytes", "sm_write_bytes", "compulsory_bytes", "lower_bound_bytes"),
    *("sm_bytes", "gap", "attainable", "granularity"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One algorithm under one tile rule; `largest_sram` in d² elements is where it stops being of interest."""

    algorithm: str
    tiles: str = "best"
    granularity: int = 1
    largest_sram: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A ragged batch: its keys by sequence, and whether all have the same queries; empty where all are alike."""

    seq_lens: tuple[int, ...] = ()
    fixed_queries: bool = False


ALIKE = Lengths()

CURVES = (
    Curve(algorithm="standard"),
    Curve(algorithm="flash1", tiles="paper"),
    Curve(algorithm="flash1"),
    Curve(algorithm="flash2", tiles="paper"),
    Curve(algorithm="flash2"),
    Curve(algorithm="small_cache", granularity=BLOCKED_GRANULARITY, largest_sram=4),
)


def along(
    problem: AttentionProblem,
    *,
    sram_bytes: Sequence[int],
    seq: Sequence[int] | None = None,
    head_dim: Sequence[int] | None = None,
    curves: Sequence[Curve] = CURVES,
    batch: Lengths = ALIKE,
) -> pd.DataFrame:
    """Count every curve at every combination; `seq` and `head_dim` None keep the problem's own.

    `batch`: the lengths of a ragged batch, whose padded alternative `problem` is; then without `seq`.

    Columns: the sizes, tile, sm_bytes, compulsory_bytes, lower_bound_bytes (the strongest valid one for that
    algorithm), gap = sm_bytes / lower_bound_bytes, attainable (False where an idealised count assumes more on-chip
    memory than there is), granularity. Rows without a tile that fits are left out.
    """
    parts = [_curve(problem, curve, sram_bytes, seq, head_dim, batch) for curve in curves]
    found = [part for part in parts if len(part)]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=list(COLUMNS))


def _curve(
    problem: AttentionProblem,
    curve: Curve,
    sram_bytes: Sequence[int],
    seq: Sequence[int] | None,
    head_dim: Sequence[int] | None,
    batch: Lengths,
) -> pd.DataFrame:
    p = problem
    widths = list(head_dim) if head_dim is not None else [p.head_dim]
    lengths: dict[str, Any] = {"seq_q": [p.seq_q], "seq_k": [p.seq_k]} if seq is None else {"seq": list(seq)}
    if batch.seq_lens and not batch.fixed_queries:
        lengths = {"seq": [p.seq_k]}
    shape: dict[str, Any] = {
        "batch": [p.batch],
        "heads": [p.heads],
        "kv_heads": [p.kv_heads],
        "mask": [str(p.mask)],
        "head_dim": widths,
        "value_dim": [p.value_dim] if head_dim is None else [None],
    }
    srams = list(sram_bytes)
    if curve.largest_sram is not None:
        most = curve.largest_sram * max(widths) ** 2 * p.dtype_k.itemsize
        srams = [M for M in srams if most >= M]
    if not srams:
        return pd.DataFrame()
    longest = p.seq_q if seq is None else max(seq)
    by_step: dict[int, list[int]] = {}
    for M in srams:
        by_step.setdefault(_step(p, curve, widths, longest, M), []).append(M)
    grids = {
        step: Grid(
            algorithm=(curve.algorithm,),
            sram_bytes=some,
            tiles=(curve.tiles,),
            granularity=step,
            seq_lens=batch.seq_lens,
            options={curve.algorithm: curve.options},
            dtypes={name: getattr(p, name).name for name in _DTYPES},
            **shape,
            **lengths,
        )
        for step, some in by_step.items()
    }
    table = pd.concat(
        [sweep_passes(grid).assign(granularity=step) for step, grid in grids.items()], ignore_index=True
    )
    table = table[table["sm_read_bytes"].notna()]
    if curve.largest_sram is not None:
        limit = curve.largest_sram * p.dtype_k.itemsize
        table = table[table["sram_bytes"] <= limit * table["head_dim"] ** 2]
    out = table[[*_KEPT, *(c for c in table.columns if c.startswith("backward_"))]].copy()
    out["algorithm"] = find_algorithm(curve.algorithm).name
    for name in ("sm_read_bytes", "sm_write_bytes", "compulsory_bytes", "lower_bound_bytes"):
        out[name] = table[name].astype(float) if table[name].dtype == object else table[name]
    out["sm_bytes"] = out["sm_read_bytes"] + out["sm_write_bytes"]
    out["gap"] = out["sm_bytes"].astype(float) / out["lower_bound_bytes"].astype(float)
    out["attainable"] = [
        curve.algorithm != "standard" or ideal_reads_sram_bytes(_narrowed(p, int(d))) <= int(M)
        for d, M in zip(out["head_dim"], out["sram_bytes"], strict=True)
    ]
    out["granularity"] = table["granularity"]
    return out


def _step(problem: AttentionProblem, curve: Curve, widths: Sequence[int], N: int, sram_bytes: int) -> int:
    """The granularity of a point: the curve's, coarser where both sides are searched and the search would be long.

    Evaluations are about (tiles tried) · (row tiles of each), N·M/step³ or, with a mask, N·rows/step².
    """
    step = curve.granularity
    if curve.largest_sram is not None:
        while N * (sram_bytes // problem.dtype_k.itemsize) > EVALUATIONS * step**3:
            step *= 2
    elif problem.mask.is_causal:
        most, least = (sram_bytes // (2 * d * problem.dtype_k.itemsize) for d in (min(widths), max(widths)))
        while least >= 8 * step and (most > MASKED_ROWS * step or N * most > EVALUATIONS * step**2):
            step *= 2
    return step


def _narrowed(problem: AttentionProblem, head_dim: int) -> AttentionProblem:
    same = problem.head_dim == head_dim
    return replace(problem, head_dim=head_dim, value_dim=problem.value_dim if same else head_dim)


def best_schedule(table: pd.DataFrame, along_axis: str) -> pd.DataFrame:
    """The row of fewest bytes at each value of an axis, among what can be attained."""
    possible = table[table["attainable"]].reset_index(drop=True)
    order = np.lexsort((possible.index, possible["sm_bytes"], possible[along_axis]))
    return possible.iloc[order].drop_duplicates(along_axis).reset_index(drop=True)


BOUND_LABELS = {
    ("compulsory", False): "compulsory",
    ("fused", False): "fused bound",
    ("matmul", True): "matmul bound",
    ("score round trip", True): "score round trip",
}
"""Bounds that are drawn: (name, whether S is spilled) -> label."""


BOUND_COLUMNS = ("bound", "sram_bytes", "bytes", "algorithms", "source")


def _bounds_of_pass(problem: AttentionProblem, sram_bytes: int, which: str, *, spills: bool) -> list[Bound]:
    if which == "fwd":
        return list(bounds(problem, sram_bytes, spills_scores=spills))
    of_pass = backward_bounds if which == "bwd" else both_bounds
    return of_pass(problem, sram_bytes, spills_scores=spills)


def bound_lines(problem: AttentionProblem, sram_bytes: Sequence[int], which: str = "fwd") -> pd.DataFrame:
    """Each bound of a pass (fwd, bwd, fwd+bwd) at each M where it holds and is above 0: columns BOUND_COLUMNS."""
    rows = []
    for spills in (False, True):
        for M in sram_bytes:
            for b in _bounds_of_pass(problem, M, which, spills=spills):
                label = BOUND_LABELS.get((b.name, spills))
                if label and b.valid and b.bytes:
                    rows.append(
                        {
                            "bound": label,
                            "sram_bytes": M,
                            "bytes": b.bytes,
                            "algorithms": b.algorithms,
                            "source": b.source,
                        }
                    )
    return pd.DataFrame(rows, columns=list(BOUND_COLUMNS))


_DIRECTIONS = {"fwd": "forward", "bwd": "backward"}


def shape_lines(problem: AttentionProblem, sram_bytes: Sequence[int], which: str = "fwd") -> pd.DataFrame:
    """The Θ optima of one pass with constant 1, where they hold: to draw, never to compare; none of fwd+bwd."""
    size = problem.dtype_k.itemsize
    rows = [
        {"shape": shape.expression, "sram_bytes": M, "bytes": elements * size, "source": shape.source}
        for shape in SHAPES
        if shape.direction == _DIRECTIONS.get(which) and shape.kind == "optimum"
        for M in sram_bytes
        if (elements := shape.elements(problem, M / size)) is not None
    ]
    return pd.DataFrame(rows, columns=["shape", "sram_bytes", "bytes", "source"])
