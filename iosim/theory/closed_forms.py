"""Exact bytes of every named algorithm, tensor by tensor, without running or knowing its tile program.

One function an algorithm; each counts one query head of one batch entry, and all heads and entries repeat it:
thread blocks share nothing on chip, so K and V are loaded once a query head even when heads share them.
Every load and store is of a whole tile, ragged at the ends. S and P in slow memory have the dtype of O; row
statistics (M, L, LSE) are fp32; a dropout mask is one byte an element. Letters: Nq, Nk rows of Q and of K;
d, dv their widths; Br × Bc the tile. Sources: FlashAttention (Dao et al. 2022) algorithms 0 and 1,
FlashAttention-2 (Dao 2023) algorithm 1; the exact counts under masks and ragged ends are derived here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iosim.errors import UsageError
from iosim.problem import AttentionProblem, TileShape
from iosim.theory.backward_forms import backward_form
from iosim.theory.block_sums import block_sums
from iosim.theory.decode_forms import decode_form
from iosim.theory.page_forms import page_table_bytes
from iosim.theory.softmax import SOFTMAX_COSTS
from iosim.theory.tile_sums import TileSums, ceil_div, tile_sums

STATISTIC_BYTES = 4
DROPOUT_BYTES = 1

Bytes = dict[str, int]
Options = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """Bytes between on-chip and slow memory by tensor, all heads and batch entries; zero entries left out.

    `method` says how the numbers were obtained: "closed form", no loop over rows or tiles.
    """

    read_bytes: dict[str, int]
    write_bytes: dict[str, int]
    method: str = "closed form"

    @property
    def total_bytes(self) -> int:
        """All reads and writes together."""
        return sum(self.read_bytes.values()) + sum(self.write_bytes.values())


def closed_form(
    algorithm: str, problem: AttentionProblem, tiles: TileShape | None, options: Options | None = None
) -> ClosedForm | None:
    """Exact traffic of a named algorithm, or None for an algorithm that theory does not know.

    `tiles`: Br × Bc (R × C for small_cache and gemm); None for standard and online_attention.
    `options`: the choices of that algorithm, see `OPTIONS`. `UsageError` for an option, value or tile
    shape that the algorithm does not have.
    """
    if algorithm in ("decode", "mla"):
        moved = _decode(algorithm, problem, tiles, _with_defaults(algorithm, options or {}))
        return ClosedForm(read_bytes=moved[0], write_bytes=moved[1])
    form = _FORMS.get(algorithm)
    if form is None:
        return None
    chosen = _with_defaults(algorithm, options or {})
    passes = chosen.get("pass", "fwd")
    reads: Bytes = {}
    writes: Bytes = {}
    if passes != "bwd":
        forward = form(problem, tiles, chosen)
        copies = problem.batch * problem.heads
        reads, writes = (_scaled(part, copies) for part in forward)
    if chosen.get("page", "off") != "off":
        reads = reads | _scaled({"PAGES": _page_bytes(algorithm, problem, tiles, chosen)}, 1)
    if passes != "fwd":
        skip = chosen.get("variant", "literal") != "literal"
        blocks = chosen.get("block-mask", "off")
        backward = backward_form(algorithm, problem, tiles, skip_first_read=skip, blocks=blocks)
        reads, writes = (_plus(a, b) for a, b in zip((reads, writes), backward, strict=True))
    return ClosedForm(read_bytes=reads, write_bytes=writes)


def _plus(a: Bytes, b: Bytes) -> Bytes:
    return {tensor: a.get(tensor, 0) + b.get(tensor, 0) for tensor in {**a, **b}}


def _decode(
    algorithm: str, p: AttentionProblem, tiles: TileShape | None, options: Options
) -> tuple[Bytes, Bytes]:
    reads, writes = decode_form(
        p,
        _need_tiles(algorithm, tiles),
        splits=int(options["splits"]),
        packed=options["pack-gqa"] == "on",
        latent=algorithm == "mla",
    )
    if options["page"] != "off":
        reads = reads | _scaled({"PAGES": _page_bytes(algorithm, p, tiles, options)}, 1)
    return reads, writes


def _page_bytes(algorithm: str, p: AttentionProblem, tiles: TileShape | None, options: Options) -> int:
    return page_table_bytes(
        p,
        _need_tiles(algorithm, tiles),
        int(options["page"]),
        packed=options.get("pack-gqa") == "on",
        blocks=options.get("block-mask", "off"),
    )


def _scaled(per_head: Bytes, copies: int) -> Bytes:
    return {tensor: size * copies for tensor, size in per_head.items() if size}


SWITCH = ("off", "on")
BIASES = ("none", "alibi", "matrix")
PAGE = ("off", "COUNT")
PASSES = ("fwd", "bwd", "fwd+bwd")
OPTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "flash2": {
        "lse": SWITCH,
        "bias": BIASES,
        "dropout": SWITCH,
        "page": PAGE,
        "pass": PASSES,
        "block-mask": ("off", "PATTERN"),
    },
    "seed_flash": {"save-stats": ("m+l", "none", "lse")},
    "online_attention": {},
    "flash1": {
        "variant": ("literal", "skip-first-read", "fp32-between"),
        "pass": PASSES,
        "block-mask": ("off", "PATTERN"),
    },
    "standard": {
        "softmax": ("fused", "naive", "safe", "online"),
        "gemm-tiles": ("off", "ROWSxCOLS"),
        "scale-pass": SWITCH,
        "additive-mask": SWITCH,
        "dropout": SWITCH,
        "bias": BIASES,
        "pass": PASSES,
    },
    "small_cache": {},
    "masked_standard": {"block-mask": ("off", "PATTERN")},
    "decode": {"splits": ("1", "COUNT"), "pack-gqa": ("on", "off"), "page": PAGE},
    "mla": {"splits": ("1", "COUNT"), "pack-gqa": ("on", "off"), "page": PAGE},
    "linear": {},
    "gemm": {},
}
"""The options of each algorithm and their values; the first is the default."""


_OPEN_OPTIONS = ("gemm-tiles", "block-mask", "splits", "page")  # these take more than the listed values


def _with_defaults(algorithm: str, options: Options) -> Options:
    known = OPTIONS[algorithm]
    for name, value in options.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise UsageError(f"{algorithm}: unknown option {name!r}; its options: {allowed}")
        if value not in known[name] and name not in _OPEN_OPTIONS:
            raise UsageError(f"{algorithm}: {name}={value!r}; allowed: {', '.join(known[name])}")
    return {name: options.get(name, values[0]) for name, values in known.items()}


def _need_tiles(algorithm: str, tiles: TileShape | None) -> TileShape:
    if tiles is None:
        raise UsageError(f"{algorithm}: needs a tile shape, rows x cols, as in 128x64")
    return tiles


def _flash2(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    needed = options["lse"] == "on" or options["pass"] != "fwd"  # the backward reads it
    saved = ("LSE",) if needed else ()
    tile = _need_tiles("flash2", tiles)
    sums = _sums(p, tile, options)
    reads, writes = _outer_q(p, sums, saved)
    bias = sums.scores * p.dtype_o.itemsize if options["bias"] == "matrix" else 0
    return reads | {"BIAS": bias}, writes


def _seed_flash(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    saved = {"none": (), "lse": ("LSE",), "m+l": ("M", "L")}[options["save-stats"]]
    return _outer_q(p, tile_sums(p, _need_tiles("seed_flash", tiles)), saved)


def _online_attention(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    one = TileShape(rows=1, cols=1)
    if tiles not in (None, one):
        raise UsageError(f"online_attention: works row by row and takes no tiles, got {tiles}; leave it out")
    return _outer_q(p, tile_sums(p, one), ())


def _sums(p: AttentionProblem, tiles: TileShape, options: Options) -> TileSums:
    """What the mask, and the block mask if there is one, leave of the tiles."""
    blocks = options.get("block-mask", "off")
    return tile_sums(p, tiles) if blocks == "off" else block_sums(p, tiles, blocks)


def _outer_q(p: AttentionProblem, sums: TileSums, saved: tuple[str, ...]) -> tuple[Bytes, Bytes]:
    """Outer loop over Q, inner over K and V: Q and O once, K and V once for every row tile that sees them."""
    reads = {
        "Q": p.seq_q * p.head_dim * p.dtype_q.itemsize,
        "K": sums.keys * p.head_dim * p.dtype_k.itemsize,
        "V": sums.keys * p.value_dim * p.dtype_v.itemsize,
    }
    statistics = dict.fromkeys(saved, p.seq_q * STATISTIC_BYTES)
    return reads, {"O": p.seq_q * p.value_dim * p.dtype_o.itemsize} | statistics


def _flash1(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """Outer loop over K and V, inner over Q: Q, O, l and m move once for every tile that is visited.

    Literal adds one store of O, l and m for every row (their initial values). Skip-first-read leaves out
    that store and the first read of every row; rows that no key tile visits are stored once. fp32-between moves
    O in 4 bytes an element, and reads every row once more to write O in its own type and the log-sum-exp.
    """
    sums = _sums(p, _need_tiles("flash1", tiles), options)
    literal = options["variant"] == "literal"
    rows_read = sums.row_visits - (0 if literal else sums.seeing_rows)
    rows_written = sums.row_visits + p.seq_q - (0 if literal else sums.seeing_rows)
    row_bytes = {
        "O": p.value_dim * p.dtype_o.itemsize,
        "L": STATISTIC_BYTES,
        "M": STATISTIC_BYTES,
    }
    reads = {
        "Q": sums.row_visits * p.head_dim * p.dtype_q.itemsize,
        "K": sums.distinct_keys * p.head_dim * p.dtype_k.itemsize,
        "V": sums.distinct_keys * p.value_dim * p.dtype_v.itemsize,
    }
    finished: Bytes = {}
    if options["variant"] == "fp32-between":
        rows_read += p.seq_q
        finished = {"O": p.seq_q * row_bytes.pop("O"), "LSE": p.seq_q * STATISTIC_BYTES}
        row_bytes["O_between"] = p.value_dim * STATISTIC_BYTES
    reads |= {tensor: rows_read * size for tensor, size in row_bytes.items()}
    return reads, {tensor: rows_written * size for tensor, size in row_bytes.items()} | finished


def _standard(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """Three kernels with S and P in slow memory; the mask skips nothing."""
    scores = p.seq_q * p.seq_k * p.dtype_o.itemsize
    scale, mask, drop = (options[name] == "on" for name in ("scale-pass", "additive-mask", "dropout"))
    q_passes, k_passes, p_passes, v_passes = _gemm_passes(p, options["gemm-tiles"])
    extra = scale + mask  # each a kernel of its own: S in, S out
    reads = {
        "Q": q_passes * p.seq_q * p.head_dim * p.dtype_q.itemsize,
        "K": k_passes * p.seq_k * p.head_dim * p.dtype_k.itemsize,
        "V": v_passes * p.seq_k * p.value_dim * p.dtype_v.itemsize,
        "S": (SOFTMAX_COSTS[options["softmax"]].reads + extra) * scores,
        "P": (p_passes + drop) * scores,
        "MASK": mask * scores,
        "BIAS": (options["bias"] == "matrix") * scores,
    }
    writes = {
        "S": (1 + extra) * scores,
        "P": (SOFTMAX_COSTS[options["softmax"]].writes + drop) * scores,
        "O": p.seq_q * p.value_dim * p.dtype_o.itemsize,
        "DROPOUT": drop * p.seq_q * p.seq_k * DROPOUT_BYTES,
    }
    return reads, writes


def _gemm_passes(p: AttentionProblem, gemm_tiles: str) -> tuple[int, int, int, int]:
    """How often each operand of the two matmuls is read: Q, K, P, V. Once each without tiles."""
    if gemm_tiles == "off":
        return 1, 1, 1, 1
    tile = TileShape.parse(gemm_tiles)
    row_tiles = ceil_div(p.seq_q, tile.rows)
    return ceil_div(p.seq_k, tile.cols), row_tiles, ceil_div(p.value_dim, tile.cols), row_tiles


def _small_cache(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """Both matmuls keep an R × C tile of their result on chip and stream their operands past it.

    Scores and softmax work on whole visited tiles; the output product runs over the exact key range.
    """
    tile = _need_tiles("small_cache", tiles)
    sums = tile_sums(p, tile)
    size = p.dtype_o.itemsize
    reads = {
        "Q": sums.row_visits * p.head_dim * p.dtype_q.itemsize,
        "K": sums.keys * p.head_dim * p.dtype_k.itemsize,
        "S": SOFTMAX_COSTS["online"].reads * sums.scores * size,
        "P": ceil_div(p.value_dim, tile.cols) * sums.exact_scores * size,
        "V": sums.exact_keys * p.value_dim * p.dtype_v.itemsize,
    }
    writes = {
        "S": sums.scores * size,
        "P": sums.scores * size,
        "O": p.seq_q * p.value_dim * size,
    }
    return reads, writes


def _masked_standard(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """S and P are written and read whole, hidden tiles too; K and V only where a tile is visited."""
    sums = _sums(p, _need_tiles("masked_standard", tiles), options)
    reads, writes = _outer_q(p, sums, ())
    scores = dict.fromkeys(("S", "P"), p.seq_q * p.seq_k * p.dtype_o.itemsize)
    return reads | scores, writes | scores


def _linear(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """Every matrix once a query head."""
    reads = {
        "Q": p.seq_q * p.head_dim * p.dtype_q.itemsize,
        "K": p.seq_k * p.head_dim * p.dtype_k.itemsize,
        "V": p.seq_k * p.value_dim * p.dtype_v.itemsize,
    }
    return reads, {"O": p.seq_q * p.value_dim * p.dtype_o.itemsize}


def _gemm(p: AttentionProblem, tiles: TileShape | None, options: Options) -> tuple[Bytes, Bytes]:
    """S = Q Kᵀ alone, whatever the mask: an R × C tile of S on chip, operands re-read for every tile."""
    tile = _need_tiles("gemm", tiles)
    reads = {
        "Q": ceil_div(p.seq_k, tile.cols) * p.seq_q * p.head_dim * p.dtype_q.itemsize,
        "K": ceil_div(p.seq_q, tile.rows) * p.seq_k * p.head_dim * p.dtype_k.itemsize,
    }
    return reads, {"S": p.seq_q * p.seq_k * p.dtype_o.itemsize}


_FORMS: dict[str, Callable[[AttentionProblem, TileShape | None, Options], tuple[Bytes, Bytes]]] = {
    "flash2": _flash2,
    "seed_flash": _seed_flash,
    "online_attention": _online_attention,
    "flash1": _flash1,
    "standard": _standard,
    "small_cache": _small_cache,
    "masked_standard": _masked_standard,
    "linear": _linear,
    "gemm": _gemm,
}
