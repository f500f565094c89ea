"""A profiler's CSV in its two layouts, and the columns that its metrics give."""

from __future__ import annotations

import pytest

from iosim.audit.metrics import COLUMNS, columns_of, metric_names, profiler_command
from iosim.audit.profiler_csv import read_profile
from iosim.errors import UsageError

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
)
WIDE = f"""==PROF== Connected to process 1234 (python)
hello from the program
{HEAD},"Device","CC","dram__bytes_read.sum","gpu__time_duration.sum","lts__t_sectors_srcunit_tex_op_read.sum"
"","","","","","","","","","","","byte","ns","sector"
"0","1234","python","127.0.0.1","flash_fwd","1","7","(128, 1, 1)","(4, 32, 32)","0","9.0","1,000","2,500","8"
"1","1234","python","127.0.0.1","combine(int, float)","1","7","(64, 1, 1)","(9, 1, 1)","0","9.0","7","n/a","1"
"""
SCALED = WIDE.replace('"byte","ns"', '"Kbyte","us"')
LONG = f"""{HEAD},"Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","py","h","flash_fwd","1","7","(128, 1, 1)","(4, 32, 32)","0","9.0","Raw","dram__bytes_read.sum","Mbyte","1.5"
"0","1","python","h","flash_fwd","1","7","(128, 1, 1)","(4, 32, 32)","0","9.0","Raw","gpu__time_duration.sum","ms","2"
"""


def test_one_column_a_metric() -> None:
    first, second = read_profile(WIDE)
    assert (first.name, first.grid, first.block) == ("flash_fwd", "4x32x32", "128x1x1")
    assert first.metrics["dram__bytes_read.sum"] == 1000
    assert second.name == "combine(int, float)"
    assert "gpu__time_duration.sum" not in second.metrics


def test_scaled_units_come_back_as_bytes_and_nanoseconds() -> None:
    plain, scaled = read_profile(WIDE)[0].metrics, read_profile(SCALED)[0].metrics
    assert scaled["dram__bytes_read.sum"] == 1000 * plain["dram__bytes_read.sum"]
    assert scaled["gpu__time_duration.sum"] == 1000 * plain["gpu__time_duration.sum"]
    assert scaled["lts__t_sectors_srcunit_tex_op_read.sum"] == plain["lts__t_sectors_srcunit_tex_op_read.sum"]


def test_one_line_a_metric() -> None:
    (launch,) = read_profile(LONG)
    assert launch.metrics == {"dram__bytes_read.sum": 1_500_000, "gpu__time_duration.sum": 2_000_000}


def test_text_without_a_table_is_refused() -> None:
    with pytest.raises(UsageError, match="no table of metrics"):
        read_profile("==ERROR== ERR_NVGPUCTRPERM\n")


def test_columns_scale_and_sum() -> None:
    found = columns_of(
        {
            "gpu__time_duration.sum": 2500.0,
            "lts__t_sectors_srcunit_tex_op_read.sum": 8.0,
            "smsp__inst_executed_pipe_xu.sum": 3.0,
            "launch__shared_mem_per_block_static": 16.0,
            "launch__shared_mem_per_block_dynamic": 49152.0,
            "launch__shared_mem_per_block_driver": 1024.0,
        }
    )
    assert found["profiled_time_s"] == pytest.approx(2.5e-6)
    assert found["l2_read_bytes"] == 256
    assert found["special_ops"] == 96
    assert found["shared_bytes_per_block"] == 50192
    assert "hbm_read_bytes" not in found


def test_a_column_needs_all_of_its_metrics() -> None:
    assert columns_of({"launch__shared_mem_per_block_static": 16.0}) == {}


def test_the_command_names_every_metric_but_those_left_out() -> None:
    command = profiler_command(["python", "mine.py"], log_file="out.csv", without=["dram__bytes_read.sum"])
    (metrics,) = [word for word in command if word.startswith("--metrics=")]
    assert command[0] == "ncu"
    assert command[-2:] == ["python", "mine.py"]
    assert "dram__bytes_read.sum" not in metrics
    assert set(metrics.removeprefix("--metrics=").split(",")) == set(metric_names()) - {
        "dram__bytes_read.sum"
    }
    assert {m for column in COLUMNS.values() for m in column.metrics} == set(metric_names())
