"""A program's bytes without masks and ragged ends: what its tiles cost for every unmasked pair, and no more.

Without a mask, and where tiles divide the sequences, the bytes of a tile program are a + b·N + c·Nk + e·N·Nk with
whole-tile coefficients. Four counts of the program give them, a fifth checks them. Put in real lengths, and the
unmasked pairs for N·Nk, and that is the cost of this tile with nothing lost at the edges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from iosim import block_mask
from iosim.algorithms.registry import Algorithm
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.ir import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Bytes of one program and tile: constant + per_query·N + per_key·Nk + per_pair·pairs, all heads together."""

    constant: Fraction
    per_query: Fraction
    per_key: Fraction
    per_pair: Fraction

    def bytes_at(self, queries: int, keys: int, pairs: int) -> Fraction:
        """The law at lengths that no tile has to divide."""
        return self.constant + self.per_query * queries + self.per_key * keys + self.per_pair * pairs


def find_law(
    algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], tile: TileShape
) -> Law | None:
    """The law of a tile that is not larger than the problem; None where the bytes do not follow one."""
    dense = {**options, "block-mask": "off"} if "block-mask" in options else dict(options)
    program = algorithm.program("none", dense)
    rows, cols = tile.rows, tile.cols * _parts(options)

    def at(queries: int, keys: int) -> int:
        sized = replace(problem, seq_q=queries * rows, seq_k=keys * cols, mask=Mask())
        return int(count(program, bind(sized, tile)).total_bytes)

    one, wide, tall, both = at(1, 1), at(1, 2), at(2, 1), at(2, 2)
    cross = both - wide - tall + one
    law = Law(
        constant=Fraction(one - (wide - one) - (tall - one) + cross),
        per_query=Fraction(tall - one - cross, rows),
        per_key=Fraction(wide - one - cross, cols),
        per_pair=Fraction(cross, rows * cols),
    )
    return law if law.bytes_at(5 * rows, 3 * cols, 15 * rows * cols) == at(5, 3) else None


def smooth_bytes(
    algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], tile: TileShape, pairs: int
) -> Fraction | None:
    """Bytes of this tile, cut to the problem, for `pairs` pairs a head and no others; None without a law."""
    law = find_law(algorithm, problem, options, cut(problem, options, tile))
    return None if law is None else law.bytes_at(problem.seq_q, problem.visible_keys, pairs)


def cut(problem: AttentionProblem, options: Mapping[str, str], tile: TileShape) -> TileShape:
    """The tile without what reaches past the end of the problem."""
    packed = problem.group_size if options.get("pack-gqa") == "on" else 1
    return TileShape(
        rows=min(tile.rows, problem.seq_q * packed),
        cols=min(tile.cols, -(-problem.seq_k // _parts(options))),
    )


def pairs_of(problem: AttentionProblem, options: Mapping[str, str], tile: TileShape) -> int:
    """Unmasked pairs of a head; those of a block mask lie on the grid of the tile."""
    pattern = options.get("block-mask", "off")
    return problem.pairs if pattern == "off" else block_mask.pairs(problem, tile, pattern)


def counted_bytes(program: Program, problem: AttentionProblem, tile: TileShape) -> int:
    """All bytes of the program at this tile, exactly."""
    return int(count(program, bind(problem, tile)).total_bytes)


def _parts(options: Mapping[str, str]) -> int:
    """Parts into which the keys are split before they are cut into tiles."""
    splits = options.get("splits", "1")
    return int(splits) if splits.isdecimal() else 1
