"""The facts of someone's own kernel: of its card and its case, and without a card what the launch shows."""

from __future__ import annotations

from dataclasses import replace

from iosim.algorithms.registry import find_algorithm
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.interpret.binding import bind
from iosim.interpret.launch import thread_blocks
from iosim.kernels import KernelFacts, TileFact
from iosim.onchip.steps import row_tiles
from iosim.problem import AttentionProblem, TileShape
from iosim.profiler.case import Case
from iosim.profiler.export import Launch

OWN = "own"
LIKELY_CLASS = {"hopper": "wgmma"}


def facts_of(
    launch: Launch, case: Case, card: KernelFacts | None, profile: HardwareProfile
) -> tuple[KernelFacts, TileShape, list[str]]:
    """Facts and tile of a launch, and a sentence for each that was assumed. Over a card the case has the last word.

    Errors: `UsageError` for a missing tile, a card of several kernels, or options that its algorithm has not.
    """
    assumed: list[str] = []
    if card is None:
        card = _without_card(launch, case, profile, assumed)
    algorithm = find_algorithm(card.algorithm)
    options = dict(card.options) if case.lse is None else {**card.options, "lse": case.lse}
    facts = replace(
        card,
        kernel_class=case.kernel_class or card.kernel_class,
        kv_walk=case.kv_walk or card.kv_walk,
        options=algorithm.resolve(options),
    )
    kernels = algorithm.program(case.problem.mask.kind, facts.options).kernels
    if len(kernels) != 1:
        names = ", ".join(kernel.name for kernel in kernels)
        raise UsageError(
            f"--card: {facts.name} is several kernels ({names}); an export is audited for a single one"
        )
    tile = case.tile or facts.tile(case.problem.head_dim)
    if tile is None:
        raise UsageError(
            f"--card: {facts.name} has no tile for d = {case.problem.head_dim}; give one in --case, tiles=128x64"
        )
    algorithm.check(case.problem)
    return facts, tile, assumed


def launched_blocks(facts: KernelFacts, problem: AttentionProblem, tile: TileShape) -> int:
    """Thread blocks that the program launches on a problem; a persistent kernel walks over as many."""
    seen = facts.packed(problem)
    program = find_algorithm(facts.algorithm).program(seen.mask.kind, facts.options)
    return int(sum(thread_blocks(program, bind(seen, tile)).values()))


def _without_card(launch: Launch, case: Case, profile: HardwareProfile, assumed: list[str]) -> KernelFacts:
    """FlashAttention-2's program with the case's tile and what the launch shows."""
    if case.tile is None:
        raise UsageError(
            "--case: tiles are missing: add tiles=128x64 (rows of Q x rows of K), or give a --card"
        )
    kind = case.kernel_class or _likely_class(launch, profile)
    if case.kernel_class is None:
        assumed.append(
            f"kernel class {kind} assumed for the time; say it with class= in --case, or with a --card"
        )
    expected = row_tiles(case.problem, case.tile)
    persistent = launch.blocks is not None and launch.blocks < expected and launch.blocks <= profile.sm_count
    if persistent:
        assumed.append(f"{launch.blocks} blocks for {expected} row tiles: taken for a persistent kernel")
    head_dim = case.problem.head_dim
    return KernelFacts(
        name=OWN,
        title="a kernel without a card",
        kernel_class=kind,
        algorithm="flash2",
        options=find_algorithm("flash2").resolve({}),
        tiles=(TileFact(head_dim_max=head_dim, rows=case.tile.rows, cols=case.tile.cols),),
        threads_per_block=launch.threads_per_block or 128,
        registers_per_thread=launch.registers_per_thread or 0,
        persistent=persistent,
    )


def _likely_class(launch: Launch, profile: HardwareProfile) -> str:
    """By the instructions that were counted, else what is usual on the architecture."""
    if launch.wgmmas is not None:
        return "wgmma" if launch.wgmmas else "mma-sync"
    return LIKELY_CLASS.get(profile.architecture, "mma-sync")
