"""`iosim simulate`: one attention by one or more algorithms, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.drawing import ticker
from iosim.cli.level_options import LevelOptions, profile_of
from iosim.cli.options import (
    ALGORITHM,
    AlgorithmText,
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    parse_size,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, quiet_stdout, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_problem
from iosim.cli.variants import VariantOptions
from iosim.errors import UsageError

if TYPE_CHECKING:
    from iosim.algorithms.registry import Algorithm
    from iosim.problem import AttentionProblem
    from iosim.results import RunRecord

    Analyze = Callable[[Sequence[str]], RunRecord]


PadHeadDim = Annotated[
    str | None,
    typer.Option(
        "--pad-head-dim",
        metavar="SIZE",
        help="Also count the flops of a kernel that pads head and value dims to a multiple of this: 16, 64.",
        rich_help_panel=ALGORITHM,
    ),
]
OnChipFlag = Annotated[
    bool,
    typer.Option(
        "--on-chip",
        help="Add shared-memory bytes, barriers and special operations of a thread block.",
        rich_help_panel=ALGORITHM,
    ),
]
Warps = Annotated[
    int,
    typer.Option(
        "--warps",
        metavar="NUMBER",
        min=1,
        help="Warps that divide a tile, with --on-chip.",
        rich_help_panel=ALGORITHM,
    ),
]


@with_options
def simulate(
    *,
    problem: ProblemOptions,
    algorithm: AlgorithmText = "flash2",
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    levels: LevelOptions,
    seq_lens: SeqLens = None,
    pad_head_dim: PadHeadDim = None,
    on_chip: OnChipFlag = False,
    warps: Warps = 4,
    as_json: AsJson = False,
) -> None:
    """Bytes between slow memory and the SMs, work, on-chip use and bounds of one attention.

    Several algorithms are shown side by side. Your own program (./mine.py:program) is checked first.
    """
    from iosim.ragged import sequences_of

    lengths = lengths_of(seq_lens, problem)
    with quiet_stdout():
        chosen = split_algorithms(algorithm)
        problem = problem.as_run_by(chosen)
        asked = padded_problem(problem, lengths) if lengths else problem.problem()
        options = variants.options_for(chosen)
        asked, tiling, options = as_the_kernel_runs(levels, asked, tiling, chosen, options)
        names = [name.strip() for name in algorithm.split(",")]
        checks = [
            _check(item, name, asked, own) if item.user_defined else {}
            for item, name, own in zip(chosen, names, options, strict=True)
        ]
        records = [
            record_of(
                asked,
                item,
                own,
                tiling,
                hardware,
                remarks=problem.remarks(),
                pad=_multiple(pad_head_dim),
                lengths=lengths,
                fixed_queries=problem.seq_q is not None,
            )
            for item, own in zip(chosen, options, strict=True)
        ]
    sequences = sequences_of(asked, lengths, fixed_queries=problem.seq_q is not None)
    if levels.wanted:
        records = [
            with_levels(record, item, hardware, levels, sequences)
            for record, item in zip(records, chosen, strict=True)
        ]
    if on_chip:
        records = [with_on_chip(record, hardware, warps, sequences) for record in records]
    if as_json:
        out = [record.to_dict() | check for record, check in zip(records, checks, strict=True)]
        print_json(out[0] if len(out) == 1 else out)
        return
    from iosim.cli.simulate_table import print_records

    warn(_warnings(records))
    print_records(records, checks)


def _warnings(records: Sequence[RunRecord]) -> list[str]:
    """Each warning once; one that does not concern all of several algorithms names those that it does."""
    owners: dict[str, list[str]] = {}
    for record in records:
        for line in record.warnings:
            owners.setdefault(line, []).append(record.algorithm)
    return [
        line if len(names) == len(records) or line.startswith(names[0]) else f"{', '.join(names)}: {line}"
        for line, names in owners.items()
    ]


def record_of(
    problem: AttentionProblem,
    algorithm: Algorithm,
    options: dict[str, str],
    tiling: TileOptions,
    hardware: HardwareOptions,
    remarks: Sequence[str] = (),
    pad: int | None = None,
    lengths: Sequence[int] = (),
    fixed_queries: bool = False,
) -> RunRecord:
    """The record of one algorithm, with `remarks` and warnings about the command line's own options added."""
    from iosim.analysis import analyze
    from iosim.ragged import analyze_ragged

    said = list(remarks)
    sram_bytes = hardware.sram_bytes(problem, said)

    def run(overrides: Sequence[str]) -> RunRecord:
        if lengths:
            return analyze_ragged(
                problem,
                lengths,
                algorithm,
                tiles=tiling.tiles,
                profile=profile_of(hardware.hw, list(overrides)),
                options=options,
                footprint_model=tiling.footprint,
                granularity=tiling.step(),
                sram_bytes=sram_bytes,
                fixed_queries=fixed_queries,
                pad_head_dim=pad,
            )
        return analyze(
            problem,
            algorithm,
            tiles=tiling.tiles,
            profile=hardware.hw,
            options=options,
            footprint_model=tiling.footprint,
            granularity=tiling.step(),
            sram_bytes=sram_bytes,
            overrides=overrides,
            pad_head_dim=pad,
        )

    overrides = hardware.overrides or []
    record = run(overrides)
    said += _idle_overrides(record, run, overrides)
    return replace(record, warnings=(*record.warnings, *said))


