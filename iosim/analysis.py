"""The path from a problem to a record: algorithm -> tiles -> program -> count and footprint, theory beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from iosim import tuning
from iosim.algorithms.registry import Algorithm, find_algorithm
from iosim.errors import TileError, UsageError
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import Tally, count
from iosim.interpret.footprint import MODELS, Footprint, footprint
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program
from iosim.results import (
    BoundValue,
    BufferUse,
    RunRecord,
    SramUse,
    TensorTraffic,
    Theory,
    Traffic,
    WorkCount,
)
from iosim.theory.bounds import bounds, compulsory_bytes, ideal_reads_sram_bytes, strongest
from iosim.theory.closed_forms import closed_form
from iosim.theory.softmax import SOFTMAX_COSTS

DEFAULT_PROFILE = "h100-sxm"
DEFAULT_GRANULARITY = 16
CHUNK_COLS = (
    128  # columns a pass over S takes at a time where an algorithm has no tiles; no byte depends on it
)


def analyze(
    problem: AttentionProblem,
    algorithm: str | Algorithm = "flash2",
    *,
    tiles: str | TileShape = "best",
    profile: str | HardwareProfile = DEFAULT_PROFILE,
    options: Mapping[str, str] | None = None,
    footprint_model: str = "paper",
    granularity: int = DEFAULT_GRANULARITY,
    sram_bytes: int | None = None,
    overrides: Sequence[str] = (),
) -> RunRecord:
    """Everything iosim knows about one attention by one algorithm on one GPU.

    `tiles`: best, paper, paper-literal, or a shape such as "128x64". `sram_bytes`: M of one thread block, by
    default the profile's per-block limit. `options`: the algorithm's own (see `iosim algorithms list`).
    Errors: `UsageError` and its kinds, one line each; `TileError` when no tile, or not this one, fits in M.
    """
    chosen = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    gpu = load_profile(profile, overrides) if isinstance(profile, str) else profile
    resolved = chosen.resolve(options or {})
    program = chosen.program(problem.mask.kind, resolved)
    capacity = gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes
    check_model(footprint_model, capacity)
    registers = gpu.register_bytes_per_sm if gpu.has("sm.register_file") else None
    shape, used, warnings = _place(
        chosen, program, problem, tiles, resolved, footprint_model, granularity, capacity, registers
    )
    tally = count(program, bind(problem, used))
    held = footprint(program, footprint_model, bind(problem, used))
    fits = _fits(held, capacity, registers)
    theory = _theory(chosen, program, problem, shape, resolved, capacity, fits)
    return RunRecord(
        problem=problem,
        algorithm=chosen.name,
        options=resolved,
        tiles=shape,
        profile=gpu.name,
        profile_sha256=gpu.sha256,
        traffic=_traffic(tally),
        traffic_by_tensor=_by_tensor(tally),
        work=_work(problem, chosen, tally),
        sram=_sram(held, capacity, registers, fits),
        theory=theory,
        warnings=(*gpu.warnings, *warnings, *_remarks(chosen, problem, resolved, fits, held, capacity)),
        notes=_notes(resolved),
    )


def check_model(model: str, capacity: int) -> None:
    """Reject an unknown footprint model and a memory of nothing."""
    if model not in MODELS:
        raise UsageError(f"footprint: unknown model {model!r}; allowed: {', '.join(MODELS)}")
    if capacity < 1:
        raise UsageError(f"sram: must be at least 1 byte, got {capacity}")


def untiled(options: Mapping[str, str], seq_k: int) -> TileShape:
    """The tile bound to a program whose tiles are not the user's: the GEMM tiles, or one row in pieces of a row."""
    gemm = options.get("gemm-tiles", "off")
    return TileShape(rows=1, cols=min(seq_k, CHUNK_COLS)) if gemm == "off" else TileShape.parse(gemm)


