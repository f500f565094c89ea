"""Closed forms against loops over the mask itself, and against numbers worked by hand."""

from __future__ import annotations

from time import perf_counter

import pytest
import theory_loops as loops
from hypothesis import given, settings
from hypothesis import strategies as st
from theory_problems import problems, tile_shapes

from iosim.errors import IosimError, ProblemError, UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.closed_forms import OPTIONS, ClosedForm, closed_form
from iosim.theory.peak_memory import peak_memory_bytes
from iosim.theory.tile_sums import floor_sum, tile_sums

LARGE = AttentionProblem.of(seq=8192, head_dim=128, heads=32)
switch = st.sampled_from(["off", "on"])


def form(algorithm: str, p: AttentionProblem, tiles: TileShape | None = None, **options: str) -> ClosedForm:
    result = closed_form(algorithm, p, tiles, {k.replace("_", "-"): v for k, v in options.items()})
    assert result is not None
    return result


def agrees(result: ClosedForm, tally: loops.Tally) -> bool:
    return (result.read_bytes, result.write_bytes) == tally.result()


@given(problems(), tile_shapes, switch)
def test_flash2_equals_the_loops(p: AttentionProblem, tiles: TileShape, lse: str) -> None:
    saved = ("LSE",) if lse == "on" else ()
    assert agrees(form("flash2", p, tiles, lse=lse), loops.outer_q(p, tiles, saved))


@given(problems(), tile_shapes, st.sampled_from([("none", ()), ("lse", ("LSE",)), ("m+l", ("M", "L"))]))
def test_seed_flash_equals_the_loops(
    p: AttentionProblem, tiles: TileShape, stats: tuple[str, tuple[str, ...]]
) -> None:
    assert agrees(form("seed_flash", p, tiles, save_stats=stats[0]), loops.outer_q(p, tiles, stats[1]))


@given(problems())
def test_online_attention_equals_the_loops(p: AttentionProblem) -> None:
    one = TileShape(rows=1, cols=1)
    expected = loops.outer_q(p, one, ())
    assert agrees(form("online_attention", p), expected)
    assert agrees(form("online_attention", p, one), expected)


@given(problems(), tile_shapes, st.booleans())
def test_flash1_equals_the_loops(p: AttentionProblem, tiles: TileShape, literal: bool) -> None:
    variant = "literal" if literal else "skip-first-read"
    assert agrees(form("flash1", p, tiles, variant=variant), loops.flash1(p, tiles, literal=literal))


@given(
    problems(),
    st.fixed_dictionaries(
        {},
        optional={
            "softmax": st.sampled_from(["fused", "naive", "safe", "online"]),
            "gemm-tiles": st.sampled_from(["off", "4x3", "128x128", "1x7"]),
            "scale-pass": switch,
            "additive-mask": switch,
            "dropout": switch,
        },
    ),
)
def test_standard_equals_the_loops(p: AttentionProblem, options: dict[str, str]) -> None:
    result = closed_form("standard", p, None, options)
    assert result is not None
    assert agrees(result, loops.standard(p, options))


@settings(max_examples=60)
@given(problems(), tile_shapes)
def test_small_cache_equals_the_loops(p: AttentionProblem, tiles: TileShape) -> None:
    assert agrees(form("small_cache", p, tiles), loops.small_cache(p, tiles))


@given(problems(), tile_shapes)
def test_gemm_equals_the_loops(p: AttentionProblem, tiles: TileShape) -> None:
    assert agrees(form("gemm", p, tiles), loops.gemm(p, tiles))


