"""On-chip bytes against sizes worked by hand."""

from __future__ import annotations

from iosim.algorithms.registry import ALGORITHMS
from iosim.interpret.binding import bind
from iosim.interpret.footprint import footprint
from iosim.problem import AttentionProblem, TileShape

TILES = TileShape(rows=128, cols=64)


def _held(name, model, tiles=TILES, **sizes):
    problem = AttentionProblem.of(**({"seq": 4096, "head_dim": 128} | sizes))
    algorithm = ALGORITHMS[name]
    return footprint(algorithm.program("none", algorithm.resolve({})), model, bind(problem, tiles))


def test_paper_counts_the_four_tiles_in_their_dtypes():
    for name in ("flash1", "flash2", "seed_flash"):
        held = _held(name, "paper", dtype_q="fp8", dtype_k="fp32", value_dim=96)
        assert held.sram_bytes == 128 * 128 * 1 + 64 * 128 * 4 + 64 * 96 * 2 + 128 * 96 * 2
        assert {b.name for b in held.buffers if b.counted} == {"Q_i", "K_j", "V_j", "O_i"}
        assert held.register_bytes == 0


def test_a_tile_longer_than_the_sequence_takes_what_the_sequence_takes():
    assert _held("flash2", "paper", seq=10, head_dim=8).sram_bytes == 4 * 10 * 8 * 2


def test_kernel_keeps_operands_in_shared_memory_and_accumulators_in_registers():
    held = _held("flash2", "kernel")
    assert held.sram_bytes == 128 * 128 * 2 + 2 * (64 * 128 * 2) * 2  # Q once, K and V in two stages
    o, s, p, vectors = 128 * 128 * 4, 128 * 64 * 4, 128 * 64 * 2, 128 * 4
    assert held.register_bytes == max(o + s + 3 * vectors, o + p + 4 * vectors)
    assert {b.name for b in held.buffers if b.place == "registers"} >= {"O_i", "S", "m", "l"}


def test_kernel_rounds_tiles_up_to_the_mma_shape():
    ragged = _held("flash2", "kernel", tiles=TileShape(rows=120, cols=60), head_dim=121)
    whole = _held("flash2", "kernel", tiles=TileShape(rows=128, cols=64), head_dim=128)
    assert ragged.sram_bytes == whole.sram_bytes


def test_small_cache_holds_its_accumulator_tile():
    held = _held("small_cache", "paper", tiles=TileShape(rows=32, cols=16))
    assert held.sram_bytes == 2 * (32 * 16 + 32 + 16)


def test_idealised_standard_holds_one_operand_and_a_row():
    held = _held("standard", "paper")
    assert held.sram_bytes == 2 * (4096 * 128 + 4096)  # V and a row of P, the larger of its kernels
