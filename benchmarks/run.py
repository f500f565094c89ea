"""Run every benchmark, print the results beside their limits, and write docs/performance.md.

Exit code 1 when a limit is missed. When a case of our own cannot run the page stays as it was; a peer that
cannot be installed here is only said.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers import HERE, PEERS, InstallError, Peer, python_of

ROOT = HERE.parent
PAGE = ROOT / "docs" / "performance.md"
COLD_STARTS = 7
MB, GIB = 10**6, 2**30


class CaseError(Exception):
    """A case failed; the message is its last line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured quantity with its limit; `value` None means that it could not be measured."""

    what: str
    value: float | None
    limit: float
    unit: str
    note: str = ""
    at_least: bool = False  # the limit is one to reach, not one to stay under

    @property
    def holds(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value < self.limit

    def cells(self) -> tuple[str, ...]:
        value = "-" if self.value is None else f"{self.value:.3g} {self.unit}"
        return (
            self.what,
            value,
            f"{'≥ ' if self.at_least else ''}{self.limit:g} {self.unit}",
            "yes" if self.holds else "**no**",
            self.note,
        )


def run(command: Sequence[str | Path]) -> str:
    """Run one process at the root of the checkout and return its output."""
    done = subprocess.run([str(w) for w in command], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CaseError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def case(python: Path | str, *arguments: str | Path) -> dict[str, Any]:
    """Run one measurement in a process of its own; its last line is JSON."""
    result: dict[str, Any] = json.loads(run([python, *arguments]).splitlines()[-1])
    return result


def own_rows() -> list[Row]:
    """The two limits on the counting engine: one huge point, and a large sweep."""
    point, grid = "count: causal flash2, N=1,048,576, d=128, 64x64 tiles", "sweep of 10,000 points"
    rows = []
    try:
        long = case(sys.executable, "-m", "benchmarks.cases", "long_causal")
        note = f"first call; best {long['best_seconds'] * 1e3:.2f} ms"
        rows.append(Row(what=point, value=long["first_seconds"] * 1e3, limit=50, unit="ms", note=note))
        rows.append(
            Row(what="its memory, once imported", value=long["grown_bytes"] / MB, limit=200, unit="MB")
        )
    except CaseError as error:
        rows.append(Row(what=point, value=None, limit=50, unit="ms", note=str(error)))
    try:
        sweep = case(sys.executable, "-m", "benchmarks.cases", "sweep")
        if sweep["failed"]:  # a point that cannot run costs nothing, and would flatter the time
            raise CaseError(f"{sweep['failed']:,} of {sweep['points']:,} points failed")
        note = f"{sweep['points']:,} points through count, best tiles, no mask, N to 1M, M to 1 MiB"
        rows.append(Row(what=grid, value=sweep["first_seconds"], limit=10, unit="s", note=note))
        rows.append(Row(what="its memory, all in all", value=sweep["peak_bytes"] / GIB, limit=1, unit="GiB"))
    except CaseError as error:
        rows.append(Row(what=grid, value=None, limit=10, unit="s", note=str(error)))
    return rows


def hierarchy_rows() -> list[Row]:
    """Limits on the simulated hierarchy: the whole audit, and one long causal run without much memory."""
    long = "simulate causal flash2, N=131,072, 16 heads"
    rows = []
    for what, name, limit, words in (
        (
            "audit of every kernel measured on an H200",
            "audit",
            30,
            "{rows} kernels of {cases} cases, compiled code cached",
        ),
        ("audit of our own kernels and their peers", "rungs", 35, "{rows} rows, {processes} processes"),
    ):
        try:
            found = case(sys.executable, "-m", "benchmarks.cases", name)
            value, note = found["first_seconds"], words.format_map(found)
        except CaseError as error:
            value, note = None, str(error)
        rows.append(Row(what=what, value=value, limit=limit, unit="s", note=note))
    try:
        found = case(sys.executable, "-m", "benchmarks.cases", "long_levels")
        note = f"128x64 tiles, d=128, 4.3e9 lines; {found['first_seconds']:.0f} s"
        rows.append(
            Row(what=f"{long}: memory", value=found["peak_bytes"] / MB, limit=500, unit="MB", note=note)
        )
    except CaseError as error:
        rows.append(Row(what=f"{long}: memory", value=None, limit=500, unit="MB", note=str(error)))
    return rows


CACHE_LIMITS = {  # million touches a second
    "iosim lines, flash 4 MiB, as ranges": 40,
    "iosim tile LRU, flash, 50 MiB (hits)": 100,
    "iosim stack distances, flash tiles": 3,
}


def cache_rows() -> tuple[list[Row], list[tuple[str, ...]]]:
    """Speed of the caches: those with a limit, and all of them beside pycachesim and libcachesim in one run."""
    script = HERE / "bench_cache.py"
    found: list[tuple[str, float, str]] | None = None
    for extra in (["--peers"], []):  # without the peers where they cannot be installed
        try:
            found = json.loads(run([sys.executable, script, "--json", *extra]).splitlines()[-1])
            break
        except CaseError as error:
            print(f"caches: {error}", file=sys.stderr)
    speeds = {name: million for name, million, _ in found or ()}
    limits = [
        Row(what=name.removeprefix("iosim "), value=speeds.get(name), limit=limit, unit="M/s", at_least=True)
        for name, limit in CACHE_LIMITS.items()
    ]
    return limits, [(name, f"{million:.3g} M/s", note) for name, million, note in found or ()]


def causal_sentence() -> str:
    """What the tile search costs under a causal mask, where it is slowest; no limit is set for it."""
    try:
        causal = case(sys.executable, "-m", "benchmarks.cases", "causal_sweep")
    except CaseError as error:
        print(f"causal sweep: {error}", file=sys.stderr)
        return "The causal tile search could not be timed."
    each = causal["first_seconds"] / causal["points"] * 1e3
    return (
        f"A causal mask makes the search for the best tile dearer: {each:.0f} ms a point for flash2, d=128, on the "
        f"average of {causal['points']} points up to N = 1M and M = 1 MiB. Fixed or paper tiles avoid it."
    )


def cold_row(arguments: Sequence[str], limit: float) -> Row:
    """Median wall time of a command in a new process (byte code and files warm)."""
    what, seconds = " ".join(["iosim", *arguments]), []
    try:
        for _ in range(COLD_STARTS + 1):
            started = time.perf_counter()
            run([sys.executable, "-m", "iosim", *arguments])
            seconds.append(time.perf_counter() - started)
    except CaseError as error:
        return Row(what=what, value=None, limit=limit, unit="s", note=str(error))
    median = sorted(seconds[1:])[COLD_STARTS // 2]
    return Row(what=what, value=median, limit=limit, unit="s", note=f"new process, median of {COLD_STARTS}")


def layer_cells(name: str, result: dict[str, Any], ours: dict[str, Any], counts: str) -> tuple[str, ...]:
    """One line of the comparison: times, their ratio to ours, and what the tool says."""
    ratio = result["best_seconds"] / ours["best_seconds"]
    said = "-" if result["bytes"] is None else f"{result['bytes']:,}"
    return (
        name,
        f"{result['import_seconds']:.2f} s",
        f"{result['best_seconds'] * 1e3:.3f} ms",
        f"{ratio:.3g}x",
        f"{result['flops']:,}",
        said,
        counts,
    )


def peer_cells(peer: Peer, ours: dict[str, Any]) -> tuple[str, ...]:
    """Time a peer, or say why not."""
    name = f"{peer.package} {peer.version}"
    try:
        return layer_cells(name, case(python_of(peer), HERE / peer.script), ours, peer.counts)
    except InstallError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return name, "-", "-", "-", "-", "-", "could not be installed here"
    except CaseError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return name, "-", "-", "-", "-", "-", "failed"


def layer_table() -> list[tuple[str, ...]]:
    """One attention layer through us and through the peers, in one run."""
    try:
        ours = case(sys.executable, "-m", "benchmarks.cases", "layer")
    except CaseError as error:
        return [("iosim", "-", "-", "-", "-", "-", f"not run: {error}")]
    own = layer_cells("iosim", ours, ours, "count of flash2, 128x128 tiles: every tensor, read and written")
    return [own, *(peer_cells(peer, ours) for peer in PEERS)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    padded = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([padded[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *padded[1:]])


def processor() -> str:
    """The processor's model where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = [n for n in info.read_text().splitlines() if n.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.machine()


