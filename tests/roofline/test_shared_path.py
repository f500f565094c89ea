"""The path of shared memory in a tile: by hand, against the counter of our own kernels, and against the bytes."""

from __future__ import annotations

from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_cases import MEASUREMENTS

from iosim.audit.measurements import read_measurements
from iosim.onchip import on_chip
from iosim.problem import AttentionProblem, TileShape
from iosim.roofline.shared_path import SharedPath, shared_path

SCHEMES = {"iosim_flash2": "split-q", "iosim_block_sparse": "split-q", "iosim_split_k_warps": "split-k"}


def test_by_hand() -> None:
    """64 x 64 at d = 64, four warps, fp16 and fp32: eight groups of eight rows."""
    problem, tile = AttentionProblem.of(seq=64, head_dim=64), TileShape(rows=64, cols=64)
    rows = shared_path(problem, tile, "split-q", warps=4)
    assert rows == SharedPath(operands=64 + 4 * 128, exchange=0, shuffles=16, copies=128)
    keys = shared_path(problem, tile, "split-k", warps=4)
    assert keys.operands == 4 * 64 + 128
    # O of four warps out and in; maxima out, sums out, maxima of four warps into four, sums into the owner
    assert keys.exchange == 2 * 4 * 64 * 64 * 4 / 128 + 8 * (4 + 4 + 16 + 4)
    assert keys.shuffles == 2 * 2 * 4 * 8
    assert keys.total == keys.by_warps + 128


def test_wavefronts_of_our_own_kernels() -> None:
    """The counter also sees O on its way out, and what a step does once: a few per cent, more where steps are few."""
    errors: dict[str, list[float]] = {}
    for row in read_measurements(MEASUREMENTS / "h200" / "rungs" / "attention.csv").rows:
        counted, p = row.measured.get("shared_wavefronts"), row.problem
        if row.implementation not in SCHEMES or not counted or row.tile is None or row.block_mask is not None:
            continue
        if p.mask.kind != "none" or p.seq_q < 4096 or row.threads_per_block is None:
            continue
        path = shared_path(p, row.tile, SCHEMES[row.implementation], warps=row.threads_per_block // 32)
        tiles = -(-p.seq_q // row.tile.rows) * -(-p.seq_k // row.tile.cols) * p.heads * p.batch
        errors.setdefault(row.implementation, []).append(path.by_warps * tiles / counted - 1)
    assert len(errors["iosim_flash2"]) >= 20
    assert len(errors["iosim_split_k_warps"]) >= 4
    for found in errors.values():
        assert all(-0.07 < error <= 0 for error in found)
        assert abs(mean(found)) < 0.04


@given(
    rows=st.sampled_from([64, 128, 256]),
    cols=st.sampled_from([64, 128]),
    d=st.sampled_from([32, 64, 128]),
    warps=st.sampled_from([4, 8]),
    scheme=st.sampled_from(["split-q", "split-k"]),
)
def test_no_path_is_shorter_than_its_bytes(rows: int, cols: int, d: int, warps: int, scheme: str) -> None:
    problem, tile = AttentionProblem.of(seq=512, head_dim=d), TileShape(rows=rows, cols=cols)
    step = on_chip(problem, tile, scheme, warps=warps).step
    path = shared_path(problem, tile, scheme, warps=warps)
    moved = step.operand_read_bytes + step.exchange_write_bytes + step.exchange_read_bytes
    assert path.operands + path.exchange >= moved / 128 - 1e-9
    assert path.by_warps == pytest.approx(path.operands + path.exchange + path.shuffles)
