"""Keys and values in pages of P tokens: where a key tile lies is read from a page table, 4 bytes a page."""

from __future__ import annotations

from iosim.program.builder import Builder, Value
from iosim.program.expr import Expr, cdiv
from iosim.program.ir import Span, Tensor
from iosim.program.tensors import page_table


def declare_pages(p: Builder) -> Tensor | None:
    """The page table of a sequence, which all heads share; None where keys and values are contiguous."""
    return None if p.options["page"] == "off" else p.declare(page_table(p.number("page")))


def look_up(p: Builder, pages: Tensor | None, j: Expr) -> Value | None:
    """Read the entries of the pages that key tile j touches; a page that two tiles share is looked up for each.

    Loads name rows by their place in the sequence and go `through` these entries, which say where the rows lie.
    """
    if pages is None:
        return None
    size, keys = p.number("page"), Span.tile(j, p.Bc, p.Nk)
    first, last = keys.start // size, cdiv(keys.stop, size)
    most = cdiv(p.Bc, size) + 1
    return p.load("pages_j", pages.part(Span(first, last, last - first, most, f"pages of {j}")))
