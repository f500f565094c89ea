"""Lower bounds for the search of tiles: never above the count, equal to it where nothing is rounded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim import tuning
from iosim.algorithms.registry import ALGORITHMS
from iosim.interpret.binding import bind
from iosim.interpret.count import count, total_bytes
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import evaluate
from iosim.program.expr import at_least, cdiv, extent, index, maximum, minimum, nonnegative, param
from iosim.program.relax import least, most, relaxed, sums_of

VARIANTS = [
    *((name, {}) for name in ("flash1", "flash2", "decode", "small_cache", "seed_flash")),
    ("flash1", {"variant": "skip-first-read"}),
    *((name, {"pass": p}) for name in ("flash1", "flash2") for p in ("bwd", "fwd+bwd")),
]
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=["-".join([n, *o.values()]) for n, o in VARIANTS]
)
MASKS = st.sampled_from(["causal", "window:3", "window:9", "prefix:4", "none"])


def searched(name: str, options: dict[str, str], mask: str):
    algorithm = ALGORITHMS[name]
    return algorithm.searched(mask.partition(":")[0], algorithm.resolve(options))


@every_variant
@settings(max_examples=25)
@given(
    seq_q=st.integers(1, 30), seq_k=st.integers(1, 30), mask=MASKS, tiles=st.tuples(*[st.integers(1, 12)] * 2)
)
def test_no_count_is_below_its_bound(name, options, seq_q, seq_k, mask, tiles):
    problem = AttentionProblem.of(heads=4, kv_heads=2, seq_q=seq_q, seq_k=seq_k, head_dim=3, mask=mask)
    program = searched(name, options, mask)
    binding = bind(problem, TileShape(rows=tiles[0], cols=tiles[1]))
    ends = {n: s for side in ("Br", "Bc") for n, s in ((least(side), 1), (most(side), 12))}
    assert evaluate(relaxed(total_bytes(program)), binding | ends) <= count(program, binding).total_bytes


@every_variant
@pytest.mark.parametrize("mask", ["causal", "window:3", "prefix:4"])
def test_every_sum_of_a_bound_knows_one_side_of_the_tile_alone(name, options, mask):
    bound = relaxed(total_bytes(searched(name, options, mask)))
    assert all(len({"Br", "Bc"} & node.params) <= 1 for node in sums_of(bound))


def test_a_bound_is_the_count_where_tiles_of_one_key_round_nothing():
    problem = AttentionProblem.of(seq=37, head_dim=4, mask="causal")
    program = searched("flash2", {}, "causal")
    binding = bind(problem, TileShape(rows=5, cols=1)) | {least("Bc"): 1, most("Bc"): 8}
    assert evaluate(relaxed(total_bytes(program)), binding) == count(program, binding).total_bytes


@every_variant
@settings(max_examples=6)
@given(
    seq_q=st.integers(1, 20),
    seq_k=st.integers(1, 20),
    mask=MASKS,
    granularity=st.integers(1, 3),
    sram=st.integers(40, 900),
)
def test_the_pruned_search_finds_what_counting_every_pair_finds(
    name, options, seq_q, seq_k, mask, granularity, sram
):
    problem = AttentionProblem.of(heads=2, kv_heads=1, seq_q=seq_q, seq_k=seq_k, head_dim=2, mask=mask)
    program, one = searched(name, options, mask), TileShape(rows=1, cols=1)
    limit = tuning.capacity("paper", sram, None, 1)
    rows, cols = tuning.best_tiles(program, limit, bind(problem, one), granularity)
    best = None
    longest = max(seq_q * 2, seq_k) + granularity
    for r in range(granularity, longest, granularity):
        for c in range(granularity, longest, granularity):
            inside = r < seq_q * (2 if program.packed else 1) + granularity and c < seq_k + granularity
            sides = np.array([r]), np.array([c])
            if inside and tuning.fits(program, limit, bind(problem, one), np.array([0]), *sides)[0]:
                total = count(program, bind(problem, TileShape(rows=r, cols=c))).total_bytes
                key = (total, -min(r, c), r * c)
                best = min(best, (key, r, c)) if best else (key, r, c)
    assert (int(rows[0]), int(cols[0])) == (best[1:] if best else (0, 0))


def test_what_the_form_of_an_expression_says():
    i, t, n, x = index("i"), param("t"), param("n"), param("x")
    start, stop = minimum(i * t, n), minimum((i + 1) * t, n)
    assert maximum(start, stop) is stop
    assert stop - start is extent(i, t, n)
    assert nonnegative(maximum(x, n) - x)
    assert at_least(maximum(x, n) * t, x * t)
    assert not at_least(x, n)
    assert not nonnegative(x - n)
    assert not nonnegative(cdiv(x - n, t))
