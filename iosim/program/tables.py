"""Index arrays of a block mask, the `table` of the grammar: which key tiles a row tile visits, and the other way round.

A table is known by its mask and the letters that give the grid; its values are made when a program is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim import block_mask
from iosim.errors import ProgramError
from iosim.problem import AttentionProblem, Mask, TileShape

Ints = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Table:
    """One array of a block mask, in compressed form.

    `part`: row_start, row_cols (the key tiles of each row tile), row_hidden_start, row_hidden_cols (those it does
    not visit), col_count (one number: key tiles that any row tile visits), cols (which), col_start, col_rows (the row
    tiles of each of those), key_start, key_rows (the row tiles of every key tile).
    """

    part: str
    pattern: str
    mask_kind: str

    @property
    def letters(self) -> tuple[str, ...]:
        """What the array depends on."""
        width = {"window": ("w",), "prefix": ("pre",)}.get(self.mask_kind, ())
        return ("N", "Nk", "Br", "Bc", *width)

    def values(self, sizes: Mapping[str, int]) -> Ints:
        """The array for given sizes."""
        return _array(self.part, self.pattern, self.mask_kind, *(sizes[letter] for letter in self.letters))

    def __str__(self) -> str:
        return self.part


@lru_cache(maxsize=32)
def _array(
    part: str, pattern: str, mask_kind: str, N: int, Nk: int, Br: int, Bc: int, width: int | None = None
) -> Ints:
    mask = Mask(mask_kind, prefix=width) if mask_kind == "prefix" else Mask(mask_kind, window=width)
    problem = AttentionProblem.of(seq_q=N, seq_k=Nk, head_dim=1, mask=mask)
    blocks = block_mask.visible(problem, TileShape(rows=Br, cols=Bc), pattern)
    match part:
        case "row_start":
            return _starts(blocks)
        case "row_cols":
            return _entries(blocks)
        case "row_hidden_start":
            return _starts(~blocks)
        case "row_hidden_cols":
            return _entries(~blocks)
        case "key_start":
            return _starts(blocks.T)
        case "key_rows":
            return _entries(blocks.T)
    columns = np.flatnonzero(blocks.any(axis=0))
    match part:
        case "col_count":
            return np.array([len(columns)])
        case "cols":
            return columns
        case "col_start":
            return _starts(blocks.T[columns])
        case "col_rows":
            return _entries(blocks.T[columns])
    raise ProgramError(f"table: a block mask has no array {part!r}")


def _starts(blocks: npt.NDArray[np.bool_]) -> Ints:
    """Where the entries of each row start, and where the last ones end."""
    return np.concatenate([[0], np.cumsum(np.count_nonzero(blocks, axis=1))])


def _entries(blocks: npt.NDArray[np.bool_]) -> Ints:
    """The columns set, row by row."""
    columns: Ints = np.flatnonzero(blocks) % blocks.shape[1]
    return columns
