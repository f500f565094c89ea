"""The trace of a thread block: the order of the program, in pieces that change nothing."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.algorithms.registry import ALGORITHMS
from iosim.errors import ProgramError
from iosim.interpret import trace as tracing
from iosim.interpret.binding import bind
from iosim.interpret.trace import blocks, trace
from iosim.problem import AttentionProblem, TileShape


def _program(name, problem, **options):
    algorithm = ALGORITHMS[name]
    return algorithm.program(problem.mask.kind, algorithm.resolve(options))


def _events(program, kernel, block, binding):
    names = list(program.tensors)
    return [
        (names[a["tensor"]], int(a["head"]), int(a["row_start"]), int(a["row_stop"]), bool(a["store"]))
        for piece in trace(program, kernel, block, binding)
        for a in piece
    ]


def test_flash2_reads_q_then_k_and_v_of_its_kv_head_in_turn_and_stores_o():
    problem = AttentionProblem.of(seq=5, head_dim=4, heads=4, kv_heads=2, mask="causal")
    program = _program("flash2", problem)
    binding = bind(problem, TileShape(rows=2, cols=2))
    (kernel,) = program.kernels
    assert len(list(blocks(kernel, binding))) == 4 * 3
    assert _events(program, kernel, {"batch": 0, "head": 3, "i": 1}, binding) == [
        ("Q", 3, 2, 4, False),
        ("K", 1, 0, 2, False),
        ("V", 1, 0, 2, False),
        ("K", 1, 2, 4, False),
        ("V", 1, 2, 4, False),
        ("O", 3, 2, 4, True),
    ]


def test_flash1_walks_all_of_q_for_every_key_tile():
    problem = AttentionProblem.of(seq_q=3, seq_k=4, head_dim=4)
    program = _program("flash1", problem, variant="skip-first-read")
    binding = bind(problem, TileShape(rows=2, cols=2))
    (kernel,) = program.kernels
    events = _events(program, kernel, {"batch": 0, "head": 0}, binding)
    first = [("K", 0, 0, 2, False), ("V", 0, 0, 2, False)]
    for lo, hi in ((0, 2), (2, 3)):
        first += [("Q", 0, lo, hi, False), *((t, 0, lo, hi, True) for t in ("O", "L", "M"))]
    second = [("K", 0, 2, 4, False), ("V", 0, 2, 4, False)]
    for lo, hi in ((0, 2), (2, 3)):
        second += [(t, 0, lo, hi, False) for t in ("Q", "O", "M", "L")]
        second += [(t, 0, lo, hi, True) for t in ("O", "L", "M")]
    assert events == first + second


@pytest.mark.parametrize("name", ["flash1", "flash2", "small_cache", "standard"])
def test_the_size_of_a_piece_changes_nothing(name, monkeypatch):
    problem = AttentionProblem.of(seq_q=23, seq_k=31, head_dim=4, mask="window:9")
    program = _program(name, problem)
    binding = bind(problem, TileShape(rows=3, cols=2))
    whole = [
        np.concatenate(list(trace(program, kernel, block, binding)) or [np.empty(0, tracing.ACCESS)])
        for kernel in program.kernels
        for block in blocks(kernel, binding)
    ]
    monkeypatch.setattr(tracing, "PIECE", 5)
    pieces = [list(trace(program, k, b, binding)) for k in program.kernels for b in blocks(k, binding)]
    assert max(len(p) for p in pieces) > 1
    for one, many in zip(whole, pieces, strict=True):
        assert np.array_equal(one, np.concatenate(many or [np.empty(0, tracing.ACCESS)]))


def test_a_block_is_given_by_all_of_its_grid_indices():
    problem = AttentionProblem.of(seq=5, head_dim=4)
    program = _program("flash2", problem)
    with pytest.raises(ProgramError, match="a block is given by batch, head, i"):
        list(trace(program, program.kernels[0], {"i": 1}, bind(problem, TileShape(rows=2, cols=2))))


@pytest.mark.parametrize("piece", [1 << 16, 5])
def test_a_backward_walk_reverses_the_key_tiles_and_nothing_else(piece, monkeypatch):
    monkeypatch.setattr(tracing, "PIECE", piece)
    problem = AttentionProblem.of(seq=9, head_dim=4, mask="causal")
    program = _program("flash2", problem)
    binding = bind(problem, TileShape(rows=4, cols=2))
    kernel, block = program.kernels[0], {"batch": 0, "head": 0, "i": 1}
    forward = np.concatenate(list(trace(program, kernel, block, binding)))
    backward = np.concatenate(list(trace(program, kernel, block, binding, backward=True)))
    pairs = forward[1:-1].reshape(-1, 2)
    assert np.array_equal(backward, np.concatenate([forward[:1], pairs[::-1].ravel(), forward[-1:]]))
