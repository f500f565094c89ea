"""What the chosen options mean for one run: the keys of a record beyond the ones every run has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iosim import block_mask
from iosim.algorithms.registry import Algorithm
from iosim.interpret.binding import bind
from iosim.interpret.count import Tally, count
from iosim.interpret.launch import busy_share, thread_blocks
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Binding
from iosim.program.ir import Program
from iosim.splits import Split, best_split
from iosim.theory.softmax import SOFTMAX_COSTS
from iosim.work import PASS_MATMULS


def notes(
    problem: AttentionProblem,
    algorithm: Algorithm,
    options: Mapping[str, str],
    tiles: TileShape,
    tally: Tally,
) -> dict[str, Any]:
    """JSON values by key (`softmax`, `pass`, `block_mask`), each where the option says something."""
    out: dict[str, Any] = {}
    if "softmax" in options:
        out["softmax"] = _softmax(options["softmax"])
    if "pass" in options:
        out["pass"] = _pass(options["pass"], recomputes="softmax" not in options)
    if options.get("block-mask", "off") != "off":
        out["block_mask"] = _block_mask(problem, algorithm, options, tiles, tally)
    return out


def launch_notes(
    program: Program, binding: Binding, sm_count: int, options: Mapping[str, str], table: list[Split]
) -> dict[str, Any]:
    """JSON values by key: `launch`, thread blocks by kernel and the busy share of SMs; `splits`, what was compared."""
    blocks = {name: int(n) for name, n in thread_blocks(program, binding).items()}
    first = next(iter(blocks.values()))
    out: dict[str, Any] = {
        "launch": {"thread_blocks": blocks, "sm_count": sm_count, "sm_share": busy_share(first, sm_count)}
    }
    if table:
        best = best_split(table)
        out["splits"] = {"chosen": int(options["splits"]), "best": best.splits}
        out["splits"]["table"] = [row.to_dict() for row in table]
    return out


def _softmax(variant: str) -> dict[str, Any]:
    """Passes and accesses an element of the chosen softmax."""
    cost = SOFTMAX_COSTS[variant]
    return {"variant": variant, "passes": cost.passes, "accesses_per_element": cost.accesses}


def _pass(name: str, *, recomputes: bool) -> dict[str, Any]:
    """Matmuls of a pass; only standard attention keeps P, every other backward computes S once more."""
    again = int(name != "fwd" and recomputes)
    return {"name": name, "matmuls": PASS_MATMULS[name] + again, "recomputed_matmuls": again}


def _block_mask(
    problem: AttentionProblem,
    algorithm: Algorithm,
    options: Mapping[str, str],
    tiles: TileShape,
    tally: Tally,
) -> dict[str, Any]:
    """How many blocks there are, and the bytes and flops of the same tiles without a block mask."""
    blocks = block_mask.visible(problem, tiles, options["block-mask"])
    dense = count(algorithm.without_block_mask(problem.mask.kind, options), bind(problem, tiles))
    dense_bytes, sparse_bytes = int(dense.total_bytes), int(tally.total_bytes)
    return {
        "name": options["block-mask"],
        "blocks": int(blocks.sum()),
        "all_blocks": int(blocks.size),
        "density": float(blocks.mean()),
        "dense_bytes": dense_bytes,
        "dense_executed_flops": int(dense.tensor_flops),
        "byte_speedup": dense_bytes / sparse_bytes,
    }
