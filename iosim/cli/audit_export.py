"""`iosim audit` on a profiler's export: predicted against measured for someone's own kernel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iosim.cli.output import print_json, progress_bar, warn

if TYPE_CHECKING:
    from iosim.profiler import ExportAudit, Launch, OwnKernel

BYTES_HINT = "then: iosim audit export.csv --case batch=2,heads=16,N=4096,d=128,causal,tiles=128x64"


def print_ncu_command(kernel: str | None, *, as_json: bool) -> None:
    """The command line that collects every column, and what is which."""
    from iosim.profiler import ncu_command, ncu_metrics

    if as_json:
        print_json({"schema_version": 1, "command": ncu_command(kernel), "metrics": ncu_metrics()})
        return
    print(ncu_command(kernel))
    warn_lines = [f"  {column:17} {metric}" for column, metric in ncu_metrics().items()]
    _hint(["", *warn_lines, "", BYTES_HINT])


def _hint(lines: Sequence[str]) -> None:
    import sys

    print("\n".join(lines), file=sys.stderr)


def audit_own(
    file: Path,
    cases: Sequence[str],
    card: str | None,
    hw: str | None,
    kernel: str | None,
    *,
    as_json: bool,
    most: int | None,
) -> ExportAudit:
    """Audit an export and show it."""
    from iosim.kernels import load_kernel
    from iosim.profiler import audit_export, parse_case

    parsed = [parse_case(text) for text in cases]
    facts = None if card is None else load_kernel(card)
    with progress_bar("audit", 1) as progress:
        found = audit_export(file, parsed, card=facts, hw=hw, kernel=kernel, progress=progress)
    warn(found.faults)
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found, most)
    return found


def _show(found: ExportAudit, most: int | None) -> None:
    from iosim.cli.audit import show_summary

    print(f"{found.file} on {found.profile.name}; predicted / measured, error\n")
    for item in found.items[:most]:
        print("\n".join(_block(item)) + "\n")
    if most is not None and len(found.items) > most:
        print(f"... and {len(found.items) - most:,} launches with smaller errors (--all)\n")
    if len(found.items) > 1:
        for name, group in found.by_kernel.items():
            show_summary(name, group)


def _block(item: OwnKernel) -> list[str]:
    """A launch: what it was, each column on a line, the least time, and the remarks."""
    from iosim.cli.audit import cells, shape
    from iosim.profiler import COLUMNS

    row = item.comparison.row
    lines = [
        f"launch {row.case}  {row.implementation}/{row.kernel}",
        f"  {shape(item.comparison)}, tile {row.tile}",
    ]
    lines.append(f"  {_launch(item.launch)}")
    lines += [f"  {cell}" for cell in cells(item.comparison, COLUMNS)] or [
        "  nothing both predicted and measured"
    ]
    missing = [c for c in COLUMNS if c not in row.measured and item.comparison.predicted.get(c) is not None]
    if missing:
        lines.append(f"  not measured: {', '.join(missing)}")
    if item.bound is not None:
        lines.append(f"  least possible time {item.bound.seconds * 1e6:,.1f}us ({item.bound.limit})")
    return lines + [f"  ! {remark}" for remark in item.remarks]


def _launch(launch: Launch) -> str:
    def dim(size: tuple[int, int, int] | None) -> str:
        return "x".join(map(str, size)) if size else "unknown"

    parts = [f"grid {dim(launch.grid)}", f"block {dim(launch.block)}"]
    if launch.registers_per_thread is not None:
        parts.append(f"{launch.registers_per_thread} registers")
    if launch.shared_bytes_per_block is not None:
        parts.append(f"{launch.shared_bytes_per_block:,} B shared")
    if launch.clock_hz is not None:
        parts.append(f"{launch.clock_hz / 1e9:.2f} GHz")
    return ", ".join(parts)
