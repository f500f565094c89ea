"""The exact part of the waterfall: from the compulsory bytes to those between slow memory and the SMs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from iosim.algorithms.registry import Algorithm
from iosim.analysis import theory_beside
from iosim.errors import TileError
from iosim.gap.law import counted_bytes, cut, pairs_of, smooth_bytes
from iosim.gap.record import Ladder
from iosim.interpret.binding import bind
from iosim.interpret.count import total_bytes
from iosim.interpret.footprint import MMA, footprint
from iosim.placement import Chip, place
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.ir import Program
from iosim.results import Theory
from iosim.units import format_bytes

_LONG = 1 << 24
"""At this length no two tiles need the same number of passes, so the search finds the tile of the best law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is taken apart. `shown`: the tile to name, None where the algorithm has none; `bound`: the one it runs.

    `loaded`: the problem as a production kernel loads it, in whole tiles; the problem itself for everyone else.
    """

    algorithm: Algorithm
    problem: AttentionProblem
    options: Mapping[str, str]
    shown: TileShape | None
    bound: TileShape
    loaded: AttentionProblem
    sram_bytes: int

    @property
    def program(self) -> Program:
        """The tile program, sizes left open."""
        return self.algorithm.program(self.problem.mask.kind, self.options)

    @property
    def ideal_options(self) -> dict[str, str]:
        """The options without what belongs to tiles alone."""
        return {**self.options, "gemm-tiles": "off"} if "gemm-tiles" in self.options else dict(self.options)


def climb(run: Run, ladder: Ladder) -> None:
    """Compulsory bytes, the bound, loop order, tile, edges, padding. Every amount is an exact reading."""
    theory = _theory(run)
    ladder.total(
        "compulsory",
        "least",
        "compulsory",
        theory.compulsory_bytes,
        "what nobody can save",
        next(b.source for b in theory.bounds if b.name == "compulsory"),
    )
    _lower_bound(run, theory, ladder)
    order, tile = _smooth(run)
    exact = counted_bytes(run.program, run.problem, run.bound)
    if order is not None and tile is not None:
        first = max(ladder.level, ceil(order[0]))
        ladder.step(
            "loop_order",
            "program",
            _order_title(run),
            first,
            f"best tile on paper: {order[1]}" if run.algorithm.tiled else "each operand as its loops ask",
            _order_text(run, order[1]),
            _NO_EDGES,
        )
        second = max(theory.compulsory_bytes, theory.lower_bound_bytes, ceil(tile))
        ladder.step(
            "tile",
            "program",
            "a tile that really fits",
            second,
            *_tile_words(run),
            _NO_EDGES,
        )
        ladder.step(
            "edges",
            "program",
            "mask edges, ragged ends",
            exact,
            "whole tiles move masked pairs too",
            "whole tiles, where the lines above count unmasked pairs and broken numbers of tiles",
        )
    else:
        text = "the program's count at this tile; its bytes follow no simple law, so nothing is told apart"
        ladder.step("loop_order", "program", _order_title(run), exact, "the program's count", text)
    if run.loaded != run.problem:
        padded = counted_bytes(run.program, run.loaded, run.bound)
        ladder.step(
            "padding",
            "program",
            "padding",
            padded,
            "reads past the end",
            f"read as {_sizes(run.loaded)}: whole tiles",
        )


_NO_EDGES = "mask edges and ragged ends: unmasked pairs only, broken numbers of tiles"


def _theory(run: Run) -> Theory:
    held = footprint(run.program, "paper", bind(run.problem, run.bound))
    return theory_beside(
        run.algorithm,
        run.program,
        run.problem,
        run.options,
        run.shown,
        sram_bytes=run.sram_bytes,
        fits=bool(held.sram_bytes <= run.sram_bytes),
    )


def _lower_bound(run: Run, theory: Theory, ladder: Ladder) -> None:
    valid = [b for b in theory.bounds if b.valid and b.bytes is not None]
    best = max(valid, key=lambda b: b.bytes or 0)
    amount = max(theory.compulsory_bytes, best.bytes or 0)
    M = format_bytes(run.sram_bytes)
    text = f"no algorithm of this kind can do with less at M = {M} ({best.name} bound)"
    if best.name == "compulsory":
        reasons = [f"{b.name}: {b.reason}" for b in theory.bounds if not b.valid and "class" not in b.reason]
        text = f"at M = {M} no valid bound is above the compulsory bytes" + (
            f" ({'; '.join(reasons)})" if reasons else ""
        )
    ladder.step(
        "bound",
        "least",
        "lower bound at this M",
        amount,
        f"M = {M}, {best.name} bound",
        text,
        "whether any algorithm reaches it",
    )


def _smooth(run: Run) -> tuple[tuple[float, TileShape] | None, float | None]:
    """The law at the best tile on paper, with that tile, and at the tile of the run; None without a law."""
    pairs = pairs_of(run.problem, run.options, run.bound)

    def bytes_of(tile: TileShape, options: Mapping[str, str]) -> float | None:
        found = smooth_bytes(run.algorithm, run.problem, options, tile, pairs)
        return None if found is None else float(found)

    own = bytes_of(run.bound, run.options)
    candidates = [
        (amount, cut(run.problem, run.options, tile))
        for tile in _best_tiles(run)
        if (amount := bytes_of(tile, run.ideal_options)) is not None
    ]
    return (min(candidates, key=lambda c: c[0]) if candidates else None), own


def _best_tiles(run: Run) -> list[TileShape]:
    """Tiles to judge the loop order by, in the `paper` footprint: the best of an endless problem without a mask, where
    one side alone decides; of blocked matmuls, whose both sides do, the best in steps of 16. And the run's own, where
    it fits."""
    if not run.algorithm.tiled:
        return [run.bound]
    dense = run.algorithm.without_block_mask("none", run.options)
    one_sided = not {"Br", "Bc"} <= total_bytes(dense).params
    size: dict[str, Any] = {"seq_q": _LONG, "seq_k": _LONG} if one_sided else {}
    problem = replace(run.problem, mask=Mask(), **size)
    options = {**run.options, "block-mask": "off"} if "block-mask" in run.options else run.options
    chip = Chip(
        model="paper", sram_bytes=run.sram_bytes, register_bytes=1, granularity=1 if one_sided else MMA
    )
    held = footprint(run.program, "paper", bind(run.problem, run.bound))
    own = [run.bound] if held.sram_bytes <= run.sram_bytes else []
    try:
        return [place(run.algorithm, dense, problem, "best", options, chip).bound, *own]
    except TileError:
        return own or [run.bound]


def _order_title(run: Run) -> str:
    if run.program.spills_scores:
        return "S and P through slow memory"
    return "loop order"


def _order_text(run: Run, tile: TileShape) -> str:
    if not run.algorithm.tiled:
        return f"{run.algorithm.name}, each operand read as often as its loops ask for"
    return f"{run.algorithm.name} with the best tile on paper, {tile}: Q, K, V, O tiles fill M"


def _tile_words(run: Run) -> tuple[str, str]:
    """Note and reading of the tile; a kernel that accumulates O in registers may use a larger one than M holds."""
    if run.shown is None:
        return "no tiles to choose", "the algorithm has no tiles to choose"
    note, text = f"{run.shown}", f"tile {run.shown} (rows of Q x rows of K)"
    held = footprint(run.program, "paper", bind(run.problem, run.bound))
    if held.sram_bytes > run.sram_bytes:
        note += ", O in registers"
        text += f"; its Q, K, V and O take {held.sram_bytes:,} B, more than M: O is held in registers"
    return note, text


def _sizes(p: AttentionProblem) -> str:
    return f"{p.seq_q} x {p.seq_k} rows, head dim {p.head_dim}"