def _place(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    tiles: str | TileShape,
    options: Mapping[str, str],
    model: str,
    granularity: int,
    capacity: int,
    registers: int | None,
) -> tuple[TileShape | None, TileShape, list[str]]:
    """The tile to show (None without one), the tile to bind, and what there is to say about it."""
    if not algorithm.tiled:
        used = untiled(options, problem.seq_k)
        asked = (
            [] if tiles in tuning.TILE_RULES else [f"tiles: {algorithm.name} has no tiles of yours; ignored"]
        )
        return (used if options.get("gemm-tiles", "off") != "off" else None), used, asked
    limit = tuning.capacity(model, capacity, registers, 1)
    if tiles == "best":
        shape = _best(program, problem, limit, granularity)
        if shape is None:
            raise TileError(_nothing_fits(program, problem, model, granularity, capacity, limit))
        return shape, shape, []
    if isinstance(tiles, str) and tiles in tuning.TILE_RULES:
        literal = tiles == "paper-literal"
        rows, cols = tuning.paper_tiles(algorithm.outer, bind(problem, _ONE), capacity, literal=literal)
        shape = TileShape(rows=int(rows), cols=int(cols))
    elif isinstance(tiles, str):
        shape = TileShape.parse(tiles)
    else:
        shape = tiles
    warnings = _literal_warnings(algorithm, problem, capacity) if tiles == "paper-literal" else []
    held = footprint(program, model, bind(problem, shape))
    if not _fits(held, capacity, registers):
        if tiles != "paper-literal":
            raise TileError(_too_large(program, problem, shape, held, limit, granularity))
        warnings.append(f"tiles: the printed ceilings give {shape}, {held.sram_bytes} bytes, more than M")
    return shape, shape, warnings


_ONE = TileShape(rows=1, cols=1)


def _best(
    program: Program, problem: AttentionProblem, limit: tuning.Capacity, granularity: int
) -> TileShape | None:
    rows, cols = tuning.best_tiles(program, limit, bind(problem, _ONE), granularity)
    return TileShape(rows=int(rows[0]), cols=int(cols[0])) if rows[0] else None


def _literal_warnings(algorithm: Algorithm, problem: AttentionProblem, capacity: int) -> list[str]:
    d = problem.head_dim
    elements = capacity // problem.dtype_k.itemsize
    if algorithm.outer == "q" and elements > 4 * d * d:
        return [
            f"tiles: under the printed rule Br stays at d = {d} once M > 4d² = {4 * d * d} elements, so the traffic "
            f"of {algorithm.name} stops falling with M (2N² elements a head); `--tiles paper` swaps the roles"
        ]
    return []


def _fits(held: Footprint, capacity: int, registers: int | None) -> bool:
    return held.sram_bytes <= capacity and (registers is None or held.register_bytes <= registers)


def _buffers_text(held: Footprint) -> str:
    parts = [
        f"{b.name} {b.bytes} B" + ("" if b.place == "sram" else " (registers)")
        for b in held.buffers
        if b.counted
    ]
    if held.register_bytes:
        parts.append(f"registers {held.register_bytes} B")
    return ", ".join(parts)


def _too_large(
    program: Program,
    problem: AttentionProblem,
    shape: TileShape,
    held: Footprint,
    limit: tuning.Capacity,
    granularity: int,
) -> str:
    capacity = int(limit.sram_bytes[0])
    largest = _largest(program, problem, shape, limit, granularity)
    return (
        f"tiles: {shape} needs {held.sram_bytes} bytes on chip ({_buffers_text(held)}) and M is {capacity}; "
        + (f"the largest tile that fits: {largest}" if largest else "no tile of this granularity fits")
    )


