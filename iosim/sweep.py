"""A grid of runs as one table, through `count` on columns: thousands of points cost about as much as one.

Points that share an algorithm, a kind of mask, a tile rule and a GPU share one program, and are evaluated
together. A point that cannot run (no tile fits, heads that do not divide) keeps its row, with the reason in
`error`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from iosim import tuning
from iosim.algorithms.registry import Algorithm, find_algorithm
from iosim.analysis import analyze, theory_beside
from iosim.errors import ProgramError, SimulationError, UsageError
from iosim.grid import Grid
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.interpret.footprint import live_bytes
from iosim.levels import add_levels, generic_policies, simulate_levels
from iosim.placement import IDEAL_TILE, memory_bytes, untiled
from iosim.problem import AttentionProblem, Mask, TileShape
from iosim.program.evaluate import Frame, Number
from iosim.program.ir import Program
from iosim.ragged import analyze_ragged, ragged_columns, sequences_of
from iosim.ragged.rows import COLUMNS as RAGGED_COLUMNS
from iosim.results import LevelBytes, RunRecord, in_order
from iosim.work import useful_flops

BATCH = 1000  # points evaluated, and written, together
LEVEL_BATCH = 8  # the same where every point is simulated
Progress = Callable[[int, int], None]

_PROBLEM = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "value_dim", "mask")
_SIZES = _PROBLEM[:-1]
_DTYPES = ("dtype_q", "dtype_k", "dtype_v", "dtype_o", "dtype_acc")
_WORK = ("useful_flops", "executed_flops", "tensor_flops", "vector_flops", "special_ops")
_LEVELS = tuple(field.name for field in fields(LevelBytes))
_THEORY = ("closed_form_bytes", "compulsory_bytes", "lower_bound_bytes")


@dataclass(frozen=True, slots=True)
class _Point:
    """One point made ready: its problem and M, or why it cannot run."""

    axes: dict[str, Any]
    problem: AttentionProblem | None
    sram_bytes: int | None
    error: str


def sweep(grid: Grid, progress: Progress | None = None) -> pd.DataFrame:
    """Run every point; one row each, in the order of `Grid.points`. `progress(done, total)` is called as it goes.

    Errors: `UsageError` for what is wrong in every point (an unknown algorithm, profile or option).
    """
    frames = list(batches(grid, progress=progress))
    return pd.concat(frames, ignore_index=True)


def columns(grid: Grid) -> list[str]:
    """The columns of the table, the same for every part of one grid."""
    tensors: set[str] = set()
    for name in grid.algorithm:
        algorithm = find_algorithm(name)
        chosen = {**grid.options.get(name, {}), **({"splits": "2"} if grid.best_splits(name) else {})}
        for mask in grid.mask:
            program = algorithm.program(Mask.parse(mask).kind, algorithm.resolve(chosen))
            tensors |= program.tensors.keys()
    moved = [f"{t}_{direction}_bytes" for t in in_order(tensors) for direction in ("read", "write")]
    return [
        *("algorithm", "profile", *_PROBLEM, *_DTYPES, "tiles", "tile_rows", "tile_cols"),
        *("sram_bytes", "sram_live_bytes", "fits", "sm_read_bytes", "sm_write_bytes"),
        *(*(_LEVELS if grid.levels else ()), *moved),
        *(*_WORK, *_THEORY, *(RAGGED_COLUMNS if grid.seq_lens else ())),
        *(("splits",) if any(grid.best_splits(name) for name in grid.algorithm) else ()),
        "error",
    ]


def batches(grid: Grid, skip: int = 0, progress: Progress | None = None) -> Iterator[pd.DataFrame]:
    """The table in parts of at most BATCH rows, without the first `skip`: what a resumed sweep needs."""
    names, total, done = columns(grid), len(grid), skip
    gpus = {name: load_profile(name, grid.overrides) for name in grid.profile}
    points = itertools.islice(grid.points(), skip, None)
    size = LEVEL_BATCH if grid.levels else BATCH
    while batch := list(itertools.islice(points, size)):
        rows: list[dict[str, Any]] = [{} for _ in batch]
        ready = [_prepare(grid, gpus, axes) for axes in batch]
        keys = [(p.axes["algorithm"], p.axes["profile"], p.axes["mask"], p.axes["tiles"]) for p in ready]
        for key in dict.fromkeys(keys):
            group = [i for i, other in enumerate(keys) if other == key]
            run = _run_singly if grid.seq_lens or grid.best_splits(key[0]) else _run
            for i, row in zip(group, run(grid, gpus, key, [ready[i] for i in group]), strict=True):
                rows[i] = row
        done += len(batch)
        yield _table(rows, names)
        if progress:
            progress(done, total)


def _table(rows: list[dict[str, Any]], names: list[str]) -> pd.DataFrame:
    """Whole numbers stay whole: a missing one must not turn its column into floats."""
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    for name in names:
        if name in (*_PROBLEM, *_DTYPES, "algorithm", "profile", "tiles", "error") and name not in _SIZES:
            frame[name] = frame[name].astype("string")
        elif name == "fits":
            frame[name] = frame[name].astype("boolean")
        elif all(v is None or v is pd.NA or -(2**63) <= v < 2**63 for v in frame[name] if v == v):
            frame[name] = frame[name].astype("Int64")
    return frame


def _prepare(grid: Grid, gpus: Mapping[str, HardwareProfile], axes: dict[str, Any]) -> _Point:
    lengths: dict[str, Any] = {name: axes[name] for name in ("seq", "seq_q", "seq_k") if name in axes}
    shape = {name: axes[name] for name in ("batch", "heads", "kv_heads", "head_dim", "value_dim", "mask")}
    gpu = gpus[axes["profile"]]
    sram = gpu.sram_per_block_bytes if axes["sram_bytes"] is None else axes["sram_bytes"]
    try:
        request: dict[str, Any] = {**lengths, **shape, **grid.dtypes}
        problem = AttentionProblem.of(**request)
        find_algorithm(axes["algorithm"]).check(problem)
        if sram < 1:
            raise UsageError(f"sram: must be at least 1 byte, got {sram}")
    except UsageError as error:
        return _Point(axes, None, sram, str(error))
    return _Point(axes, problem, sram, "")


def _run(
    grid: Grid, gpus: Mapping[str, HardwareProfile], key: tuple[str, str, str, str], points: list[_Point]
) -> list[dict[str, Any]]:
    """All points of one program: tiles, counts and footprints as columns, then one dictionary a point."""
    name, profile, mask, tiles = key
    algorithm = find_algorithm(name)
    options = algorithm.resolve(grid.options.get(name, {}))
    program = algorithm.program(Mask.parse(mask).kind, options)
    gpu = gpus[profile]
    out = [{**p.axes, "profile": gpu.name, "error": p.error} for p in points]
    absent = {
        n: 0 for n in columns(grid) if n.endswith(("_read_bytes", "_write_bytes"))
    }  # tensors it does not have
    good = [i for i, p in enumerate(points) if p.problem is not None]
    if not good:
        return out
    problems = [p for i in good if (p := points[i].problem) is not None]
    srams = np.array([points[i].sram_bytes for i in good], dtype=np.int64)
    binding = _columns_of([bind(p, TileShape(rows=1, cols=1)) for p in problems])
    limit = tuning.capacity(grid.footprint_model, srams, gpu.register_bytes_per_sm, len(good))
    rows, cols = _tiles(grid, algorithm, program, options, tiles, problems, binding, limit)
    placed = np.flatnonzero(rows > 0)
    small = {n: v[placed] if isinstance(v, np.ndarray) else v for n, v in binding.items()}
    values = _evaluate(
        program, grid.footprint_model, {**small, "Br": rows[placed], "Bc": cols[placed]}, len(placed)
    )
    for slot, i in enumerate(good):
        problem = problems[slot]
        out[i] |= {n: v for n, v in problem.to_dict().items() if n in (*_PROBLEM, *_DTYPES)}
        out[i]["sram_bytes"] = int(srams[slot])
        if rows[slot] == 0:
            out[i]["error"] = _why(grid, algorithm, gpu, problem, points[i])
    for position, slot in enumerate(placed.tolist()):
        row = out[good[slot]]
        row |= absent | {column: int(v[position]) for column, v in values.items()}
        shape = TileShape(rows=int(rows[slot]), cols=int(cols[slot]))
        _finish(row, algorithm, program, options, problems[slot], shape, limit, slot)
        if grid.levels:
            policies = generic_policies(gpu, row["sram_live_bytes"], **grid.level_policies)
            try:
                levels = simulate_levels(algorithm, problems[slot], options, shape, gpu, policies)
            except (ProgramError, SimulationError) as error:  # too large to simulate
                row |= dict.fromkeys(_LEVELS) | {"error": f"levels: {error}"}
            else:
                row |= asdict(levels.bytes())
    return out


def _run_singly(
    grid: Grid, gpus: Mapping[str, HardwareProfile], key: tuple[str, str, str, str], points: list[_Point]
) -> list[dict[str, Any]]:
    """The same point by point: a ragged batch, whose lengths are the columns, or splits that each point chooses."""
    name, profile, _, _ = key
    algorithm, gpu = find_algorithm(name), gpus[profile]
    absent = {n: 0 for n in columns(grid) if n.endswith(("_read_bytes", "_write_bytes"))}
    out = []
    for point in points:
        row = {**point.axes, "profile": gpu.name, "sram_bytes": point.sram_bytes, "error": point.error}
        out.append(row)
        if point.problem is None:
            continue
        try:
            record = _record(grid, algorithm, gpu, point.problem, point)
        except UsageError as error:
            row["error"] = str(error)
            continue
        if grid.levels:
            sequences = sequences_of(point.problem, grid.seq_lens, fixed_queries=grid.seq_q is not None)
            try:
                record = add_levels(record, algorithm, gpu, chosen=grid.level_policies, sequences=sequences)
            except (ProgramError, SimulationError) as error:
                row["error"] = f"levels: {error}"
        row |= absent | record.to_row() | {"algorithm": name}
        if grid.levels and record.level_bytes is None:
            row |= dict.fromkeys(_LEVELS)
        if grid.seq_lens:
            row |= ragged_columns(record)
        if grid.best_splits(name):
            row["splits"] = record.notes["splits"]["chosen"]
    return out


def _record(
    grid: Grid, algorithm: Algorithm, gpu: HardwareProfile, problem: AttentionProblem, point: _Point
) -> RunRecord:
    """The point as a single run would have it; errors as there."""
    asked: dict[str, Any] = {
        "tiles": point.axes["tiles"],
        "profile": gpu,
        "options": grid.options.get(point.axes["algorithm"], {}),
        "footprint_model": grid.footprint_model,
        "granularity": grid.granularity,
        "sram_bytes": point.sram_bytes,
    }
    if not grid.seq_lens:
        return analyze(problem, algorithm, **asked)
    return analyze_ragged(problem, grid.seq_lens, algorithm, fixed_queries=grid.seq_q is not None, **asked)


def _columns_of(bindings: list[dict[str, int]]) -> dict[str, Number]:
    """Letters as columns; a letter that is the same everywhere stays an int."""
    out: dict[str, Number] = {}
    for letter in bindings[0]:
        values = [b[letter] for b in bindings]
        out[letter] = values[0] if len(set(values)) == 1 else np.array(values, dtype=np.int64)
    return out


def _tiles(
    grid: Grid,
    algorithm: Algorithm,
    program: Program,
    options: Mapping[str, str],
    rule: str,
    problems: list[AttentionProblem],
    binding: Mapping[str, Number],
    limit: tuning.Capacity,
) -> tuple[tuning.Ints, tuning.Ints]:
    """Rows and columns of the tile of every point; 0 where the tile does not fit."""
    many = len(problems)
    if not algorithm.tiled:
        shapes = [untiled(options, p.seq_k) for p in problems]
        return np.array([s.rows for s in shapes]), np.array([s.cols for s in shapes])
    if rule == "best":
        searched = algorithm.searched(problems[0].mask.kind, options)
        rows, cols = tuning.best_tiles(searched, limit, binding, grid.granularity)
        if algorithm.idealised:
            rows, cols = np.where(rows, rows, IDEAL_TILE.rows), np.where(rows, cols, IDEAL_TILE.cols)
        return rows, cols
    if rule in tuning.TILE_RULES:
        literal = rule == "paper-literal"
        asked = tuning.paper_tiles(
            algorithm.outer_of(options),
            binding,
            limit.sram_bytes,
            literal=literal,
            backward=options.get("pass", "fwd") != "fwd",
        )
    else:
        shape = TileShape.parse(rule)
        asked = (shape.rows, shape.cols)
    rows, cols = (np.broadcast_to(np.asarray(side, dtype=np.int64), (many,)) for side in asked)
    ok = tuning.fits(program, limit, binding, np.arange(many), rows, cols)
    ok = ok | (rule == "paper-literal") | algorithm.idealised
    return np.where(ok, rows, 0), np.where(ok, cols, 0)


def _evaluate(program: Program, model: str, binding: Mapping[str, Number], many: int) -> dict[str, Any]:
    tally = count(program, binding)
    live = Frame(binding).value(live_bytes(program, model))
    values: dict[str, Number] = {
        "sram_live_bytes": live,
        "sm_read_bytes": sum(tally.read_bytes.values()),
        "sm_write_bytes": sum(tally.write_bytes.values()),
        "executed_flops": tally.tensor_flops,
        "tensor_flops": tally.tensor_flops,
        "vector_flops": tally.vector_flops,
        "special_ops": tally.special_ops,
    }
    for tensor in program.tensors:
        values[f"{tensor}_read_bytes"] = tally.read_bytes.get(tensor, 0)
        values[f"{tensor}_write_bytes"] = tally.write_bytes.get(tensor, 0)
    return {name: np.broadcast_to(np.asarray(v), (many,)) for name, v in values.items()}


def _finish(
    row: dict[str, Any],
    algorithm: Algorithm,
    program: Program,
    options: Mapping[str, str],
    problem: AttentionProblem,
    shape: TileShape,
    limit: tuning.Capacity,
    slot: int,
) -> None:
    """What is not a column: the tile as shown, the fit, useful flops, and theory beside the counts."""
    shown = shape if algorithm.tiled or options.get("gemm-tiles", "off") != "off" else None
    sram = int(limit.sram_bytes[slot])
    fits = row["sram_live_bytes"] <= sram
    on_chip = memory_bytes(limit.model, sram, int(limit.register_bytes[slot]))
    theory = theory_beside(algorithm, program, problem, options, shown, sram_bytes=on_chip, fits=fits)
    row |= {
        "tile_rows": shown.rows if shown else None,
        "tile_cols": shown.cols if shown else None,
        "fits": fits,
        "useful_flops": useful_flops(problem, algorithm, options, shown),
        **{name: getattr(theory, name) for name in _THEORY},
    }


def _why(
    grid: Grid, algorithm: Algorithm, gpu: HardwareProfile, problem: AttentionProblem, point: _Point
) -> str:
    """The sentence that a single run of this point would give."""
    try:
        _record(grid, algorithm, gpu, problem, point)
    except UsageError as error:
        return str(error)
    return "no tile fits"
