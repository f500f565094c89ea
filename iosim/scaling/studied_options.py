"""The algorithms' own options in a study: which may be studied together, and what is settled before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from iosim.algorithms.registry import find_algorithm
from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.problem import AttentionProblem
from iosim.proving import prove
from iosim.ragged import analyze_ragged
from iosim.scaling.elements import Options
from iosim.scaling.sparse import block_mask_of
from iosim.scaling.traffic import Lengths


def pass_of(options: Options) -> str:
    """The pass that is studied: fwd, bwd or fwd+bwd."""
    return next((own["pass"] for own in options.values() if "pass" in own), "fwd")


def in_pass(algorithms: Sequence[str], options: Options) -> tuple[str, ...]:
    """Those of the algorithms that have the pass of `options`: all of them forward."""
    if pass_of(options) == "fwd":
        return tuple(algorithms)
    return tuple(name for name in algorithms if "pass" in find_algorithm(name).options)


def checked_options(options: Options, also: Sequence[str] = ()) -> dict[str, Mapping[str, str]]:
    """The options that say something; `UsageError` where they cannot be studied together."""
    kept = {name: own for name, own in options.items() if own}
    for name, own in kept.items():
        find_algorithm(name).resolve(own)
    if block_mask_of(kept).endswith(".npy"):
        raise UsageError(
            "block-mask: a file has the blocks of one tile, and a study has another tile at every M; "
            "name a pattern, or use simulate or sweep with --tiles"
        )
    if lacking := [name for name in also if name not in in_pass(also, kept)]:
        raise UsageError(f"pass: {', '.join(lacking)} has a forward pass only; leave it out, or use pass=fwd")
    return kept


def check_also(problem: AttentionProblem, also: Sequence[str], options: Options) -> None:
    """Refuse, before the counting starts, an algorithm that cannot have this problem, or a user's that is wrong."""
    for name in also:
        algorithm, own = find_algorithm(name), options.get(name, {})
        algorithm.check(problem)
        algorithm.program(problem.mask.kind, algorithm.resolve(own))
        if algorithm.user_defined:
            prove(algorithm, problem, own)


def with_settled_splits(
    problem: AttentionProblem, profile: HardwareProfile, sram_bytes: int, options: Options, batch: Lengths
) -> Options:
    """The options with a number in place of splits=best: a law is that of one program."""
    out = dict(options)
    for name, own in options.items():
        if own.get("splits") == "best":
            asked: dict[str, Any] = {
                "profile": profile,
                "options": own,
                "sram_bytes": sram_bytes,
                "tiles": "best",
            }
            algorithm, fixed = find_algorithm(name), batch.fixed_queries
            if batch.seq_lens:
                record = analyze_ragged(problem, batch.seq_lens, algorithm, fixed_queries=fixed, **asked)
            else:
                record = analyze(problem, algorithm, **asked)
            out[name] = {**own, "splits": record.options["splits"]}
    return out
