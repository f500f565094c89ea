"""Random ragged attention problems and tiles, small enough for loops."""

from __future__ import annotations

from hypothesis import strategies as st

from iosim.problem import AttentionProblem, TileShape

sizes = st.integers(1, 21)
dtypes = st.sampled_from(["fp8", "fp16", "fp32", "fp64"])
masks = st.one_of(st.just("none"), st.just("causal"), st.integers(1, 24).map(lambda w: f"window:{w}"))
tile_shapes = st.builds(
    lambda rows, cols: TileShape(rows=rows, cols=cols), st.integers(1, 9), st.integers(1, 9)
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
