"""Short ways to ask the library for the numbers that several claims need."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.levels import add_levels
from iosim.problem import AttentionProblem, TileShape
from iosim.results import RunRecord

KIB = 1024
MIB = 1024**2
GIB = 1024**3
FP16 = 2

profile = lru_cache(maxsize=16)(load_profile)


def head(seq: int, head_dim: int, **more: int | str) -> AttentionProblem:
    """One attention in fp16, one head unless told otherwise."""
    return AttentionProblem.of(seq=seq, head_dim=head_dim, **more)  # type: ignore[arg-type]


def run(
    problem: AttentionProblem,
    algorithm: str,
    tiles: str = "best",
    sram_bytes: int | None = None,
    options: Mapping[str, str] | None = None,
    granularity: int = 16,
) -> RunRecord:
    """One record on an H100."""
    return analyze(
        problem, algorithm, tiles=tiles, sram_bytes=sram_bytes, options=options, granularity=granularity
    )


def tensor_bytes(record: RunRecord, name: str) -> tuple[int, int]:
    """Bytes read and written of a tensor; zeros where the run has none."""
    for item in record.traffic_by_tensor:
        if item.tensor == name:
            return item.read_bytes, item.write_bytes
    return 0, 0


def vector_flops(problem: AttentionProblem, algorithm: str, tile: TileShape) -> int:
    """Everything but matmuls and special functions."""
    chosen = find_algorithm(algorithm)
    program = chosen.program(problem.mask.kind, chosen.resolve({}))
    return int(count(program, bind(problem, tile)).vector_flops)


def hbm_bytes(
    problem: AttentionProblem, algorithm: str, gpu: HardwareProfile, options: Mapping[str, str]
) -> tuple[int, int]:
    """Simulated HBM bytes of a run on a GPU: until it ends, and with what is then still dirty in the L2."""
    chosen = find_algorithm(algorithm)
    record = add_levels(analyze(problem, chosen, options=options, profile=gpu), chosen, gpu)
    assert record.level_bytes is not None
    moved = record.level_bytes.hbm_read_bytes + record.level_bytes.hbm_write_bytes
    return moved, moved + int(record.notes["levels"]["dirty_bytes"])
