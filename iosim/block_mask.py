"""Block masks: which tiles of Q x K are computed, as named patterns or a file. They lie on the grid of the tile.

A pattern is written as terms joined by `+`, each a set of blocks; the mask is their union. With Tr x Tc blocks, the
diagonal block of block row i is c(i) = ⌊i·Tc/Tr⌋.

    local:w           the blocks less than w from the diagonal
    global:g          the first g block rows and block columns
    strided:s         every s-th block, counted from the diagonal
    dilated:w:s       every s-th block less than w·s from the diagonal
    butterfly         blocks whose distance from the diagonal is 0 or one changed bit (i XOR j a power of two)
    random:p[:seed]   the share p of all blocks, rounded, drawn without replacement [seed 0]
    FILE.npy          a Tr x Tc array of booleans or of 0 and 1

Block-sparse attention: Dao et al. 2022, section 3.3 and Algorithm 5 (butterfly there); local and global as in
Longformer and BigBird; strided and dilated as in Sparse Transformers and Longformer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from iosim.errors import ProblemError
from iosim.problem import AttentionProblem, TileShape

Blocks = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

MAX_BLOCKS = 1 << 26
"""Most blocks of a mask: 64 MB as booleans."""

NAMES = "local:W, global:G, strided:S, dilated:W:S, butterfly, random:P[:SEED], joined by +, or a .npy file"
_TERM = re.compile(
    r"(local|global|strided):(\d{1,9})|dilated:(\d{1,9}):(\d{1,9})|butterfly|random:([\d.e-]+)(?::(\d{1,18}))?",
    re.ASCII,
)


def check(text: str) -> str:
    """The pattern in its plain form; `ProblemError` says what can be written. A file is only looked for."""
    text = text.strip()
    if text.endswith(".npy"):
        if not Path(text).is_file():
            raise ProblemError(f"{text} is not a file")
        return text
    for term in text.split("+"):
        match = _TERM.fullmatch(term)
        if not match:
            raise ProblemError(f"cannot read {term!r}; allowed: {NAMES}")
        if any(number is not None and int(number) < 1 for number in match.group(2, 3, 4)):
            raise ProblemError(f"{term}: widths and strides are at least 1")
        if match[5] is not None:
            _share(term, match[5])
    return text


def _share(term: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ProblemError(f"{term}: the share of blocks is above 0 and at most 1")
    return share


@lru_cache(maxsize=32)
def pattern(text: str, rows: int, cols: int) -> Blocks:
    """The mask as [rows, cols] booleans, not to be written to; rows, cols: blocks of the grid."""
    if rows * cols > MAX_BLOCKS:
        raise ProblemError(
            f"block mask: {rows} x {cols} blocks are more than {MAX_BLOCKS}; use a larger tile"
        )
    if text.endswith(".npy"):
        blocks = _load(text, rows, cols)
    else:
        blocks = np.zeros((rows, cols), dtype=np.bool_)
        for term in check(text).split("+"):
            blocks |= _blocks(term, rows, cols)
    blocks.setflags(write=False)
    return blocks


def _blocks(term: str, rows: int, cols: int) -> Blocks:
    name, *numbers = term.split(":")
    i, j = np.arange(rows)[:, None], np.arange(cols)[None, :]
    distance = j - i * cols // rows
    out: Blocks
    match name:
        case "local":
            out = np.abs(distance) < int(numbers[0])
        case "global":
            out = (i < int(numbers[0])) | (j < int(numbers[0]))
        case "strided":
            out = distance % int(numbers[0]) == 0
        case "dilated":
            width, stride = int(numbers[0]), int(numbers[1])
            out = (np.abs(distance) < width * stride) & (distance % stride == 0)
        case "butterfly":
            flipped = (i * cols // rows) ^ j
            out = (flipped & (flipped - 1)) == 0
        case _:
            count = max(1, round(_share(term, numbers[0]) * rows * cols))
            seed = int(numbers[1]) if len(numbers) > 1 else 0
            few = min(count, rows * cols - count)  # draw the smaller part: those in, or those out
            chosen = np.random.default_rng(seed).choice(rows * cols, size=few, replace=False, shuffle=False)
            out = np.full(rows * cols, few < count)
            out[chosen] = few == count
            out = out.reshape(rows, cols)
    return out


def _load(path: str, rows: int, cols: int) -> Blocks:
    """A saved mask; never unpickles, and reads no more than the header of a file that is too large."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ProblemError(
            f"block mask: {path}: not a plain NumPy array ({_first_line(error)}); "
            "save it with np.save(FILE, mask.astype(bool), allow_pickle=False)"
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biu":
        kind = getattr(array, "dtype", "an archive")
        raise ProblemError(f"block mask: {path}: holds {kind}; allowed: booleans, or whole numbers 0 and 1")
    if array.shape != (rows, cols):
        shape = " x ".join(str(n) for n in array.shape) or "a single number"
        raise ProblemError(
            f"block mask: {path} is {shape}, and this problem has {rows} x {cols} blocks of its tile; "
            "change --tiles, or save a mask of that shape"
        )
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise ProblemError(f"block mask: {path}: whole numbers must be 0 or 1")
    return np.array(array, dtype=np.bool_)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def grid(problem: AttentionProblem, tiles: TileShape) -> tuple[int, int]:
    """Blocks of the problem: ⌈N/Br⌉ x ⌈Nk/Bc⌉."""
    return -(-problem.seq_q // tiles.rows), -(-problem.seq_k // tiles.cols)


def lengths(size: int, tile: int) -> Ints:
    """Rows of each tile of an axis, the last one ragged."""
    starts = np.arange(0, size, tile, dtype=np.int64)
    return np.minimum(tile, size - starts)


def covered(blocks: Blocks, size: int, tile: int, axis: int) -> Ints:
    """Rows (or keys) of the blocks set along `axis`, an axis of `size` in tiles of `tile`, for each line across it."""
    ragged = blocks.shape[axis] * tile - size  # missing from the last tile
    count: Ints = np.count_nonzero(blocks, axis=axis) * tile - ragged * blocks.take(-1, axis=axis)
    return count


@lru_cache(maxsize=8)
def visible(problem: AttentionProblem, tiles: TileShape, text: str) -> Blocks:
    """The blocks of the mask in which some pair is visible under the problem's own mask too."""
    blocks = pattern(text, *grid(problem, tiles))
    if problem.mask.kind == "none":
        return blocks
    some, _ = _overlap(problem, tiles)
    out: Blocks = blocks & some
    return out


@lru_cache(maxsize=8)
def pairs(problem: AttentionProblem, tiles: TileShape, text: str) -> int:
    """Visible (query, key) pairs of one head in the blocks of the mask."""
    blocks = visible(problem, tiles, text)
    if problem.mask.kind == "none":
        return _area(blocks, problem, tiles)
    _, whole = _overlap(problem, tiles)
    i, j = np.nonzero(blocks & ~whole)
    keys = lengths(problem.seq_k, tiles.cols)[j]
    edges = _at_or_before(problem, tiles, i, j, keys, problem.key_offset)
    if problem.mask.window is not None:
        edges = edges - _at_or_before(problem, tiles, i, j, keys, problem.key_offset - problem.mask.window)
    if problem.mask.prefix is not None:
        inside = np.clip(problem.mask.prefix - j * tiles.cols, 0, keys)
        edges = edges + lengths(problem.seq_q, tiles.rows)[i] * inside
        edges = edges - _at_or_before(problem, tiles, i, j, inside, problem.key_offset)
    return _area(blocks & whole, problem, tiles) + int(edges.sum())


def _area(blocks: Blocks, problem: AttentionProblem, tiles: TileShape) -> int:
    """All pairs of the blocks."""
    keys = covered(blocks, problem.seq_k, tiles.cols, axis=1)
    return int(lengths(problem.seq_q, tiles.rows) @ keys)


def _overlap(problem: AttentionProblem, tiles: TileShape) -> tuple[Blocks, Blocks]:
    """Blocks with some visible pair, and blocks with nothing but visible pairs, under a causal or window mask."""
    rows, cols = grid(problem, tiles)
    first_row = (np.arange(rows) * tiles.rows)[:, None] + problem.key_offset  # as the key it stands at
    last_row = first_row + lengths(problem.seq_q, tiles.rows)[:, None] - 1
    first_key = np.arange(cols) * tiles.cols
    last_key = first_key + lengths(problem.seq_k, tiles.cols) - 1
    some, whole = first_key <= last_row, last_key <= first_row
    if problem.mask.window is not None:
        some = some & (last_key > first_row - problem.mask.window)
        whole = whole & (first_key > last_row - problem.mask.window)
    if problem.mask.prefix is not None:
        some = some | (first_key < problem.mask.prefix)
        whole = whole | (last_key < problem.mask.prefix)
    return some, whole


def _at_or_before(
    problem: AttentionProblem, tiles: TileShape, i: Ints, j: Ints, keys: Ints, shift: int
) -> Ints:
    """Pairs of blocks (i, j) with key <= query + shift, of the first L = `keys` keys of each.

    Row q sees clip(q + shift + 1 − start, 0, L) of them.
    """
    rows = lengths(problem.seq_q, tiles.rows)[i]
    first = i * tiles.rows + shift + 1 - j * tiles.cols
    total: Ints = _clipped_sum(first + rows - 1, keys) - _clipped_sum(first - 1, keys)
    return total


def _clipped_sum(last: Ints, limit: Ints) -> Ints:
    """Σ clip(y, 0, limit) over all y up to `last`."""
    y = np.clip(last, 0, limit)
    total: Ints = y * (y + 1) // 2 + np.maximum(last - limit, 0) * limit
    return total
