"""Numbers for the tiles that the accesses of a program are made of.

Every access is a rectangle of rows and columns of one head's matrix. Where accesses cut a matrix differently (tiles
of S written, rows of S read) the tiles are the smallest pieces that all of them are made of, so that no byte has two
names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from iosim.errors import SimulationError
from iosim.interpret.trace import Accesses
from iosim.program.evaluate import evaluate
from iosim.program.ir import Program

Ints = NDArray[np.int64]
MOST_TILES = 24_000_000
"""Stack distances take about 60 bytes a tile."""
_BATCH = 1 << 20


class TileNames:
    """Numbers the tiles of a program; `pieces` are accesses that make every cut there is (heads may be left out).

    `sizes_bytes`, `tensor` [tiles]: the bytes of each tile, and the position of its tensor in the program.
    Errors: `SimulationError` for too many tiles.
    """

    def __init__(self, program: Program, binding: Mapping[str, int], pieces: Iterable[Accesses]) -> None:
        sides = [
            tuple(int(evaluate(e, binding)) for e in (t.rows, t.cols, t.itemsize))
            for t in program.tensors.values()
        ]
        rows, cols = _Cuts([s[0] for s in sides]), _Cuts([s[1] for s in sides])
        for accesses in pieces:
            rows.mark(accesses["tensor"], accesses["row_start"], accesses["row_stop"])
            cols.mark(accesses["tensor"], accesses["col_start"], accesses["col_stop"])
        heads = [
            1 if t.single else binding["Hk"] if t.shared else binding["H"] for t in program.tensors.values()
        ]
        self._rows, self._cols, self._heads = rows.numbered(), cols.numbered(), np.array(heads)
        self._tall, self._wide = rows.counts(), cols.counts()
        self.tensor_bytes = [binding["B"] * h * r * c * s for h, (r, c, s) in zip(heads, sides, strict=True)]
        counts = binding["B"] * self._heads * self._tall * self._wide
        if int(counts.sum()) > MOST_TILES:
            raise SimulationError(
                f"{program.name}: its accesses cut slow memory into {int(counts.sum()):,} tiles, too many to follow; "
                f"at most {MOST_TILES:,}: take larger tiles, fewer heads or a shorter sequence"
            )
        self._base = np.cumsum(counts) - counts
        self.tensor = np.repeat(np.arange(len(sides)), counts)
        self.sizes_bytes: Ints = np.concatenate(
            [
                np.tile(np.outer(rows.lengths(t), cols.lengths(t)).ravel() * sides[t][2], binding["B"] * h)
                for t, h in enumerate(heads)
            ]
        )

    def touches(self, accesses: Accesses) -> Iterator[tuple[Ints, NDArray[np.bool_], Ints]]:
        """Tiles in the order in which they are touched, whether each is written, and the access it belongs to."""
        tensor = accesses["tensor"].astype(np.int64)
        top, bottom = (self._rows.at(tensor, accesses[name]) for name in ("row_start", "row_stop"))
        left, right = (self._cols.at(tensor, accesses[name]) for name in ("col_start", "col_stop"))
        head = accesses["batch"].astype(np.int64) * self._heads[tensor] + accesses["head"]
        first = self._base[tensor] + (head * self._tall[tensor] + top) * self._wide[tensor] + left
        many = (bottom - top) * (right - left)
        if bool((many == 1).all()):
            yield first, accesses["store"], np.arange(len(first))
            return
        ends = np.cumsum(many)
        for own in np.split(np.arange(len(many)), np.flatnonzero(np.diff(ends // _BATCH)) + 1):
            source = np.repeat(own, many[own])
            step = np.arange(len(source)) - np.repeat(np.cumsum(many[own]) - many[own], many[own])
            width = (right - left)[source]
            tile = first[source] + step // width * self._wide[tensor[source]] + step % width
            yield tile, accesses["store"][source], source


class _Numbered:
    """For every edge of every tensor, the number of the cut that lies there."""

    def __init__(self, flat: Ints, offset: Ints) -> None:
        self._flat, self._offset = flat, offset

    def at(self, tensor: Ints, edge: Ints) -> Ints:
        numbers: Ints = self._flat[self._offset[tensor] + edge]
        return numbers


class _Cuts:
    """Where accesses begin and end along one axis of each tensor."""

    def __init__(self, sizes: list[int]) -> None:
        edges = np.array(sizes) + 1
        self._offset = np.cumsum(edges) - edges
        self._marked = np.zeros(int(edges.sum()), np.bool_)
        self._marked[self._offset] = self._marked[self._offset + edges - 1] = True
        self._parts = np.split(np.arange(len(self._marked)), self._offset[1:])

    def mark(self, tensor: Ints, start: Ints, stop: Ints) -> None:
        self._marked[self._offset[tensor] + start] = True
        self._marked[self._offset[tensor] + stop] = True

    def _edges(self, tensor: int) -> Ints:
        return np.flatnonzero(self._marked[self._parts[tensor]])

    def lengths(self, tensor: int) -> Ints:
        """Lengths of the pieces of one tensor."""
        return np.diff(self._edges(tensor))

    def counts(self) -> Ints:
        """Pieces of each tensor."""
        return np.array([len(self.lengths(t)) for t in range(len(self._parts))])

    def numbered(self) -> _Numbered:
        """The cuts as numbers from 0 in each tensor."""
        flat = [np.cumsum(self._marked[part]) - 1 for part in self._parts]
        return _Numbered(np.concatenate(flat), self._offset)
