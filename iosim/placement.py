"""Which tile a run uses: the one asked for, the paper's, or the best; and, when none fits, why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from iosim import tuning
from iosim.algorithms.registry import Algorithm
from iosim.errors import TileError, UsageError
from iosim.interpret.binding import bind
from iosim.interpret.footprint import MODELS, Footprint, footprint
from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Program

CHUNK_COLS = (
    128  # columns a pass over S takes at a time where an algorithm has no tiles; no byte depends on it
)


IDEAL_TILE = TileShape(rows=128, cols=128)
"""The tile of an idealised algorithm where nothing fits: it is counted all the same, and `fits` says no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """What one thread block may hold: M and the register file in bytes, the footprint model, the tile step."""

    model: str
    sram_bytes: int
    register_bytes: int
    granularity: int

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UsageError(f"footprint: unknown model {self.model!r}; allowed: {', '.join(MODELS)}")
        if self.sram_bytes < 1:
            raise UsageError(f"sram: must be at least 1 byte, got {self.sram_bytes}")
        tuning.step(self.granularity, self.model)

    @property
    def limit(self) -> tuning.Capacity:
        """The same as columns of one point."""
        return tuning.capacity(self.model, self.sram_bytes, self.register_bytes, 1)

    @property
    def memory_bytes(self) -> int:
        """All that may be live on chip: M, and the registers where the model keeps tiles there too."""
        return memory_bytes(self.model, self.sram_bytes, self.register_bytes)

    def holds(self, held: Footprint) -> bool:
        """Whether the worst moment fits."""
        return bool(held.sram_bytes <= self.sram_bytes and held.register_bytes <= self.register_bytes)


def memory_bytes(model: str, sram_bytes: int, register_bytes: int) -> int:
    """What a lower bound must take for M: in the `kernel` model accumulators are in registers, beside shared memory."""
    return sram_bytes + register_bytes if model == "kernel" else sram_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The tile to show (None where the algorithm has none), the tile to bind, and what there is to say."""

    shown: TileShape | None
    bound: TileShape
    held: Footprint
    fits: bool
    warnings: tuple[str, ...] = ()


def untiled(options: Mapping[str, str], seq_k: int) -> TileShape:
    """The tile bound to a program whose tiles are not the user's: its GEMM tiles, or a row in pieces."""
    gemm = options.get("gemm-tiles", "off")
    return TileShape(rows=1, cols=min(seq_k, CHUNK_COLS)) if gemm == "off" else TileShape.parse(gemm)


def place(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    tiles: str | TileShape,
    options: Mapping[str, str],
    chip: Chip,
) -> Placement:
    """Find the tile and what it holds on chip.

    `tiles`: best, paper, paper-literal or a shape. Errors: `TileError` when a chosen or computed tile does not fit
    (with every buffer and the largest tile that does), or when none of the granularity fits.
    """
    warnings: list[str] = []
    shown: TileShape | None
    if not algorithm.tiled:
        bound = untiled(options, problem.seq_k)
        shown = bound if options.get("gemm-tiles", "off") != "off" else None
        if tiles not in tuning.TILE_RULES:
            warnings.append(f"tiles: {algorithm.name} has no tiles to choose; {tiles} is ignored")
    else:
        shown = bound = _shape(algorithm, program, problem, tiles, options, chip)
        if tiles in ("paper", "paper-literal"):
            warnings += _shared_tile_warnings(algorithm, problem, options, shown)
        if tiles == "paper-literal":
            warnings += _literal_warnings(algorithm, problem, options, chip.sram_bytes)
    held = footprint(program, chip.model, bind(problem, bound))
    fits = chip.holds(held)
    if algorithm.tiled and not fits and not algorithm.idealised:
        if tiles != "paper-literal":
            raise TileError(_too_large(program, problem, bound, held, chip))
        warnings.append(f"tiles: the printed ceilings give {bound}, {held.sram_bytes:,} bytes, more than M")
    return Placement(shown=shown, bound=bound, held=held, fits=fits, warnings=tuple(warnings))


_ONE = TileShape(rows=1, cols=1)


