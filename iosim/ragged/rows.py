"""A ragged record as a row of a sweep."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from iosim.results import RunRecord

COLUMNS = ("tokens", "padded_bytes", "padding_bytes")
"""What a row has besides the columns of any sweep; its batch and seq_k are those of the padded alternative."""

_SHAPE = ("batch", "heads", "kv_heads", "seq_q", "seq_k", "head_dim", "value_dim", "mask")
_DTYPES = ("dtype_q", "dtype_k", "dtype_v", "dtype_o", "dtype_acc")


def ragged_row(record: RunRecord) -> dict[str, Any]:
    """The record under the names of a sweep's columns."""
    problem, tiles, work, theory = record.problem.to_dict(), record.tiles, record.work, record.theory
    row: dict[str, Any] = {name: problem[name] for name in (*_SHAPE, *_DTYPES)}
    row |= {"tile_rows": tiles and tiles.rows, "tile_cols": tiles and tiles.cols}
    row |= {"sram_bytes": record.sram.capacity_bytes, "sram_live_bytes": record.sram.live_bytes}
    row |= {"fits": record.sram.fits} | asdict(record.traffic)
    row |= {} if record.level_bytes is None else asdict(record.level_bytes)
    for item in record.traffic_by_tensor:
        row[f"{item.tensor}_read_bytes"] = item.read_bytes
        row[f"{item.tensor}_write_bytes"] = item.write_bytes
    row |= {name: size for name, size in asdict(work).items() if name != "padded_executed_flops"}
    row |= {
        "closed_form_bytes": theory.closed_form_bytes,
        "compulsory_bytes": theory.compulsory_bytes,
        "lower_bound_bytes": theory.lower_bound_bytes,
    }
    return row | {name: record.notes["ragged"][name] for name in COLUMNS}
