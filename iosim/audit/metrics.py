"""The one table between a profiler's metrics and our columns, and the command line that reads them.

Metric names are those of Nsight Compute on Hopper (`ncu --query-metrics --chip gh100`); where a GPU lacks one, its
column stays empty. Bytes come from the DRAM controllers, from the crossbar between L2 and the SMs, and from sectors
that arrive at the L2 slices; operations from warp instructions of a pipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

SECTOR_BYTES, WARP_LANES = 32, 32

PROFILER_OPTIONS = (
    "--clock-control=none",
    "--cache-control=all",
    "--replay-mode=kernel",
    "--csv",
    "--page=raw",
    "--print-units=base",
)
"""Clocks are left alone; every pass of a kernel starts from an empty L2, as the model does; units are bytes and ns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a measurements file: the sum of these metrics, in base units, times a factor."""

    metrics: tuple[str, ...]
    factor: float = 1
    whole: bool = True


def _sectors(name: str) -> Column:
    return Column(metrics=(name,), factor=SECTOR_BYTES)


COLUMNS: Mapping[str, Column] = MappingProxyType(
    {
        "registers_per_thread": Column(metrics=("launch__registers_per_thread",)),
        "shared_bytes_per_block": Column(
            metrics=(
                "launch__shared_mem_per_block_static",
                "launch__shared_mem_per_block_dynamic",
                "launch__shared_mem_per_block_driver",
            )
        ),
        "hbm_read_bytes": Column(metrics=("dram__bytes_read.sum",)),
        "hbm_write_bytes": Column(metrics=("dram__bytes_write.sum",)),
        "sm_read_bytes": Column(metrics=("l1tex__m_xbar2l1tex_read_bytes.sum",)),
        "sm_write_bytes": Column(metrics=("l1tex__m_l1tex2xbar_write_bytes.sum",)),
        "l2_read_bytes": _sectors("lts__t_sectors_srcunit_tex_op_read.sum"),
        "l2_write_bytes": _sectors("lts__t_sectors_srcunit_tex_op_write.sum"),
        "l2_fabric_bytes": _sectors("lts__t_sectors_srcunit_ltcfabric.sum"),
        "special_ops": Column(metrics=("smsp__inst_executed_pipe_xu.sum",), factor=WARP_LANES),
        "local_store_warp_insts": Column(metrics=("smsp__inst_executed_op_local_st.sum",)),
        "shared_wavefronts": Column(metrics=("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",)),
        "profiled_time_s": Column(metrics=("gpu__time_duration.sum",), factor=1e-9, whole=False),
    }
)


def metric_names(without: Iterable[str] = ()) -> tuple[str, ...]:
    """Every metric that the columns need, once each."""
    left_out = set(without)
    return tuple(m for column in COLUMNS.values() for m in column.metrics if m not in left_out)


def columns_of(metrics: Mapping[str, float]) -> dict[str, int | float]:
    """The columns that these metrics, in base units, give; a column is left out when one of its metrics is missing."""
    found: dict[str, int | float] = {}
    for name, column in COLUMNS.items():
        if all(metric in metrics for metric in column.metrics):
            value = sum(metrics[metric] for metric in column.metrics) * column.factor
            found[name] = round(value) if column.whole else value
    return found


def profiler_command(
    program: Sequence[str],
    *,
    log_file: str | None = None,
    options: Sequence[str] = (),
    without: Iterable[str] = (),
) -> list[str]:
    """`ncu` with our metrics around a program, its CSV into `log_file` (to stdout without one)."""
    log = [f"--log-file={log_file}"] if log_file else []
    metrics = f"--metrics={','.join(metric_names(without))}"
    return ["ncu", *PROFILER_OPTIONS, *options, metrics, *log, *program]
