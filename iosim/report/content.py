"""What a report says: records, studies, tables, figures and answers for one problem on several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.errors import TileError, UsageError
from iosim.gap import gap
from iosim.hardware import HardwareProfile, load_profile
from iosim.levels import add_levels
from iosim.plots.bound import BOUND_FIGURES, problem_text
from iosim.plots.files import Plot
from iosim.plots.style import Style
from iosim.plots.tensors import bytes_by_tensor
from iosim.plots.waterfall import waterfall
from iosim.problem import AttentionProblem
from iosim.results import RunRecord
from iosim.scaling import BoundStudy, Laws, find_laws, study_bound
from iosim.scaling.elements import NO_OPTIONS, Options
from iosim.scaling.sentences import on_options, options_text, power
from iosim.scaling.study import checked_options, in_pass
from iosim.units import counted, format_bytes

DEFAULT_PROBLEM = AttentionProblem.of(batch=1, heads=32, seq=8192, head_dim=128, dtype="fp16")
DEFAULT_PROFILES = ("a100-sxm-80gb", "h100-sxm")
ALGORITHMS = ("standard", "flash1", "flash2", "seed_flash", "small_cache")
SHOWN = ("standard", "flash1", "flash2")
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

LEVEL_RUNS = ("flash1", "flash2")
LEVEL_ORDER = ("hbm_read_bytes", "hbm_write_bytes")  # what a table of levels is read for, so it stands first
MOST_PAIRS = 1 << 32  # scores of all heads up to which the waterfall goes below the SMs
MOST_STEPS = 20_000_000  # key tiles read by all thread blocks; a longer simulation is not worth the wait

NOT_MODELLED = (
    "Time: the bytes and operations are counted, not how they overlap.",
    "What a compiler makes of a kernel: spilled registers are known only for kernels that were measured.",
)
PROFILE_KEYS = (
    "memory.sram.per_block",
    "memory.sram.per_sm",
    "memory.registers.per_sm",
    "compute.sm_count",
    "memory.l2.capacity",
    "memory.hbm.bandwidth",
)
LAW_SLACK = 0.05  # of the fitted exponent of M, within which traffic falls as 1/M
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """Everything about one GPU."""

    profile: HardwareProfile
    sram_bytes: int
    records: tuple[RunRecord, ...]
    tiles: pd.DataFrame
    levels: pd.DataFrame
    level_remark: str
    study: BoundStudy
    plots: tuple[Plot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One problem on several GPUs."""

    problem: AttentionProblem
    laws: Laws
    parts: tuple[GpuPart, ...]
    answers: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def workload(self) -> str:
        """The problem in one line, and the algorithms' options where they are not the defaults."""
        return workload_text(self.problem, self.options)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "schema_version": 1,
            "workload": self.workload,
            "problem": self.problem.to_dict(),
            "options": {name: dict(own) for name, own in self.options.items()},
            "answers": list(self.answers),
            "not_modelled": list(NOT_MODELLED),
            "gpus": [
                {
                    "profile": part.profile.to_dict(),
                    "sram_bytes": part.sram_bytes,
                    "runs": [record.to_dict() for record in part.records],
                    "levels": part.levels.to_dict("records"),
                    "bound": part.study.to_dict(),
                }
                for part in self.parts
            ],
        }


def workload_text(p: AttentionProblem, options: Options = NO_OPTIONS) -> str:
    """A problem in one line, with nothing left out, and options where there are any."""
    heads = counted(p.heads, "head") + (
        f" on {counted(p.kv_heads, 'kv head')}" if p.kv_heads != p.heads else ""
    )
    queries = f"{p.seq_q:,} quer{'y' if p.seq_q == 1 else 'ies'}"
    length = f"N = {p.seq_q:,}" if p.seq_q == p.seq_k else f"N = {queries}, {counted(p.seq_k, 'key')}"
    width = f"d = {p.head_dim}" + (f", dv = {p.value_dim}" if p.value_dim != p.head_dim else "")
    types = {p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o}
    named = (
        f"Q {p.dtype_q}, K {p.dtype_k}, V {p.dtype_v}, O {p.dtype_o}" if len(types) > 1 else str(p.dtype_q)
    )
    more = options_text(options)
    return f"batch {p.batch}, {heads}, {length}, {width}, {named}, mask {p.mask}" + (
        f"; {more}" if more else ""
    )


