"""The backward passes: the papers' counts, gradients against finite differences, sums across thread blocks."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import UsageError, VerificationError
from iosim.interpret.numeric import run
from iosim.interpret.verify import verify
from iosim.problem import AttentionProblem, TileShape
from iosim.program.builder import Builder, build
from iosim.program.expr import cdiv
from iosim.theory.backward_bounds import backward_bounds
from iosim.theory.bounds import strongest
from iosim.theory.closed_forms import closed_form
from iosim.theory.reference import reference_attention
from iosim.theory.reference_backward import reference_gradients

N, D, BC = 1024, 64, 128
TC = N // BC
ONE_HEAD = AttentionProblem.of(seq=N, head_dim=D)


def moved(problem: AttentionProblem, name: str, tiles: str = "128x128", **options: str):
    options = {key.rstrip("_"): value for key, value in options.items()}
    return analyze(problem, name, tiles=tiles, options=options, sram_bytes=1 << 24)


def elements(record, *, statistics: bool) -> int:
    fp32 = ("M", "L", "LSE", "D")
    size = 4 if statistics else 2
    chosen = [t for t in record.traffic_by_tensor if (t.tensor in fp32) == statistics]
    return sum(t.read_bytes + t.write_bytes for t in chosen) // size


@pytest.mark.parametrize(
    ("name", "options", "matrices", "statistics"),
    [
        ("standard", {"pass": "bwd"}, 7 * N * N + 8 * N * D, 0),
        ("standard", {"pass": "fwd+bwd"}, 11 * N * N + 12 * N * D, 0),
        ("flash1", {"pass": "bwd"}, (5 * TC + 7) * N * D, 2 * N * TC),
        ("flash1", {"pass": "bwd", "variant": "skip-first-read"}, (5 * TC + 3) * N * D, 2 * N * TC),
        ("flash1", {"pass": "fwd+bwd"}, (8 * TC + 10) * N * D, 2 * N * (2 * TC + 1) + 2 * N * TC),
        ("flash2", {"pass": "bwd"}, (4 * TC + 7) * N * D, N + 2 * N * TC),
        ("flash2", {"pass": "fwd+bwd"}, (6 * TC + 9) * N * D, N + N + 2 * N * TC),
    ],
)
def test_the_counts_of_the_papers(name, options, matrices, statistics):
    record = analyze(ONE_HEAD, name, tiles=f"{BC}x{BC}", options=options, sram_bytes=1 << 24)
    assert elements(record, statistics=False) == matrices
    assert elements(record, statistics=True) == statistics
    assert record.theory.closed_form_bytes == record.traffic.total_bytes


def test_flash1_without_counting_its_zeros_moves_three_copies_less():
    record = moved(ONE_HEAD, "flash1", pass_="bwd")
    zeros = 3 * N * D  # of dQ, dK and dV: (5Tc + 4)Nd where somebody else clears them
    assert elements(record, statistics=False) - zeros == (5 * TC + 4) * N * D


def test_figure_2_of_flashattention_at_192_kib():
    # B = 64, H = 16, N = 1024, d = 64; Bc = 384, so three key tiles; the paper prints 4.4 GB without saying how
    problem = AttentionProblem.of(batch=64, heads=16, seq=1024, head_dim=64)
    copy, row = 64 * 16 * 1024 * 64 * 2, 64 * 16 * 1024 * 4
    literal = moved(problem, "flash1", "64x384", pass_="fwd+bwd").traffic.total_bytes
    skipping = moved(problem, "flash1", "64x384", pass_="fwd+bwd", variant="skip-first-read")
    assert literal == 34 * copy + 20 * row
    assert skipping.traffic.total_bytes == 28 * copy + 16 * row
    assert skipping.traffic.total_bytes < 4.4e9 < literal


def test_recomputation_costs_a_quarter_of_the_standard_backward_and_a_sixth_of_both():
    flops = {
        (name, p): moved(ONE_HEAD, name, **{"pass": p}).work.executed_flops
        for name in ("standard", "flash1", "flash2")
        for p in ("fwd", "bwd", "fwd+bwd")
    }
    forward = flops["standard", "fwd"]
    for name in ("flash1", "flash2"):
        assert flops[name, "fwd"] == forward
        assert 4 * flops[name, "bwd"] == 5 * flops["standard", "bwd"] == 4 * 5 * forward // 2
        assert 6 * flops[name, "fwd+bwd"] == 7 * flops["standard", "fwd+bwd"] == 6 * 7 * forward // 2
    assert moved(ONE_HEAD, "flash2", pass_="bwd").notes["pass"] == {
        "name": "bwd",
        "matmuls": 5,
        "recomputed_matmuls": 1,
    }


@pytest.mark.parametrize("name", ["standard", "flash1", "flash2"])
def test_gradients_of_shared_keys_are_stored_once(name):
    problem = AttentionProblem.of(heads=8, kv_heads=2, seq=256, head_dim=16)
    record = moved(problem, name, "64x64", pass_="bwd")
    writes = {t.tensor: t.write_bytes for t in record.traffic_by_tensor}
    stored = 2 * 256 * 16 * 2
    assert (
        writes["dK"] == writes["dV"] == (2 * stored if name == "flash1" else stored)
    )  # literal: zeros first


def differences(f, x, direction, step=2e-3):
    """The derivative of f along `direction`, by central differences of sixth order."""
    weights = ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))
    return sum(w * (f(x + k * step * direction) - f(x - k * step * direction)) for k, w in weights) / step


@pytest.mark.parametrize("name", ["standard", "flash1", "flash2"])
@pytest.mark.parametrize("mask", ["none", "causal", "window:4"])
def test_gradients_are_those_of_finite_differences(name, mask):
    problem = AttentionProblem.of(heads=4, kv_heads=2, seq_q=7, seq_k=10, head_dim=3, value_dim=5, mask=mask)
    random = np.random.default_rng(5)
    shapes = {"Q": (1, 4, 7, 3), "K": (1, 2, 10, 3), "V": (1, 2, 10, 5), "dO": (1, 4, 7, 5)}
    inputs = {tensor: random.standard_normal(shape) for tensor, shape in shapes.items()}
    algorithm = ALGORITHMS[name]
    program = algorithm.program(problem.mask.kind, algorithm.resolve({"pass": "fwd+bwd"}))
    got = run(program, problem, TileShape(rows=3, cols=4), inputs)
    for tensor in ("Q", "K", "V"):
        direction = random.standard_normal(shapes[tensor])

        def loss(x, tensor=tensor):
            changed = inputs | {tensor: x}
            o = reference_attention(changed["Q"], changed["K"], changed["V"], mask=mask)
            return float((inputs["dO"] * o).sum())

        slope = differences(loss, inputs[tensor], direction)
        assert abs(float((got[f"d{tensor}"] * direction).sum()) - slope) < 1e-9


def test_the_reference_is_its_own_finite_difference_with_a_bias_and_a_scale():
    random = np.random.default_rng(6)
    q, k, v, do = (random.standard_normal((1, 2, 5, 3)) for _ in range(4))
    bias = random.standard_normal((1, 2, 5, 5))
    direction = random.standard_normal(q.shape)
    gradient = reference_gradients(q, k, v, do, scale=0.3, bias=bias).dq
    slope = differences(
        lambda x: float((do * reference_attention(x, k, v, scale=0.3, bias=bias)).sum()), q, direction
    )
    assert abs(float((gradient * direction).sum()) - slope) < 1e-9


SMALL = AttentionProblem.of(seq=8, head_dim=2)
TILES = TileShape(rows=4, cols=4)


def racing(p: Builder, *, initial: bool, shared: bool) -> None:
    """Two thread blocks that give to every row of dQ: with or without zeros first, by adding or by storing."""
    Q, dQ = p.tensors("Q dQ")
    if initial:
        for i in p.blocks(Q):
            tile = dQ.tile(i)
            p.store(tile, p.fill("zero", 0, tile.rows, tile.cols), initial=True)
    for _ in p.kernel("add"):
        for _ in p.heads():
            for _ in p.grid("j", 0, cdiv(p.Nk, p.Bc)):
                for i in p.loop("i", 0, cdiv(p.N, p.Br)):
                    q = p.load("Q_i", Q.tile(i))
                    if shared:
                        p.accumulate(dQ.tile(i), q)
                    else:
                        p.store(dQ.tile(i), q)


@pytest.mark.parametrize(
    ("initial", "shared", "complaint"),
    [
        (True, True, None),
        (False, True, "read before anything was stored"),
        (True, False, "stored twice"),
        (False, False, "stored twice"),
    ],
)
def test_only_a_declared_sum_may_be_shared_between_thread_blocks(initial, shared, complaint):
    program = build(lambda p: racing(p, initial=initial, shared=shared), "racing", "none", {})
    if complaint is None:
        verify(program, SMALL, TILES)
        return
    with pytest.raises(VerificationError, match=complaint):
        verify(program, SMALL, TILES)


def test_what_others_add_to_must_not_be_read_in_the_same_kernel():
    def reader(p: Builder) -> None:
        Q, dQ = p.tensors("Q dQ")
        for i in p.blocks(Q):
            p.store(dQ.tile(i), p.load("Q_i", Q.tile(i)))
        for _ in p.kernel("add"):
            for _ in p.heads():
                for _ in p.grid("j", 0, cdiv(p.Nk, p.Bc)):
                    q = p.load("dQ_0", dQ.part())
                    p.accumulate(dQ.part(), q)

    with pytest.raises(VerificationError, match="another thread block"):
        verify(build(reader, "reader", "none", {}), SMALL, TILES)


@pytest.mark.parametrize("mask", ["none", "causal", "window:100"])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_no_backward_is_below_a_valid_bound(mask, kv_heads):
    problem = AttentionProblem.of(heads=4, kv_heads=kv_heads, seq=512, head_dim=32, mask=mask)
    for rows in (16, 64, 256):
        for cols in (16, 64, 256):
            # the smallest M of the fused class that holds these tiles: Q, dO, dQ and K, V, dK, dV
            sram = 2 * 32 * (3 * rows + 4 * cols)
            limit = strongest(backward_bounds(problem, sram, spills_scores=False))
            form = closed_form("flash2", problem, TileShape(rows=rows, cols=cols), {"pass": "bwd"})
            assert form is not None
            assert form.total_bytes >= limit
    M = 4 * 32 * 32 * 2
    form = closed_form("standard", problem, None, {"pass": "bwd"})
    assert form is not None
    assert form.total_bytes >= strongest(backward_bounds(problem, M, spills_scores=True))


def test_the_fused_bound_is_four_n2d2_over_m():
    M = 1 << 16  # bytes: 32,768 elements
    bound = next(b for b in backward_bounds(ONE_HEAD, M, spills_scores=False) if b.name == "fused")
    assert bound.bytes == 2 * (4 * N * N * D * D // (M // 2)) - M


def test_papers_tiles_hold_the_gradients_too():
    record = analyze(ONE_HEAD, "flash1", tiles="paper", options={"pass": "bwd"}, sram_bytes=196608)
    assert record.tiles == TileShape(rows=D, cols=98304 // (8 * D))
    assert record.sram.fits


def test_options_of_the_forward_alone_are_refused():
    with pytest.raises(UsageError, match="gemm-tiles belongs to the forward pass alone"):
        moved(ONE_HEAD, "standard", pass_="bwd", **{"gemm-tiles": "64x64"})
