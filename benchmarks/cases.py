"""What `run.py` times of iosim itself, one case a process: `python -m benchmarks.cases NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measure import measure

Call = Callable[[], dict[str, Any]]


def counted(*, seq: int, heads: int, mask: str, tile: int) -> Call:
    """Count flash2 at d = 128 in square tiles; the program is built by the first call and kept, as in any run."""
    from iosim.algorithms.registry import find_algorithm
    from iosim.interpret.binding import bind
    from iosim.interpret.count import count
    from iosim.problem import AttentionProblem, TileShape

    def call() -> dict[str, Any]:
        problem = AttentionProblem.of(seq=seq, head_dim=128, heads=heads, mask=mask)
        algorithm = find_algorithm("flash2")
        program = algorithm.program(problem.mask.kind, algorithm.resolve({}))
        tally = count(program, bind(problem, TileShape(rows=tile, cols=tile)))
        return {"bytes": int(tally.total_bytes), "flops": int(tally.tensor_flops)}

    return call


def layer() -> Call:
    """One attention layer as the peers see it: N=8192, d=128, H=32, flash2 with 128x128 tiles."""
    return counted(seq=8192, heads=32, mask="none", tile=128)


def long_causal() -> Call:
    """1.3e8 tile pairs: causal flash2 at N=1,048,576, d=128, 64x64 tiles."""
    return counted(seq=1_048_576, heads=1, mask="causal", tile=64)


def swept(*, algorithm: Sequence[str], mask: str, head_dim: Sequence[int], lengths: int, sizes: int) -> Call:
    """A sweep with the best tiles: head dims, lengths from 512 to 1M (ragged), M from 32 KiB to about 1 MiB."""
    from iosim.grid import Grid
    from iosim.sweep import sweep

    grid = Grid(
        algorithm=algorithm,
        mask=(mask,),
        head_dim=head_dim,
        seq=[round(512 * 2048 ** (i / (lengths - 1))) for i in range(lengths)],
        sram_bytes=[32 * 1024 + i * 991_872 // (sizes - 1) for i in range(sizes)],
    )

    def call() -> dict[str, Any]:
        table = sweep(grid)
        return {"points": len(table), "failed": int((table["error"] != "").sum())}

    return call


def sweep() -> Call:
    """10,080 points of three algorithms without a mask."""
    return swept(
        algorithm=("standard", "flash1", "flash2"), mask="none", head_dim=(64, 128), lengths=60, sizes=28
    )


def causal_sweep() -> Call:
    """36 causal points of flash2: each searches all pairs (rows, cols), and the count has no short form."""
    return swept(algorithm=("flash2",), mask="causal", head_dim=(128,), lengths=6, sizes=6)


def audit() -> Call:
    """Every measured kernel of the H200's file."""
    from pathlib import Path

    from iosim.audit import audit_file

    path = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "attention.csv"

    def call() -> dict[str, Any]:
        found = audit_file(path)
        return {"cases": len({item.row.case for item in found.items}), "rows": len(found.items)}

    return call


def rungs() -> Call:
    """Every row of our own kernels, in as many processes as the command takes."""
    from pathlib import Path

    from iosim.audit import audit_file
    from iosim.workers import default_processes

    path = Path(__file__).parents[1] / "validation" / "measurements" / "h200" / "rungs" / "attention.csv"

    def call() -> dict[str, Any]:
        found = audit_file(path, processes=default_processes())
        return {"rows": len(found.items), "processes": default_processes()}

    return call


def long_levels() -> Call:
    """4.3e9 lines: trace and simulation of causal flash2 at N=131,072, d=128, 16 heads, 128x64 tiles."""
    from iosim.algorithms.registry import find_algorithm
    from iosim.hardware import load_profile
    from iosim.levels import generic_policies, simulate_levels
    from iosim.problem import AttentionProblem, TileShape

    def call() -> dict[str, Any]:
        profile, algorithm = load_profile("h200-sxm"), find_algorithm("flash2")
        problem = AttentionProblem.of(seq=131_072, head_dim=128, heads=16, mask="causal")
        policies = generic_policies(profile, 0, blocks_per_sm=1)
        tile = TileShape(rows=128, cols=64)
        found = simulate_levels(algorithm, problem, algorithm.resolve({}), tile, profile, policies)
        return {"hbm_read_bytes": found.hbm_read_bytes}

    return call


CASES = {
    "layer": (layer, 20),
    "long_causal": (long_causal, 5),
    "sweep": (sweep, 1),
    "causal_sweep": (causal_sweep, 1),
    "audit": (audit, 1),
    "rungs": (rungs, 1),
    "long_levels": (long_levels, 1),
}


if __name__ == "__main__":
    measure(*CASES[sys.argv[1]])
