"""Random ragged attention problems and tiles, small enough for loops, and large ones for formulas."""

from __future__ import annotations

from hypothesis import strategies as st

from iosim.problem import AttentionProblem, TileShape

sizes = st.integers(1, 21)
dtypes = st.sampled_from(["fp8", "fp16", "fp32", "fp64"])
masks = st.one_of(
    st.just("none"),
    st.just("causal"),
    st.tuples(st.sampled_from(["window", "prefix"]), st.integers(1, 24)).map(lambda m: f"{m[0]}:{m[1]}"),
)
tile_shapes = st.builds(
    lambda rows, cols: TileShape(rows=rows, cols=cols), st.integers(1, 9), st.integers(1, 9)
)
large_tile_shapes = st.builds(
    lambda rows, cols: TileShape(rows=rows, cols=cols), st.integers(1, 300), st.integers(1, 300)
)


@st.composite
def large_problems(draw: st.DrawFn) -> AttentionProblem:
    """Long enough that re-reads outweigh the compulsory bytes."""
    mask = draw(st.sampled_from(["none", "causal", "window:1000", "window:5000", "prefix:3000"]))
    return AttentionProblem.of(
        heads=draw(st.sampled_from([4, 8])),
        kv_heads=draw(st.sampled_from([1, 4])),
        seq_q=draw(st.integers(500, 20_000)),
        seq_k=draw(st.integers(500, 20_000)),
        head_dim=draw(st.integers(8, 300)),
        value_dim=draw(st.integers(8, 300)),
        mask=mask,
        dtype_q=draw(dtypes),
        dtype_k=draw(dtypes),
        dtype_v=draw(dtypes),
        dtype_o=draw(dtypes),
    )


@st.composite
def problems(draw: st.DrawFn) -> AttentionProblem:
    kv_heads = draw(st.integers(1, 2))
    return AttentionProblem.of(
        batch=draw(st.integers(1, 2)),
        heads=kv_heads * draw(st.integers(1, 3)),
        kv_heads=kv_heads,
        seq_q=draw(sizes),
        seq_k=draw(sizes),
        head_dim=draw(st.integers(1, 5)),
        value_dim=draw(st.integers(1, 5)),
        mask=draw(masks),
        dtype_q=draw(dtypes),
        dtype_k=draw(dtypes),
        dtype_v=draw(dtypes),
        dtype_o=draw(dtypes),
    )