def build_report(
    problem: AttentionProblem,
    profiles: Sequence[str],
    style: Style,
    *,
    sram_bytes: int | None = None,
    overrides: Sequence[str] = (),
    options: Options = NO_OPTIONS,
    progress: Progress | None = None,
) -> Report:
    """Count, study and draw; nothing is written. `options`: by algorithm, as for `study_bound`.

    With another pass than fwd only the algorithms that have it are there. Errors: `UsageError` and its kinds.
    """
    options = checked_options(options)
    tell = progress or (lambda _: None)
    gpus = [load_profile(name, overrides) for name in profiles]
    tell("exponents, constants and crossings")
    laws = find_laws(options=options)
    parts = tuple(_part(problem, gpu, style, sram_bytes, laws, options, tell) for gpu in gpus)
    answers = (*on_options(options), *_answers(problem, laws, parts))
    return Report(problem=problem, laws=laws, parts=parts, answers=answers, options=options)


def _part(
    problem: AttentionProblem,
    gpu: HardwareProfile,
    style: Style,
    sram_bytes: int | None,
    laws: Laws,
    options: Options,
    tell: Progress,
) -> GpuPart:
    M = gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes
    records = tuple(
        r
        for name in in_pass(ALGORITHMS, options)
        if (r := _run(problem, gpu, name, "best", "paper", M, options)) is not None
    )
    study = study_bound(problem, gpu, sram_bytes=M, laws=laws, options=options, progress=tell)
    tell(f"figures of {gpu.name}")
    shown = [r for r in records if r.algorithm in SHOWN]
    rule = study.short_options_text or f"best tiles in steps of {GRANULARITY}"
    details = f"{problem_text(problem)}; {gpu.name}, M = {format_bytes(M)}, {rule}"
    plots = [bytes_by_tensor(shown, style, details), *(draw(study, style) for draw in BOUND_FIGURES)]
    tell(f"waterfall of {gpu.name}")
    plots += _waterfall(problem, gpu, M, style, options)
    tell(f"levels of {gpu.name}")
    levels, remark = _levels(records, gpu)
    return GpuPart(
        profile=gpu,
        sram_bytes=M,
        records=records,
        tiles=_tiles(problem, gpu, M, options),
        levels=levels,
        level_remark=remark,
        study=study,
        plots=tuple(plots),
    )


def _waterfall(
    problem: AttentionProblem, gpu: HardwareProfile, sram_bytes: int, style: Style, options: Options
) -> list[Plot]:
    """A name for every byte of FlashAttention-2, down to HBM where that is quick; none where no tile fits."""
    pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k
    try:
        found = gap(
            problem,
            profile=gpu,
            options=options.get("flash2"),
            sram_bytes=sram_bytes,
            levels=pairs <= MOST_PAIRS,
        )
        return [waterfall(found, style)]
    except UsageError:
        return []


def _levels(records: Sequence[RunRecord], gpu: HardwareProfile) -> tuple[pd.DataFrame, str]:
    """Bytes at every level by algorithm, and a sentence on how sure they are; an empty table says why."""
    rows = []
    for record in records:
        if record.algorithm not in LEVEL_RUNS or record.tiles is None:
            continue
        problem, tile = record.problem, record.tiles
        pairs = problem.batch * problem.heads * problem.seq_q * problem.seq_k
        if pairs // (tile.rows * tile.cols) > MOST_STEPS:
            return pd.DataFrame(), "Too many key tiles to simulate here; iosim simulate --levels does it."
        try:
            full = add_levels(record, find_algorithm(record.algorithm), gpu)
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
) -> RunRecord | None:
    """A record, or None where no tile fits."""
    try:
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
    problem: AttentionProblem, gpu: HardwareProfile, sram_bytes: int, options: Options
) -> pd.DataFrame:
    rows = []
    for algorithm, rule, model in TILE_RUNS:
        record = _run(problem, gpu, algorithm, rule, model, sram_bytes, options)
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