def _largest(
    program: Program, problem: AttentionProblem, shape: TileShape, limit: tuning.Capacity, granularity: int
) -> str:
    """The largest tile that fits with the asked rows, and the largest square one."""
    unit = tuning.step(granularity, limit.model)
    binding = bind(problem, _ONE)

    def grow(rows: int | None) -> int:
        low, high = 0, max(1, -(-max(shape.rows, shape.cols) // unit))
        while low < high:
            middle = (low + high + 1) // 2
            side = middle * unit
            ask = (np.array([rows or side]), np.array([side]))
            ok = bool(tuning.fits(program, limit, binding, np.array([0]), *ask)[0])
            low, high = (middle, high) if ok else (low, middle - 1)
        return low * unit

    same_rows, square = grow(shape.rows), grow(None)
    texts = [f"{shape.rows}x{same_rows} with {shape.rows} rows"] if same_rows else []
    texts += [f"{square}x{square} square"] if square else []
    return ", ".join(texts)


def _nothing_fits(
    program: Program,
    problem: AttentionProblem,
    model: str,
    granularity: int,
    capacity: int,
    limit: tuning.Capacity,
) -> str:
    unit = tuning.step(granularity, model)
    smallest = TileShape(rows=unit, cols=unit)
    held = footprint(program, model, bind(problem, smallest))
    finer = _best(program, problem, limit, 1) if unit > 1 and model == "paper" else None
    hint = f"--granularity 1 would allow {finer}" if finer else "give more SRAM or a smaller head dimension"
    return (
        f"sram: M = {capacity} bytes is smaller than any tile: {smallest} needs {held.sram_bytes} "
        f"({_buffers_text(held)}); {hint}"
    )


def _traffic(tally: Tally) -> Traffic:
    return Traffic(
        sm_read_bytes=int(sum(tally.read_bytes.values())), sm_write_bytes=int(sum(tally.write_bytes.values()))
    )


_ORDER = ("Q", "K", "V", "O", "S", "P", "LSE", "M", "L")


def _by_tensor(tally: Tally) -> tuple[TensorTraffic, ...]:
    names = {*tally.read_bytes, *tally.write_bytes}
    ordered = [n for n in _ORDER if n in names] + sorted(names - set(_ORDER))
    return tuple(
        TensorTraffic(
            tensor=name,
            level="sram",
            read_bytes=int(tally.read_bytes.get(name, 0)),
            write_bytes=int(tally.write_bytes.get(name, 0)),
        )
        for name in ordered
    )


def _work(problem: AttentionProblem, algorithm: Algorithm, tally: Tally) -> WorkCount:
    p = problem
    scores_only = 2 * p.head_dim * p.seq_q * p.seq_k * p.heads * p.batch  # the plain matmul sees no mask
    return WorkCount(
        useful_flops=scores_only if algorithm.computes == "scores" else p.useful_flops,
        executed_flops=int(tally.tensor_flops),
        tensor_flops=int(tally.tensor_flops),
        vector_flops=int(tally.vector_flops),
        special_ops=int(tally.special_ops),
    )


def _sram(held: Footprint, capacity: int, registers: int | None, fits: bool) -> SramUse:
    return SramUse(
        model=held.model,
        live_bytes=int(held.sram_bytes),
        capacity_bytes=capacity,
        fits=fits,
        register_bytes=int(held.register_bytes),
        register_capacity_bytes=registers,
        buffers=tuple(
            BufferUse(
                kernel=b.kernel,
                name=b.name,
                tensor=b.tensor,
                place=b.place,
                bytes=int(b.bytes),
                counted=b.counted,
            )
            for b in held.buffers
        ),
    )


def _theory(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    tiles: TileShape | None,
    options: Mapping[str, str],
    capacity: int,
    fits: bool,
) -> Theory:
    matmul_only = algorithm.computes == "scores"
    found = bounds(problem, capacity, spills_scores=program.spills_scores, matmul_only=matmul_only)
    # a program that does not fit in M may move less than any that does; the bounds in M say nothing about it
    excused = not fits and not (algorithm.idealised and capacity >= ideal_reads_sram_bytes(problem))
    values = []
    for bound in found:
        applies = bound.valid and not (excused and bound.name in ("fused", "matmul"))
        reason = (
            bound.reason
            if applies or not bound.valid
            else "the program does not fit in M, so it may move less"
        )
        size = bound.bytes if applies else None
        values.append(
            BoundValue(name=bound.name, bytes=size, valid=applies, reason=reason, source=bound.source)
        )
    exact = None
    if not algorithm.user_defined:
        formula = closed_form(algorithm.name, problem, tiles, options)
        exact = formula.total_bytes if formula else None
    return Theory(
        closed_form_bytes=exact,
        compulsory_bytes=compulsory_bytes(problem) if not matmul_only else cast(int, found[0].bytes),
        lower_bound_bytes=strongest(cast(Any, values)),
        bounds=tuple(values),
    )


def _remarks(
    algorithm: Algorithm,
    problem: AttentionProblem,
    options: Mapping[str, str],
    fits: bool,
    held: Footprint,
    capacity: int,
) -> list[str]:
    """What a careful reader of the numbers has to know."""
    out = []
    if not fits and algorithm.idealised:
        out.append(
            f"{algorithm.name}: idealised, needs {held.sram_bytes} bytes on chip "
            f"({_buffers_text(held)}) and M is {capacity}; a real kernel re-reads its operands: --gemm-tiles 128x128"
        )
    if options.get("softmax") == "naive":
        out.append("softmax: naive takes no maximum, so large scores overflow")
    if not algorithm.scaled and algorithm.computes == "attention":
        out.append(f"{algorithm.name}: the scores are not multiplied by 1/√d")
    if algorithm.computes == "scores" and problem.mask.is_causal:
        out.append(f"{algorithm.name}: a plain matmul sees no mask; all of S is computed")
    return out


def _notes(options: Mapping[str, str]) -> dict[str, Any]:
    """Passes and accesses an element of the chosen softmax, where there is one to choose."""
    if "softmax" not in options:
        return {}
    cost = SOFTMAX_COSTS[options["softmax"]]
    return {
        "softmax": {
            "variant": options["softmax"],
            "passes": cost.passes,
            "accesses_per_element": cost.accesses,
        }
    }
