"""The tile accesses of a run as a table on disk, written in pieces and never half there.

One row an access: a load or a store of one rectangle of one head's matrix. `COLUMNS` says what each column is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from iosim.errors import RunError, SimulationError, UsageError
from iosim.interpret.binding import bind
from iosim.memory.hierarchy import Policies
from iosim.memory.tile_streams import KernelStream, Piece
from iosim.problem import AttentionProblem, TileShape
from iosim.program.evaluate import evaluate
from iosim.program.ir import Program

FORMATS = (".parquet", ".csv")
MOST_ROWS = 1_000_000_000
"""A Parquet file of some 10 GB."""
COLUMNS = MappingProxyType(
    {
        "kernel": "name of the launch; kernels follow one another",
        "block": "thread block, its number in the kernel's grid (the last grid index fastest)",
        "step": "position of the access in its block's trace, from 0",
        "tensor": "Q, K, V, O, S, P, ...",
        "batch": "batch entry",
        "head": "query head; kv-head for tensors that are stored once a kv-head",
        "row_start": "first row of the tile",
        "row_stop": "row after its last",
        "col_start": "first column of the tile",
        "col_stop": "column after its last",
        "bytes": "bytes moved: rows x columns x itemsize",
        "store": "true for a store to slow memory, false for a load from it",
    }
)
MERGED_COLUMNS = MappingProxyType(
    {
        "order": "position in the merged order of time, from 0 in each kernel",
        "slot": "which of the places for running blocks the block runs in (its SM is slot modulo SMs)",
    }
)
Progress = Callable[[int, int], None]


def write_trace(
    path: Path,
    program: Program,
    problem: AttentionProblem,
    tile: TileShape,
    *,
    policies: Policies | None = None,
    progress: Progress | None = None,
) -> int:
    """Write every access to `path` (.parquet or .csv) and return the number of rows.

    Blocks one after the other in grid order, or merged in the order of time where there are `policies`.
    Errors: `UsageError` for another ending, `SimulationError` for too many rows, `RunError` where the disk refuses.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"out: {path.name} must end in {' or '.join(FORMATS)}")
    binding = bind(problem, tile)
    streams = [KernelStream(program, kernel, binding) for kernel in program.kernels]
    total = sum(stream.total for stream in streams)
    if total > MOST_ROWS:
        raise SimulationError(
            f"trace: {total:,} rows are too many; at most {MOST_ROWS:,}: take larger tiles, fewer heads or a shorter "
            "sequence"
        )
    sizes = np.array([int(evaluate(t.itemsize, binding)) for t in program.tensors.values()])
    done = 0
    with _table(path, merged=policies is not None) as write:
        for stream in streams:
            first = 0
            for piece in stream.in_turn() if policies is None else stream.merged(policies):
                write(_columns(stream, piece, sizes, None if policies is None else first))
                first += len(piece)
                done += len(piece)
                if progress:
                    progress(done, total)
    return done


def _columns(stream: KernelStream, piece: Piece, sizes: Any, first: int | None) -> dict[str, Any]:
    """The columns of one piece, names as dictionaries; `first`: the order of its first access, where merged."""
    import pyarrow as pa

    a = piece.accesses
    tall, wide = a["row_stop"] - a["row_start"], a["col_stop"] - a["col_start"]
    kernel = pa.array(np.zeros(len(piece), np.int16))
    out = {
        "kernel": pa.DictionaryArray.from_arrays(kernel, pa.array([stream.kernel.name])),
        "block": piece.block,
        "step": piece.step,
        "tensor": pa.DictionaryArray.from_arrays(
            pa.array(a["tensor"]), pa.array(list(stream.program.tensors))
        ),
        "bytes": tall * wide * sizes[a["tensor"]],
        "store": a["store"],
    }
    for name in ("batch", "head", "row_start", "row_stop", "col_start", "col_stop"):
        out[name] = np.ascontiguousarray(a[name])
    if first is not None:
        out |= {"order": np.arange(first, first + len(piece)), "slot": piece.slot}
    return out


@contextmanager
def _table(path: Path, *, merged: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that appends rows; the file takes its name when all are there."""
    import pyarrow as pa

    schema = _schema(merged)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        with _writer(path.suffix, temporary, schema) as writer:
            yield lambda columns: writer.write_table(
                pa.table([columns[field.name] for field in schema], names=schema.names).cast(schema)
            )
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"out: cannot write {path}: {reason}; nothing was kept") from None
    except KeyboardInterrupt:
        raise RunError(f"trace: interrupted; {path} was not written") from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _writer(suffix: str, path: Path, schema: Any) -> Any:
    if suffix == ".csv":
        import pyarrow.csv

        return pyarrow.csv.CSVWriter(path, schema)
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd")


def _schema(merged: bool) -> Any:
    """Column types; in Parquet each column carries its description."""
    import pyarrow as pa

    text = pa.dictionary(pa.int16(), pa.string())
    types = {"kernel": text, "tensor": text, "batch": pa.int32(), "head": pa.int32(), "slot": pa.int32()}
    described = {**MERGED_COLUMNS, **COLUMNS} if merged else COLUMNS
    return pa.schema(
        [
            pa.field(
                name,
                pa.bool_() if name == "store" else types.get(name, pa.int64()),
                nullable=False,
                metadata={"description": text_of},
            )
            for name, text_of in described.items()
        ]
    )
