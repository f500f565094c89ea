"""`iosim sweep` as a user meets it: axes, files, JSON, and one line when something is wrong."""

from __future__ import annotations

import io
import json

import pandas as pd
import pytest

from iosim.cli import main


def test_a_grid_becomes_csv_on_stdout(capsys):
    assert (
        main(["sweep", "--seq", "512:2048:x2", "--head-dim", "64,128", "--algorithm", "flash1,flash2"]) == 0
    )
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table[["algorithm", "head_dim", "seq_q"]].drop_duplicates().shape[0] == len(table) == 2 * 2 * 3
    assert (table.sm_read_bytes + table.sm_write_bytes == table.closed_form_bytes).all()


def test_a_file_gets_a_sidecar_that_says_how_it_was_made(tmp_path, capsys):
    path = tmp_path / "out.parquet"
    assert main(["sweep", "--seq", "1K", "--sram", "32KiB:128KiB:x2", "--out", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == 3
    assert said["rows_with_error"] == 0
    assert pd.read_parquet(path).sram_bytes.tolist() == [32768, 65536, 131072]
    sidecar = json.loads((tmp_path / "out.parquet.json").read_text())
    assert sidecar["grid"]["sram_bytes"] == [32768, 65536, 131072]
    assert "sha256" in sidecar["profiles"]["h100-sxm"]


def test_json_rows_have_null_where_nothing_applies(capsys):
    assert main(["sweep", "--seq", "64", "--algorithm", "standard", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["tile_rows"] is None
    assert row["fits"] is True
    assert isinstance(row["sm_read_bytes"], int)


def test_points_that_cannot_run_keep_their_row_and_are_counted(capsys):
    assert main(["sweep", "--seq", "512", "--sram", "1KiB,64KiB"]) == 0
    out, err = capsys.readouterr()
    table = pd.read_csv(io.StringIO(out), keep_default_na=False)
    assert "smaller than any tile" in table.error[0]
    assert table.error[1] == ""
    assert "1 of 2 points cannot run" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seq", "9:3:x2"], "--seq: the range '9:3:x2' is empty"),
        (["--seq", ""], "--seq"),
        (["--seq", "0"], "--seq: must be a whole number from 1"),
        (["--seq", "1:2:3:4"], "--seq: cannot read"),
        (["--mask", "causal,,none"], "--mask: empty item"),
        (["--hw", "h100"], "say which"),
        (["--sram", "1KiB"], "no point of the grid can run: sram: smaller than any tile"),
        (["--sram", "12 parsecs"], "12 parsecs"),
        (["--out", "table.xlsx"], "must end in .csv or .parquet"),
        (["--softmax", "safe"], "--softmax: not an option of flash2"),
    ],
)
def test_what_is_wrong_is_one_line_with_exit_code_2(arguments, message, capsys):
    assert main(["sweep", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_that_is_not_there_is_a_failed_run(tmp_path, capsys):
    assert main(["sweep", "--seq", "64", "--out", str(tmp_path / "no" / "out.csv")]) == 1
    assert "no such file or directory; no rows are kept" in capsys.readouterr().err
