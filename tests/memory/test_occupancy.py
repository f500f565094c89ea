"""Blocks per SM by the CUDA rules: hand-worked cases, and the grids of measured kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iosim.errors import SimulationError
from iosim.hardware.load import load_profile
from iosim.memory.occupancy import BlockNeeds, Occupancy, SmLimits, occupancy

HOPPER = SmLimits(
    registers=65536,
    registers_per_thread=255,
    shared_bytes=228 * 1024,
    shared_bytes_per_block=227 * 1024,
    shared_reserved_bytes_per_block=1024,
    warps=64,
    blocks=32,
    threads_per_block=1024,
)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks", "limited_by"),
    [
        (128, 255, 50176, 2, "registers"),  # FlashAttention-2 at d = 64: 4 warps of 8192 registers
        (
            384,
            168,
            135168,
            1,
            "registers",
        ),  # cuDNN: 12 warps of 5376 registers; the memory would also allow one
        (256, 32, 0, 8, "registers"),  # 8 warps of 1024: 64 warps, all four limits but one meet at 8
        (32, 16, 0, 32, "blocks"),
        (1024, 32, 0, 2, "registers"),
        (128, 32, 100 * 1024, 2, "shared memory"),  # 2 x 101 KiB in 228
        (128, 32, 113 * 1024, 2, "shared memory"),  # 2 x 114 KiB fill 228 exactly
        (128, 32, 113 * 1024 + 1, 1, "shared memory"),
        (96, 168, 0, 4, "registers"),  # 3 warps; 12 warps fit a quarter rule of 3: 4 blocks
        (1, 0, 0, 32, "blocks"),
        (64, 0, 0, 32, "warps"),
    ],
)
def test_by_hand(threads: int, registers: int, shared: int, blocks: int, limited_by: str) -> None:
    needs = BlockNeeds(threads=threads, registers_per_thread=registers, shared_bytes=shared)
    result = occupancy(needs, HOPPER)
    assert result == Occupancy(
        blocks_per_sm=blocks, warps_per_sm=blocks * -(-threads // 32), limited_by=limited_by
    )


def test_more_of_a_resource_never_means_fewer_blocks() -> None:
    for threads in (32, 96, 128, 416):
        counts = [
            occupancy(
                BlockNeeds(threads=threads, registers_per_thread=r, shared_bytes=s), HOPPER
            ).blocks_per_sm
            for r, s in ((32, 0), (64, 1024), (96, 30_000), (128, 90_000))
        ]
        assert counts == sorted(counts, reverse=True)


def test_profile_gives_the_same_limits() -> None:
    assert SmLimits.of(load_profile("h200-sxm")) == HOPPER


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (
            BlockNeeds(threads=128, registers_per_thread=32, shared_bytes=227 * 1024 + 1),
            "shared memory bytes",
        ),
        (BlockNeeds(threads=128, registers_per_thread=256), "registers per thread"),
        (BlockNeeds(threads=2048, registers_per_thread=32), "threads of a block"),
        (BlockNeeds(threads=0, registers_per_thread=32), "threads of a block"),
        (BlockNeeds(threads=1024, registers_per_thread=128), "too much of registers"),
    ],
)
def test_a_block_that_is_never_resident_names_the_resource(needs: BlockNeeds, words: str) -> None:
    with pytest.raises(SimulationError, match=words):
        occupancy(needs, HOPPER)


def test_a_smaller_sm_refuses_what_its_memory_cannot_hold() -> None:
    small = replace(HOPPER, shared_bytes=64 * 1024)
    with pytest.raises(SimulationError, match="too much of shared memory"):
        occupancy(BlockNeeds(threads=128, registers_per_thread=32, shared_bytes=100 * 1024), small)
