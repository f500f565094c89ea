"""The least SRAM, L2 or HBM bandwidth at which a workload reaches a share of its compute bound, and the curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from iosim.algorithms.registry import Algorithm
from iosim.curves.capacity import Run, merged_curve
from iosim.errors import SimulationError, TileError, UsageError
from iosim.hardware import HardwareProfile
from iosim.levels import generic_policies, simulate_levels
from iosim.memory.hierarchy import Progress
from iosim.problem import AttentionProblem, TileShape
from iosim.tune.cost import l2_bytes_per_s
from iosim.whatif.answer import Answer, Point, Requirement
from iosim.whatif.machine import MEMORIES, fixed
from iosim.whatif.reach import Target, Tiles, check_monotone, every_tile, target_of, times

if TYPE_CHECKING:
    pass

NO_L2, WITH_L2 = "no L2", "behind the L2"
"""Readings: every byte into the SMs comes from HBM, as in the papers; or from an L2 that holds what blocks share."""
WAVES = 3
"""Waves of thread blocks that are followed through the L2; the other heads repeat them."""
MOST_ACCESSES = 100_000_000
"""Tile accesses followed for every capacity of the L2 at once: a minute or two."""
HALF_OCTAVES = range(-8, 9)


def require(
    problem: AttentionProblem,
    algorithm: Algorithm,
    gpu: HardwareProfile,
    *,
    solve: str,
    reach: float = 0.9,
    options: Mapping[str, str] | None = None,
    footprint_model: str = "kernel",
    sram_bytes: int | None = None,
    tile: TileShape | None = None,
    progress: Progress | None = None,
) -> Requirement:
    """Solve for one memory.

    `solve`: sram (bytes of a thread block), l2 (bytes) or hbm (bandwidth in B/s). `reach`: a share above 0, at most 1.
    `sram_bytes`: M where it is not solved for, by default the profile's; `tile`: the one to use instead of the best in
    M, for l2 and hbm. `progress`: told of the tile accesses that are followed, and of all, for l2 and hbm.
    Errors: `UsageError` for an unknown name or algorithm without tiles, `TileError` where no tile fits, `ProfileError`
    for a GPU without the dtype or an L2, `SimulationError` for a workload that is too long to follow.
    """
    if solve not in MEMORIES:
        raise UsageError(f"--solve: unknown memory {solve!r}; allowed: {', '.join(MEMORIES)}")
    if not 0 < reach <= 1:
        raise UsageError(f"--reach: a share above 0 % and at most 100 %, got {reach:.4g}")
    resolved = algorithm.resolve(options or {})
    if resolved.get("pass", "fwd") != "fwd":
        raise UsageError("--pass: the compute bound here is that of the forward pass")
    if solve == "sram" and (tile is not None or sram_bytes is not None):
        option = "--tiles" if tile is not None else "--sram"
        raise UsageError(f"{option}: with --solve sram the memory and its tile are looked for; leave it out")
    target = target_of(problem, algorithm, gpu)
    tiles = every_tile(target, resolved, footprint_model, gpu.register_bytes_per_sm, tile)
    asked = _Asked(
        target=target,
        options=resolved,
        gpu=gpu,
        reach=reach,
        tiles=tiles,
        sram_bytes=gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes,
        progress=progress,
    )
    answers = {"sram": asked.sram, "l2": asked.l2, "hbm": asked.hbm}[solve]()
    return Requirement(
        problem=problem,
        algorithm=algorithm.name,
        profile=gpu.name,
        footprint=footprint_model,
        solve=solve,
        reach=reach,
        compute_s=target.compute_s,
        answers=tuple(answers),
        fixed=tuple(fixed(gpu, target.machine, solve)),
        notes=tuple(_notes(gpu, solve)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    target: Target
    options: Mapping[str, str]
    gpu: HardwareProfile
    reach: float
    tiles: Tiles
    sram_bytes: int
    progress: Progress | None

    # SRAM ----------------------------------------------------------------------------------------------------
    def sram(self) -> list[Answer]:
        """More SRAM admits larger tiles: a step at each of them."""
        peak = self.target.machine.hbm_peak_bytes_per_s
        return [
            self._sram(NO_L2, peak),
            self._sram(WITH_L2, max(peak, l2_bytes_per_s(self.gpu))),
        ]

    def _sram(self, reading: str, bandwidth: float) -> Answer:
        found = times(self.target, self.tiles, bandwidth)
        total = found.max(axis=0)
        order = np.lexsort((total, self.tiles.sram_bytes))
        need, best = self.tiles.sram_bytes[order], np.minimum.accumulate(total[order])

        def at(value: float) -> Point | None:
            last = int(np.searchsorted(need, value, side="right")) - 1
            if last < 0:
                return None
            first = int(np.searchsorted(-best, -best[last], side="left"))  # the tile that brought it
            return self._point(value, found[:, order[first]], self.tiles.tile(int(order[first])))

        reached = self.target.compute_s / best
        hit = np.flatnonzero(reached >= self.reach * (1 - 1e-12))
        value = float(need[hit[0]]) if len(hit) else None
        own = float(self.gpu.sram_per_block_bytes)
        centre = value or own
        return self._answer(
            reading, value, at, [centre * 2 ** (k / 2) for k in HALF_OCTAVES], own, float(reached[-1])
        )

    # HBM bandwidth -------------------------------------------------------------------------------------------
    def hbm(self) -> list[Answer]:
        """The memory is the one unit that gets faster: bytes over what the others leave of the time."""
        tiles = self._fitting()
        bare = replace(self.target, compulsory_s=0.0)
        l2 = l2_bytes_per_s(self.gpu)
        moved = np.full(len(tiles.rows), float(self._hbm_bytes(self._best(tiles, l2))))
        return [
            self._hbm(NO_L2, tiles, times(bare, tiles, math.inf), tiles.sm_bytes),
            self._hbm(WITH_L2, tiles, times(bare, tiles, l2), moved),
        ]

    def _hbm(self, reading: str, tiles: Tiles, others: Any, moved: Any) -> Answer:
        busy = others.max(axis=0)
        limit_s = self.target.compute_s / self.reach

        def at(value: float) -> Point:
            total = np.maximum(busy, moved / value)
            i = int(np.lexsort((tiles.sm_bytes, total))[0])
            units = others[:, i].copy()
            units[-1] = moved[i] / value
            return self._point(value, units, tiles.tile(i), last="HBM")

        able = busy <= limit_s * (1 + 1e-12)
        value = float((moved[able] / limit_s).min()) if able.any() else None
        own = self.target.machine.hbm_peak_bytes_per_s
        centre = value or own
        ceiling = self.target.compute_s / float(busy.min())
        return self._answer(reading, value, at, [centre * 2 ** (k / 2) for k in HALF_OCTAVES], own, ceiling)

    # L2 capacity ---------------------------------------------------------------------------------------------
    def l2(self) -> list[Answer]:
        """HBM bytes at every capacity, from one pass of the merged blocks through an LRU."""
        tiles = self._fitting()
        bandwidth = l2_bytes_per_s(self.gpu)
        tile = self._best(tiles, bandwidth)
        chosen = tiles.chosen((tiles.rows == tile.rows) & (tiles.cols == tile.cols))
        others = times(replace(self.target, compulsory_s=0.0), chosen, bandwidth)[:, 0]
        run, scale = self._run(tile)
        accesses = sum(stream.total for stream in run.streams())
        if accesses > MOST_ACCESSES:
            raise SimulationError(
                f"--solve l2: {accesses:,} tile accesses are too many to follow; "
                f"at most {MOST_ACCESSES:,}: take a shorter sequence, or a tile of more keys (--tiles)"
            )
        curve = merged_curve(run, generic_policies(self.gpu, run.live_bytes), self.progress)
        hbm = self.target.machine.hbm_peak_bytes_per_s
        steps = np.append(np.array([0], dtype=np.int64), curve.capacities_bytes)
        total = np.maximum(others.max(), curve.total_bytes(steps) * scale / hbm)
        check_monotone(steps.tolist(), (self.target.compute_s / total).tolist())

        def at(value: float) -> Point:
            units = others.copy()
            units[-1] = float(curve.total_bytes(np.array([int(value)]))[0]) * scale / hbm
            return self._point(value, units, tile, last="HBM")

        reached = self.target.compute_s / total
        hit = np.flatnonzero(reached >= self.reach * (1 - 1e-12))
        value = float(steps[hit[0]]) if len(hit) else None
        own = float(self.gpu.l2_capacity_bytes)
        centre = value or own
        return [
            self._answer(
                WITH_L2, value, at, [centre * 2 ** (k / 2) for k in HALF_OCTAVES], own, float(reached[-1])
            )
        ]

    # shared --------------------------------------------------------------------------------------------------
    def _fitting(self) -> Tiles:
        keep = self.tiles.sram_bytes <= self.sram_bytes
        if not keep.any():
            least = int(self.tiles.sram_bytes.min())
            raise TileError(
                f"require: the smallest tile needs {least} bytes on chip and M is {self.sram_bytes}"
            )
        return self.tiles.chosen(keep)

    def _best(self, tiles: Tiles, bandwidth: float) -> TileShape:
        """The tile that is fastest at a bandwidth of the bytes into the SMs, then the one with the fewest bytes."""
        total = times(self.target, tiles, bandwidth).max(axis=0)
        return tiles.tile(int(np.lexsort((tiles.sm_bytes, total))[0]))

    def _run(self, tile: TileShape) -> tuple[Run, float]:
        """A few waves of heads, and how many times the whole they stand for."""
        p = self.target.problem
        blocks = -(-p.seq_q // tile.rows) * p.group_size
        whole = Run.of(self.target.algorithm, p, self.options, tile)
        slots = generic_policies(self.gpu, whole.live_bytes).slots
        kv = min(p.kv_heads * p.batch, -(-WAVES * slots // blocks))
        if kv * 2 > p.kv_heads * p.batch:
            return whole, 1.0
        part = replace(p, batch=1, kv_heads=kv, heads=kv * p.group_size)
        return Run.of(self.target.algorithm, part, self.options, tile), p.kv_heads * p.batch / kv

    def _hbm_bytes(self, tile: TileShape) -> float:
        """Read and written at HBM with the GPU's own L2, simulated."""
        run, scale = self._run(tile)
        policies = generic_policies(self.gpu, run.live_bytes)
        found = simulate_levels(
            run.algorithm, run.problem, run.options, tile, self.gpu, policies, progress=self.progress
        )
        # what is still dirty in the L2 at the end is written later, at the same pins
        return (found.hbm_read_bytes + found.hbm_write_bytes + found.dirty_bytes) * scale

    def _point(self, value: float, units: Any, tile: TileShape, *, last: str = "") -> Point:
        names = [*self.target.names[:-1], last or self.target.names[-1]]
        i = int(np.argmax(units))
        return Point(value=value, reached=self.target.compute_s / float(units[i]), limit=names[i], tile=tile)

    def _answer(
        self,
        reading: str,
        value: float | None,
        at: Callable[[float], Point | None],
        values: Sequence[float],
        own: float,
        ceiling: float,
    ) -> Answer:
        curve = [p for v in values if (p := at(v)) is not None]
        check_monotone([p.value for p in curve], [p.reached for p in curve])
        most = at(max([*values, own]) * 1e6)
        reason = ""
        if value is None and most is not None:
            reason = f"{most.limit} limit at {ceiling:.1%}, however much there is"
        return Answer(
            reading=reading,
            value=value,
            at=at(value) if value is not None else None,
            ceiling=ceiling,
            reason=reason,
            curve=tuple(curve),
            own=at(own),
        )


def _notes(gpu: HardwareProfile, solve: str) -> list[str]:
    out = []
    if not gpu.has("measured.l2_read_bandwidth"):
        out.append("L2 bandwidth: 36 B a clock and SM, as on an H200")
    if solve == "sram":
        out.append(f"{WITH_L2}: HBM moves the compulsory bytes, which an L2 that is large enough leaves")
    if solve == "l2":
        parts = gpu.l2_partitions
        more = (
            f"; {parts} partitions that each keep a copy need up to {parts} times as much"
            if parts > 1
            else ""
        )
        out.append(f"the L2 is one LRU of whole tiles{more}")
    if solve != "sram" and not gpu.counter_data:
        out.append(f"HBM bytes: extrapolated, {gpu.name} has no counter data")
    return out
