"""The path from a problem to a record: algorithm -> tiles -> program -> count and footprint, theory beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iosim.algorithms.registry import Algorithm, find_algorithm
from iosim.hardware import HardwareProfile, load_profile
from iosim.interpret.binding import bind
from iosim.interpret.count import Tally, count
from iosim.notes import launch_notes, notes
from iosim.placement import Chip, Placement, buffers_text, place
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
    in_order,
)
from iosim.splits import Split, best_split, split_table
from iosim.theory.backward_bounds import backward_bounds, both_bounds
from iosim.theory.block_sums import seen_in_blocks
from iosim.theory.bounds import Bound, Seen, bounds, ideal_reads_sram_bytes, strongest
from iosim.theory.closed_forms import closed_form
from iosim.work import useful_flops

DEFAULT_PROFILE = "h100-sxm"
DEFAULT_GRANULARITY = 16


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
    pad_head_dim: int | None = None,
) -> RunRecord:
    """Everything iosim knows about one attention by one algorithm on one GPU.

    `tiles`: best, paper, paper-literal, or a shape such as "128x64". `sram_bytes`: M of one thread block, by
    default the profile's per-block limit. `options`: the algorithm's own (see `iosim algorithms list`).
    `pad_head_dim`: count the flops of a kernel that rounds head_dim and value_dim up to a multiple of this; the bytes
    stay those of the true size.
    Errors: `UsageError` and its kinds, one line each; `TileError` when no tile, or not this one, fits in M.
    """
    chosen = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    gpu = load_profile(profile, overrides) if isinstance(profile, str) else profile
    chosen.check(problem)
    resolved = chosen.resolve(options or {})
    chip = Chip(
        model=footprint_model,
        sram_bytes=gpu.sram_per_block_bytes if sram_bytes is None else sram_bytes,
        register_bytes=gpu.register_bytes_per_sm,
        granularity=granularity,
    )
    placed = place(chosen, _searched(chosen, problem, resolved), problem, tiles, resolved, chip)
    table = _split_table(problem, chosen, resolved, placed.bound, gpu)
    if resolved.get("splits") == "best":
        resolved = {**resolved, "splits": str(best_split(table).splits)}
    program = chosen.program(problem.mask.kind, resolved)
    theory = theory_beside(
        chosen, program, problem, resolved, placed.shown, sram_bytes=chip.memory_bytes, fits=placed.fits
    )
    tally = count(program, bind(problem, placed.bound))
    padded = None if pad_head_dim is None else problem.padded(pad_head_dim)
    work = work_of(useful_flops(problem, chosen, resolved, placed.shown), tally)
    if padded is not None:
        flops = int(count(program, bind(padded, placed.bound)).tensor_flops)
        work = replace(work, padded_executed_flops=flops)
    return RunRecord(
        problem=problem,
        algorithm=chosen.name,
        options=resolved,
        tiles=placed.shown,
        profile=gpu.name,
        profile_sha256=gpu.sha256,
        traffic=traffic_of(tally),
        traffic_by_tensor=traffic_by_tensor(tally),
        work=work,
        sram=_sram(placed, chip),
        theory=theory,
        warnings=(*gpu.warnings, *placed.warnings, *_remarks(chosen, problem, resolved, placed, chip)),
        notes=notes(problem, chosen, resolved, placed.bound, tally)
        | launch_notes(program, bind(problem, placed.bound), gpu.sm_count, resolved, table)
        | _padding(padded, pad_head_dim),
    )


def _searched(algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str]) -> Program:
    """The program whose tile is searched; on chip, splits are all alike."""
    one = {"splits": "1"} if options.get("splits") == "best" else {}
    return algorithm.program(problem.mask.kind, {**options, **one})


def _split_table(
    problem: AttentionProblem,
    algorithm: Algorithm,
    options: Mapping[str, str],
    tiles: TileShape,
    gpu: HardwareProfile,
) -> list[Split]:
    return split_table(problem, algorithm, options, tiles, gpu.sm_count) if "splits" in options else []


def traffic_of(tally: Tally) -> Traffic:
    """All reads and all writes."""
    return Traffic(
        sm_read_bytes=int(sum(tally.read_bytes.values())), sm_write_bytes=int(sum(tally.write_bytes.values()))
    )


def traffic_by_tensor(tally: Tally) -> tuple[TensorTraffic, ...]:
    """Reads and writes of each tensor, in the order of every table."""
    ordered = in_order({*tally.read_bytes, *tally.write_bytes})
    return tuple(
        TensorTraffic(
            tensor=name,
            level="sram",
            read_bytes=int(tally.read_bytes.get(name, 0)),
            write_bytes=int(tally.write_bytes.get(name, 0)),
        )
        for name in ordered
    )


def work_of(useful: int, tally: Tally) -> WorkCount:
    """Counted operations beside the useful ones."""
    return WorkCount(
        useful_flops=useful,
        executed_flops=int(tally.tensor_flops),
        tensor_flops=int(tally.tensor_flops),
        vector_flops=int(tally.vector_flops),
        special_ops=int(tally.special_ops),
    )


def _sram(placed: Placement, chip: Chip) -> SramUse:
    held = placed.held
    return SramUse(
        model=held.model,
        live_bytes=int(held.sram_bytes),
        capacity_bytes=chip.sram_bytes,
        fits=placed.fits,
        register_bytes=int(held.register_bytes),
        register_capacity_bytes=chip.register_bytes,
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


def theory_beside(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    options: Mapping[str, str],
    tiles: TileShape | None,
    *,
    sram_bytes: int,
    fits: bool,
) -> Theory:
    """Closed form, compulsory bytes and bounds for one run, from the formulas alone."""
    found = bounds_of(
        algorithm, program, problem, options, sram_bytes=sram_bytes, seen=_seen(problem, options, tiles)
    )
    if algorithm.computes == "linear attention":
        found = [b for b in found if b.name == "compulsory"]
    # a program that does not fit in M may move less than any that does: bounds in M say nothing about it
    if not fits and not (algorithm.idealised and sram_bytes >= ideal_reads_sram_bytes(problem)):
        found = [_excused(b) if b.valid and b.name in ("fused", "matmul") else b for b in found]
    formula = None if algorithm.user_defined else closed_form(algorithm.name, problem, tiles, options)
    return Theory(
        closed_form_bytes=formula.total_bytes if formula else None,
        compulsory_bytes=next(b.bytes for b in found if b.name == "compulsory" and b.bytes is not None),
        lower_bound_bytes=strongest(found),
        bounds=tuple(
            BoundValue(name=b.name, bytes=b.bytes, valid=b.valid, reason=b.reason, source=b.source)
            for b in found
        ),
    )


def bounds_of(
    algorithm: Algorithm,
    program: Program,
    problem: AttentionProblem,
    options: Mapping[str, str],
    *,
    sram_bytes: int,
    seen: Seen | None,
) -> list[Bound]:
    """Every bound of the pass that an algorithm runs; `seen`: what a block mask leaves."""
    spills = program.spills_scores
    if options.get("pass", "fwd") == "bwd":
        return backward_bounds(problem, sram_bytes, spills_scores=spills, seen=seen)
    if options.get("pass", "fwd") == "fwd+bwd":
        return both_bounds(problem, sram_bytes, spills_scores=spills, seen=seen)
    return bounds(
        problem,
        sram_bytes,
        spills_scores=spills,
        matmul_only=algorithm.computes == "scores",
        seen=seen,
        latent=algorithm.latent,
    )


def _seen(problem: AttentionProblem, options: Mapping[str, str], tiles: TileShape | None) -> Seen | None:
    pattern = options.get("block-mask", "off")
    return None if pattern == "off" or tiles is None else seen_in_blocks(problem, tiles, pattern)


def _excused(bound: Bound) -> Bound:
    return replace(
        bound, bytes=None, valid=False, reason="the program does not fit in M, so it may move less"
    )


def _remarks(
    algorithm: Algorithm, problem: AttentionProblem, options: Mapping[str, str], placed: Placement, chip: Chip
) -> list[str]:
    """What a careful reader of the numbers has to know."""
    out = []
    if not placed.fits and algorithm.idealised:
        out.append(
            f"{algorithm.name}: idealised, needs {placed.held.sram_bytes:,} bytes on chip "
            f"({buffers_text(placed.held)}) and M is {chip.sram_bytes:,}"
            + (
                "; a real kernel re-reads its operands: --gemm-tiles 128x128"
                if "gemm-tiles" in options
                else ""
            )
        )
    if options.get("softmax") == "naive":
        out.append("softmax: naive takes no maximum, so large scores overflow")
    if not algorithm.scaled and algorithm.computes == "attention":
        out.append(f"{algorithm.name}: the scores are not multiplied by 1/√d")
    if algorithm.computes == "scores" and problem.mask.is_causal:
        out.append(f"{algorithm.name}: a plain matmul sees no mask; all of S is computed")
    return out


def _padding(padded: AttentionProblem | None, multiple: int | None) -> dict[str, Any]:
    """What a kernel's matmuls run over, where it pads."""
    if padded is None:
        return {}
    sizes = {"head_dim": padded.head_dim, "value_dim": padded.value_dim}
    return {"padding": {"multiple": multiple} | sizes}
