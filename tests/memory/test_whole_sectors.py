"""Rows that do not start on a sector: the L2 moves whole sectors, and a sample of its slices is scaled by those."""

from __future__ import annotations

from collections import Counter

import pytest

from iosim.algorithms.registry import find_algorithm
from iosim.hardware import load_profile
from iosim.interpret.binding import bind
from iosim.memory.hierarchy import KernelLevels, Policies, simulate_kernels
from iosim.memory.sliced_l2 import sliced_l2
from iosim.problem import AttentionProblem, TileShape

SECTOR = 32
TILE = TileShape(rows=64, cols=48)
D = 16


def levels(n: int, sampled: int) -> dict[str, KernelLevels]:
    """Standard attention with S and P in memory on an H200's L2, each kernel from cold."""
    algorithm = find_algorithm("standard")
    program = algorithm.program("none", algorithm.resolve({"gemm-tiles": str(TILE)}))
    problem = AttentionProblem.of(batch=1, heads=3, seq=n, head_dim=D)
    l2 = sliced_l2(load_profile("h200-sxm"), sampled_slices=sampled)
    found = simulate_kernels(program, bind(problem, TILE), Policies(sms=132), l2, cold_kernels=True)
    return {item.kernel: item for item in found}


def sector_bytes(start: int, length: int) -> int:
    """Byte by byte: the sectors that it touches."""
    return len({byte // SECTOR for byte in range(start, start + length)}) * SECTOR


def read_by_output(n: int) -> Counter[str]:
    """Of the second GEMM: P once, in parts of a row as wide as a tile, and all of V for every tile of rows."""
    found: Counter[str] = Counter()
    for head in range(3):
        for row in range(n):
            for column in range(0, n, TILE.cols):
                at = ((head * n + row) * n + column) * 2
                found["P"] += sector_bytes(at, 2 * min(TILE.cols, n - column))
        for _ in range(0, n, TILE.rows):
            for key in range(0, n, TILE.cols):
                at = (head * n + key) * D * 2
                found["V"] += sector_bytes(at, 2 * D * min(TILE.cols, n - key))
    return found


@pytest.mark.parametrize("n", [255, 333, 1000])
@pytest.mark.parametrize("sampled", [0, 2])
def test_reads_are_whole_sectors(n: int, sampled: int) -> None:
    output = levels(n, sampled)["output"]
    assert output.cache.read_bytes == sum(read_by_output(n).values())
    assert output.sm_read_bytes == 3 * (
        n * n * 2 + -(-n // TILE.rows) * n * D * 2
    )  # what the program asks for


def test_what_a_sample_fetches_is_what_all_fetch() -> None:
    whole, sample = levels(1333, 0)["output"].cache, levels(1333, 2)["output"].cache
    distinct = sum(sector_bytes(head * 1333 * 1333 * 2, 1333 * 1333 * 2) for head in range(3))
    assert whole.fetch_bytes == pytest.approx(distinct + 3 * 1333 * D * 2, rel=0.001)
    assert sample.fetch_bytes == pytest.approx(whole.fetch_bytes, rel=0.02)