def as_the_kernel_runs(
    levels: LevelOptions,
    problem: AttentionProblem,
    tiling: TileOptions,
    algorithms: Sequence[Algorithm],
    options: list[dict[str, str]],
) -> tuple[AttentionProblem, TileOptions, list[dict[str, str]]]:
    """With --kernel: the problem as its grid packs it, its tile unless one was asked for, its options.

    `UsageError` where the kernel runs another algorithm, or is not built for the head dimension.
    """
    facts = levels.facts()
    if facts is None:
        return problem, tiling, options
    other = [a.name for a in algorithms if a.name != facts.algorithm]
    if other:
        raise UsageError(f"--kernel: {facts.name} is {facts.algorithm}, not {', '.join(other)}")
    tile = facts.tile(problem.head_dim)
    if tile is None:
        raise UsageError(f"--kernel: {facts.name} is not built for head-dim {problem.head_dim}")
    packed = facts.packed(problem)
    if packed != problem:
        warn(
            [f"--kernel: {facts.name} packs the {problem.group_size} query heads of a kv-head into one tile"]
        )
    if tiling.tiles == "best":
        tiling = replace(tiling, tiles=str(tile))
    return packed, tiling, [{**facts.options, **own} for own in options]


def with_levels(
    record: RunRecord,
    algorithm: Algorithm,
    hardware: HardwareOptions,
    levels: LevelOptions,
    sequences: Sequence[AttentionProblem] = (),
) -> RunRecord:
    """The record with the simulated levels; `sequences`: those of a ragged batch."""
    from iosim.levels import add_levels

    gpu = profile_of(hardware.hw, hardware.overrides)
    return add_levels(
        record,
        algorithm,
        gpu,
        kernel=levels.facts(),
        chosen=levels.policies(),
        sequences=sequences,
        progress=ticker(f"{algorithm.name} through the L2"),
    )


def _multiple(text: str | None) -> int | None:
    return None if text is None else parse_size("pad-head-dim", text)


def with_on_chip(
    record: RunRecord, hardware: HardwareOptions, warps: int, sequences: Sequence[AttentionProblem] = ()
) -> RunRecord:
    """The record with `on_chip` among its notes; null where no kernel divides a tile in one of the known ways."""
    from iosim.hardware import load_profile
    from iosim.onchip import on_chip_report, schemes_of

    schemes = schemes_of(record.algorithm, record.options)
    found = None
    if schemes and record.tiles is not None:
        gpu = load_profile(hardware.hw, hardware.overrides or ())
        found = on_chip_report(
            record.problem, record.tiles, schemes, warps=warps, gpu=gpu, sequences=sequences
        )
    return replace(record, notes={**record.notes, "on_chip": found})


def _idle_overrides(record: RunRecord, run: Analyze, overrides: Sequence[str]) -> list[str]:
    """A warning for each override without which the result is the same."""
    out = []
    for index, override in enumerate(overrides):
        key = override.partition("=")[0].strip()
        if any(line.startswith(f"--set {key}") and "changes nothing" in line for line in record.warnings):
            continue
        without = run([*overrides[:index], *overrides[index + 1 :]])
        if _numbers(without) == _numbers(record):
            out.append(f"--set {override}: changes nothing in this result, which does not depend on it")
    return out


def _numbers(record: RunRecord) -> dict[str, Any]:
    """The record without what names the profile rather than the result."""
    return {k: v for k, v in record.to_dict().items() if k not in ("profile_sha256", "warnings")}


def prove_own(
    algorithms: Sequence[Algorithm], options: Sequence[dict[str, str]], problem: AttentionProblem
) -> None:
    """Refuse a user's program that is wrong before any number of it is shown or saved."""
    from iosim.proving import prove

    for algorithm, own in zip(algorithms, options, strict=True):
        if algorithm.user_defined:
            prove(algorithm, problem, own)


def _check(
    algorithm: Algorithm, name: str, problem: AttentionProblem, options: dict[str, str]
) -> dict[str, Any]:
    """What a user's program gets besides a record: a proof (raises where it is wrong) and fitted exponents."""
    from iosim.proving import prove
    from iosim.scaling import fit_exponents

    proof = prove(algorithm, problem, options)
    fits = fit_exponents(name, options=options)
    return {"proof": proof.to_dict(), "exponents": [fit.to_dict() for fit in fits]}
