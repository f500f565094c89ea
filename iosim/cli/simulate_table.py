"""The table of `iosim simulate`: one column an algorithm, exact numbers with a readable size in brackets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from iosim.cli.level_options import level_lines
from iosim.cli.output import print_table, warn
from iosim.problem import AttentionProblem
from iosim.results import RunRecord
from iosim.units import counted, format_bytes

NONE = "-"
Checks = Sequence[Mapping[str, Any]]


def print_records(records: Sequence[RunRecord], checks: Checks) -> None:
    """Say which problem ran on what, then the table."""
    first = records[0]
    print(describe(first.problem))
    print(
        f"{first.profile}, M = {_bytes(first.sram.capacity_bytes)} on chip for one thread block, "
        f"footprint {first.sram.model}"
    )
    print("bytes are those between slow memory and the SMs\n")
    rows = [[title, *cells] for title, cells in _rows(records) if any(cell != NONE for cell in cells)]
    print_table(["", *(r.algorithm for r in records)], rows, right=range(1, len(records) + 1))
    for record, check in zip(records, checks, strict=True):
        if check:
            _print_check(record.algorithm, check)
    for record in records:
        if "on_chip" in record.notes:
            _print_on_chip(record)
        if record.level_bytes:
            print("\n" + "\n".join(level_lines(record)))


def describe(p: AttentionProblem) -> str:
    """The problem in one line."""
    dtypes = {"Q": p.dtype_q, "K": p.dtype_k, "V": p.dtype_v, "O": p.dtype_o}
    same = len(set(dtypes.values())) == 1
    dtype = str(p.dtype_q) if same else ", ".join(f"{name} {kind}" for name, kind in dtypes.items())
    heads = f"heads {p.heads}" + (f" (kv-heads {p.kv_heads})" if p.kv_heads != p.heads else "")
    seq = f"seq {p.seq_q}" if p.seq_q == p.seq_k else f"seq-q {p.seq_q}, seq-k {p.seq_k}"
    dims = f"head-dim {p.head_dim}" + (f", value-dim {p.value_dim}" if p.value_dim != p.head_dim else "")
    return f"batch {p.batch}, {heads}, {seq}, {dims}, {dtype}, mask {p.mask}"


def describe_lengths(record: RunRecord) -> list[str]:
    """A line on the lengths of a ragged batch; none otherwise."""
    note = record.notes.get("ragged")
    if note is None:
        return []
    return [
        f"{note['sequences']:,} sequences of {note['shortest']:,} to {note['longest']:,} keys, without padding"
    ]


def _rows(records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    def row(title: str, cell: Callable[[RunRecord], str]) -> tuple[str, list[str]]:
        return title, [cell(record) for record in records]

    return [
        row("tile (rows of Q x rows of K)", lambda r: str(r.tiles) if r.tiles else NONE),
        *_traffic_rows(records),
        row("all reads", lambda r: _bytes(r.traffic.sm_read_bytes)),
        row("all writes", lambda r: _bytes(r.traffic.sm_write_bytes)),
        row("total", lambda r: _bytes(r.traffic.total_bytes)),
        row("register spills written", _spills),
        *_level_rows(records),
        row("closed form", _closed_form),
        row("compulsory", lambda r: _bytes(r.theory.compulsory_bytes)),
        row("lower bound", lambda r: _bytes(r.theory.lower_bound_bytes)),
        row("  which bound", _bound_name),
        row("  total / lower bound", lambda r: f"{r.traffic.total_bytes / r.theory.lower_bound_bytes:.4g}"),
        row("useful flops", lambda r: f"{r.work.useful_flops:,}"),
        row("executed flops", lambda r: f"{r.work.executed_flops:,}"),
        row("  with padded head dims", _padded),
        row("vector flops", lambda r: f"{r.work.vector_flops:,}"),
        row("special ops", lambda r: f"{r.work.special_ops:,}"),
        row("live on chip", lambda r: _bytes(r.sram.live_bytes)),
        row("registers", lambda r: _bytes(r.sram.register_bytes) if r.sram.register_bytes else NONE),
        row("thread blocks (first kernel)", _launch),
        row("splits of the keys", _splits),
        row("pass", _pass),
        row("block mask", _blocks),
        row("padding would add", _padding),
        row("fits in M", lambda r: "yes" if r.sram.fits else "no"),
        row("softmax", _softmax),
    ]


def _traffic_rows(records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """Reads and writes of each tensor, in the order in which the records list them."""
    names = list(dict.fromkeys(t.tensor for record in records for t in record.traffic_by_tensor))
    order = {name: place for place, name in enumerate(("Q", "K", "V", "O", "S", "P"))}
    names.sort(key=lambda name: order.get(name, len(order)))
    out = []
    for name in names:
        for word, field in (("read", "read_bytes"), ("write", "write_bytes")):
            cells = []
            for record in records:
                found = [t for t in record.traffic_by_tensor if t.tensor == name]
                size = getattr(found[0], field) if found else 0
                cells.append(_bytes(size) if size else NONE)
            out.append((f"{name} {word}", cells))
    return out


def _spills(record: RunRecord) -> str:
    size = record.notes["levels"]["spill_write_bytes"] if record.level_bytes else 0
    return _bytes(size) if size else NONE


_LEVELS = {
    "l2_read_bytes": "L2 slices read",
    "l2_write_bytes": "L2 slices written",
    "l2_fabric_bytes": "between L2 partitions",
    "hbm_read_bytes": "HBM read",
    "hbm_write_bytes": "HBM written",
}


def _level_rows(records: Sequence[RunRecord]) -> list[tuple[str, list[str]]]:
    """The simulated levels, where they were asked for."""
    return [
        (title, [_bytes(getattr(r.level_bytes, name)) if r.level_bytes else NONE for r in records])
        for name, title in _LEVELS.items()
    ]


def _bytes(size: int) -> str:
    """17,448,304,640 B (16.25 GiB)."""
    exact = f"{size:,} B"
    return exact if size < 1024 else f"{exact} ({format_bytes(size)})"


def _padded(record: RunRecord) -> str:
    flops = record.work.padded_executed_flops
    return NONE if flops is None else f"{flops:,}"


def _closed_form(record: RunRecord) -> str:
    value = record.theory.closed_form_bytes
    if value is None:
        return "none known"
    return "equal to the total" if value == record.traffic.total_bytes else f"DIFFERS: {_bytes(value)}"


def _bound_name(record: RunRecord) -> str:
    theory = record.theory
    names = [b.name for b in theory.bounds if b.valid and b.bytes == theory.lower_bound_bytes]
    return names[0] if names else NONE


def _launch(record: RunRecord) -> str:
    launch = record.notes["launch"]
    first = next(iter(launch["thread_blocks"].values()))
    return f"{first:,} (one at a time on each of {launch['sm_count']} SMs: {launch['sm_share']:.0%} busy)"


def _splits(record: RunRecord) -> str:
    note = record.notes.get("splits")
    return NONE if note is None else f"{note['chosen']} (least bytes a busy SM: {note['best']})"


def _padding(record: RunRecord) -> str:
    note = record.notes.get("ragged")
    if note is None:
        return NONE
    more = note["padding_bytes"] / record.traffic.total_bytes
    return f"{_bytes(note['padding_bytes'])}, {more:.0%} more ({counted(note['sequences'], 'sequence')})"


def _pass(record: RunRecord) -> str:
    note = record.notes.get("pass")
    if note is None or note["name"] == "fwd":
        return NONE
    again = f", {note['recomputed_matmuls']} of them again" if note["recomputed_matmuls"] else ""
    return f"{note['name']}: {note['matmuls']} matmuls{again}"


def _blocks(record: RunRecord) -> str:
    """Density, and the bytes that it saves."""
    note = record.notes.get("block_mask")
    if note is None:
        return NONE
    fewer = f"{note['byte_speedup']:.3g}x fewer bytes than dense"
    return f"{note['blocks']:,} of {counted(note['all_blocks'], 'block')}, {fewer}"


def _softmax(record: RunRecord) -> str:
    """Both numbers of the chosen softmax, where there is one to choose."""
    note = record.notes.get("softmax")
    if note is None:
        return NONE
    passes = f"{note['passes']} pass{'es' if note['passes'] != 1 else ''}"
    return f"{note['variant']}: {passes}, {note['accesses_per_element']} accesses an element"


def _print_on_chip(record: RunRecord) -> None:
    """The on-chip level, where the algorithm's kernels divide a tile in one of the known ways."""
    from iosim.cli.on_chip import print_on_chip

    found = record.notes["on_chip"]
    if found is None:
        print(
            f"\n{record.algorithm}: no on-chip level; it is known for the dense forward of flash1, flash2, seed_flash"
        )
        return
    print(f"\n{record.algorithm} on chip, one tile {record.tiles} of one thread block")
    warn(list(found["refused"].values()))
    if found["schemes"]:
        print_on_chip(found)


def _print_check(name: str, check: Mapping[str, Any]) -> None:
    """The proof and the fitted exponents of a user's program."""
    proof = check["proof"]
    print(
        f"\n{name}: verified and equal to attention on {proof['cases']} small problems, "
        f"largest error {proof['max_abs_error']:.2g}"
    )
    for fit in check["exponents"]:
        print(
            f"{name}: {fit['series']} grow as N^{fit['exponent_n']:.2f} d^{fit['exponent_d']:.2f} "
            f"M^{fit['exponent_m']:.2f} (R² {fit['r_squared']:.4f}; {fit['where']}, no mask)"
        )
    if not proof["survives_large_scores"]:
        warn([f"{name}: overflows where scores are large; subtract the row's maximum before exp"])
