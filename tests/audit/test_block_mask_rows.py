"""A row that ran over a block mask is predicted over that mask, not over all of the keys."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from iosim.audit.measurements import read_measurements
from iosim.audit.predict import predict
from iosim.block_mask import pattern
from iosim.hardware import load_profile

HEAD = (
    "case,gpu,impl,batch,heads,kv_heads,seq_q,seq_k,head_dim,causal,dtype,kernel,block_rows,block_cols,"
    "block,registers_per_thread,sm_read_bytes,block_mask"
)
ROW = "{n},NVIDIA H200,torch_sdpa_flash2,1,2,2,1024,1024,64,0,fp16,flash_fwd,128,64,128x1x1,128,1,{mask}"


def written(tmp_path: Path, *masks: str) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEAD, *(ROW.format(n=n, mask=m) for n, m in enumerate(masks))]) + "\n")
    return path


def test_only_the_tiles_of_the_mask_are_read(tmp_path: Path) -> None:
    file = read_measurements(written(tmp_path, "", "local:2"))
    assert [row.block_mask for row in file.rows] == [None, "local:2"]
    full, masked = (predict(row, load_profile("h200-sxm"))["sm_read_bytes"] for row in file.rows)
    blocks = np.asarray(pattern("local:2", 8, 16))
    one_tile, queries = 2 * 64 * 64 * 2, 1024 * 64 * 2
    assert full == 2 * (queries + blocks.size * one_tile)
    assert masked is not None
    # the list of tile numbers is read as well: an index array of the program
    tensors = 2 * (queries + int(blocks.sum()) * one_tile)
    assert tensors <= masked <= tensors * 1.01


def test_a_mask_that_cannot_be_read_is_a_fault_of_its_row(tmp_path: Path) -> None:
    path = written(tmp_path, "", "diagonal:3")
    file = read_measurements(path)
    assert len(file.rows) == 1
    assert "rows.csv:3" in file.faults[0]
    assert "diagonal:3" in file.faults[0]


@pytest.mark.parametrize("column", ["block_mask"])
def test_the_column_may_be_missing(tmp_path: Path, column: str) -> None:
    path = written(tmp_path, "")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    names = [name for name in rows[0] if name != column]
    path.write_text(",".join(names) + "\n" + ",".join(rows[0][n] for n in names) + "\n")
    assert read_measurements(path).rows[0].block_mask is None