def _shape(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    tiles: str | TileShape,
    options: Mapping[str, str],
    chip: Chip,
) -> TileShape:
    if isinstance(tiles, TileShape):
        return tiles
    if tiles == "best":
        searched = algorithm.searched(problem.mask.kind, options)
        shape = _best(searched, problem, chip.limit, chip.granularity)
        if shape is None and algorithm.idealised:
            return IDEAL_TILE
        if shape is None:
            raise TileError(_nothing_fits(program, problem, chip))
        return shape
    if tiles in tuning.TILE_RULES:
        literal = tiles == "paper-literal"
        rows, cols = tuning.paper_tiles(
            algorithm.outer_of(options),
            bind(problem, _ONE),
            chip.sram_bytes,
            literal=literal,
            backward=options.get("pass", "fwd") != "fwd",
        )
        return TileShape(rows=int(rows), cols=int(cols))
    return TileShape.parse(tiles)


def _best(
    program: Program, problem: AttentionProblem, limit: tuning.Capacity, granularity: int
) -> TileShape | None:
    rows, cols = tuning.best_tiles(program, limit, bind(problem, _ONE), granularity)
    return TileShape(rows=int(rows[0]), cols=int(cols[0])) if rows[0] else None


def _literal_warnings(
    algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], sram_bytes: int
) -> list[str]:
    d = problem.head_dim
    if algorithm.outer_of(options) == "k" or sram_bytes // problem.dtype_k.itemsize <= 4 * d * d:
        return []
    text = (
        f"tiles: under the printed rule Br stays at d = {d} once M > 4d² = {4 * d * d} elements, so the traffic of "
        f"{algorithm.name} stops falling with M (2N² elements a head); --tiles paper swaps the roles"
    )
    return [text]


def _shared_tile_warnings(
    algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], shape: TileShape
) -> list[str]:
    if options.get("pass") != "fwd+bwd" or algorithm.outer != "q" or shape.rows >= problem.seq_q:
        return []
    text = (
        f"tiles: one tile serves both passes, and the paper's rule for a backward keeps {shape.rows} rows at any M, so "
        "the forward reads K and V once for so few queries; --pass fwd and --pass bwd apart have their own tiles"
    )
    return [text]


def buffers_text(held: Footprint) -> str:
    """The buffers that count, with their bytes."""
    parts = [f"{b.name} {b.bytes:,} B" for b in held.buffers if b.counted]
    return ", ".join([*parts, f"registers {held.register_bytes:,} B"] if held.register_bytes else parts)


def _limits_text(chip: Chip) -> str:
    registers = f", the register file {chip.register_bytes:,}" if chip.model == "kernel" else ""
    return f"M is {chip.sram_bytes:,}{registers}"


def _too_large(
    program: Program, problem: AttentionProblem, shape: TileShape, held: Footprint, chip: Chip
) -> str:
    largest = _largest(program, problem, shape, chip)
    return (
        f"tiles: {shape} needs {held.sram_bytes:,} bytes on chip ({buffers_text(held)}) and {_limits_text(chip)}; "
        + (f"the largest tile that fits: {largest}" if largest else "no tile of this granularity fits")
    )


def _largest(program: Program, problem: AttentionProblem, shape: TileShape, chip: Chip) -> str:
    """The largest tile that fits with the asked rows, and the largest square one."""
    unit, limit, binding = tuning.step(chip.granularity, chip.model), chip.limit, bind(problem, _ONE)

    def grow(rows: int | None) -> int:
        low, high = 0, max(1, -(-max(shape.rows, shape.cols) // unit))
        while low < high:
            middle = (low + high + 1) // 2
            side = np.array([middle * unit])
            first = side if rows is None else np.array([rows])
            ok = bool(tuning.fits(program, limit, binding, np.array([0]), first, side)[0])
            low, high = (middle, high) if ok else (low, middle - 1)
        return low * unit

    same_rows, square = grow(shape.rows), grow(None)
    texts = [f"{shape.rows}x{same_rows} with {shape.rows} rows"] if same_rows else []
    return ", ".join([*texts, f"{square}x{square} square"] if square else texts)


def _nothing_fits(program: Program, problem: AttentionProblem, chip: Chip) -> str:
    unit = tuning.step(chip.granularity, chip.model)
    smallest = TileShape(rows=unit, cols=unit)
    held = footprint(program, chip.model, bind(problem, smallest))
    finer = _best(program, problem, chip.limit, 1) if unit > 1 and chip.model == "paper" else None
    hint = f"--granularity 1 would allow {finer}" if finer else "give more SRAM or a smaller head dimension"
    return (
        f"sram: smaller than any tile: {smallest} needs {held.sram_bytes:,} bytes ({buffers_text(held)}) and "
        f"{_limits_text(chip)}; {hint}"
    )
