"""What the chosen options mean for one run: the keys of a record beyond the ones every run has."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from iosim import block_mask
from iosim.algorithms.registry import Algorithm
from iosim.interpret.binding import bind
from iosim.interpret.count import Tally, count
from iosim.interpret.launch import busy_share, thread_blocks
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import Binding
from iosim.program.ir import Program
from iosim.program.tensors import ENTRY_BYTES
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
    if options.get("page", "off") != "off":
        out["pages"] = _pages(problem, algorithm, int(options["page"]))
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
        out["splits"] = splits_note(int(options["splits"]), table)
    return out


def splits_note(chosen: int, table: list[Split]) -> dict[str, Any]:
    """The JSON `splits`: the count that was used, the best one, and what was compared."""
    return {"chosen": chosen, "best": best_split(table).splits, "table": [row.to_dict() for row in table]}


SECTOR_BYTES = 32
"""What a GPU's memory fetches at least."""


def _pages(problem: AttentionProblem, algorithm: Algorithm, page: int) -> dict[str, Any]:
    """The page table, what its last pages hold unused, and what rows that do not fill sectors fetch besides."""
    p = problem
    pages = -(-p.seq_k // page)
    key, value = p.head_dim * p.dtype_k.itemsize, p.value_dim * p.dtype_v.itemsize
    rows = [key] if algorithm.latent else [key, value]
    unused = pages * page - p.seq_k
    return {
        "tokens_a_page": page,
        "pages_a_sequence": pages,
        "table_bytes": p.batch * pages * ENTRY_BYTES,
        "unused_tokens_a_sequence": unused,
        "unused_cache_bytes": p.batch * p.kv_heads * unused * sum(rows),
        "row_bytes": sum(rows),
        "row_bytes_in_whole_sectors": sum(_in_sectors(row) for row in rows),
    }


def _in_sectors(row_bytes: int) -> float:
    """Bytes of the sectors that a row of one head touches, on average over rows at every multiple of its length."""
    period = SECTOR_BYTES // gcd(row_bytes, SECTOR_BYTES)
    touched = sum(
        -(-(r + 1) * row_bytes // SECTOR_BYTES) - r * row_bytes // SECTOR_BYTES for r in range(period)
    )
    return SECTOR_BYTES * touched / period


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
