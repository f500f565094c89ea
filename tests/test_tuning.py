"""Block sizes: the search equals trying every tile, and the papers' rules are the papers'."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim import tuning
from iosim.algorithms.registry import ALGORITHMS
from iosim.errors import TileError, UsageError
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.footprint import footprint
from iosim.placement import Chip, place
from iosim.problem import AttentionProblem, TileShape

NO_REGISTER_LIMIT = 1 << 60
TILED = [a.name for a in ALGORITHMS.values() if a.tiled]


def _chip(sram_bytes, granularity=1, model="paper", registers=NO_REGISTER_LIMIT):
    return Chip(model=model, sram_bytes=sram_bytes, register_bytes=registers, granularity=granularity)


def _by_trying_all(program, problem, chip):
    """Fewest bytes, then the squarest, then the smallest, over every multiple of the step."""
    unit = tuning.step(chip.granularity, chip.model)
    best = None
    for rows in range(unit, -(-problem.seq_q // unit) * unit + 1, unit):
        for cols in range(unit, -(-problem.seq_k // unit) * unit + 1, unit):
            binding = bind(problem, TileShape(rows=rows, cols=cols))
            if chip.holds(footprint(program, chip.model, binding)):
                key = (count(program, binding).total_bytes, -min(rows, cols), rows * cols)
                if best is None or key < best[0]:
                    best = (key, rows, cols)
    return best


@pytest.mark.parametrize("name", TILED)
@settings(max_examples=15)
@given(
    seq_q=st.integers(1, 26),
    seq_k=st.integers(1, 26),
    head_dim=st.integers(1, 5),
    mask=st.sampled_from(["none", "causal", "window:5"]),
    granularity=st.integers(1, 4),
    sram_bytes=st.integers(10, 700),
    dtype_k=st.sampled_from(["fp8", "fp32"]),
)
def test_the_search_equals_trying_every_tile(
    name, seq_q, seq_k, head_dim, mask, granularity, sram_bytes, dtype_k
):
    algorithm = ALGORITHMS[name]
    mask = mask if mask.partition(":")[0] in algorithm.masks else "none"
    problem = AttentionProblem.of(seq_q=seq_q, seq_k=seq_k, head_dim=head_dim, mask=mask, dtype_k=dtype_k)
    program = algorithm.program(problem.mask.kind, algorithm.resolve({}))
    chip = _chip(sram_bytes, granularity)
    want = _by_trying_all(program, problem, chip)
    rows, cols = tuning.best_tiles(program, chip.limit, bind(problem, TileShape(rows=1, cols=1)), granularity)
    if want is None:
        assert rows[0] == 0
        return
    assert (int(rows[0]), int(cols[0])) == want[1:]


def test_the_kernel_model_searches_within_registers_too():
    problem = AttentionProblem.of(seq=96, head_dim=16)
    algorithm = ALGORITHMS["flash2"]
    program = algorithm.program("none", algorithm.resolve({}))
    chip = _chip(20_000, 8, "kernel", registers=9_000)
    want = _by_trying_all(program, problem, chip)
    rows, cols = tuning.best_tiles(program, chip.limit, bind(problem, TileShape(rows=1, cols=1)), 8)
    assert want is not None
    assert (int(rows[0]), int(cols[0])) == want[1:]
    assert rows[0] % 16 == 0


def test_many_points_are_searched_as_each_alone(monkeypatch):
    monkeypatch.setattr(tuning, "_FLAT", 37)  # many small pieces
    algorithm = ALGORITHMS["flash2"]
    program = algorithm.program("causal", algorithm.resolve({}))
    problems = [AttentionProblem.of(seq=n, head_dim=4, mask="causal") for n in (5, 40, 17, 33)]
    srams = [100, 900, 1, 350]
    alone = [
        tuning.best_tiles(program, _chip(m).limit, bind(p, TileShape(rows=1, cols=1)), 2)
        for p, m in zip(problems, srams, strict=True)
    ]
    bound = [bind(p, TileShape(rows=1, cols=1)) for p in problems]
    columns = {k: np.array([b[k] for b in bound]) for k in bound[0]}
    limit = tuning.capacity("paper", np.array(srams), None, 4)
    rows, cols = tuning.best_tiles(program, limit, columns, 2)
    assert rows.tolist() == [int(r[0]) for r, _ in alone]
    assert cols.tolist() == [int(c[0]) for _, c in alone]
    assert rows[2] == 0  # one byte of SRAM holds no tile


@pytest.mark.parametrize(
    ("outer", "literal", "elements", "d", "want"),
    [
        ("k", False, 98304, 64, (64, 384)),  # Bc = ⌊M/4d⌋, Br = min(Bc, d)
        ("q", False, 98304, 64, (384, 64)),  # the roles swapped with the loops
        ("q", True, 98304, 64, (64, 384)),  # as printed, whatever the loops
        ("k", True, 1000, 64, (4, 4)),  # ceilings: 1000/256 = 3.9
        ("k", False, 1000, 64, (3, 3)),
        ("k", False, 10, 64, (1, 1)),  # never less than one row
    ],
)
def test_the_papers_rules(outer, literal, elements, d, want):
    problem = AttentionProblem.of(seq=4096, head_dim=d)
    binding = bind(problem, TileShape(rows=1, cols=1))
    rows, cols = tuning.paper_tiles(outer, binding, 2 * elements, literal=literal)
    assert (int(rows), int(cols)) == want


def _place(tiles, chip, name="flash2", **sizes):
    problem = AttentionProblem.of(**({"seq": 4096, "head_dim": 128} | sizes))
    algorithm = ALGORITHMS[name]
    options = algorithm.resolve({})
    return place(algorithm, algorithm.program(problem.mask.kind, options), problem, tiles, options, chip)


def test_a_tile_that_does_not_fit_names_its_buffers_and_the_largest_that_does():
    with pytest.raises(TileError) as caught:
        _place("256x128", _chip(100_000, 16))
    text = str(caught.value)
    assert "Q_i 65,536 B, O_i 65,536 B, K_j 32,768 B, V_j 32,768 B" in text
    assert "needs 196,608 bytes" in text
    square = 96  # 4 · 96 · 128 · 2 = 98,304
    assert f"{square}x{square} square" in text
    assert _place(f"{square}x{square}", _chip(100_000, 16)).fits
    with pytest.raises(TileError):
        _place(f"{square + 16}x{square + 16}", _chip(100_000, 16))


def test_sram_smaller_than_any_tile_names_the_finer_granularity_that_would_do():
    with pytest.raises(
        TileError, match=r"smaller than any tile: 16x16 needs 16,384.*--granularity 1 would allow 14x1"
    ):
        _place("best", _chip(7_777, 16))
    with pytest.raises(TileError, match="give more SRAM or a smaller head dimension"):
        _place("best", _chip(1_000, 1))


def test_the_printed_rule_stops_gaining_and_says_so():
    narrow, wide = (_place("paper-literal", _chip(2 * m, 1)) for m in (4 * 128**2 - 512, 4 * 128**2 + 512))
    assert not narrow.warnings
    assert any("stops falling with M" in w for w in wide.warnings)
    assert wide.bound.rows == 128


@pytest.mark.parametrize("bad", [0, -3])
def test_granularity_is_at_least_one(bad):
    with pytest.raises(UsageError, match="granularity"):
        _chip(1000, bad)


def test_unknown_footprint_and_empty_sram_are_refused():
    with pytest.raises(UsageError, match="allowed: paper, kernel"):
        _chip(1000, 1, "papr")
    with pytest.raises(UsageError, match="sram"):
        _chip(0)
