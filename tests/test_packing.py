"""A single query's heads share a tile; what must not be packed is left alone."""

from __future__ import annotations

from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem, Mask


def _decode(mask="causal", seq_q=1, kv_heads=8):
    return AttentionProblem.of(seq_q=seq_q, seq_k=64, heads=32, kv_heads=kv_heads, head_dim=64, mask=mask)


def test_a_single_query_packs_the_heads_of_its_group():
    packed = _decode().packed_heads()
    assert (packed.heads, packed.kv_heads, packed.seq_q) == (8, 8, 4)
    assert packed.mask == Mask()
    assert packed.useful_flops == _decode().useful_flops
    assert load_kernel("torch-flash2").packed(_decode()) == packed
    assert load_kernel("cudnn-sdpa").packed(_decode()) == _decode()


def test_windows_longer_queries_and_lone_heads_stay_as_they_are():
    for problem in (_decode("window:8"), _decode(seq_q=2), _decode(kv_heads=32)):
        assert problem.packed_heads() is problem
