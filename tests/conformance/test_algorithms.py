"""What every shipped algorithm must pass, on random ragged problems, without any test code of its own.

A new entry in the registry is picked up here with all its options.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim import block_mask
from iosim.algorithms.extras import DROPOUT_RATE
from iosim.algorithms.registry import ALGORITHMS, Algorithm
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.footprint import MODELS, footprint
from iosim.interpret.numeric import run
from iosim.interpret.trace import blocks, trace
from iosim.interpret.verify import verify
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.evaluate import evaluate
from iosim.program.ir import Program
from iosim.theory.closed_forms import closed_form
from iosim.theory.reference import reference_attention
from iosim.theory.reference_backward import reference_gradients
from iosim.theory.reference_linear import reference_linear
from iosim.work import useful_flops

SIZES = st.integers(1, 19)
DTYPES = st.sampled_from(["fp8", "fp16", "fp32", "fp64"])
MASKS = st.one_of(
    st.just("none"),
    st.just("causal"),
    st.tuples(st.sampled_from(["window", "prefix"]), st.integers(1, 22)).map(lambda m: f"{m[0]}:{m[1]}"),
)
TILES = st.builds(lambda rows, cols: TileShape(rows=rows, cols=cols), st.integers(1, 8), st.integers(1, 8))


EXAMPLES = {"": (), "RxC": ("3x5",), "PATTERN": ("local:1+global:1", "random:0.4:3"), "COUNT": ("2", "5")}
ONE_POINT = {"best"}  # values that stand for another one, chosen for one problem
"""What is tried for an option that takes more than its listed values."""


def _variants(algorithm: Algorithm) -> list[dict[str, str]]:
    """Sets of options in which every two values of two options meet; a tile-valued one also with a ragged tile.

    All combinations would grow with every option; a mistake needs two that meet, seldom three.
    """
    listed = [tuple(v for v in o.values if v not in ONE_POINT) for o in algorithm.options.values()]
    values = [v + EXAMPLES[o.takes] for v, o in zip(listed, algorithm.options.values(), strict=True)]
    allowed = [chosen for chosen in itertools.product(*values) if _allowed(algorithm, chosen)]
    unmet = {pair for chosen in allowed for pair in _pairs(chosen)}
    picked = []
    while unmet:
        best = max(allowed, key=lambda chosen: len(unmet & _pairs(chosen)))
        unmet -= _pairs(best)
        picked.append(dict(zip(algorithm.options, best, strict=True)))
    return picked or [{}]


def _allowed(algorithm: Algorithm, chosen: tuple[str, ...]) -> bool:
    return algorithm.conflict(dict(zip(algorithm.options, chosen, strict=True))) is None


def _pairs(chosen: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
    """Every two of the choices; the choice itself where there is only one option."""
    return set(itertools.combinations(enumerate(chosen), min(2, len(chosen))))


CASES = [
    pytest.param(algorithm, options, id="-".join([algorithm.name, *options.values()]))
    for algorithm in ALGORITHMS.values()
    for options in _variants(algorithm)
]
every_variant = pytest.mark.parametrize(("algorithm", "options"), CASES)


@st.composite
def problems(draw: st.DrawFn) -> AttentionProblem:
    kv_heads = draw(st.integers(1, 2))
    return AttentionProblem.of(
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * draw(st.integers(1, 2)),
        kv_heads=kv_heads,
        seq_q=draw(SIZES),
        seq_k=draw(SIZES),
        head_dim=draw(st.integers(1, 5)),
        value_dim=draw(st.integers(1, 5)),
        mask=draw(MASKS),
        dtype_q=draw(DTYPES),
        dtype_k=draw(DTYPES),
        dtype_v=draw(DTYPES),
        dtype_o=draw(DTYPES),
    )


def _within(algorithm: Algorithm, problem: AttentionProblem) -> AttentionProblem:
    """The problem, without its mask where the algorithm has no such mask, with one kv-head where it needs that."""
    if algorithm.latent:
        dv = min(problem.value_dim, problem.head_dim)
        problem = replace(problem, kv_heads=1, value_dim=dv, dtype_v=problem.dtype_k)
    return problem if problem.mask.kind in algorithm.masks else replace(problem, mask=Mask())


def _program(algorithm: Algorithm, options: dict[str, str], problem: AttentionProblem) -> Program:
    assert problem.mask.kind in algorithm.masks
    return algorithm.program(problem.mask.kind, algorithm.resolve(options))


def _bound_tiles(algorithm: Algorithm, options: dict[str, str], tiles: TileShape) -> TileShape:
    gemm = options.get("gemm-tiles", "off")
    return tiles if gemm == "off" else TileShape.parse(gemm)


def _shown_tiles(algorithm: Algorithm, options: dict[str, str], tiles: TileShape) -> TileShape | None:
    return tiles if algorithm.tiled else None


@every_variant
@settings(max_examples=12)
@given(problem=problems(), tiles=TILES, seed=st.integers(0, 2**32 - 1))
def test_the_program_computes_what_the_reference_computes(algorithm, options, problem, tiles, seed):
    problem = _within(algorithm, problem)
    random = np.random.default_rng(seed)
    tiles = _bound_tiles(algorithm, options, tiles)
    shape_q = (problem.batch, problem.heads, problem.seq_q, problem.head_dim)
    inputs = {
        "Q": random.standard_normal(shape_q),
        "K": random.standard_normal((problem.batch, problem.kv_heads, problem.seq_k, problem.head_dim)),
        "V": random.standard_normal((problem.batch, problem.kv_heads, problem.seq_k, problem.value_dim)),
        "MASK": random.standard_normal((*shape_q[:3], problem.seq_k)),
        "BIAS": random.standard_normal((*shape_q[:3], problem.seq_k)),
        "dO": random.standard_normal((*shape_q[:3], problem.value_dim)),
    }
    keep = random.random((*shape_q[:3], problem.seq_k)) >= DROPOUT_RATE
    if algorithm.latent:
        inputs["V"] = inputs["K"][..., : problem.value_dim]
    if (page := options.get("page", "off")) != "off":
        inputs["PAGES"] = _shuffled_pages(random, problem, int(page))
    bias = _bias(options, problem, tiles, inputs)
    scale = problem.softmax_scale if algorithm.scaled else 1.0
    saved = reference_gradients(
        *(inputs[name] for name in ("Q", "K", "V", "dO")), mask=problem.mask, scale=scale, bias=bias
    )
    inputs |= {"O": saved.o, "P": saved.p}
    inputs |= {"M": saved.m[..., None], "L": saved.l[..., None], "LSE": saved.lse[..., None]}
    got = run(_program(algorithm, options, problem), problem, tiles, inputs, keep=keep)
    if algorithm.computes == "scores":
        K = np.repeat(inputs["K"], problem.group_size, axis=1)
        assert np.abs(got["S"] - inputs["Q"] @ K.swapaxes(-1, -2)).max() < 1e-12
        return
    if algorithm.computes == "linear attention":
        assert np.abs(got["O"] - reference_linear(*(inputs[name] for name in "QKV"))).max() < 1e-12
        return
    if "dQ" in got:
        for name, gradient in (("dQ", saved.dq), ("dK", saved.dk), ("dV", saved.dv)):
            assert np.abs(got[name] - gradient).max() < 1e-11
    if "O" not in got:
        return
    want, lse = reference_attention(
        inputs["Q"],
        inputs["K"],
        inputs["V"],
        mask=problem.mask,
        scale=scale,
        bias=bias,
        keep=keep / (1 - DROPOUT_RATE) if options.get("dropout") == "on" else None,
        return_lse=True,
    )
    assert np.abs(got["O"] - want).max() < 1e-12
    stored = got["LSE"] if "LSE" in got else got["M"] + _log(got["L"]) if "M" in got else None
    if stored is not None:
        assert np.array_equal(np.isneginf(stored[..., 0]), np.isneginf(lse))
        seen = np.isfinite(lse)
        assert np.allclose(stored[..., 0][seen], lse[seen], rtol=0, atol=1e-12)


def _shuffled_pages(random, problem, page):
    """A page table that scatters the pages of all sequences over a pool with gaps."""
    pages = -(-problem.seq_k // page)
    places = random.permutation(2 * problem.batch * pages)[: problem.batch * pages]
    return places.reshape(problem.batch, 1, pages, 1)


def _bias(options, problem, tiles, inputs):
    """All that is added to the scores: a mask tensor, a bias, −∞ outside the blocks."""
    blocks = _block_bias(options, problem, tiles)
    bias = np.zeros_like(inputs["MASK"]) if blocks is None else blocks
    if options.get("additive-mask") == "on":
        bias = bias + inputs["MASK"]
    if options.get("bias") == "matrix":
        bias = bias + inputs["BIAS"]
    if options.get("bias") == "alibi":
        slopes = 2.0 ** (-8 * np.arange(1, problem.heads + 1) / problem.heads)
        distance = np.subtract.outer(np.arange(problem.seq_q) + problem.key_offset, np.arange(problem.seq_k))
        bias = bias - slopes[:, None, None] * np.abs(distance)
    return bias


def _block_bias(options, problem, tiles):
    """−∞ for every pair in a block that the mask leaves out."""
    if (text := options.get("block-mask", "off")) == "off":
        return None
    blocks = block_mask.pattern(text, *block_mask.grid(problem, tiles))
    row_block, col_block = np.arange(problem.seq_q) // tiles.rows, np.arange(problem.seq_k) // tiles.cols
    return np.where(blocks[row_block][:, col_block], 0.0, -np.inf)


def _log(l):
    with np.errstate(divide="ignore"):
        return np.log(l)


@every_variant
@settings(max_examples=12)
@given(problem=problems(), tiles=TILES)
def test_count_is_the_trace_summed_and_the_closed_form(algorithm, options, problem, tiles):
    problem = _within(algorithm, problem)
    tiles = _bound_tiles(algorithm, options, tiles)
    program = _program(algorithm, options, problem)
    tally = count(program, bind(problem, tiles))
    reads, writes = _traced(program, problem, tiles)
    assert {t: b for t, b in tally.read_bytes.items() if b} == reads
    assert {t: b for t, b in tally.write_bytes.items() if b} == writes
    formula = closed_form(algorithm.name, problem, _shown_tiles(algorithm, options, tiles), options)
    assert formula is not None
    assert formula.read_bytes == reads
    assert formula.write_bytes == writes


def _traced(program: Program, problem: AttentionProblem, tiles: TileShape):
    """Bytes by tensor, added up access by access over every thread block."""
    binding = bind(problem, tiles)
    names = list(program.tensors)
    itemsize = np.array([evaluate(t.itemsize, binding) for t in program.tensors.values()])
    reads, writes = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for kernel in program.kernels:
        for block in blocks(kernel, binding):
            for piece in trace(program, kernel, block, binding):
                rows = piece["row_stop"] - piece["row_start"]
                size = rows * (piece["col_stop"] - piece["col_start"]) * itemsize[piece["tensor"]]
                for tensor, name in enumerate(names):
                    mine = piece["tensor"] == tensor
                    reads[name] += int(size[mine & ~piece["store"]].sum())
                    writes[name] += int(size[mine & piece["store"]].sum())
    return {t: b for t, b in reads.items() if b}, {t: b for t, b in writes.items() if b}


@every_variant
@settings(max_examples=6)
@given(problem=problems(), tiles=TILES)
def test_slow_memory_is_left_as_it_should_be(algorithm, options, problem, tiles):
    problem = _within(algorithm, problem)
    verify(_program(algorithm, options, problem), problem, _bound_tiles(algorithm, options, tiles))


@every_variant
@settings(max_examples=6)
@given(problems=st.lists(problems(), min_size=1, max_size=6), tiles=TILES)
def test_columns_of_points_give_what_single_points_give(algorithm, options, problems, tiles):
    problems = [_within(algorithm, p) for p in problems]
    mask = problems[0].mask
    same = [p for p in problems if p.mask.kind == mask.kind]
    program = _program(algorithm, options, problems[0])
    single = [count(program, bind(p, tiles)) for p in same]
    columns = {letter: np.array([bind(p, tiles)[letter] for p in same]) for letter in bind(same[0], tiles)}
    together = count(program, columns)
    for name, values in together.read_bytes.items():
        assert np.broadcast_to(values, len(same)).tolist() == [t.read_bytes[name] for t in single]
    for unit in ("tensor_flops", "vector_flops", "special_ops"):
        assert np.broadcast_to(getattr(together, unit), len(same)).tolist() == [
            getattr(t, unit) for t in single
        ]


@every_variant
@settings(max_examples=6)
@given(problem=problems(), tiles=TILES)
def test_a_larger_tile_never_needs_less_room(algorithm, options, problem, tiles):
    problem = _within(algorithm, problem)
    program = _program(algorithm, options, problem)
    larger = TileShape(rows=tiles.rows + 1, cols=tiles.cols + 1)
    for model in MODELS:
        small, large = (footprint(program, model, bind(problem, t)) for t in (tiles, larger))
        assert 0 < small.sram_bytes <= large.sram_bytes
        assert small.register_bytes <= large.register_bytes


@every_variant
@settings(max_examples=6)
@given(problem=problems(), tiles=TILES)
def test_executed_flops_cover_the_useful_ones(algorithm, options, problem, tiles):
    problem = _within(algorithm, problem)
    tally = count(
        _program(algorithm, options, problem), bind(problem, _bound_tiles(algorithm, options, tiles))
    )
    useful = useful_flops(problem, algorithm, options, _shown_tiles(algorithm, options, tiles))
    assert tally.tensor_flops >= useful
    if problem.mask.kind == "none":
        again = options.get("pass", "fwd") != "fwd" and algorithm.name != "standard"  # S, once more
        pattern = options.get("block-mask", "off")
        pairs = problem.pairs if pattern == "off" else block_mask.pairs(problem, tiles, pattern)
        pairs *= problem.heads * problem.batch
        assert tally.tensor_flops == useful + again * 2 * problem.head_dim * pairs
