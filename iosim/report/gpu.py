"""The facts of one problem on one GPU: what the sections of the report show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.capacity import Fit, memory_fits
from iosim.errors import TileError, UsageError
from iosim.gap import Gap, gap
from iosim.hardware import HardwareProfile
from iosim.levels import add_levels
from iosim.problem import AttentionProblem
from iosim.ragged import analyze_ragged, sequences_of
from iosim.report.design import Design, find_design
from iosim.report.measured import Measured
from iosim.report.times import Times, find_times
from iosim.results import RunRecord
from iosim.scaling import BoundStudy, Laws, Lengths, study_bound
from iosim.scaling.elements import Options
from iosim.scaling.studied_options import in_pass
from iosim.scaling.traffic import ALIKE

ALGORITHMS = ("standard", "flash1", "flash2", "seed_flash", "small_cache")
GRANULARITY = 16
TILE_RUNS = (
    ("flash1", "paper", "paper"),
    ("flash1", "best", "paper"),
    ("flash1", "best", "kernel"),
    ("flash2", "paper", "paper"),
    ("flash2", "best", "paper"),
    ("flash2", "best", "kernel"),
)
"""Algorithm, tile rule, footprint model."""

MEMORY_ALGORITHMS = ("standard", "flash1", "flash2")
MEMORY_PASSES = ("fwd", "fwd+bwd")
LEVEL_RUNS = ("flash1", "flash2")
LEVEL_ORDER = ("hbm_read_bytes", "hbm_write_bytes")  # what a table of levels is read for, so it stands first
MOST_PAIRS = 1 << 32  # scores of all heads up to which the waterfall goes below the SMs
MOST_STEPS = 20_000_000  # key tiles read by all thread blocks; a longer simulation is not worth the wait
ONE_LENGTH = "Times are predicted for one length at a time; iosim explain does it for any of them"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """Everything about one GPU. `gap`: None where no tile fits. A ragged batch has no gap, no memory and no
    predicted times.
    """

    profile: HardwareProfile
    sram_bytes: int
    records: tuple[RunRecord, ...]
    tiles: pd.DataFrame
    levels: pd.DataFrame
    level_remark: str
    study: BoundStudy
    gap: Gap | None
    times: Times
    memory: tuple[Fit, ...]
    design: Design
    measured: Measured | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "profile": self.profile.to_dict(),
            "sram_bytes": self.sram_bytes,
            "runs": [record.to_dict() for record in self.records],
            "levels": self.levels.to_dict("records"),
            "bound": self.study.to_dict(),
            "gap": self.gap.to_dict() if self.gap else None,
            "times": self.times.to_dict(),
            "memory": [fit.to_dict() for fit in self.memory],
            "design": self.design.to_dict(),
            "measured": self.measured.to_dict() if self.measured else None,
        }


def gpu_part(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    laws: Laws,
    options: Options,
    *,
    sram_bytes: int | None,
    tell: Progress,
    batch: Lengths = ALIKE,
    also: Sequence[str] = (),
) -> GpuPart:
    """Count, simulate and predict; of a ragged `batch`, whose padded alternative `problem` is, count and simulate.

    `also`: further algorithms to count and study.

    Errors: `UsageError` and its kinds.
    """
    M = gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes
    records = tuple(
        r
        for name in dict.fromkeys([*in_pass(ALGORITHMS, options), *also])
        if (r := _run(problem, gpu, name, "best", "paper", M, options, batch)) is not None
    )
    study = study_bound(
        problem, gpu, sram_bytes=M, laws=laws, also=also, options=options, batch=batch, progress=tell
    )
    tell(f"waterfall of {gpu.name}")
    sequences = sequences_of(problem, batch.seq_lens, fixed_queries=batch.fixed_queries)
    ragged = bool(sequences)
    waterfall = None if ragged else _gap(problem, gpu, M, options)
    tell(f"levels of {gpu.name}")
    levels, remark = _levels([r for r in records if r.algorithm in (*LEVEL_RUNS, *also)], gpu, batch)
    tell(f"times, tiles and other memories of {gpu.name}")
    own = {
        name: given for name, given in options.items() if name in ALGORITHMS
    }  # library kernels may not know it
    memory = () if ragged else memory_fits(problem, MEMORY_ALGORITHMS, MEMORY_PASSES, gpu.hbm_capacity_bytes)
    return GpuPart(
        profile=gpu,
        sram_bytes=M,
        records=records,
        tiles=_tiles(problem, gpu, M, options, batch),
        levels=levels,
        level_remark=remark,
        study=study,
        gap=waterfall,
        times=find_times(problem, gpu, own, sequences),
        memory=tuple(memory),
        design=Design(remarks=(ONE_LENGTH,)) if ragged else find_design(problem, gpu, own),
    )


def _gap(problem: AttentionProblem, gpu: HardwareProfile, sram_bytes: int, options: Options) -> Gap | None:
    """A name for every byte of FlashAttention-2, down to HBM where that is quick."""
    pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k
    try:
        return gap(
            problem,
            profile=gpu,
            options=options.get("flash2"),
            sram_bytes=sram_bytes,
            levels=pairs <= MOST_PAIRS,
        )
    except UsageError:
        return None


def _levels(records: Sequence[RunRecord], gpu: HardwareProfile, batch: Lengths) -> tuple[pd.DataFrame, str]:
    """Bytes at every level by algorithm, and a sentence on how sure they are; an empty table says why."""
    rows = []
    for record in records:
        if record.tiles is None:
            continue
        problem, tile = record.problem, record.tiles
        pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k
        if pairs // (tile.rows * tile.cols) > MOST_STEPS:
            return pd.DataFrame(), "Too many key tiles to simulate here; iosim simulate --levels does it."
        try:
            sequences = sequences_of(problem, batch.seq_lens, fixed_queries=batch.fixed_queries)
            full = add_levels(record, find_algorithm(record.algorithm), gpu, sequences=sequences)
        except UsageError as error:
            return pd.DataFrame(), f"No levels below the SMs: {error}."
        levels = full.level_bytes
        if levels is not None:
            rows.append(
                {
                    "algorithm": record.algorithm,
                    "tile": str(tile),
                    **{name: getattr(levels, name) for name in LEVEL_ORDER},
                    "l2_hit_rate": round(full.notes["levels"]["hit_rate"], 4),
                    "sm_read_bytes": record.traffic.sm_read_bytes,
                    "sm_write_bytes": record.traffic.sm_write_bytes,
                    **{name: size for name, size in asdict(levels).items() if name not in LEVEL_ORDER},
                }
            )
    how = (
        "held against hardware counters" if gpu.counter_data else "extrapolated: this GPU has no counter data"
    )
    return pd.DataFrame(rows), f"Simulated; {how}. What is dirty in L2 at the end is not in hbm_write_bytes."


def _run(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    algorithm: str,
    tiles: str,
    model: str,
    sram_bytes: int,
    options: Options,
    batch: Lengths,
) -> RunRecord | None:
    """A record, or None where no tile fits."""
    try:
        if batch.seq_lens:
            return analyze_ragged(
                problem,
                batch.seq_lens,
                find_algorithm(algorithm),
                tiles=tiles,
                profile=gpu,
                options=options.get(algorithm, {}),
                footprint_model=model,
                granularity=GRANULARITY,
                sram_bytes=sram_bytes,
                fixed_queries=batch.fixed_queries,
            )
        return analyze(
            problem,
            algorithm,
            tiles=tiles,
            profile=gpu,
            options=options.get(algorithm),
            footprint_model=model,
            granularity=GRANULARITY,
            sram_bytes=sram_bytes,
        )
    except TileError:
        return None


def _tiles(
    problem: AttentionProblem, gpu: HardwareProfile, sram_bytes: int, options: Options, batch: Lengths
) -> pd.DataFrame:
    rows = []
    for algorithm, rule, model in TILE_RUNS:
        record = _run(problem, gpu, algorithm, rule, model, sram_bytes, options, batch)
        rows.append(
            {
                "algorithm": algorithm,
                "tiles": rule,
                "footprint": model,
                "tile": str(record.tiles) if record else "none fits",
                "sm_bytes": record.traffic.total_bytes if record else None,
                "live_bytes": record.sram.live_bytes if record else None,
                "capacity_bytes": sram_bytes,
                "register_bytes": record.sram.register_bytes if record else None,
            }
        )
    table = pd.DataFrame(rows)
    return table.astype(dict.fromkeys(("live_bytes", "register_bytes", "sm_bytes"), "Int64"))
