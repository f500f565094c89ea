"""One algorithm on one problem, made ready for commands that follow its trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iosim.cli.options import HardwareOptions, ProblemOptions, TileOptions, split_algorithms
from iosim.cli.output import quiet_stdout
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.curves import Run
    from iosim.results import RunRecord


def one_run(
    problem: ProblemOptions,
    algorithm: str,
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
) -> tuple[RunRecord, Run]:
    """The record of the run, with its tile chosen, and what its trace is read off; `UsageError` for several."""
    from iosim.cli.simulate import record_of
    from iosim.curves import Run
    from iosim.placement import untiled

    with quiet_stdout():
        chosen = split_algorithms(algorithm)
        problem = problem.as_run_by(chosen)
        asked = problem.problem()
        if len(chosen) != 1:
            raise UsageError(f"--algorithm: one at a time here, got {algorithm!r}")
        (options,) = variants.options_for(chosen)
        record = record_of(asked, chosen[0], options, tiling, hardware, remarks=problem.remarks())
        tile = record.tiles or untiled(record.options, asked.seq_k)
        return record, Run.of(chosen[0], asked, record.options, tile)