PAGE_TEXT = """# Speed of the tool itself

Written by `make bench`; do not edit. {cores} cores of {processor}, Python {python}.

## Limits
{limits}

{causal}

## Beside its peers
One attention layer: N=8192, d=128, H=32, 16-bit, no mask; the best of 20 calls in one process, each tool in
an environment of its own, all in one run. Ratios are to iosim. The peers' times are for what they do, which
is less: neither knows tiles or on-chip memory.

{layer}

Caches, all of 40 MiB and 128 B lines, 16 ways (libcachesim: fully associative), on the same traces in the same run;
"as ranges" gives a tile as one access, "one address each" as the peers need it.

{caches}
"""


def main() -> int:
    """Measure, print, write the page."""
    cache_limits, caches = cache_rows()
    rows = [
        *own_rows(),
        *hierarchy_rows(),
        *cache_limits,
        cold_row(["--help"], 0.3),
        cold_row(["simulate"], 1.2),
    ]
    limits = table(("what", "measured", "limit", "holds", "how"), [row.cells() for row in rows])
    head = ("tool", "import", "one call", "ratio", "flops it says", "bytes it says", "what the call covers")
    layer = table(head, layer_table())
    facts = {"cores": os.cpu_count(), "processor": processor(), "python": platform.python_version()}
    facts["caches"] = table(("simulator and trace", "touches", "misses"), caches)
    page = PAGE_TEXT.format(limits=limits, causal=causal_sentence(), layer=layer, **facts)
    print(page)
    if all(row.value is not None for row in rows):
        PAGE.write_text(page, encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
