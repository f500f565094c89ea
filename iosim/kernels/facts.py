"""What a production kernel adds to a program: tiles, order, padding, packing, registers. Facts, with sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil
from typing import Any

from iosim.onchip import SpecialFacts
from iosim.problem import AttentionProblem, TileShape

WARP_SPLITS = ("rows", "keys")
KV_WALKS = ("forward", "backward", "sawtooth")
WARP_THREADS = 32
GRID_AXES = ("row_tile", "batch", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class TileFact:
    """The tile used up to a head dimension."""

    head_dim_max: int
    rows: int
    cols: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillFact:
    """Registers spilled to memory, for one head dimension and tile: bytes a K/V step and bytes a thread block."""

    head_dim: int
    cols: int
    bytes_per_step: int
    bytes_per_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionFact:
    """Instructions of a thread in the machine code that are neither matrix, special-function nor shared-memory ones.

    `step`: of one step of its loop; `block`: of a thread block outside it.
    """

    head_dim: int
    step: int
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFact:
    """A launch of too few blocks goes to another kernel, which divides the keys of each over several.

    `rows`: rows of Q a block of that kernel; `blocks_per_sm`: fewer blocks an SM than this are too few.
    """

    rows: int
    blocks_per_sm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFact:
    """Causal tiles are taken head group by head group, in each the rows that see most first.

    A group is as many heads as share `l2_share` of the L2 with their K and V, but no fewer than give `tiles_per_sm`
    tiles to each SM; groups are of equal size.
    """

    l2_share: float
    tiles_per_sm: float

    def heads(self, problem: AttentionProblem, tile: TileShape, l2_bytes: int, sms: int) -> int:
        """Query heads of a group, over the whole batch."""
        row_bytes = problem.head_dim * problem.dtype_k.itemsize + problem.value_dim * problem.dtype_v.itemsize
        in_cache = int(l2_bytes * self.l2_share) // (problem.seq_k * row_bytes) * problem.group_size
        enough = ceil(self.tiles_per_sm * sms / ceil(problem.seq_q / tile.rows))
        planes = problem.batch * problem.heads
        return ceil(planes / max(1, planes // max(in_cache, enough, 1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFacts:
    """One kernel of a library; the program itself is iosim's.

    `grid_order`: block index, fastest first. `pad_*`: sizes are read rounded up to this; `q_box_rows`: rows of Q
    further. `stages`: K and V tiles that shared memory holds at once. `warps_divide`: what of a tile each warp has
    its own of, rows (of Q) or keys; with keys the parts of a row meet in shared memory. `row_lanes`: lanes that each
    compute a row's special functions in every tile; `repeats_kv`: K and V are copied for each query head before the
    kernel reads them; `special`: the exact rule where one is known, else they are read off the program.
    `few_queries_elsewhere`: a decode goes to another kernel of the library, whose tile nobody knows.
    `column_band`: columns of S that a GEMM finishes before the next ones (0: all). `kernel_class`: a name of
    `classes.CLASSES`, whose constants its run time takes (docs/time.md). `in_step`: the coalescer's constant of this
    kernel (docs/hierarchy.md), None the generic one. `interleaves_exp`: the exponentials of a slice of keys stand
    between the products of the slice before. `instructions`: by part of the program, counted; see `instructions_of`.
    """

    name: str
    title: str
    kernel_class: str
    algorithm: str
    tiles: tuple[TileFact, ...]
    threads_per_block: int
    registers_per_thread: int
    measured_as: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    backward_tiles: tuple[TileFact, ...] = ()
    grid_order: tuple[str, ...] = ("row_tile", "head", "batch")
    kv_walk: str = "forward"
    persistent: bool = False
    stages: int = 1
    warps_divide: str = "rows"
    pad_rows: int = 1
    pad_cols: int = 1
    pad_head_dim: int = 1
    q_box_rows: int = 1
    pack_heads_at_single_query: bool = False
    few_queries_elsewhere: bool = False
    repeats_kv: bool = False
    splits_keys: SplitFact | None = None
    causal_groups: GroupFact | None = None
    row_lanes: int = 4
    special: SpecialFacts | None = None
    spills: tuple[SpillFact, ...] = ()
    in_step: float | None = None
    column_band: int = 0
    interleaves_exp: bool = False
    instructions: Mapping[str, tuple[InstructionFact, ...]] = field(default_factory=dict)

    def instructions_of(self, part: str, head_dim: int) -> tuple[float, float]:
        """(a step, a block) of one thread, on a straight line through the head dimensions counted; 0 where none is."""
        known = sorted(self.instructions.get(part, ()), key=lambda f: f.head_dim)
        if not known:
            return 0.0, 0.0
        low, high = known[0], known[-1]
        along = (head_dim - low.head_dim) / (high.head_dim - low.head_dim) if high is not low else 0.0
        return (
            max(0.0, low.step + along * (high.step - low.step)),
            max(0.0, low.block + along * (high.block - low.block)),
        )

    def tile(self, head_dim: int) -> TileShape | None:
        """The tile for a head dimension; None beyond what the kernel is built for."""
        return _up_to(self.tiles, head_dim)

    def backward_tile(self, head_dim: int) -> TileShape | None:
        """The tile of the backward kernel; None where there is none or the card does not know it."""
        return _up_to(self.backward_tiles, head_dim)

    def shared_bytes(self, problem: AttentionProblem, tile: TileShape) -> int:
        """Shared memory of a block: a tile of Q, `stages` tiles of K and V, and what warps that divide keys share."""
        keys = tile.cols * (
            problem.head_dim * problem.dtype_k.itemsize + problem.value_dim * problem.dtype_v.itemsize
        )
        own = tile.rows * problem.head_dim * problem.dtype_q.itemsize + self.stages * keys
        if self.warps_divide == "rows":
            return own
        warps = self.threads_per_block // WARP_THREADS  # each with its part of O, and two numbers a row
        return own + warps * tile.rows * (problem.value_dim + 2) * problem.dtype_acc.itemsize

    def to_dict(self) -> dict[str, Any]:
        """Plain values, by the keys of a card."""
        out = asdict(self)
        special = out.pop("special")
        out["special"] = None if special is None else {k: special[k] for k in special if k != "row_lanes"}
        out["pad"] = {axis: out.pop(f"pad_{axis}") for axis in ("rows", "cols", "head_dim")}
        return out

    def spill(self, head_dim: int, tile: TileShape) -> SpillFact | None:
        """What this build of the kernel spills at a head dimension and tile, where it was measured."""
        return next((s for s in self.spills if (s.head_dim, s.cols) == (head_dim, tile.cols)), None)

    def divides_keys(self, problem: AttentionProblem, sms: int) -> bool:
        """Whether another kernel of the library runs, one that divides the keys of a block: not the one of the card."""
        if self.splits_keys is None:
            return False
        seen = self.packed(problem)
        blocks = seen.batch * seen.heads * -(-seen.seq_q // self.splits_keys.rows)
        return blocks < self.splits_keys.blocks_per_sm * sms

    def packed(self, problem: AttentionProblem) -> AttentionProblem:
        """The problem as the kernel's grid sees it: a single query's heads become the rows of one tile."""
        return problem.packed_heads() if self.pack_heads_at_single_query else problem

    def q_box_bytes(self, problem: AttentionProblem) -> int:
        """Bytes of Q that are read past the padded end of each head, since a copy takes a whole box of rows."""
        seen = self.padded(problem)
        past = -(-seen.seq_q // self.q_box_rows) * self.q_box_rows - seen.seq_q
        return seen.batch * seen.heads * past * seen.head_dim * seen.dtype_q.itemsize

    def padded(self, problem: AttentionProblem) -> AttentionProblem:
        """The problem as its loads see it: whole tiles, also past the end of a sequence or a head."""

        def up(size: int, unit: int) -> int:
            return -(-size // unit) * unit

        seen = self.packed(problem)
        return replace(
            seen,
            seq_q=up(seen.seq_q, self.pad_rows),
            seq_k=up(seen.seq_k, self.pad_cols),
            head_dim=up(seen.head_dim, self.pad_head_dim),
            value_dim=up(seen.value_dim, self.pad_head_dim),
            scale=seen.softmax_scale,
        )


def _up_to(facts: tuple[TileFact, ...], head_dim: int) -> TileShape | None:
    for fact in sorted(facts, key=lambda t: t.head_dim_max):
        if head_dim <= fact.head_dim_max:
            return TileShape(rows=fact.rows, cols=fact.cols)
    return None
