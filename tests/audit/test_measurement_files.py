"""Files of measurements that are broken: what is said, with which line, and what goes on."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from iosim.audit import audit_file
from iosim.audit.measurements import read_measurements
from iosim.errors import IosimError, RunError, UsageError

ATTENTION = Path(__file__).parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
SMALL_CASE = "81"


def rows(case: str = SMALL_CASE) -> list[dict[str, str]]:
    """A case small enough to audit in no time: 3 x 5 heads of 1000 tokens."""
    with ATTENTION.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["case"] == case and row["kernel"] == "flash_fwd"]


def write(path: Path, entries: list[dict[str, str]], without: str = "") -> Path:
    names = [name for name in entries[0] if name != without]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(entries)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.csv"


@pytest.mark.parametrize("column", ["gpu", "seq_k", "block_cols", "kernel"])
def test_missing_column(file: Path, column: str) -> None:
    with pytest.raises(UsageError, match=rf"mine\.csv:1: missing columns: {column}"):
        read_measurements(write(file, rows(), without=column))


def test_no_counter_at_all(file: Path) -> None:
    names = ("case", "gpu", "impl", "dtype", "kernel", "batch", "heads", "kv_heads", "seq_q", "seq_k")
    names = (*names, "head_dim", "causal", "block_rows", "block_cols")
    with pytest.raises(UsageError, match="no measured column"):
        read_measurements(write(file, [{n: r[n] for n in names} for r in rows()]))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("hbm_read_bytes", "many"),
        ("hbm_read_bytes", "nan"),
        ("hbm_read_bytes", "-1"),
        ("special_ops", "inf"),
        ("seq_q", "1e3"),
        ("seq_q", "0"),
        ("heads", ""),
        ("kv_heads", "2"),  # does not divide 5 heads
        ("dtype", "fp12"),
        ("causal", "2"),
        ("block_rows", "half"),
    ],
)
def test_a_bad_row_is_named_and_the_good_ones_go_on(file: Path, column: str, value: str) -> None:
    good = rows()
    bad = good[0] | {column: value}
    found = read_measurements(write(file, [good[0], bad, *good]))
    assert len(found.rows) == 1 + len(good)
    (fault,) = found.faults
    assert fault.startswith("mine.csv:3: ")
    assert value in fault


def test_nothing_but_bad_rows(file: Path) -> None:
    with pytest.raises(UsageError, match=r"no usable row; the first fault: mine\.csv:2: .*many"):
        read_measurements(write(file, [rows()[0] | {"hbm_read_bytes": "many"}]))


def test_another_gpu(file: Path) -> None:
    good = rows()
    result = audit_file(write(file, [good[0], good[0] | {"gpu": "NVIDIA A100-SXM4-80GB"}]))
    assert len(result.items) == 1
    (fault,) = result.faults
    assert "mine.csv:3" in fault
    assert "A100" in fault
    with pytest.raises(UsageError, match="no row is of a100-sxm-80gb"):
        audit_file(write(file, good), "a100-sxm-80gb")


def test_a_gpu_that_nobody_knows(file: Path) -> None:
    with pytest.raises(IosimError, match="Voodoo"):
        audit_file(write(file, [rows()[0] | {"gpu": "Voodoo 2"}]))


@pytest.mark.parametrize(
    "content", [b"", b"\n\n", b"\x00\xff\xfe" * 50, b"\x89PNG\r\n\x1a\n" + bytes(range(256))]
)
def test_not_a_table(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"^mine\.csv"):
        read_measurements(file)


def test_header_only(file: Path) -> None:
    file.write_text(ATTENTION.read_text().splitlines()[0] + "\n")
    with pytest.raises(UsageError, match="no usable row"):
        read_measurements(file)


def test_no_such_file(file: Path) -> None:
    with pytest.raises(RunError, match="cannot read"):
        read_measurements(file)


def test_unknown_tiles_are_null_and_left_out_of_n(file: Path) -> None:
    good = rows()
    result = audit_file(write(file, [*good, good[0] | {"block_rows": "", "block_cols": ""}]))
    known, unknown = result.items[: len(good)], result.items[-1]
    assert unknown.predicted["hbm_read_bytes"] is None
    assert unknown.error("hbm_read_bytes") is None
    assert all(item.predicted["hbm_read_bytes"] is not None for item in known)
    assert result.summary["hbm_read_bytes"].n == len(good)


@pytest.mark.parametrize("column", ["case", "gpu", "impl", "kernel"])
def test_words_that_cannot_be_printed_are_a_fault_with_their_line(file: Path, column: str) -> None:
    good = rows()
    write(file, [*good, good[0] | {column: "a\0b"}])
    found = read_measurements(file)
    assert len(found.rows) == len(good)
    assert f"mine.csv:{len(good) + 2}: {column}: must be printable" in found.faults[0]
