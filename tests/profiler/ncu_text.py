"""Writes exports as `ncu --csv` prints them, in both layouts, from numbers in base units."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

IDENTITY = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream")
IDENTITY_END = ("Block Size", "Grid Size", "Device", "CC")
GPU = "device__attribute_display_name"
UNITS = {
    "dram__bytes_read.sum": "byte",
    "dram__bytes_write.sum": "byte",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "byte",
    "l1tex__m_l1tex2xbar_write_bytes.sum": "byte",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_write.sum": "sector",
    "lts__t_sectors_srcunit_ltcfabric.sum": "sector",
    "smsp__inst_executed_pipe_xu.sum": "inst",
    "smsp__inst_executed_op_local_st.sum": "inst",
    "sm__inst_executed_pipe_tensor_op_gmma.sum": "inst",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "",
    "gpu__time_duration.sum": "ns",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block": "byte/block",
    "launch__shared_mem_per_block_dynamic": "byte/block",
    "launch__shared_mem_per_block_static": "byte/block",
    "launch__shared_mem_per_block_driver": "byte/block",
    "sm__cycles_elapsed.avg.per_second": "hz",
    GPU: "",
}
PROFILER_LINES = (
    "==PROF== Connected to process 4711",
    '==PROF== Profiling "k" - 0: 0%....50%....100% - 9 passes',
)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """One launch; `metrics` in base units (time in seconds), texts as they are."""

    kernel: str = "my_flash"
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    capability: str = "9.0"
    metrics: Mapping[str, float | str] = field(default_factory=dict)

    def identity(self, number: int) -> list[str]:
        sizes = [f"({', '.join(map(str, dim))})" for dim in (self.block, self.grid)]
        return [
            str(number),
            "4711",
            "python3",
            "127.0.0.1",
            self.kernel,
            "1",
            "7",
            *sizes,
            "0",
            self.capability,
        ]


def _shown(name: str, value: float | str, scaled: bool) -> tuple[str, str]:
    """A value with thousands commas, in base units or in those that ncu chooses."""
    unit = UNITS[name]
    if isinstance(value, str):
        return value, unit
    if unit == "ns":
        return (f"{value * 1e6:,.6f}", "us") if scaled else (f"{value * 1e9:,.0f}", "ns")
    for word, big in (("byte", "Mbyte"), ("byte/block", "Kbyte/block"), ("hz", "Ghz")):
        if scaled and unit == word:
            return f"{value / {'M': 1e6, 'K': 1e3, 'G': 1e9}[big[0]]:,.6f}", big
    return f"{value:,.0f}", unit


def _text(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def wide(launches: Sequence[Launched], *, scaled: bool = False) -> str:
    """The raw page: a column a metric, a line of units below the header."""
    names = list(dict.fromkeys(name for launch in launches for name in launch.metrics))
    cells = [[_shown(name, launch.metrics.get(name, "n/a"), scaled) for name in names] for launch in launches]
    units = [unit for _, unit in cells[0]]
    rows = [[*IDENTITY, *IDENTITY_END, *names], [""] * 11 + units]
    rows += [
        launch.identity(i) + [value for value, _ in row]
        for i, (launch, row) in enumerate(zip(launches, cells, strict=True))
    ]
    return "\n".join(PROFILER_LINES) + "\n" + _text(rows)


def long(launches: Sequence[Launched], *, scaled: bool = False) -> str:
    """The details page: a line a metric."""
    rows = [[*IDENTITY, *IDENTITY_END, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    for number, launch in enumerate(launches):
        for name, value in launch.metrics.items():
            shown, unit = _shown(name, value, scaled)
            rows.append([*launch.identity(number), "Command line profiler metrics", name, unit, shown])
    return "\n".join(PROFILER_LINES) + "\n" + _text(rows)