def traffic_table(records: Sequence[RunRecord]) -> pd.DataFrame:
    """One row an algorithm: tile, total, gap and bounds first, then reads, writes and bytes of each tensor."""
    tensors = list(dict.fromkeys(t.tensor for r in records for t in r.traffic_by_tensor))
    rows = []
    for record in records:
        moved = {t.tensor: t.read_bytes + t.write_bytes for t in record.traffic_by_tensor}
        total, bound = record.traffic.total_bytes, record.theory.lower_bound_bytes
        rows.append(
            {
                "algorithm": record.algorithm,
                "tile": str(record.tiles) if record.tiles else "none",
                "sm_bytes": total,
                "gap": total / bound if bound else None,
                "lower_bound_bytes": bound,
                "compulsory_bytes": record.theory.compulsory_bytes,
                "sm_read_bytes": record.traffic.sm_read_bytes,
                "sm_write_bytes": record.traffic.sm_write_bytes,
                **{f"{t}_bytes": moved.get(t, 0) for t in tensors},
                "fits": record.sram.fits,
            }
        )
    return pd.DataFrame(rows)


def _answers(problem: AttentionProblem, laws: Laws, parts: Sequence[GpuPart]) -> list[str]:
    """The few sentences at the top."""
    out = []
    for part in parts:
        by_name = {record.algorithm: record for record in part.records}
        base, best = by_name["standard"], by_name.get("flash2")
        if best is None:
            out.append(f"On {part.profile.name} no tile of flash2 fits in {format_bytes(part.sram_bytes)}.")
            continue
        moved, least = best.traffic.total_bytes, best.theory.compulsory_bytes
        times = base.traffic.total_bytes / moved
        out.append(
            f"On {part.profile.name} (M = {format_bytes(part.sram_bytes)} a thread block) FlashAttention-2 moves "
            f"{format_bytes(moved, decimal=True)} into and out of the SMs with {best.tiles} tiles; idealised standard "
            f"attention moves {format_bytes(base.traffic.total_bytes, decimal=True)}, {times:.2f} times as much. "
            f"Each tensor moved once is {format_bytes(least, decimal=True)}; the strongest lower bound at this M is "
            f"{format_bytes(best.theory.lower_bound_bytes, decimal=True)}, so the gap is "
            f"{moved / best.theory.lower_bound_bytes:.2f}."
        )
    fits = {(f.algorithm, f.series): f for f in laws.fits}
    two = fits[("flash2", "matrix elements")]
    paper = {c.algorithm: c.value for c in laws.constants if c.tiles == "paper"}
    best_tiles = {c.algorithm: c.value for c in laws.constants if c.tiles == "best"}
    law = ", ".join(
        (power("N", two.exponent_n), power("d", two.exponent_d), power("M", two.exponent_m)),
    )
    does = "does" if abs(two.exponent_m + 1) < LAW_SLACK else "does not"
    out.append(
        f"Traffic {does} fall as N²d²/M: fitted on counted elements, FlashAttention-2 goes as {law}. The constant is "
        f"{paper['flash1']:.2f} (FlashAttention-1) and {paper['flash2']:.2f} (FlashAttention-2) with the paper's "
        f"tiles, {best_tiles['flash1']:.2f} and {best_tiles['flash2']:.2f} with the best."
    )
    sentences = parts[0].study.sentences
    out.append(next(s for s in sentences if not s.startswith("Everything here")))
    checked = sum(len(part.study.gaps) + len(part.study.by_sram) for part in parts)
    below = sum(part.study.under_a_bound for part in parts)
    found = "None" if below == 0 else f"{below} (an error in the model)"
    out.append(f"{found} of {checked:,} counts on the grids of N, d and M lies under a valid lower bound.")
    return out
