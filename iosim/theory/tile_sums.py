"""Which tiles a mask leaves, summed over all row tiles in closed form.

Row tile i covers query rows [i·Br, r1) with r1 = min((i+1)·Br, Nq). With off = Nk − Nq it can see the keys
[lo, hi): lo = max(0, i·Br + off − w + 1) under a window w and 0 otherwise, hi = min(Nk, max(0, r1 + off))
under a causal mask and Nk otherwise. It visits the key tiles that overlap this range, and loads them whole.
Every total below is a sum over i of floors of linear functions of i, so it costs O(log) steps, not O(tiles).
"""

from __future__ import annotations

from dataclasses import dataclass

from iosim.problem import AttentionProblem, TileShape


def ceil_div(a: int, b: int) -> int:
    """⌈a / b⌉ for any integer a and b > 0."""
    return -(-a // b)


def floor_sum(count: int, step: int, start: int, divisor: int) -> int:
    """Σ ⌊(step·t + start) / divisor⌋ over t = 0 … count − 1, exactly, in O(log) steps.

    `count` >= 0 and `divisor` > 0; `step` and `start` may be any integers.
    Takes out whole multiples, then counts lattice points under the line by columns instead of by rows,
    which swaps step and divisor as Euclid's algorithm does (Graham, Knuth, Patashnik, *Concrete
    Mathematics*, section 3.5).
    """
    total = 0
    sign = 1
    while count > 0:
        quotient, step = divmod(step, divisor)
        total += sign * quotient * (count * (count - 1) // 2)
        quotient, start = divmod(start, divisor)
        total += sign * quotient * count
        top = (step * (count - 1) + start) // divisor  # the last and largest term; start, step < divisor
        if top == 0:
            break
        # Σ_t ⌊f(t)⌋ = top·count − Σ_{y<top} ⌈(divisor·(y+1) − start)/step⌉
        total += sign * top * count
        sign = -sign
        count, step, start, divisor = top, divisor, divisor - start + step - 1, step
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSums:
    """Totals over the row tiles of one query head.

    `pairs_of_tiles`: visited (row tile, key tile) pairs. `keys`: keys loaded, in whole tiles, over all row
    tiles. `row_visits`: query rows, once for each key tile their row tile visits. `scores`: rows × keys of
    the visited tiles. `exact_keys`, `exact_scores`: the same with the unrounded key range. `seeing_rows`:
    rows of row tiles that visit anything. `distinct_keys`: keys of the key tiles that any row tile visits.
    """

    pairs_of_tiles: int
    keys: int
    row_visits: int
    scores: int
    exact_keys: int
    exact_scores: int
    seeing_rows: int
    distinct_keys: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """Key tiles, their keys, and keys before rounding: of one row tile, or summed over several."""

    tiles: int
    keys: int
    exact: int


def tile_sums(problem: AttentionProblem, tiles: TileShape) -> TileSums:
    """Sum the visited tiles of one query head, exactly.

    The last row tile is taken apart: it alone may be ragged, and its key range always ends at Nk.
    """
    Nq, Nk, Br, Bc = problem.seq_q, problem.seq_k, tiles.rows, tiles.cols
    last = ceil_div(Nq, Br) - 1
    # row tiles before `first` end at or before key 0 and see nothing; the last row always sees its own key
    everyone = problem.mask.kind in ("none", "prefix")
    first = 0 if everyone else min(last, max(0, -problem.key_offset // Br))
    full = _full_tiles(problem, tiles, first, last)
    end = _last_tile(problem, tiles, last)
    end_rows = Nq - last * Br
    return TileSums(
        pairs_of_tiles=full.tiles + end.tiles,
        keys=full.keys + end.keys,
        row_visits=Br * full.tiles + end_rows * end.tiles,
        scores=Br * full.keys + end_rows * end.keys,
        exact_keys=full.exact + end.exact,
        exact_scores=Br * full.exact + end_rows * end.exact,
        seeing_rows=Nq - first * Br,
        # ranges of neighbouring row tiles touch (w >= 1), so together they are one range that ends at Nk
        distinct_keys=Nk - _first_key(problem, first * Br) // Bc * Bc,
    )


def _first_key(problem: AttentionProblem, row: int) -> int:
    """The leftmost key that query row `row` may see: 0 without a window."""
    if problem.mask.window is None:
        return 0
    return max(0, row + problem.key_offset - problem.mask.window + 1)


def _last_tile(problem: AttentionProblem, tiles: TileShape, last: int) -> _Walk:
    Nk, Bc = problem.seq_k, tiles.cols
    lo = _first_key(problem, last * tiles.rows)
    skipped = lo // Bc
    return _Walk(tiles=ceil_div(Nk, Bc) - skipped, keys=Nk - skipped * Bc, exact=Nk - lo)


def _full_tiles(problem: AttentionProblem, tiles: TileShape, first: int, last: int) -> _Walk:
    """Row tiles first … last − 1: all of Br rows; under a causal mask tile i ends at key (i+1)·Br + off."""
    Nk, Bc = problem.seq_k, tiles.cols
    count = last - first
    Tc = ceil_div(Nk, Bc)
    if not problem.mask.is_causal:
        return _Walk(tiles=count * Tc, keys=count * Nk, exact=count * Nk)
    if problem.mask.prefix is not None:
        return _prefix_tiles(problem, tiles, first, last)
    return _causal_tiles(problem, tiles, first, last)


def _prefix_tiles(problem: AttentionProblem, tiles: TileShape, first: int, last: int) -> _Walk:
    """Row tiles that end inside the prefix see all of it, and no more; the others are causal."""
    Nk, Br, Bc = problem.seq_k, tiles.rows, tiles.cols
    prefix = min(problem.mask.prefix or 0, Nk)
    turn = min(last, max(first, (prefix - problem.key_offset) // Br))
    inside, seen = turn - first, ceil_div(prefix, Bc)
    rest = _causal_tiles(problem, tiles, turn, last)
    return _Walk(
        tiles=inside * seen + rest.tiles,
        keys=inside * min(Nk, seen * Bc) + rest.keys,
        exact=inside * prefix + rest.exact,
    )


def _causal_tiles(problem: AttentionProblem, tiles: TileShape, first: int, last: int) -> _Walk:
    Nk, Br, Bc = problem.seq_k, tiles.rows, tiles.cols
    count, Tc = last - first, ceil_div(Nk, Bc)
    hi = (first + 1) * Br + problem.key_offset
    ends = floor_sum(count, Br, hi + Bc - 1, Bc)
    # row tiles that reach into the last key tile stop at Nk, not at the end of a whole tile
    reach = max(first, ((Tc - 1) * Bc - problem.key_offset) // Br)
    overshoot = (Tc * Bc - Nk) * max(0, last - reach)
    skipped, exact_skipped = _skipped_tiles(problem, tiles, first, last)
    return _Walk(
        tiles=ends - skipped,
        keys=Bc * ends - overshoot - Bc * skipped,
        exact=count * hi + Br * (count * (count - 1) // 2) - exact_skipped,
    )


def _skipped_tiles(problem: AttentionProblem, tiles: TileShape, first: int, last: int) -> tuple[int, int]:
    """Key tiles, and keys, left of the window, summed over row tiles first … last − 1."""
    if problem.mask.window is None:
        return 0, 0
    Br = tiles.rows
    behind = problem.mask.window - 1 - problem.key_offset
    start = max(first, ceil_div(behind, Br))  # first row tile whose window begins at key 0 or later
    count = max(0, last - start)
    lo = start * Br - behind
    return floor_sum(count, Br, lo, tiles.cols), count * lo + Br * (count * (count - 1) // 2)
