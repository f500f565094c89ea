"""A sweep is many single runs, and a file of it is never half written."""

from __future__ import annotations

import json
import os
import random

import pandas as pd
import pytest

import iosim
from iosim import sweep as sweeping
from iosim.errors import IosimError, RunError, UsageError
from iosim.grid import Grid, parse_axis
from iosim.levels import add_levels
from iosim.sweep import sweep
from iosim.sweep_file import sweep_to_file

GRID = Grid(
    algorithm=("standard", "flash1", "flash2", "seed_flash", "small_cache", "gemm", "online_attention"),
    seq_q=(100, 37),
    seq_k=(64,),
    heads=(4, 6),
    kv_heads=(2, 4),
    head_dim=(64,),
    mask=("none", "causal", "window:9"),
    tiles=("best", "32x16", "paper", "paper-literal"),
    sram_bytes=(3000, 50_000, None),
)


@pytest.fixture(scope="module")
def table():
    return sweep(GRID)


def test_every_point_has_a_row(table):
    assert len(table) == len(GRID) == 7 * 2 * 2 * 2 * 3 * 4 * 3
    good = table[table.error == ""]
    assert len(good) > 500
    assert (good.closed_form_bytes == good.sm_read_bytes + good.sm_write_bytes).all()


def test_rows_equal_single_runs(table):
    points = list(GRID.points())
    for i in random.Random(7).sample(range(len(points)), 120):
        point, row = points[i], table.iloc[i]
        sizes = {k: point[k] for k in ("seq_q", "seq_k", "heads", "kv_heads", "head_dim", "mask")}
        try:
            problem = iosim.AttentionProblem.of(**sizes)
            record = iosim.analyze(
                problem, point["algorithm"], tiles=point["tiles"], sram_bytes=point["sram_bytes"]
            )
        except IosimError as error:
            refused = str(error)
        else:
            refused = ""
        assert row.error == refused
        if refused:
            continue
        for column, value in record.to_frame().iloc[0].items():
            if column in table.columns and not pd.isna(value):
                assert row[column] == value, (column, point)


def test_reruns_are_identical_and_bytes_do_not_grow_with_sram():
    # a smaller memory must never look better (KULeuven-MICAS/zigzag#52, #72)
    grid = Grid(
        algorithm=("flash1", "flash2", "small_cache", "gemm"),
        seq=(777,),
        mask=("none", "causal"),
        head_dim=(64,),
        sram_bytes=parse_axis("sram", "8192:524288:x1.3", int),
    )
    first, again = sweep(grid), sweep(grid)
    pd.testing.assert_frame_equal(first, again)
    assert (first.filter(like="_bytes") >= 0).all(axis=None)
    for _, group in first.groupby(["algorithm", "mask"]):
        moved = (group.sm_read_bytes + group.sm_write_bytes).tolist()
        assert moved == sorted(moved, reverse=True)


def test_whole_numbers_past_64_bits_survive():
    row = sweep(Grid(seq=(2**20,), heads=(2**20,), head_dim=(512,), batch=(64,))).iloc[0]
    assert row.useful_flops == 2 * 1024 * 2**40 * 2**20 * 64


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("64,128", (64, 128)),
        ("512:4096:x2", (512, 1024, 2048, 4096)),
        ("16:64:16", (16, 32, 48, 64)),
        ("100:300:x1.5", (100, 150, 225)),
        ("1,64:128:x2,64", (1, 64, 128)),
    ],
)
def test_axes_read_lists_and_ranges(text, want):
    assert parse_axis("seq", text, int) == want


@pytest.mark.parametrize("text", ["", "1:2", "9:3:x2", "1:9:x1", "1:9:0", "1:9:xx", "1:100000000:1", ","])
def test_bad_axes_name_the_axis(text):
    with pytest.raises(UsageError, match="seq"):
        parse_axis("seq", text, lambda t: int(t) if t.strip().isdigit() else _refuse(t))


def _refuse(text):
    raise UsageError(f"seq: {text!r} is not a number")


def test_an_empty_grid_is_refused():
    with pytest.raises(UsageError, match="head_dim: the grid is empty"):
        Grid(seq=(64,), head_dim=())
    with pytest.raises(UsageError, match="seq"):
        Grid()
    with pytest.raises(UsageError, match="not both"):
        Grid(seq=(1,), seq_q=(1,), seq_k=(1,))


SMALL = Grid(algorithm=("flash2", "standard"), seq=tuple(range(64, 64 + 50)), head_dim=(64,))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(sweeping, "BATCH", 10)
    path = tmp_path / f"out.{ending}"

    def interrupt(done, total):
        if done >= 30:
            raise KeyboardInterrupt

    with pytest.raises(RunError, match=rf"30 of 100 rows are kept in out\.{ending}\.part"):
        sweep_to_file(SMALL, path, progress=interrupt)
    assert not path.exists()
    with (tmp_path / f"out.{ending}.part").open("a") as part:
        part.write("flash2,h100-sxm,1")  # a row cut off while it was written
    seen = []
    sweep_to_file(SMALL, path, command="iosim sweep …", progress=lambda done, total: seen.append(done))
    assert seen[0] == 30
    back = pd.read_csv(path, keep_default_na=False) if ending == "csv" else pd.read_parquet(path)
    assert back.sm_read_bytes.tolist() == sweep(SMALL).sm_read_bytes.tolist()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"out.{ending}", f"out.{ending}.json"]
    sidecar = json.loads((tmp_path / f"out.{ending}.json").read_text())
    assert sidecar["command"] == "iosim sweep …"
    assert sidecar["profiles"]["h100-sxm"]["sha256"] == iosim.load_profile("h100-sxm").sha256


def test_a_part_of_another_sweep_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "BATCH", 10)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(RunError):
        sweep_to_file(SMALL, tmp_path / "out.csv", progress=interrupt)
    other = Grid(seq=(64,), head_dim=(32,))
    assert len(sweep_to_file(other, tmp_path / "out.csv")) == 1


def test_a_full_disk_keeps_the_finished_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "BATCH", 10)
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"no space left on device; \d+ of 100 rows are kept"):
        sweep_to_file(SMALL, tmp_path / "out.csv")


def test_unwritable_and_unknown_outputs_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"cannot write .*no such file"):
        sweep_to_file(SMALL, tmp_path / "missing" / "out.csv")
    with pytest.raises(UsageError, match=r"must end in \.csv or \.parquet"):
        sweep_to_file(SMALL, tmp_path / "out.xlsx")


def test_levels_of_a_sweep_are_those_of_single_runs(monkeypatch):
    monkeypatch.setattr(sweeping, "LEVEL_BATCH", 2)
    grid = Grid(
        seq=(512, 1024, 700), heads=(4,), head_dim=(64,), tiles=("64x64",), profile=("h200-sxm",), levels=True
    )
    table = sweep(grid)
    gpu = iosim.load_profile("h200-sxm")
    for row in table.itertuples():
        problem = iosim.AttentionProblem.of(seq=int(row.seq_q), heads=4, head_dim=64)
        single = iosim.analyze(problem, tiles="64x64", profile=gpu)
        levels = add_levels(single, iosim.find_algorithm("flash2"), gpu).level_bytes
        assert row.hbm_read_bytes == levels.hbm_read_bytes
        assert row.l2_fabric_bytes == levels.l2_fabric_bytes
        assert row.hbm_read_bytes < row.sm_read_bytes
