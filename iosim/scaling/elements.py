"""A counted table with its bytes turned into elements, sorted by what they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

from iosim.algorithms.registry import find_algorithm
from iosim.grid import Grid
from iosim.program.evaluate import Frame
from iosim.scaling.passes import sweep_passes

Floats = npt.NDArray[np.float64]
Options = Mapping[str, Mapping[str, str]]
"""An algorithm's name -> its own options; one that is not there has its defaults."""

NO_OPTIONS: Options = MappingProxyType({})

ITEMSIZE = 2  # fp16: the papers' elements; bytes and elements of a study differ by this factor alone
_ITEMSIZES = {"s_q": ITEMSIZE, "s_k": ITEMSIZE, "s_v": ITEMSIZE, "s_o": ITEMSIZE, "s_acc": 4}

SERIES = {
    "matrix elements": "all reads and writes of matrices, the compulsory ones included",
    "row statistics": "all reads and writes of one number a row (m, l, log-sum-exp)",
    "operand reads": "what the matmuls read: Q and K for the scores, P and V for the output",
    "score passes": "writes and reads of the N² scores S and P by everything but a matmul's reading of P",
}
"""What each series counts."""


def counted(
    algorithm: str,
    *,
    seq: list[int],
    head_dim: list[int],
    sram_elements: list[int],
    tiles: str = "best",
    options: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Counts of one head in fp16 without a mask at every combination, tiles of granularity 1, `paper` footprint.

    Points where no tile fits keep their row, with a missing count. Under pass=fwd+bwd each pass has its own tiles.
    """
    grid = Grid(
        algorithm=(algorithm,),
        seq=seq,
        head_dim=head_dim,
        sram_bytes=[M * ITEMSIZE for M in sram_elements],
        tiles=(tiles,),
        granularity=1,
        dtypes={"dtype": "fp16"},
        options={algorithm: dict(options or {})},
    )
    return sweep_passes(grid)


def split(table: pd.DataFrame, algorithm: str, options: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The table's traffic as elements: one column for each of SERIES."""
    chosen = find_algorithm(algorithm)
    program = chosen.program("none", chosen.resolve(options or {}))
    frame = Frame(dict(_ITEMSIZES))
    out = {name: np.zeros(len(table)) for name in SERIES}
    for tensor in program.tensors.values():
        size = float(frame.value(tensor.itemsize))
        read, written = (
            table[f"{tensor.name}_{way}_bytes"].to_numpy(dtype=float) / size for way in ("read", "write")
        )
        if tensor.is_statistic:
            out["row statistics"] += read + written
            continue
        out["matrix elements"] += read + written
        if tensor.role == "input" or tensor.name == "P":
            out["operand reads"] += read
        if tensor.name == "S" or tensor.role == "scratch":
            out["score passes"] += written + (0 if tensor.name == "P" else read)
    return pd.DataFrame(out)
