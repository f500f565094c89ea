"""`iosim show`: an algorithm as a listing, with bytes and operations on every line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from iosim.cli.options import (
    AsJson,
    HardwareOptions,
    ProblemOptions,
    TileOptions,
    split_algorithms,
    with_options,
)
from iosim.cli.output import print_json, print_table, quiet_stdout, warn
from iosim.cli.ragged import SeqLens, lengths_of, padded_problem
from iosim.cli.variants import VariantOptions

if TYPE_CHECKING:
    from iosim.interpret.listing import CostedRow
    from iosim.results import RunRecord

COLUMNS = ("read_bytes", "write_bytes", "tensor_flops", "vector_flops", "special_ops")
TITLES = ("read B", "write B", "tensor flops", "vector flops", "special ops")

Name = Annotated[str, typer.Argument(metavar="ALGORITHM", help="A name, or your own: ./mine.py:program.")]


@with_options
def show(
    *,
    algorithm: Name,
    problem: ProblemOptions,
    tiling: TileOptions,
    variants: VariantOptions,
    hardware: HardwareOptions,
    seq_lens: SeqLens = None,
    as_json: AsJson = False,
) -> None:
    """The program of an algorithm beside the paper's line numbers, with what every line moves and computes.

    Numbers are those of the whole run (with --seq-lens of all sequences); % is a line's share of all bytes. Temporaries
    belong to the line that uses them.
    """
    from iosim.cli.simulate import prove_own, record_of
    from iosim.errors import UsageError
    from iosim.interpret.binding import bind
    from iosim.interpret.listing import costed_listing
    from iosim.placement import untiled
    from iosim.ragged import ragged_listing

    lengths, fixed = lengths_of(seq_lens, problem), problem.seq_q is not None
    with quiet_stdout():
        chosen = split_algorithms(algorithm)
    problem = problem.as_run_by(chosen)
    asked = padded_problem(problem, lengths) if lengths else problem.problem()
    if len(chosen) != 1:
        raise UsageError(f"ALGORITHM: show takes one, got {algorithm!r}")
    (options,) = variants.options_for(chosen)
    with quiet_stdout():
        prove_own(chosen, [options], asked)
        record = record_of(
            asked,
            chosen[0],
            options,
            tiling,
            hardware,
            remarks=problem.remarks(),
            lengths=lengths,
            fixed_queries=fixed,
        )
    program = chosen[0].program(asked.mask.kind, record.options)
    tile = record.tiles or untiled(record.options, asked.seq_k)
    if lengths:
        rows = ragged_listing(program, asked, lengths, tile, fixed_queries=fixed)
    else:
        rows = costed_listing(program, bind(asked, tile))
    if as_json:
        print_json(_to_dict(record, rows))
        return
    _print_listing(record, chosen[0].source, rows)


def _totals(rows: Sequence[CostedRow]) -> list[int]:
    return [sum(getattr(row, column) for row in rows) for column in COLUMNS]


def _to_dict(record: RunRecord, rows: Sequence[CostedRow]) -> dict[str, Any]:
    whole = record.to_dict()
    keep = ("schema_version", "problem", "algorithm", "options", "tiles", "profile", "warnings")
    lines = [
        {"kernel": r.row.kernel, "line": r.row.line, "depth": r.row.depth, "text": r.row.text}
        | {column: getattr(r, column) for column in COLUMNS}
        for r in rows
    ]
    totals = dict(zip(COLUMNS, _totals(rows), strict=True))
    more = {"ragged": whole["ragged"]} if "ragged" in whole else {}
    return {key: whole[key] for key in keep} | more | {"lines": lines, "totals": totals}


def _print_listing(record: RunRecord, source: str, rows: Sequence[CostedRow]) -> None:
    from iosim.cli.simulate_table import describe, describe_lengths

    warn(record.warnings)
    tile = f", tile {record.tiles} (rows of Q x rows of K)" if record.tiles else ""
    print(f"{record.algorithm}: {source}\n{describe(record.problem)}{tile}")
    for line in describe_lengths(record):
        print(line)
    print("bytes are those between slow memory and the SMs\n")
    totals = _totals(rows)
    moved = totals[0] + totals[1]
    table = [
        [row.row.line, str(row.row), *_cells(row), _share(row.read_bytes + row.write_bytes, moved)]
        for row in rows
    ]
    table.append(["", "total", *(f"{total:,}" for total in totals), _share(moved, moved)])
    print_table(["line", "program", *TITLES, "% of bytes"], table, right=range(2, 8))


def _cells(row: CostedRow) -> list[str]:
    return [f"{getattr(row, column):,}" if getattr(row, column) else "" for column in COLUMNS]


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if part else ""
