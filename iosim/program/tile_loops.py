"""Which tiles a program visits: under a mask, as ranges; under a block mask, from index arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from iosim.program.expr import Expr, Like, cdiv, const, table
from iosim.program.ir import Span
from iosim.program.tables import Table
from iosim.program.visible import keys_seen, queries_seeing


class TileLoops(ABC):
    """The part of a builder that knows what the masks leave. `block_mask`: the pattern, empty for none."""

    mask_kind: str
    block_mask: str
    N: Expr
    Nk: Expr
    Br: Expr
    Bc: Expr

    @abstractmethod
    def loop(self, name: str, start: Like, stop: Like) -> Iterator[Expr]:
        """A sequential loop inside a thread block."""

    def key_range(self, rows: Span) -> tuple[Expr, Expr]:
        """First and past-the-last key that some query of `rows` sees under the mask."""
        return keys_seen(self.mask_kind, rows)

    def query_range(self, keys: Span) -> tuple[Expr, Expr]:
        """First and past-the-last query that sees some key of `keys`."""
        return queries_seeing(self.mask_kind, keys)

    def key_tiles(self, rows: Span) -> tuple[Expr, Expr]:
        """The key tiles (of Bc) that some query of `rows` sees; whole tiles outside are skipped."""
        first, last = self.key_range(rows)
        return first // self.Bc, cdiv(last, self.Bc)

    def query_tiles(self, keys: Span) -> tuple[Expr, Expr]:
        """The row tiles (of Br) that see some key of `keys`."""
        first, last = self.query_range(keys)
        return first // self.Br, cdiv(last, self.Br)

    def each_key_tile(self, i: Expr, rows: Span) -> Iterator[Expr]:
        """Loop over the key tiles of row tile i: those its `rows` see, and of these the blocks of a block mask."""
        if not self.block_mask:
            yield from self.loop("j", *self.key_tiles(rows))
            return
        for b in self.loop("b", self._entry("row_start", i), self._entry("row_start", i + 1)):
            yield self._entry("row_cols", b)

    def each_row_tile(self, j: Expr, keys: Span) -> Iterator[Expr]:
        """Loop over the row tiles of key tile j: those that see some of its `keys`, and of these the blocks."""
        if not self.block_mask:
            yield from self.loop("i", *self.query_tiles(keys))
            return
        for b in self.loop("b", self._entry("key_start", j), self._entry("key_start", j + 1)):
            yield self._entry("key_rows", b)

    def each_hidden_tile(self, i: Expr, rows: Span) -> Iterator[Expr]:
        """Loop over the key tiles that `each_key_tile` leaves out."""
        if not self.block_mask:
            first, last = self.key_tiles(rows)
            yield from self.loop("j_before", 0, first)
            yield from self.loop("j_after", last, cdiv(self.Nk, self.Bc))
            return
        for b in self.loop("h", self._entry("row_hidden_start", i), self._entry("row_hidden_start", i + 1)):
            yield self._entry("row_hidden_cols", b)

    def each_visited_key_tile(self) -> Iterator[tuple[Expr, Callable[[], Iterator[Expr]]]]:
        """Loop over the key tiles that any query sees; with each a function that loops over its row tiles."""
        if not self.block_mask:
            for j in self.loop("j", *self.key_tiles(Span.whole(self.N))):
                rows = self.query_tiles(Span.tile(j, self.Bc, self.Nk))
                yield j, lambda rows=rows: self.loop("i", *rows)  # type: ignore[misc]
            return
        for c in self.loop("c", 0, self._entry("col_count", const(0))):
            yield self._entry("cols", c), lambda c=c: self._row_tiles_of(c)  # type: ignore[misc]

    def _row_tiles_of(self, c: Expr) -> Iterator[Expr]:
        for b in self.loop("b", self._entry("col_start", c), self._entry("col_start", c + 1)):
            yield self._entry("col_rows", b)

    def _entry(self, part: str, position: Expr) -> Expr:
        return table(Table(part, self.block_mask, self.mask_kind), position)
