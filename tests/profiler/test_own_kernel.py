"""A kernel of one's own against the model: what comes out, and every way in which things do not fit together.

The launches are rows of the recorded measurements written as an export, so that the audit of the same row by the other
road, a measurements file, is a second route to every number.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from ncu_text import GPU, Launched, long, wide

from iosim.audit import audit_file
from iosim.cli import main
from iosim.errors import UsageError
from iosim.kernels import load_kernel
from iosim.profiler import Case, ExportAudit, audit_export, parse_case

ATTENTION = Path(__file__).parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
SECTOR = 32


def _row(impl: str, head_dim: str, seq: str, causal: str) -> dict[str, str]:
    with ATTENTION.open() as file:
        return next(
            row
            for row in csv.DictReader(file)
            if (row["impl"], row["head_dim"], row["seq_q"], row["causal"]) == (impl, head_dim, seq, causal)
            and row["seq_k"] == seq
            and row["kernel"] == "flash_fwd"
            and row["block_rows"]
        )


FLASH2_ROW = _row("torch_sdpa_flash2", "64", "512", "1")
CUDNN_ROW = _row("torch_sdpa_cudnn", "64", "512", "0")


def _dims(text: str) -> tuple[int, int, int]:
    x, y, z = map(int, text.split("x"))
    return x, y, z


def _launched(row: dict[str, str], **more: float | str) -> Launched:
    metrics: dict[str, float | str] = {
        "dram__bytes_read.sum": int(row["hbm_read_bytes"]),
        "dram__bytes_write.sum": int(row["hbm_write_bytes"]),
        "l1tex__m_xbar2l1tex_read_bytes.sum": int(row["sm_read_bytes"]),
        "l1tex__m_l1tex2xbar_write_bytes.sum": int(row["sm_write_bytes"]),
        "lts__t_sectors_srcunit_tex_op_read.sum": int(row["l2_read_bytes"]) / SECTOR,
        "lts__t_sectors_srcunit_tex_op_write.sum": int(row["l2_write_bytes"]) / SECTOR,
        "lts__t_sectors_srcunit_ltcfabric.sum": int(row["l2_fabric_bytes"]) / SECTOR,
        "smsp__inst_executed_pipe_xu.sum": int(row["special_ops"]) / 32,
        "gpu__time_duration.sum": float(row["profiled_time_s"]),
        "launch__registers_per_thread": int(row["registers_per_thread"]),
        "launch__shared_mem_per_block": int(row["shared_bytes_per_block"]),
        GPU: row["gpu"],
    }
    return Launched(
        kernel="my_fwd", grid=_dims(row["grid"]), block=_dims(row["block"]), metrics=metrics | more
    )


def _case(row: dict[str, str], more: str = "") -> str:
    mask = ",causal" if row["causal"] == "1" else ""
    return (
        f"B={row['batch']},H={row['heads']},kv_heads={row['kv_heads']},N={row['seq_q']},d={row['head_dim']}"
        f",dtype={row['dtype']}{mask},cache=all{more}"
    )


@dataclass(frozen=True, kw_only=True)
class Ways:
    """One launch in a file, and how to audit it."""

    path: Path

    def audit(self, text: str, *cases: str, **more: Any) -> ExportAudit:
        self.path.write_text(text)
        parsed: list[Case] = [parse_case(case) for case in cases]
        return audit_export(self.path, parsed, **more)


@pytest.fixture
def ways(tmp_path: Path) -> Ways:
    return Ways(path=tmp_path / "export.csv")


@pytest.mark.parametrize(("row", "card"), [(FLASH2_ROW, "torch-flash2"), (CUDNN_ROW, "cudnn-sdpa")])
@pytest.mark.parametrize("layout", [wide, long])
def test_a_row_audits_alike_by_either_road(
    ways: Ways, tmp_path: Path, row: dict[str, str], card: str, layout: Callable[..., str]
) -> None:
    measurements = tmp_path / "rows.csv"
    measurements.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n")
    (expected,) = audit_file(measurements).items
    found = ways.audit(layout([_launched(row)]), _case(row), card=load_kernel(card))
    (item,) = found.items
    assert found.profile.name == "h200-sxm"
    for column in ("sm_read_bytes", "l2_read_bytes", "l2_fabric_bytes", "hbm_read_bytes", "special_ops"):
        assert item.comparison.predicted[column] == expected.predicted[column], column
        assert item.comparison.row.measured[column] == expected.row.measured[column], column
    assert item.comparison.predicted["profiled_time_s"] == pytest.approx(
        expected.predicted["profiled_time_s"]
    )
    assert item.remarks == ()
    spills = 0.05  # spilled registers are an input, rounded
    error = item.comparison.error("sm_write_bytes")
    assert error is not None
    assert abs(error) < (spills if card == "torch-flash2" else 0.003)
    assert item.bound is not None
    assert item.bound.seconds < float(row["profiled_time_s"])


def test_without_a_card_the_case_and_the_launch_say_what_they_can(ways: Ways) -> None:
    found = ways.audit(
        wide([_launched(FLASH2_ROW, **{"sm__inst_executed_pipe_tensor_op_gmma.sum": 0})]),
        _case(FLASH2_ROW, ",tiles=128x128,walk=backward,lse=on"),
    )
    (item,) = found.items
    assert item.comparison.row.implementation == "own"
    assert item.comparison.error("sm_read_bytes") == pytest.approx(0, abs=0.01)
    assert item.comparison.predicted["profiled_time_s"] is not None
    assert "kernel class mma-sync assumed" in item.remarks[0]


def test_fewer_blocks_than_tiles_is_a_persistent_kernel(ways: Ways) -> None:
    found = ways.audit(wide([_launched(CUDNN_ROW)]), _case(CUDNN_ROW, ",tiles=128x128,class=wgmma"))
    persistent = [remark for remark in found.items[0].remarks if "persistent" in remark]
    grid = _dims(CUDNN_ROW["grid"])
    blocks = grid[0] * grid[1] * grid[2]
    assert persistent == (
        [f"{blocks} blocks for {4 * 32 * 32} row tiles: taken for a persistent kernel"]
        if blocks <= 132
        else []
    )


def _remarks(ways: Ways, launch: Launched, case: str, card: str = "torch-flash2") -> str:
    return "\n".join(ways.audit(wide([launch]), case, card=load_kernel(card)).items[0].remarks)


def test_a_grid_that_does_not_fit_the_case(ways: Ways) -> None:
    said = _remarks(ways, replace(_launched(FLASH2_ROW), grid=(4, 32, 16)), _case(FLASH2_ROW))
    assert "the launch has 2048 blocks; 128x128 tiles of this case make 4096" in said


def test_the_blocks_of_another_loop_order_are_those_of_its_program(ways: Ways) -> None:
    one_a_head = replace(_launched(FLASH2_ROW), grid=(32, 32, 1), block=(256, 1, 1))
    assert "blocks; " not in _remarks(ways, one_a_head, _case(FLASH2_ROW), "iosim-flash1")
    assert "make 1024" in _remarks(
        ways, replace(one_a_head, grid=(9, 1, 1)), _case(FLASH2_ROW), "iosim-flash1"
    )


def test_threads_clock_caches_and_spills_are_said(ways: Ways) -> None:
    slow = _launched(
        FLASH2_ROW,
        **{"sm__cycles_elapsed.avg.per_second": 1.2e9, "smsp__inst_executed_op_local_st.sum": 1000},
    )
    case = _case(FLASH2_ROW).replace("cache=all", "cache=none")
    own = load_kernel("torch-flash2")
    found = ways.audit(wide([replace(slow, block=(256, 1, 1))]), case, card=replace(own, spills=()))
    said = "\n".join(found.items[0].remarks)
    assert "256 threads a block, the card 128" in said
    assert "caches were not flushed" in said
    assert "the SMs ran at 1.20 GHz of 1.98" in said
    assert "1,000 local stores" in said
    unsaid = _remarks(ways, _launched(FLASH2_ROW), _case(FLASH2_ROW).replace(",cache=all", ""))
    assert "does not say its cache control" in unsaid


def test_the_time_is_predicted_at_the_clock_of_the_launch(ways: Ways) -> None:
    def predicted(**more: float) -> float:
        found = ways.audit(
            wide([_launched(FLASH2_ROW, **more)]), _case(FLASH2_ROW), card=load_kernel("torch-flash2")
        )
        time = found.items[0].comparison.predicted["profiled_time_s"]
        assert time is not None
        return time

    name = "sm__cycles_elapsed.avg.per_second"
    assert predicted(**{name: 1.797e9}) == pytest.approx(
        predicted()
    )  # what its tensor cores leave of 1.98 GHz
    assert predicted(**{name: 0.99e9}) > 1.5 * predicted()


def test_a_time_that_cannot_be_is_named_with_reasons(ways: Ways) -> None:
    fast = _launched(FLASH2_ROW, **{"gpu__time_duration.sum": 1e-5})
    said = _remarks(ways, fast, _case(FLASH2_ROW))
    assert "less than the least possible" in said
    assert "another shape, mask or dtype than the case" in said
    assert said.count("above the roof tensor") == 1
    assert "full N² flops on a causal kernel" in said


def test_equal_launches_are_summed_up_and_the_worst_comes_first(ways: Ways) -> None:
    off = _launched(FLASH2_ROW, **{"dram__bytes_read.sum": 2 * int(FLASH2_ROW["hbm_read_bytes"])})
    found = ways.audit(
        wide([_launched(FLASH2_ROW), off]), _case(FLASH2_ROW), card=load_kernel("torch-flash2")
    )
    assert [item.launch.number for item in found.items] == ["1", "0"]
    (group,) = found.by_kernel.values()
    assert group["sm_read_bytes"].n == 2


def test_one_case_each(ways: Ways) -> None:
    other = _row("torch_sdpa_flash2", "64", "1024", "1")
    text = wide([_launched(FLASH2_ROW), _launched(other)])
    found = ways.audit(text, _case(FLASH2_ROW), _case(other), card=load_kernel("torch-flash2"))
    assert sorted(item.comparison.row.problem.seq_q for item in found.items) == [512, 1024]
    assert all(abs(item.comparison.error("sm_read_bytes") or 1) < 0.01 for item in found.items)
    with pytest.raises(UsageError, match="given 3 times for 2 launches"):
        ways.audit(text, *[_case(other)] * 3)


@pytest.mark.parametrize(
    ("change", "case", "more", "said"),
    [
        ({}, None, {}, "--case: needed"),
        ({}, "N=512,d=64", {}, "tiles are missing"),
        ({}, "N=512,d=512", {"card": "torch-flash2"}, "has no tile for d = 512"),
        ({}, "N=512,d=64", {"card": "torch-unfused"}, r"several kernels \(scores, softmax, output\)"),
        ({GPU: "n/a"}, "N=512,d=64,tiles=128x64", {}, "compute capability 9.0.*--hw"),
        (
            {GPU: "n/a"},
            "N=512,d=64,tiles=128x64",
            {"hw": "a100-sxm-80gb"},
            "measured on compute capability 9.0",
        ),
        ({}, "N=512,d=64,tiles=128x64", {"hw": "h100-sxm"}, "NVIDIA H200.*--hw"),
        ({GPU: "../x.yaml"}, "N=512,d=64,tiles=128x64", {}, "is no GPU's name"),
        ({GPU: "Voodoo 2"}, "N=512,d=64,tiles=128x64", {}, "Voodoo"),
        ({}, "N=512,d=64,tiles=128x64", {"kernel": "gemm"}, "--kernel-name: no kernel.*my_fwd"),
        ({}, "N=512,d=64,tiles=128x128", {"kernel": "my"}, None),
    ],
)
def test_what_does_not_fit_together_is_one_line(
    ways: Ways, change: dict[str, str], case: str | None, more: dict[str, str], said: str | None
) -> None:
    text = wide([_launched(FLASH2_ROW, **change)])
    options: dict[str, Any] = {**more}
    if "card" in options:
        options["card"] = load_kernel(options["card"])
    if said is None:
        assert ways.audit(text, case or "", **options).items
        return
    with pytest.raises(UsageError, match=said) as caught:
        ways.audit(text, *([case] if case else []), **options)
    assert "\n" not in str(caught.value)


def test_several_kernels_need_a_name(ways: Ways) -> None:
    text = wide([_launched(FLASH2_ROW), replace(_launched(FLASH2_ROW), kernel="softmax")])
    with pytest.raises(UsageError, match="several kernels; choose one with --kernel-name: my_fwd, softmax"):
        ways.audit(text, _case(FLASH2_ROW))
    found = ways.audit(text, _case(FLASH2_ROW), card=load_kernel("torch-flash2"), kernel="fwd")
    assert len(found.items) == 1


# the command ----------------------------------------------------------------------------------------------------------


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_the_command_prints_json_and_limits_by_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import json

    path = tmp_path / "export.csv"
    path.write_text(wide([_launched(FLASH2_ROW)]))
    words = ("audit", str(path), "--case", _case(FLASH2_ROW), "--card", "torch-flash2")
    code, out, err = _run(capsys, *words, "--json", "--max-error", "sm_write_bytes=0.05")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["rows"]
    assert row["launch"]["grid"] == list(_dims(FLASH2_ROW["grid"]))
    assert row["lower_bound_s"] < row["measured"]["profiled_time_s"]
    assert row["error"]["sm_read_bytes"] == pytest.approx(
        row["predicted"]["sm_read_bytes"] / row["measured"]["sm_read_bytes"] - 1
    )
    code, _, err = _run(capsys, *words, "--max-error", "profiled_time_s=0.000001")
    assert code == 4
    assert "profiled_time_s is off" in err
    code, out, _ = _run(capsys, *words)
    assert code == 0
    for word in ("my_fwd", "255 registers", "hbm_read_bytes", "least possible time", "grid 4x32x32"):
        assert word in out


def test_the_command_that_collects(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "audit", "--print-ncu-command", "--kernel-name", "fwd")
    assert code == 0
    assert out.startswith("ncu ")
    assert out.count("\n") == 1
    assert "regex:fwd" in out
    assert "dram__bytes_read.sum" in err
    assert "iosim audit export.csv --case" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "audit: no FILE"),
        ((str(ATTENTION), "--case", "N=8,d=8"), "which this is not"),
        ((str(ATTENTION), "--card", "torch-flash2"), "which this is not"),
    ],
)
def test_the_command_used_wrongly(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    code, out, err = _run(capsys, "audit", *words)
    assert (code, out) == (2, "")
    assert said in err


REAL = Path(__file__).parents[2] / "validation/measurements/h200/ncu_export.csv"


@pytest.mark.parametrize(
    ("kernel", "card", "special"),
    [
        ("pytorch_flash", "torch-flash2", 0.001),
        ("flash2_wgmma", "iosim-flash2_wgmma_128", 0.01),
        ("flash2", "iosim-flash2", 0.01),  # a whole name, which is a part of another
    ],
)
def test_an_export_of_a_real_profiler(kernel: str, card: str, special: float) -> None:
    """ncu 2025.3.1 on an H200, six launches of three kernels, collected with the command that iosim prints."""
    cases = [parse_case(f"batch=4,heads=16,N=2048,d=128{mask}") for mask in ("", ",causal")]
    found = audit_export(REAL, cases, card=load_kernel(card), kernel=kernel)
    assert len(found.items) == 2
    for item in found.items:
        assert all("threads a block" not in remark for remark in item.remarks)
        for column, most in {
            "sm_read_bytes": 0.001,
            "special_ops": special,
            "hbm_read_bytes": 0.06,
            "profiled_time_s": 0.1,
        }.items():
            error = item.comparison.error(column)
            assert error is not None
            assert abs(error) < most, column
