"""Which metric of Nsight Compute is which of our columns, in which unit, and the command line that reads them all.

Names as `ncu --query-metrics` prints them for Ampere and Hopper; a name that a GPU does not have comes back as n/a.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from iosim.errors import UsageError

SECTOR_BYTES = 32
WARP_LANES = 32

COLUMN_METRICS: tuple[tuple[str, str, float], ...] = (
    ("hbm_read_bytes", "dram__bytes_read.sum", 1),
    ("hbm_write_bytes", "dram__bytes_write.sum", 1),
    ("sm_read_bytes", "l1tex__m_xbar2l1tex_read_bytes.sum", 1),
    ("sm_write_bytes", "l1tex__m_l1tex2xbar_write_bytes.sum", 1),
    ("l2_read_bytes", "lts__t_sectors_srcunit_tex_op_read.sum", SECTOR_BYTES),
    ("l2_write_bytes", "lts__t_sectors_srcunit_tex_op_write.sum", SECTOR_BYTES),
    ("l2_fabric_bytes", "lts__t_sectors_srcunit_ltcfabric.sum", SECTOR_BYTES),
    ("special_ops", "smsp__inst_executed_pipe_xu.sum", WARP_LANES),
    ("shared_wavefronts", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", 1),
    ("profiled_time_s", "gpu__time_duration.sum", 1),
    # other names of the same, as older commands or other sections collect them
    ("hbm_read_bytes", "dram__sectors_read.sum", SECTOR_BYTES),
    ("hbm_write_bytes", "dram__sectors_write.sum", SECTOR_BYTES),
    ("sm_read_bytes", "l1tex__m_xbar2l1tex_read_sectors.sum", SECTOR_BYTES),
    ("profiled_time_s", "gpu__time_duration.avg", 1),
    ("profiled_time_s", "gpu__time_duration.max", 1),
)
"""(column of a measurements file, metric, factor); the first metric that an export has is taken."""

REGISTERS = "launch__registers_per_thread"
SHARED = "launch__shared_mem_per_block"
SHARED_PARTS = tuple(f"launch__shared_mem_per_block_{part}" for part in ("static", "dynamic", "driver"))
CLOCKS = ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
GPU_NAME = "device__attribute_display_name"
SPILLED_STORES = "smsp__inst_executed_op_local_st.sum"
WGMMAS = "sm__inst_executed_pipe_tensor_op_gmma.sum"
TENSOR_CYCLES = "sm__pipe_tensor_cycles_active.avg"
BARRIER_STALLS = "smsp__warps_issue_stalled_barrier.sum"
GRID = tuple(f"launch__grid_dim_{axis}" for axis in "xyz")
BLOCK = tuple(f"launch__block_dim_{axis}" for axis in "xyz")
_EVIDENCE = (SPILLED_STORES, WGMMAS, TENSOR_CYCLES, BARRIER_STALLS)
"""Nothing predicts these; they say what a kernel is like."""
LAUNCH_METRICS = (REGISTERS, SHARED, *SHARED_PARTS, *CLOCKS, *_EVIDENCE, *GRID, *BLOCK)

DETAILS: Mapping[str, str] = MappingProxyType(
    {
        "Duration": "gpu__time_duration.sum",
        "SM Frequency": CLOCKS[0],
        "Registers Per Thread": REGISTERS,
        "Static Shared Memory Per Block": SHARED_PARTS[0],
        "Dynamic Shared Memory Per Block": SHARED_PARTS[1],
        "Driver Shared Memory Per Block": SHARED_PARTS[2],
    }
)
"""What the details page calls a metric."""

KNOWN = frozenset({*(metric for _, metric, _ in COLUMN_METRICS), *LAUNCH_METRICS, GPU_NAME})

_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_SECONDS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}


def ncu_metrics() -> dict[str, str]:
    """The metric that the command collects for each column."""
    found: dict[str, str] = {}
    for column, metric, _ in COLUMN_METRICS:
        found.setdefault(column, metric)
    return found


NCU_OPTIONS = (
    *("--replay-mode", "kernel"),
    *("--cache-control", "all", "--clock-control", "none"),
    *("--csv", "--page", "raw", "--print-units", "base"),
)
"""Every pass of a kernel starts from empty caches, as the model does; clocks are left alone; bytes and ns."""


def ncu_command(kernel: str | None = None, out: str = "export.csv") -> str:
    """A command line to copy: one launch after three, cold caches, free clocks, base units."""
    name = f"regex:{re.escape(kernel)}" if kernel else "regex:YOUR_KERNEL"
    options = (
        *("--target-processes", "all", "--kernel-name", name),
        *("--launch-skip", "3", "--launch-count", "1"),
    )
    return shlex.join(ncu_command_for(("python", "your_benchmark.py"), out, options))


def ncu_command_for(
    program: Sequence[str], out: str, options: Sequence[str] = (), without: Collection[str] = ()
) -> list[str]:
    """The words of the command around a program; `without`: metrics that this GPU does not have."""
    launch = (REGISTERS, SHARED, *SHARED_PARTS, CLOCKS[0], *_EVIDENCE, GPU_NAME)
    metrics = [m for m in (*ncu_metrics().values(), *launch) if m not in without]
    return ["ncu", *options, *NCU_OPTIONS, "--metrics", ",".join(metrics), "--log-file", out, *program]


def in_base_units(value: float, unit: str) -> float:
    """A value in bytes, seconds, Hz or plain counts. `UsageError` for a unit that is none of ncu's."""
    word = unit.strip().partition("/")[0] if not unit.strip().startswith("cycle/") else unit.strip()
    clock = re.fullmatch(r"cycle/([num]?)s(?:econd)?", word)
    if clock:
        return value / _SECONDS[clock[1]]
    time = re.fullmatch(r"([num]?)s(?:ec(?:ond)?s?)?", word)
    if time:
        return value * _SECONDS[time[1]]
    scaled = re.fullmatch(
        r"([kmgt]?)(hz|b|bytes?|sectors?|inst|warps?|threads?|registers?|cycles?)", word.lower()
    )
    if scaled:
        return value * _PREFIX[scaled[1]]
    if word in ("", "block", "pass", "register/thread"):
        return value
    raise UsageError(f"unknown unit {unit[:20]!r}; export with --print-units base")
