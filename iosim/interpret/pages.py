"""Rows in pages, as a numeric run keeps them: each page where the page table says, and found only through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import ProgramError

Array = npt.NDArray[Any]


def pool(tensor: Array, table: Array, page: int) -> Array:
    """The rows of all sequences as [heads, places, cols], page p of a sequence at place table[p] · page.

    `tensor` [batch, heads, rows, cols]; `table` [batch, 1, pages, 1] holds page numbers of the pool. What no page
    fills is NaN. Errors: `ProgramError` for a table of another size, or one that puts two pages in one place.
    """
    batch, heads, rows, cols = tensor.shape
    numbers = table.reshape(batch, -1).astype(np.int64)
    if numbers.shape[1] != -(-rows // page):
        raise ProgramError(f"PAGES: {numbers.shape[1]} pages of {page} rows do not hold {rows} rows")
    if numbers.min() < 0 or np.unique(numbers).size < numbers.size:
        raise ProgramError("PAGES: page numbers are 0 or more, and no two pages lie in one place")
    out = np.full((heads, (int(numbers.max()) + 1) * page, cols), np.nan, tensor.dtype)
    for sequence in range(batch):
        for p, number in enumerate(numbers[sequence].tolist()):
            part = tensor[sequence, :, p * page : (p + 1) * page]
            out[:, number * page : number * page + part.shape[1]] = part
    return out


def rows_of(rows: slice, entries: Array, first_page: int, page: int) -> npt.NDArray[np.int64]:
    """Where in the pool the rows of a sequence lie; `entries` [pages, 1] are those from `first_page` on.

    Errors: `ProgramError` for rows whose page is not among the entries.
    """
    row = np.arange(rows.start, rows.stop)
    at = row // page - first_page
    if ((at < 0) | (at >= len(entries))).any():
        raise ProgramError(
            f"PAGES: rows {rows.start}:{rows.stop} lie on pages {row[0] // page} to {row[-1] // page}, and the entries "
            f"on chip are those of {first_page} to {first_page + len(entries) - 1}"
        )
    return np.asarray(entries[:, 0].astype(np.int64)[at] * page + row % page)
