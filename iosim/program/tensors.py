"""The tensors of attention, forward and backward, with their sizes left open."""

from __future__ import annotations

from iosim.program.expr import Expr, cdiv, const, param
from iosim.program.ir import Tensor

STATISTIC_BYTES = 4
"""m, l, the log-sum-exp and D are fp32."""


ENTRY_BYTES = 4
"""A page-table entry is a 32-bit page number."""


def page_table(page: Expr) -> Tensor:
    """The pages of one sequence, in order: one table for all heads."""
    pages = cdiv(param("Nk"), page)
    return Tensor("PAGES", pages, const(1), const(ENTRY_BYTES), "input", shared=True, single=True)


def attention_tensors() -> dict[str, Tensor]:
    """By name, with the role each has where it is made: inputs are read, outputs written, scratch both.

    Gradients have the dtype of what they are the gradient of. P is what standard attention saves for its backward.
    """
    N, Nk, d, dv, Br, Bc = (param(letter) for letter in ("N", "Nk", "d", "dv", "Br", "Bc"))

    def queries(name: str, cols: Expr, itemsize: Expr, role: str) -> Tensor:
        return Tensor(name, N, cols, itemsize, role, row_tile=Br, col_tile=Bc)

    def keys(name: str, cols: Expr, itemsize: Expr, role: str) -> Tensor:
        return Tensor(name, Nk, cols, itemsize, role, shared=True, row_tile=Bc, col_tile=Bc)

    def statistic(name: str, role: str) -> Tensor:
        return Tensor(name, N, const(1), const(STATISTIC_BYTES), role, row_tile=Br)

    s_q, s_k, s_v, s_o = (param(letter) for letter in ("s_q", "s_k", "s_v", "s_o"))
    tensors = [
        queries("Q", d, s_q, "input"),
        keys("K", d, s_k, "input"),
        keys("V", dv, s_v, "input"),
        queries("O", dv, s_o, "output"),
        *(statistic(name, "output") for name in ("LSE", "M", "L")),
        queries("P", Nk, s_o, "scratch"),
        queries("dO", dv, s_o, "input"),
        queries("dQ", d, s_q, "output"),
        keys("dK", d, s_k, "output"),
        keys("dV", dv, s_v, "output"),
        statistic("D", "scratch"),
    ]
    return {tensor.name: tensor for tensor in tensors}
