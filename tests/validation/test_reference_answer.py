"""The answer that kernels are held against, itself held against the model's own reference in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from iosim.problem import AttentionProblem
from iosim_validation import reference

pytestmark = pytest.mark.usefixtures("numpy_for_cupy")

SHAPES: tuple[Mapping[str, Any], ...] = (
    {"seq_q": 5, "seq_k": 9, "mask": "causal"},
    {"seq_q": 9, "seq_k": 5, "mask": "causal"},
    {"seq_q": 7, "seq_k": 7, "mask": "none", "dtype": "bf16"},
    {"seq_q": 1, "seq_k": 33, "mask": "none"},
)


def problem(shape: Mapping[str, Any]) -> AttentionProblem:
    return AttentionProblem.of(batch=2, heads=4, kv_heads=2, head_dim=16, **shape)


def by_hand(p: AttentionProblem, arrays: Mapping[str, Any], b: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """One head, row by row, in float64."""
    q, k, v = (reference.to_float(arrays[n]).astype(np.float64) for n in "qkv")
    kv = h // (p.heads // p.kv_heads)
    o, lse = np.zeros((p.seq_q, p.value_dim)), np.full(p.seq_q, -np.inf)
    for r in range(p.seq_q):
        last = r + p.seq_k - p.seq_q if p.mask.kind == "causal" else p.seq_k - 1
        if last < 0:
            continue
        s = k[b, kv, : last + 1] @ q[b, h, r] / np.sqrt(p.head_dim)
        e = np.exp(s - s.max())
        o[r], lse[r] = e @ v[b, kv, : last + 1] / e.sum(), s.max() + np.log(e.sum())
    return o, lse


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("chunk", [1 << 28, 4 * 33, 1])
def test_every_head_and_row(shape: Mapping[str, Any], chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "CHUNK_BYTES", chunk)
    p = problem(shape)
    arrays = reference.fresh_arrays(p, 1)
    found = reference.answer(p, arrays)
    for b in range(p.batch):
        for h in range(p.heads):
            o, lse = by_hand(p, arrays, b, h)
            np.testing.assert_allclose(found.o[b, h], o, atol=2e-6)
            np.testing.assert_allclose(found.lse[b, h], lse, atol=2e-6)
    assert found.largest == pytest.approx(np.abs(found.o).max())


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_plain_arithmetic_errs_by_about_its_rounding(dtype: str) -> None:
    p = AttentionProblem.of(batch=1, heads=2, seq=128, head_dim=64, dtype=dtype)
    plain = reference.answer(p, reference.fresh_arrays(p, 2)).plain
    step = {"fp16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    assert step / 4 < plain.output < 4 * step
    assert plain.lse is not None
    assert 0 < plain.lse < 8 * step


def test_poison_shows_as_an_infinite_error() -> None:
    for shape in SHAPES[:3:2]:
        p = problem(shape)
        arrays = reference.fresh_arrays(p, 3)
        found = reference.answer(p, arrays)
        errors = reference.errors_of(found, arrays)
        assert errors.output == errors.worst == errors.lse == np.inf


def test_one_wrong_element_shows_as_the_worst() -> None:
    p = problem(SHAPES[3])
    arrays = reference.fresh_arrays(p, 4)
    found = reference.answer(p, arrays)
    arrays["o"][...] = found.o.astype(np.float16)
    arrays["lse"][...] = found.lse
    good = reference.errors_of(found, arrays)
    arrays["o"][1, 3, 0, 7] += np.float16(0.5)
    bad = reference.errors_of(found, arrays)
    assert good.worst < 1e-3
    assert bad.worst == pytest.approx(0.5, abs=2e-3)
    assert good.lse == 0


def test_a_mask_written_out_takes_the_place_of_the_problems() -> None:
    p = problem({"seq": 6, "mask": "none"})
    arrays = reference.fresh_arrays(p, 5)
    causal = np.tril(np.ones((6, 6), bool))
    masked = reference.answer(p, arrays, causal)
    same = reference.answer(problem({"seq": 6, "mask": "causal"}), arrays)
    np.testing.assert_array_equal(masked.o, same.o)


def test_strides_do_not_matter() -> None:
    p = problem({"seq": 6, "mask": "none"})
    arrays = reference.fresh_arrays(p, 6, "bnhd")
    assert not arrays["q"].flags.c_contiguous
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    np.testing.assert_array_equal(reference.answer(p, arrays).o, reference.answer(p, plain).o)
