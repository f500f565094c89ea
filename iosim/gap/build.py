"""The waterfall of a shipped algorithm, of a user's own program, or of a production kernel's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iosim.algorithms.registry import Algorithm, find_algorithm
from iosim.analysis import DEFAULT_GRANULARITY, DEFAULT_PROFILE, analyze
from iosim.errors import ProfileError, SimulationError, UsageError
from iosim.gap.hierarchy_side import FusedMachine, descend
from iosim.gap.program_side import Run, climb
from iosim.gap.record import Gap, Ladder
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import count
from iosim.kernels import KernelFacts
from iosim.levels import generic_policies, kernel_policies
from iosim.memory.hierarchy import Policies
from iosim.placement import untiled
from iosim.problem import AttentionProblem, TileShape

DEFAULT_FOOTPRINT = "kernel"
"""The waterfall asks for a tile that really fits: stages, fp32 accumulators, registers, the MMA shape."""


def gap(
    problem: AttentionProblem,
    algorithm: str | Algorithm = "flash2",
    *,
    tiles: str | TileShape = "best",
    profile: str | HardwareProfile = DEFAULT_PROFILE,
    options: Mapping[str, str] | None = None,
    footprint_model: str = DEFAULT_FOOTPRINT,
    granularity: int = DEFAULT_GRANULARITY,
    sram_bytes: int | None = None,
    overrides: Sequence[str] = (),
    kernel: KernelFacts | None = None,
    chosen: Mapping[str, Any] | None = None,
    levels: bool = True,
) -> Gap:
    """Name every byte between the compulsory ones and HBM.

    Arguments as for `analyze`; `kernel`: a library's tiles, padding and schedule instead of these; `chosen`: fields
    of `Policies` to set; `levels` False ends at the SMs, without a simulation. Steps up to the SMs are
    exact, those below are ablations of the simulated hierarchy. Where the profile does not know its L2 the waterfall
    ends at the SMs, with a warning. Errors: those of `analyze`.
    """
    gpu = load_profile(profile, overrides) if isinstance(profile, str) else profile
    if kernel is not None:
        return _gap_of_kernel(problem, kernel, gpu, tiles, sram_bytes, chosen or {}, levels)
    found = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    record = analyze(
        problem,
        found,
        tiles=tiles,
        profile=gpu,
        options=options,
        footprint_model=footprint_model,
        granularity=granularity,
        sram_bytes=sram_bytes,
    )
    run = Run(
        algorithm=found,
        problem=problem,
        options=record.options,
        shown=record.tiles,
        bound=record.tiles or untiled(record.options, problem.seq_k),
        loaded=problem,
        sram_bytes=record.sram.capacity_bytes,
    )
    policies = generic_policies(gpu, record.sram.live_bytes, **(chosen or {}))
    return gap_of_program(run, gpu, policies, warnings=record.warnings, levels=levels)


def _gap_of_kernel(
    problem: AttentionProblem,
    facts: KernelFacts,
    gpu: HardwareProfile,
    tiles: str | TileShape,
    sram_bytes: int | None,
    chosen: Mapping[str, Any],
    levels: bool,
) -> Gap:
    tile = _kernel_tile(problem, facts, tiles)
    run = kernel_run(problem, facts, tile, gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes)
    policies = replace(kernel_policies(facts, run.problem, tile, gpu), **chosen)
    return gap_of_program(run, gpu, policies, kernel=facts.name, in_step=facts.in_step, levels=levels)


def _kernel_tile(problem: AttentionProblem, facts: KernelFacts, tiles: str | TileShape) -> TileShape:
    tile = facts.tile(problem.head_dim) if tiles == "best" else None
    if tile is None and tiles == "best":
        raise UsageError(f"kernel: {facts.name} is not built for head_dim {problem.head_dim}")
    if tile is None:
        tile = tiles if isinstance(tiles, TileShape) else TileShape.parse(tiles)
    return tile


def kernel_run(problem: AttentionProblem, facts: KernelFacts, tile: TileShape, sram_bytes: int) -> Run:
    """What a production kernel computes: heads packed as it packs them, loads as it pads them."""
    loaded = facts.padded(problem)
    seen = facts.packed(problem)
    sizes = (loaded.seq_q, loaded.seq_k, loaded.head_dim, loaded.value_dim)
    same = sizes == (seen.seq_q, seen.seq_k, seen.head_dim, seen.value_dim)
    return Run(
        algorithm=find_algorithm(facts.algorithm),
        problem=seen,
        options=facts.options,
        shown=tile,
        bound=tile,
        loaded=seen if same else loaded,
        sram_bytes=sram_bytes,
    )


def gap_of_program(
    run: Run,
    gpu: HardwareProfile,
    policies: Policies,
    *,
    kernel: str | None = None,
    in_step: float | None = None,
    warnings: Sequence[str] = (),
    measured: Mapping[str, float] | None = None,
    case: str | None = None,
    levels: bool = True,
) -> Gap:
    """The waterfall of one run under one schedule; `measured` counters are set beside it and end it."""
    ladder, said = Ladder(), list(warnings)
    counters = measured or {}
    climb(run, ladder)
    spills = bool(policies.spill_bytes_per_step or policies.spill_bytes_per_block)
    sm_total(run, ladder, counters, has_spills=spills)
    if not levels:
        return _gap(run, gpu, ladder, said, kernel, case)
    try:
        machine = FusedMachine.of(run.algorithm, run.problem, run.options, run.bound, gpu, policies, in_step)
    except (ProfileError, SimulationError) as error:
        said.append(f"gap: ends at the SMs: {error}")
    else:
        _coalescer(run, machine, ladder, counters)
        descend(machine, gpu, policies, ladder, has_spills=machine.has_spills)
        hbm_total(ladder, counters)
    if not gpu.counter_data:
        said.append(
            f"gap: below the SMs extrapolated, {gpu.name} has no counter data; the L2's inside is that of an H200"
        )
    return _gap(run, gpu, ladder, said, kernel, case)


def _gap(
    run: Run, gpu: HardwareProfile, ladder: Ladder, said: list[str], kernel: str | None, case: str | None
) -> Gap:
    return Gap(
        problem=run.problem,
        algorithm=run.algorithm.name,
        options=run.options,
        tiles=run.shown,
        kernel=kernel,
        profile=gpu.name,
        profile_sha256=gpu.sha256,
        sram_bytes=run.sram_bytes,
        extrapolated=not gpu.counter_data,
        entries=ladder.done(),
        case=case,
        warnings=tuple(said),
    )


def sm_total(run: Run, ladder: Ladder, counters: Mapping[str, float], *, has_spills: bool = False) -> None:
    """The bytes between slow memory and the SMs, read again from the program; the steps must have reached them."""
    tally = count(run.program, bind(run.loaded, run.bound))
    read, written = int(sum(tally.read_bytes.values())), int(sum(tally.write_bytes.values()))
    text = f"{read:,} B read{_beside(read, counters, 'sm_read_bytes')}, {written:,} B written"
    if not has_spills:
        text += _beside(written, counters, "sm_write_bytes")
    elif "sm_write_bytes" in counters:
        text += f" (counter, with spilled registers: {counters['sm_write_bytes']:,.0f})"
    ladder.total(
        "sm",
        "program",
        "into and out of the SMs",
        read + written,
        "exact",
        text,
        measured=None if has_spills else both(counters, "sm"),
    )


def _beside(amount: int, counters: Mapping[str, float], column: str) -> str:
    """A counter in brackets behind a predicted amount."""
    measured = counters.get(column)
    return f" (counter {measured:,.0f}, {_percent(amount / measured - 1)})" if measured else ""


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−")


def _coalescer(run: Run, machine: FusedMachine, ladder: Ladder, counters: Mapping[str, float]) -> None:
    full = machine.full
    if full.in_step is None:
        return
    tally = count(run.program, bind(run.loaded, run.bound))
    read = int(sum(tally.read_bytes.values()))
    arrives = round(read * full.l2_read_bytes / full.sm_read_bytes) if full.sm_read_bytes else 0
    ladder.step(
        "coalescer",
        "hierarchy",
        "less the coalescer",
        ladder.level - (read - arrives),
        "reads of SMs in step, merged",
        "reads of one line by SMs in step are merged before they reach the L2: "
        f"{arrives:,} B of reads arrive{_beside(arrives, counters, 'l2_read_bytes')}",
        measured=None if machine.has_spills else both(counters, "l2"),
    )


def hbm_total(ladder: Ladder, counters: Mapping[str, float]) -> None:
    """The prediction, and the residual to the counters where both directions were measured."""
    ladder.total(
        "hbm",
        "hierarchy",
        "HBM, predicted",
        ladder.level,
        "simulated",
        "reads and writes at HBM until the kernel ends, simulated",
    )
    measured = both(counters, "hbm")
    if measured is None:
        return
    text = (
        f"the prediction is off by {_percent(ladder.level / measured - 1)}"
        if measured
        else "nothing was moved"
    )
    ladder.step("residual", "measured", "residual", measured, text, f"not explained by the model: {text}")
    ladder.total(
        "measured", "measured", "HBM, measured", measured, "counters", "hardware counters, reads and writes"
    )


def both(counters: Mapping[str, float], level: str) -> int | None:
    """Measured reads and writes of a level together; None where one is missing."""
    parts = [counters.get(f"{level}_{way}_bytes") for way in ("read", "write")]
    return None if None in parts else round(sum(p for p in parts if p is not None))