@given(st.integers(0, 60), st.integers(-90, 90), st.integers(-900, 900), st.integers(1, 40))
def test_floor_sum_equals_its_terms(count: int, step: int, start: int, divisor: int) -> None:
    expected = sum((step * t + start) // divisor for t in range(count))
    assert floor_sum(count, step, start, divisor) == expected


def test_traffic_of_the_worked_example() -> None:
    assert form("standard", LARGE).total_bytes == 17_448_304_640
    assert form("flash2", LARGE, TileShape(rows=128, cols=64)).total_bytes == 8_724_152_320
    assert form("flash2", LARGE, TileShape(rows=64, cols=128)).total_bytes == 17_314_086_912


def test_decode_reads_keys_once_a_query_head() -> None:
    p = AttentionProblem.of(seq_q=1, seq_k=8192, head_dim=128, heads=32, kv_heads=8, mask="causal")
    read = form("flash2", p, TileShape(rows=16, cols=64)).read_bytes
    assert read["K"] + read["V"] == 134_217_728


def test_softmax_choice_gives_4_5_6_5_passes() -> None:
    p = AttentionProblem.of(seq=64, head_dim=8)
    passes = {}
    for name in ("fused", "naive", "safe", "online"):
        f = form("standard", p, softmax=name)
        elements = sum(side.get(t, 0) for side in (f.read_bytes, f.write_bytes) for t in "SP") // 2
        passes[name], rest = divmod(elements, 64 * 64)
        assert rest == 0
    assert passes == {"fused": 4, "naive": 5, "safe": 6, "online": 5}


def test_causal_tiles_of_the_worked_example() -> None:
    p = AttentionProblem.of(seq=8192, head_dim=128, mask="causal")
    sums = tile_sums(p, TileShape(rows=128, cols=128))
    assert sums.pairs_of_tiles == 64 * 65 // 2 == 2080
    assert 4 * sums.scores * 128 * 32 == 558_345_748_480


@pytest.mark.parametrize("m", range(8))
def test_square_window_tiles(m: int) -> None:
    b, T = 16, 8  # window of m whole tiles back, the query itself counted: w = m·b + 1
    p = AttentionProblem.of(seq=b * T, head_dim=4, mask=f"window:{m * b + 1}")
    sums = tile_sums(p, TileShape(rows=b, cols=b))
    assert sums.pairs_of_tiles == sum(min(i, m) + 1 for i in range(T))


def test_rows_that_see_nothing_still_move_their_query_and_output() -> None:
    p = AttentionProblem.of(seq_q=10, seq_k=2, head_dim=4, mask="causal")
    f = form("flash2", p, TileShape(rows=4, cols=2))  # only the last row tile, rows 8 and 9, sees keys
    assert f.read_bytes == {"Q": 80, "K": 16, "V": 16}
    assert f.write_bytes == {"O": 80}


def test_flash_crosses_standard_at_3d2_and_2d2() -> None:
    d, N = 64, 64 * 48
    p = AttentionProblem.of(seq=N, head_dim=d)
    standard_scores = 4 * N * N * 2

    def matrices(algorithm: str, tiles: TileShape) -> int:
        f = form(algorithm, p, tiles)
        return sum(side.get(t, 0) for side in (f.read_bytes, f.write_bytes) for t in "QKVO")

    # the paper's tile is M/(4d) long: 3d/4 at M = 3d², d/2 at M = 2d²; what remains is the linear term
    edge = N * d * 2
    assert matrices("flash1", TileShape(rows=d, cols=3 * d // 4)) == standard_scores + 3 * edge
    assert matrices("flash2", TileShape(rows=d // 2, cols=d)) == standard_scores + 2 * edge


def test_head_dim_256_loses_to_standard_at_192_kib() -> None:
    d, M = 256, 192 * 1024 // 2
    N = M // (4 * d) * 64
    p = AttentionProblem.of(seq=N, head_dim=d)
    f = form("flash1", p, TileShape(rows=M // (4 * d), cols=M // (4 * d)))
    standard = form("standard", p)
    assert f.read_bytes["Q"] + f.read_bytes["O"] + f.write_bytes["O"] == (8 * N * N + N * d) * 2
    assert f.total_bytes > 1.9 * standard.total_bytes


def test_long_sequences_take_no_loop_over_tiles() -> None:
    p = AttentionProblem.of(seq=2**40, head_dim=128, mask=f"window:{2**30 + 1}")
    start = perf_counter()
    sums = tile_sums(p, TileShape(rows=3, cols=5))
    assert perf_counter() - start < 0.5
    assert sums.exact_scores >= p.pairs > 0


def test_unknown_algorithms_have_no_closed_form() -> None:
    assert closed_form("mine", LARGE, None) is None


@pytest.mark.parametrize(
    ("algorithm", "tiles", "options"),
    [
        ("flash2", None, {}),
        ("flash1", None, {}),
        ("gemm", None, {}),
        ("online_attention", TileShape(rows=2, cols=1), {}),
        ("flash2", TileShape(rows=2, cols=2), {"lse": "maybe"}),
        ("flash2", TileShape(rows=2, cols=2), {"variant": "literal"}),
        ("standard", None, {"gemm-tiles": "128"}),
    ],
)
def test_impossible_requests_name_what_is_wrong(
    algorithm: str, tiles: TileShape | None, options: dict[str, str]
) -> None:
    with pytest.raises(IosimError, match=r".+") as caught:
        closed_form(algorithm, LARGE, tiles, options)
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("algorithm", OPTIONS)
def test_first_value_of_every_option_is_the_default(algorithm: str) -> None:
    p = AttentionProblem.of(seq_q=13, seq_k=17, head_dim=4, mask="causal")
    tiles = None if algorithm in ("standard", "online_attention") else TileShape(rows=4, cols=3)
    defaults = {name: values[0] for name, values in OPTIONS[algorithm].items()}
    assert closed_form(algorithm, p, tiles, defaults) == closed_form(algorithm, p, tiles)


# FlashAttention (arXiv:2205.14135v2), Table 21: MiB of forward and backward, fp16, B = 16, H = 8, d = 64
TABLE_21 = {
    "standard": {128: 36, 256: 104, 512: 336, 1024: 1184, 2048: 4416, 4096: 17024},
    "flash1": {
        128: 22,
        256: 44,
        512: 104,
        1024: 209,
        2048: 418,
        4096: 836,
        8192: 1672,
        16384: 3344,
        32768: 6688,
        65536: 13376,
    },
}


@pytest.mark.parametrize(
    ("algorithm", "seq", "mib"), [(a, n, v) for a, row in TABLE_21.items() for n, v in row.items()]
)
def test_table_21(algorithm: str, seq: int, mib: int) -> None:
    p = AttentionProblem.of(seq=seq, head_dim=64, batch=16, heads=8)
    assert abs(peak_memory_bytes(p, algorithm) / 2**20 - mib) <= 0.6


def test_peak_memory_refuses_what_table_21_does_not_cover() -> None:
    with pytest.raises(ProblemError, match="seq_q = seq_k"):
        peak_memory_bytes(AttentionProblem.of(seq_q=4, seq_k=8, head_dim=8), "standard")
    with pytest.raises(ProblemError, match="known: standard, flash1"):
        peak_memory_bytes(AttentionProblem.of(seq=8, head_dim=8), "gemm")
