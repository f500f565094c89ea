"""From a problem and a tile to the letters of a tile program."""

from __future__ import annotations

from iosim.problem import AttentionProblem, TileShape
from iosim.program.ir import Tensor

NO_WINDOW = 0  # bound to w and pre where the mask has no window or prefix; such programs never read it


def bind(problem: AttentionProblem, tiles: TileShape) -> dict[str, int]:
    """Letters of a program for one problem: sizes B H Hk N Nk d dv w, tile Br Bc, itemsizes s_q … s_acc (bytes)."""
    return {
        "B": problem.batch,
        "H": problem.heads,
        "Hk": problem.kv_heads,
        "N": problem.seq_q,
        "Nk": problem.seq_k,
        "d": problem.head_dim,
        "dv": problem.value_dim,
        "w": problem.mask.window or NO_WINDOW,
        "pre": problem.mask.prefix or NO_WINDOW,
        "Br": tiles.rows,
        "Bc": tiles.cols,
        "s_q": problem.dtype_q.itemsize,
        "s_k": problem.dtype_k.itemsize,
        "s_v": problem.dtype_v.itemsize,
        "s_o": problem.dtype_o.itemsize,
        "s_acc": problem.dtype_acc.itemsize,
    }


def tensor_heads(tensor: Tensor, problem: AttentionProblem) -> int:
    """Matrices of a tensor in one batch entry: one a query head, a kv-head, or a single one."""
    if tensor.single:
        return 1
    return problem.kv_heads if tensor.shared else problem.heads
