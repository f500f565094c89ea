"""What the L2 of this GPU keeps, by hardware counters: read, written and rewritten buffers of many sizes and places.

    python -m iosim_validation.l2_probe OUT.csv

Needs nvcc and ncu with access to the counters; clocks are left alone and every launch starts from a cold cache.
A first run finds the L2 partition of each SM: SM 0 reads 2 MiB, then SM s; what crosses between the partitions
in the second pass tells whether s lies on the other side. One row of OUT.csv is one launch of `kernels/l2_probe.cu`.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "kernels" / "l2_probe.cu"
MIB = 2**20
SMS = 132
SECTOR_BYTES = 32
METRICS = {
    "hbm_read_bytes": "dram__bytes_read.sum",
    "hbm_write_bytes": "dram__bytes_write.sum",
    "fabric_sectors": "lts__t_sectors_srcunit_ltcfabric.sum",
}
ALL, OWN_SHARE, SM = -1, -2, 1000
FRESH, AGAIN, FRESH_READ = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One launch; the fields are those of a line of the plan. Sizes in bytes."""

    footprint_bytes: int = 0
    base_bytes: int = 0
    piece_bytes: int = 0
    passes: int = 6
    written_bytes: int = 0
    written_base_bytes: int = 3 << 30
    second: int = FRESH
    reader: int = ALL
    writer: int = ALL

    @property
    def kind(self) -> str:
        """Which question it asks."""
        if not self.footprint_bytes:
            return "rewrite" if self.second == AGAIN else "write"
        if self.written_bytes:
            return "read+fresh read" if self.second == FRESH_READ else "read+write"
        if self.piece_bytes:
            return "read pieces"
        return {ALL: "read", OWN_SHARE: "read own share"}.get(self.reader, "read from one side")


def sides_plan() -> list[Probe]:
    """Pairs of SMs that read the same 2 MiB one after the other."""
    return [
        Probe(footprint_bytes=2 * MIB, base_bytes=s * 4 * MIB, passes=2, reader=SM + s) for s in range(SMS)
    ]


def plan() -> Iterator[Probe]:
    """Every launch of the experiment."""
    for base in (0, 1, 2, 3, 5, 10, 16, 37, 100, 517, 1030, 2049):
        for half in (56, 57, 58, 59, 60, 62, 64):
            yield Probe(footprint_bytes=half * MIB // 2, base_bytes=base * MIB)
    for quarter in range(112, 148):
        yield Probe(footprint_bytes=quarter * MIB // 4, base_bytes=64 * MIB)
    for writer in (ALL, 0):
        for mib in range(8, 76, 4):
            yield Probe(written_bytes=mib * MIB, passes=1, writer=writer)
    for mib in range(20, 66, 2):
        yield Probe(written_bytes=mib * MIB, second=AGAIN)
    for reader in (OWN_SHARE, 0):
        for mib in range(24, 66, 2):
            yield Probe(footprint_bytes=mib * MIB, base_bytes=64 * MIB, reader=reader)
    for mib in (16, 20, 22, 24, 26, 28):
        for written in (4, 8, 16):
            for place in (0, 1, 2, 3):
                fresh = (3 << 30) + place * MIB
                yield Probe(footprint_bytes=mib * MIB, written_bytes=written * MIB, written_base_bytes=fresh)
            yield Probe(footprint_bytes=mib * MIB, written_bytes=written * MIB, second=FRESH_READ)
    for mib, written in ((16, 8), (16, 12), (16, 16), (20, 8), (20, 16), (24, 8)):
        for writer in (0, 1):
            yield Probe(footprint_bytes=mib * MIB, written_bytes=written * MIB, writer=writer)
    # pieces
    for piece in (64, 256, 512, 1024, 2048, 4096, 8192, 16384):
        for mib in (16, 20, 24, 26, 28, 30, 32):
            for draw in (1, 2, 3):
                yield Probe(footprint_bytes=mib * MIB, base_bytes=draw, piece_bytes=piece * 1024)


def count(probes: list[Probe], sides: list[int], folder: Path) -> list[dict[str, float]]:
    """Launch every probe under the profiler; the counters of each, in order."""
    lines, map_file, log = folder / "plan.txt", folder / "sides.txt", folder / "counters.csv"
    lines.write_text("".join(" ".join(map(str, astuple(p))) + "\n" for p in probes))
    map_file.write_text(" ".join(map(str, sides)))
    command = ["ncu", "--kernel-name", "l2_probe", "--clock-control", "none", "--cache-control", "all"]
    command += ["--metrics", ",".join(METRICS.values()), "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--log-file", str(log), str(folder / "l2_probe"), str(lines), str(map_file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"ncu: {done.stdout[-800:]} {done.stderr[-800:]} {log.read_text()[-800:]}")
    text = [line for line in log.read_text().splitlines() if line.startswith('"')]
    rows = [row for row in csv.DictReader(text) if row["ID"]]
    return [{name: float(row[m].replace(",", "")) for name, m in METRICS.items()} for row in rows]


def main() -> int:
    """Build, find the sides, run the plan, write the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = ["nvcc", "-O3", "-arch=sm_90", "-o", str(folder / "l2_probe"), str(SOURCE)]
        subprocess.run(build, check=True)
        crossed = [
            row["fabric_sectors"] * SECTOR_BYTES / MIB for row in count(sides_plan(), [0] * SMS, folder)
        ]
        sides = [int(mib > 1.5) for mib in crossed]
        print("crossed MiB:", " ".join(f"{mib:.2f}" for mib in crossed))
        print("sides:", "".join(map(str, sides)))
        probes = list(plan())
        counters = count(probes, sides, folder)
    head = ["kind", *Probe.__dataclass_fields__, "hbm_read_bytes", "hbm_write_bytes", "l2_fabric_bytes"]
    with Path(sys.argv[1]).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        for probe, seen in zip(probes, counters, strict=True):
            counted = (seen["hbm_read_bytes"], seen["hbm_write_bytes"], seen["fabric_sectors"] * SECTOR_BYTES)
            writer.writerow([probe.kind, *astuple(probe), *(int(c) for c in counted)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
