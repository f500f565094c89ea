"""Block masks: which blocks a pattern has, what they move (Proposition 4), and what a bad mask is told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim import block_mask
from iosim.analysis import analyze
from iosim.errors import ProblemError, UsageError
from iosim.grid import Grid
from iosim.problem import AttentionProblem, TileShape
from iosim.sweep import sweep
from iosim.theory.reference import visible_pairs


def drawn(text: str, rows: int = 6, cols: int = 6) -> str:
    return "\n".join("".join(".#"[int(b)] for b in row) for row in block_mask.pattern(text, rows, cols))


@pytest.mark.parametrize(
    ("text", "picture"),
    [
        ("local:1", "#.....\n.#....\n..#...\n...#..\n....#.\n.....#"),
        ("local:2", "##....\n###...\n.###..\n..###.\n...###\n....##"),
        ("global:1", "######\n#.....\n#.....\n#.....\n#.....\n#....."),
        ("local:1+global:1", "######\n##....\n#.#...\n#..#..\n#...#.\n#....#"),
        ("strided:3", "#..#..\n.#..#.\n..#..#\n#..#..\n.#..#.\n..#..#"),
        ("dilated:2:2", "#.#...\n.#.#..\n#.#.#.\n.#.#.#\n..#.#.\n...#.#"),
        ("butterfly", "###.#.\n##.#.#\n#.##..\n.###..\n#...##\n.#..##"),
    ],
)
def test_pictures_of_the_patterns(text, picture):
    assert drawn(text) == picture


def test_a_diagonal_of_more_columns_than_rows():
    assert drawn("local:1", 3, 6) == "#.....\n..#...\n....#."


def test_random_has_exactly_its_share_and_repeats_by_seed():
    a, b = block_mask.pattern("random:0.25", 16, 32), block_mask.pattern("random:0.25:0", 16, 32)
    other = block_mask.pattern("random:0.25:1", 16, 32)
    assert a.sum() == other.sum() == 16 * 32 // 4
    assert (a == b).all()
    assert (a != other).any()


@given(
    seq_q=st.integers(1, 30),
    seq_k=st.integers(1, 30),
    rows=st.integers(1, 9),
    cols=st.integers(1, 9),
    mask=st.one_of(
        st.sampled_from(["none", "causal"]),
        st.tuples(st.sampled_from(["window", "prefix"]), st.integers(1, 33)).map(lambda m: f"{m[0]}:{m[1]}"),
    ),
    text=st.sampled_from(["local:1", "strided:2", "random:0.5:2", "butterfly", "global:1"]),
)
def test_pairs_are_those_counted_one_by_one(seq_q, seq_k, rows, cols, mask, text):
    problem = AttentionProblem.of(seq_q=seq_q, seq_k=seq_k, head_dim=2, mask=mask)
    tiles = TileShape(rows=rows, cols=cols)
    blocks = block_mask.pattern(text, *block_mask.grid(problem, tiles))
    element = blocks[np.arange(seq_q) // rows][:, np.arange(seq_k) // cols]
    seen = element & visible_pairs(problem.mask, seq_q, seq_k)
    assert block_mask.pairs(problem, tiles, text) == seen.sum()
    some = block_mask.visible(problem, tiles, text)
    for i, j in np.ndindex(*blocks.shape):
        inside = seen[i * rows : (i + 1) * rows, j * cols : (j + 1) * cols]
        assert some[i, j] == inside.any()


N, D = 8192, 64
SRAM = 98304  # bytes: 49,152 elements


@pytest.mark.parametrize(("name", "leading"), [("flash1", 12), ("flash2", 8)])
@pytest.mark.parametrize("sram", [SRAM, SRAM // 2])
def test_proposition_4_traffic_grows_as_nd_plus_n2d2s_over_m(name, leading, sram):
    problem = AttentionProblem.of(seq=N, head_dim=D)
    shares = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0])
    matrices = []
    for share in shares:
        record = analyze(
            problem, name, tiles="paper", sram_bytes=sram, options={"block-mask": f"random:{share}"}
        )
        moved = {t.tensor: t.read_bytes + t.write_bytes for t in record.traffic_by_tensor}
        matrices.append(sum(moved[t] for t in "QKVO") / 2)
    slope, intercept = np.polyfit(shares, matrices, 1)
    assert slope == pytest.approx(leading * N * N * D * D / (sram / 2), rel=0.03)
    assert intercept == pytest.approx((3 if name == "flash1" else 2) * N * D, rel=0.05)
    residual = np.array(matrices) - (slope * shares + intercept)
    assert np.abs(residual).max() < 0.005 * max(matrices)


def test_sparsity_saves_bytes_only_where_scores_stay_on_chip():
    problem = AttentionProblem.of(seq=4096, head_dim=64)
    options = {"block-mask": "random:0.125"}
    fused, unfused = (
        analyze(problem, name, tiles="128x128", options=options) for name in ("flash2", "masked_standard")
    )
    standard = analyze(problem, "standard")
    for record in (fused, unfused):
        assert record.notes["block_mask"]["density"] == 0.125
        assert 8 * record.work.executed_flops == standard.work.executed_flops
    scores = [t for t in unfused.traffic_by_tensor if t.tensor in "SP"]
    assert scores == [t for t in standard.traffic_by_tensor if t.tensor in "SP"]
    assert sum(t.read_bytes + t.write_bytes for t in scores) == 4 * 4096 * 4096 * 2
    # Q and O (2Nd), and an eighth of 32 passes over K and V (2·4·Nd), against 2·32·Nd + 2Nd
    assert fused.notes["block_mask"]["byte_speedup"] == 66 / 10


def test_dense_is_the_mask_of_all_blocks():
    problem = AttentionProblem.of(seq_q=500, seq_k=700, head_dim=32, heads=2, mask="window:150")
    for name in ("flash1", "flash2", "masked_standard"):
        whole = analyze(problem, name, tiles="64x48", options={"block-mask": "strided:1"})
        dense = analyze(problem, name, tiles="64x48")
        assert whole.traffic_by_tensor == dense.traffic_by_tensor
        assert whole.work == dense.work
        assert whole.notes["block_mask"]["byte_speedup"] == 1.0
        assert whole.theory.lower_bound_bytes <= dense.theory.lower_bound_bytes


@pytest.mark.parametrize(("name", "a_block", "keys_once"), [("flash1", 5, False), ("flash2", 4, True)])
@pytest.mark.parametrize("text", ["local:1", "strided:4", "random:0.3:2"])
def test_a_backward_moves_so_many_tiles_a_block(name, a_block, keys_once, text):
    # a visited block: Q, dO, dQ read and dQ written (flash1 also O); besides, zeros of dQ, D, K, V, dK, dV
    problem, tile = AttentionProblem.of(seq=1024, head_dim=64), TileShape(rows=64, cols=128)
    blocks = block_mask.pattern(text, 16, 8)
    record = analyze(problem, name, tiles=str(tile), options={"block-mask": text, "pass": "bwd"})
    matrices = [t for t in record.traffic_by_tensor if t.tensor not in ("M", "L", "LSE", "D")]
    seen = int(blocks.any(axis=0).sum()) * tile.cols
    once = (2 + 1 + 4) * 1024 if keys_once else 4 * seen + 3 * 1024
    moved = sum(t.read_bytes + t.write_bytes for t in matrices)
    assert moved == (a_block * int(blocks.sum()) * tile.rows + once) * 64 * 2
    assert record.work.useful_flops == 4 * 2 * 64 * int(blocks.sum()) * tile.rows * tile.cols
    assert record.work.executed_flops == record.work.useful_flops * 5 // 4
    assert record.theory.closed_form_bytes == record.traffic.total_bytes


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_forward_and_backward_over_a_block_mask_are_the_two_one_after_the_other(name):
    problem = AttentionProblem.of(seq=1000, heads=4, kv_heads=2, head_dim=32, mask="causal")
    own = {"block-mask": "local:2+global:1"}
    both, back, forward = (
        analyze(problem, name, tiles="64x32", options=own | {"pass": passes})
        for passes in ("fwd+bwd", "bwd", "fwd")
    )
    saved = 4 * 1000 * 4 * (name == "flash2")  # its forward writes the log-sum-exp only for a backward
    assert both.traffic.total_bytes == forward.traffic.total_bytes + back.traffic.total_bytes + saved
    assert both.work.useful_flops == forward.work.useful_flops + back.work.useful_flops


@pytest.mark.parametrize("passes", ["fwd", "bwd", "fwd+bwd"])
@pytest.mark.parametrize("text", ["random:0.02:5", "local:1", "strided:8"])
def test_no_count_is_below_its_bound(text, passes):
    problem = AttentionProblem.of(seq=2048, head_dim=32, heads=4, kv_heads=2)
    for name in ("flash1", "flash2", "masked_standard"):
        for sram in (1 << 14, 1 << 15, 1 << 17):
            own = {"block-mask": text} | ({} if name == "masked_standard" else {"pass": passes})
            record = analyze(problem, name, tiles="32x16", sram_bytes=sram, options=own)
            assert record.traffic.total_bytes >= record.theory.lower_bound_bytes > 0
            assert record.theory.closed_form_bytes == record.traffic.total_bytes


def test_linear_attention_moves_each_matrix_once_whatever_n():
    for seq in (1024, 4096):
        record = analyze(AttentionProblem.of(seq=seq, head_dim=64), "linear")
        assert record.traffic.total_bytes == record.theory.lower_bound_bytes == 4 * seq * 64 * 2
        assert record.work.executed_flops == record.work.useful_flops == 2 * 64 * 65 * 2 * seq
    with pytest.raises(UsageError, match="linear has no causal mask; allowed: none"):
        analyze(AttentionProblem.of(seq=64, head_dim=8, mask="causal"), "linear")


def test_a_mask_from_a_file_is_the_pattern_it_was_saved_from(tmp_path):
    problem = AttentionProblem.of(seq=1024, head_dim=64)
    path = tmp_path / "mask.npy"
    np.save(path, block_mask.pattern("local:2+global:1", 8, 16).astype(np.uint8))
    named, saved = (
        analyze(problem, "flash2", tiles="128x64", options={"block-mask": text})
        for text in ("local:2+global:1", str(path))
    )
    assert named.traffic == saved.traffic
    assert named.work == saved.work


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.ones((3, 4), dtype=bool), r"is 3 x 4, and this problem has 8 x 8 blocks"),
        (np.ones(64, dtype=bool), r"is 64, and this problem has 8 x 8 blocks"),
        (np.ones((8, 8)), r"holds float64; allowed: booleans"),
        (np.full((8, 8), 2), r"whole numbers must be 0 or 1"),
        (np.array([[None] * 8] * 8, dtype=object), r"not a plain NumPy array .*allow_pickle=False"),
    ],
)
def test_a_bad_mask_file_is_told_what_is_wrong(tmp_path, array, complaint):
    path = tmp_path / "mask.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(ProblemError, match=complaint):
        analyze(
            AttentionProblem.of(seq=1024, head_dim=64),
            "flash2",
            tiles="128x128",
            options={"block-mask": str(path)},
        )


def test_a_file_that_is_no_array(tmp_path):
    path = tmp_path / "text.npy"
    path.write_text("hello")
    with pytest.raises(ProblemError, match="not a plain NumPy array"):
        block_mask.pattern(str(path), 2, 2)
    with pytest.raises(ProblemError, match="is not a file"):
        block_mask.check("missing.npy")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("locl:2", "cannot read 'locl:2'; allowed: local:W"),
        ("local:0", "at least 1"),
        ("dilated:2:0", "at least 1"),
        ("random:0", "above 0 and at most 1"),
        ("random:1.5", "above 0 and at most 1"),
        ("random:1.2.3", "above 0 and at most 1"),
        ("local:1+", "cannot read ''"),
    ],
)
def test_a_bad_pattern_is_told_what_is_allowed(text, complaint):
    with pytest.raises(ProblemError, match=complaint):
        block_mask.check(text)


def test_too_many_blocks_are_refused_before_they_are_made():
    with pytest.raises(ProblemError, match="use a larger tile"):
        block_mask.pattern("local:1", 1 << 20, 1 << 20)


def test_options_that_do_not_go_with_a_block_mask():
    problem = AttentionProblem.of(seq=64, head_dim=8)
    for passes in ("fwd", "bwd"):
        own = {"block-mask": "local:1", "variant": "skip-first-read", "pass": passes}
        with pytest.raises(UsageError, match="literal"):
            analyze(problem, "flash1", options=own)


def test_a_sweep_counts_each_point_as_a_single_run_does():
    options = {name: {"block-mask": "local:2+global:1"} for name in ("flash2", "masked_standard")}
    grid = Grid(
        algorithm=tuple(options), seq=(512, 1024), head_dim=(64,), tiles=("64x64", "best"), options=options
    )
    table = sweep(grid)
    assert (table["error"] == "").all()
    for row in table.to_dict("records"):
        problem = AttentionProblem.of(seq=int(row["seq_q"]), head_dim=64)
        tiles = f"{row['tile_rows']}x{row['tile_cols']}"
        record = analyze(problem, row["algorithm"], tiles=tiles, options=options[row["algorithm"]])
        assert row["sm_read_bytes"] == record.traffic.sm_read_bytes
        assert row["useful_flops"] == record.work.useful_flops
