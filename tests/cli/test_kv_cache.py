"""Bytes of a cached token by kind of attention, what a decode step reads, and the command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import UsageError
from iosim.kv_cache import CacheKind, CacheShape, cache_kinds, grouped_heads
from iosim.problem import DTYPES, AttentionProblem

Run = Callable[..., Any]


def shape(**more: Any) -> CacheShape:
    dtypes = {f"dtype_{t}": DTYPES["fp16"] for t in "qkvo"}
    return CacheShape(**{"heads": 128, "kv_heads": 8, "head_dim": 128, "value_dim": 128} | dtypes | more)


def by_kind(shape: CacheShape, free_bytes: int | None = None) -> dict[str, CacheKind]:
    return {k.kind: k for k in cache_kinds(shape, free_bytes)}


def test_deepseek_v3_caches_1152_bytes_against_65536() -> None:
    kinds = by_kind(shape())
    assert kinds["MLA"].token_layer_bytes == (512 + 64) * 2 == 1152
    assert kinds["MHA"].token_layer_bytes == 2 * 128 * 128 * 2 == 65536


def test_intensity_of_a_decode_step() -> None:
    kinds = by_kind(shape())
    assert kinds["MHA"].flops_per_cache_byte == 1  # 2 flops for each fp16 element read
    assert kinds["GQA"].flops_per_cache_byte == 128 / 8
    assert kinds["MQA"].flops_per_cache_byte == 128
    assert kinds["MLA"].flops_per_cache_byte == pytest.approx(2 * 128 * (2 * 512 + 64) / ((512 + 64) * 2))


@given(
    heads=st.sampled_from([8, 32, 128]),
    groups=st.sampled_from([1, 2, 4]),
    d=st.integers(1, 256),
    dv=st.integers(1, 256),
    seq=st.integers(1, 10**6),
    batch=st.integers(1, 64),
    dtype=st.sampled_from(["fp16", "fp8", "fp32"]),
)
def test_a_step_reads_the_compulsory_keys_and_values(
    heads: int, groups: int, d: int, dv: int, seq: int, batch: int, dtype: str
) -> None:
    """The cache of MHA, GQA and MQA is K and V of a problem with so many kv-heads."""
    kinds = by_kind(
        shape(
            heads=heads,
            kv_heads=heads // groups,
            head_dim=d,
            value_dim=dv,
            seq=seq,
            batch=batch,
            dtype_k=DTYPES[dtype],
        )
    )
    for kind in ("MHA", "GQA", "MQA"):
        if kind not in kinds:
            assert groups == 1
            continue
        p = AttentionProblem.of(
            seq_q=1,
            seq_k=seq,
            head_dim=d,
            value_dim=dv,
            batch=batch,
            heads=heads,
            kv_heads=kinds[kind].kv_heads,
            dtype_k=dtype,
        )
        keys = p.batch * p.kv_heads * p.seq_k * p.head_dim * p.dtype_k.itemsize
        values = p.batch * p.kv_heads * p.seq_k * p.value_dim * p.dtype_v.itemsize
        assert kinds[kind].step_cache_bytes == keys + values
        assert kinds[kind].step_flops == p.useful_flops


def test_fp8_halves_the_cache_and_nothing_else() -> None:
    full = by_kind(shape())
    half = by_kind(shape(dtype_k=DTYPES["fp8"], dtype_v=DTYPES["fp8"]))
    for kind in full:
        assert 2 * half[kind].token_layer_bytes == full[kind].token_layer_bytes
        assert half[kind].step_query_bytes == full[kind].step_query_bytes


def test_tokens_that_fit_fill_the_memory_and_no_more() -> None:
    for kind in cache_kinds(shape(layers=61), 80 * 10**9):
        assert kind.tokens_that_fit is not None
        assert kind.tokens_that_fit * kind.token_bytes <= 80 * 10**9
        assert (kind.tokens_that_fit + 1) * kind.token_bytes > 80 * 10**9


def test_a_window_bounds_what_a_sequence_keeps() -> None:
    assert shape(seq=32768, window=4096).cached_tokens == 4096
    assert (
        shape(seq=32768, window=4096, queries=4).cached_tokens == 4099
    )  # the first of four sees 3 keys further back
    assert shape(seq=100, window=4096).cached_tokens == 100


def test_the_grouped_row_is_what_was_asked_for_or_eight() -> None:
    assert grouped_heads(128, None) == 8
    assert grouped_heads(128, 4) == 4
    assert grouped_heads(12, None) == 12


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"heads": 0}, "heads: must be 1 or more"),
        ({"kv_heads": 3}, "heads must be a multiple"),
        ({"rope_dim": -1}, "rope-dim: must be 0 or more"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(more: dict[str, int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        shape(**more)


# the command ------------------------------------------------------------------------------------------------------


def kinds_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {k["kind"]: k for k in document["kinds"]}


@pytest.mark.parametrize("words", ["", "--model deepseek-v3"])
def test_the_command_prints_deepseek_v3(iosim: Run, words: str) -> None:
    document = iosim(f"kv-cache --json {words}").json
    kinds = kinds_of(document)
    assert kinds["MLA"]["token_layer_bytes"] == 1152
    assert kinds["MHA"]["token_layer_bytes"] == 65536
    assert document["heads"] == 128
    assert "1,152" in iosim(f"kv-cache {words}").out


def test_the_command_marks_what_the_model_uses(iosim: Run) -> None:
    document = iosim("kv-cache --json --model llama-3-70b --seq 8K --batch 2").json
    assert document["model_kind"] == "GQA"
    group = kinds_of(document)["GQA"]
    assert group["token_bytes"] == 80 * 8 * 2 * 128 * 2
    assert group["step_cache_bytes"] == 2 * 8192 * 8 * 2 * 128 * 2
    assert "GQA (the model's)" in iosim("kv-cache --model llama-3-70b").out


def test_reserved_memory_holds_no_tokens(iosim: Run) -> None:
    words = "kv-cache --json --model llama-3-8b --hw h100-sxm"
    less, all_of_it = iosim(f"{words} --reserve 16GB").json, iosim(words).json
    for kind, found in kinds_of(less).items():
        assert found["tokens_that_fit"] == 64 * 10**9 // found["token_bytes"]
        assert found["tokens_that_fit"] < kinds_of(all_of_it)[kind]["tokens_that_fit"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--heads 12 --kv-heads 8", "multiple"),
        ("--latent 0", "--latent"),
        ("--rope-dim x", "--rope-dim"),
        ("--layers -1", "--layers"),
        ("--seq 8K --seq-k 4K", "either --seq or --seq-k"),
        ("--model nope", "unknown model"),
    ],
)
def test_bad_input_is_one_line(iosim: Run, words: str, says: str) -> None:
    outcome = iosim(f"kv-cache {words}")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert says in line
