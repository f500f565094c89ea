"""Public bug reports on tools of this kind, each with the right answer. (Those on profiles: tests/hardware.)"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import iosim
from iosim.errors import ProblemError
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.numeric import run as run_numeric
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.reference import reference_attention


def record(algorithm="flash2", tiles="128x128", options=None, sram_bytes=None, **problem):
    asked = AttentionProblem.of(**problem)
    return iosim.analyze(asked, algorithm, tiles=tiles, options=options, sram_bytes=sram_bytes)


def moved(algorithm="flash2", tiles="128x128", **problem):
    return {t.tensor: t for t in record(algorithm, tiles, **problem).traffic_by_tensor}


LAYER = {"seq": 8192, "head_dim": 128, "heads": 32}


def test_b01_grouped_heads_cost_their_own_keys_only():
    # hahnyuan/LLM-Viewer#12: the flash decode path read KV for all query heads
    decode = {"seq_q": 1, "seq_k": 8192, "heads": 32, "head_dim": 128}
    gqa, mha = (AttentionProblem.of(kv_heads=k, **decode) for k in (8, 32))
    of_queries = 2 * 32 * 128 * 2
    assert record(kv_heads=8, **decode).theory.compulsory_bytes == 33_554_432 + of_queries
    assert record(kv_heads=32, **decode).theory.compulsory_bytes == 134_217_728 + of_queries
    assert gqa.useful_flops == mha.useful_flops == 134_217_728
    assert round(gqa.useful_flops / 33_554_432) == 4


def test_b02_output_is_n_by_d_and_bytes_fall_with_sram():
    # feifeibear/LLMRoofline#2, hahnyuan/LLM-Viewer: O sized N·N, M the whole chip's SRAM, block capped at d
    assert moved(**LAYER)["O"].write_bytes == 67_108_864
    assert record(**LAYER).theory.compulsory_bytes == 268_435_456
    assert record(**LAYER).traffic.total_bytes == 8_724_152_320
    by_sram = [
        record(tiles="best", sram_bytes=k * 1024, **LAYER).traffic.total_bytes
        for k in (32, 64, 128, 256, 512)
    ]
    assert all(more > less for more, less in pairwise(by_sram))


def test_b04_causal_flops_are_the_exact_pairs():
    # modular/modular#5557: throughput without halving for causal; the halving convention is 549,755,813,888
    work = record(mask="causal", **LAYER).work
    assert work.useful_flops == 549_822_922_752
    assert work.useful_flops - 549_755_813_888 == 2 * 8192 * 256 * 32 // 2  # the diagonal's other half


def test_b08_flops_follow_query_heads():
    # facebookresearch/xformers PR#1404: flops multiplied by KV heads, so GQA 8:2 was undercounted 4x
    gqa, mha = (record(seq=500, head_dim=64, heads=8, kv_heads=k).work for k in (2, 8))
    assert gqa == mha


def test_b10_grouped_heads_are_accepted_when_they_divide():
    # pytorch/pytorch PR#177169
    AttentionProblem.of(seq=64, head_dim=64, heads=32, kv_heads=8)
    with pytest.raises(ProblemError, match="must be a multiple of kv_heads, got heads=32 and kv_heads=5"):
        AttentionProblem.of(seq=64, head_dim=64, heads=32, kv_heads=5)


def test_b12_forward_flops_follow_the_formula():
    # Dao-AILab/flash-attention#741
    work = record(batch=64, seq=1024, heads=16, head_dim=64).work
    assert work.useful_flops == work.executed_flops == 274_877_906_944


def test_b14_skipped_tiles_are_not_loaded():
    # intel/sycl-tla PR#322: bandwidth not reduced with causal although skipped KV blocks are never loaded
    full, causal = (moved(mask=m, **LAYER) for m in ("none", "causal"))
    for tensor in "KV":
        assert causal[tensor].read_bytes * 4096 == full[tensor].read_bytes * 2080
    for tensor in "QO":
        assert causal[tensor] == full[tensor]
    assert record(mask="causal", **LAYER).theory.compulsory_bytes == record(**LAYER).theory.compulsory_bytes


@pytest.mark.parametrize(("length", "block", "tiles"), [(192, 128, 2), (4250, 64, 67), (1000, 128, 8)])
def test_b37_ragged_lengths_round_tiles_up_and_bytes_not(length, block, tiles):
    # jax-ml/jax#27224 and others: lengths that are no multiple of the block gave wrong output or a cut grid
    problem = AttentionProblem.of(seq=length, head_dim=32)
    shape = TileShape(rows=block, cols=block)
    algorithm = iosim.find_algorithm("flash2")
    program = algorithm.program("none", algorithm.resolve({}))
    tally = count(program, bind(problem, shape))
    matrix = length * 32 * 2
    assert tally.read_bytes == {"Q": matrix, "K": tiles * matrix, "V": tiles * matrix}
    assert tally.write_bytes == {"O": matrix}
    random = np.random.default_rng(length)
    inputs = {name: random.standard_normal((1, 1, length, 32)) for name in "QKV"}
    got = run_numeric(program, problem, shape, inputs)["O"]
    want = reference_attention(*inputs.values(), mask=problem.mask, scale=problem.softmax_scale)
    assert np.abs(got - want).max() < 1e-12


def test_b51_head_dim_is_given_and_dtypes_are_a_tensor_each():
    # LMCache/LMCache PR#694: head_dim derived as hidden/heads; a block's bytes taken as an element's
    qwen = {"seq": 1024, "heads": 32, "head_dim": 128}  # hidden size 2560: hidden/heads would be 80
    assert AttentionProblem.of(**qwen).head_dim == 128
    fp16, fp8 = (moved(dtype_q="fp16", dtype_k=t, dtype_v=t, **qwen) for t in ("fp16", "fp8"))
    for tensor in "QO":
        assert fp16[tensor] == fp8[tensor]
    for tensor in "KV":
        assert fp16[tensor].read_bytes == 2 * fp8[tensor].read_bytes


def test_b52_prefill_and_decode_differ():
    # datawhalechina/llm-algo-leetcode#83: the same intensity for 2048 queries and for one
    shape = {"seq_k": 2048, "head_dim": 128, "heads": 32}
    intensity = {
        queries: (r := record(seq_q=queries, **shape)).work.useful_flops / r.theory.compulsory_bytes
        for queries in (2048, 1)
    }
    assert intensity[2048] == 1024  # N / 2
    assert 0.99 < intensity[1] < 1


def test_b58_less_memory_never_costs_less_and_nothing_is_negative():
    # KULeuven-MICAS/zigzag#52, #125, #72
    for algorithm in ("flash1", "flash2"):
        by_sram = [
            record(algorithm, "best", sram_bytes=k * 1024, mask="causal", **LAYER).to_dict()
            for k in range(20, 230, 7)
        ]
        totals = [sum(r["traffic"].values()) for r in by_sram]
        assert totals == sorted(totals, reverse=True)
        assert min(totals) > 0
        assert by_sram[3] == record(algorithm, "best", sram_bytes=41 * 1024, mask="causal", **LAYER).to_dict()
