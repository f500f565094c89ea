"""--case: what an export cannot say, as text that anyone may have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError, UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.profiler import parse_case


@pytest.mark.parametrize(
    "text",
    [
        "batch=2,heads=16,N=4096,d=128,causal,tiles=128x64",
        "B=2 H=16 N=4K d=128 causal=1 tiles=128x64",
        " batch=2; heads=16; seq_q=4096, seq_k=4096; head_dim=128, mask=causal tiles=128x64,",
    ],
)
def test_ways_to_write_one_case(text: str) -> None:
    case = parse_case(text)
    assert case.problem == AttentionProblem.of(batch=2, heads=16, seq=4096, head_dim=128, mask="causal")
    assert case.tile == TileShape(rows=128, cols=64)


def test_the_rest_of_a_case() -> None:
    case = parse_case(
        "H=8,kv_heads=2,seq_q=1,seq_k=8K,d=64,dv=128,mask=window:512,dtype=bf16,class=wgmma,walk=backward,lse=on,cache=none"
    )
    p = case.problem
    assert (p.heads, p.kv_heads, p.seq_q, p.seq_k, p.head_dim, p.value_dim) == (8, 2, 1, 8192, 64, 128)
    assert (str(p.mask), str(p.dtype_k)) == ("window:512", "bf16")
    assert (case.kernel_class, case.kv_walk, case.lse, case.cold, case.tile) == (
        "wgmma",
        "backward",
        "on",
        False,
        None,
    )
    assert parse_case("N=8,d=8,causal=0").problem.mask.kind == "none"
    assert parse_case("N=8,d=8").cold is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown"),
        ("N=4096", "d \\(the head dimension\\) is missing"),
        ("d=128", "seq"),
        ("N=4096,d=128,M=3", "'M': unknown"),
        ("N=4096,d=128,N=1", "seq is given twice"),
        ("N=4096,d=128,causal,mask=none", "mask is given twice"),
        ("N=4096,d=128,causal=maybe", "causal: must be 0 or 1"),
        ("N=4096,d=", "d: has no value"),
        ("N=4096,d", "d: has no value"),
        ("N=-4,d=128", "seq: must be a whole number"),
        ("N=" + "9" * 5000 + ",d=1", "at most 1000"),
        ("N=" + "9" * 30 + ",d=1", "seq: must be a whole number"),
        ("N=٤,d=1", "seq: must be a whole number"),
        ("N=8,d=8\0", "printable"),
        ("N=8,d=8\nx=1", "printable"),
        ("N=8,d=8,tiles=128", "tiles: cannot read"),
        ("N=8,d=8,dtype=fp12", "unknown dtype"),
        ("N=8,d=8,class=fast", "class: must be one of mma-sync"),
        ("N=8,d=8,cache=some", "cache: must be one of all, none"),
        ("N=8,d=8,heads=3,kv_heads=2", "multiple"),
    ],
)
def test_what_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_case(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        said = parse_case(text).text
    except IosimError as error:
        said = str(error)
    assert "\n" not in said
