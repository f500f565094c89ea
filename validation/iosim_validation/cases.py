"""Which attentions are checked and timed: the suites, as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from iosim.errors import UsageError
from iosim.problem import AttentionProblem

KI = 1024
DECODE_QUERIES = 16
MASKED = "block_sparse"
SOFTMAX_VARIANTS = ("standard_naive", "standard_safe", "standard_online")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attention. `only`: the rungs that do it (empty: all but the softmax variants). `block_mask`: a pattern
    of `iosim.block_mask`. `every_tile`: each tile that a rung is built for, not the default alone."""

    problem: AttentionProblem
    block_mask: str | None = None
    timed: bool = True
    peers: bool = True
    only: tuple[str, ...] = ()
    every_tile: bool = False

    @property
    def name(self) -> str:
        """The shape in one word; the same attention has the same name in every suite."""
        p = self.problem
        heads = f"h{p.heads}" if p.heads == p.kv_heads else f"h{p.heads}kv{p.kv_heads}"
        rows = f"n{p.seq_q}" if p.seq_q == p.seq_k else f"q{p.seq_q}k{p.seq_k}"
        words = [f"b{p.batch}{heads}", rows, f"d{p.head_dim}", str(p.dtype_q)]
        words += ["causal"] if p.mask.kind == "causal" else []
        words += [self.block_mask.replace(":", "").replace("+", "-")] if self.block_mask else []
        return "-".join(words)

    def takes(self, rung: str) -> bool:
        """Whether a rung takes part. The one for decoding is not timed on long queries: nobody would run it there."""
        if self.only:
            return rung in self.only
        if rung == MASKED and not self.block_mask:
            return False
        long_decode = rung == "decode" and self.timed and self.problem.seq_q > DECODE_QUERIES
        return rung not in SOFTMAX_VARIANTS and not long_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases, and how long each is timed: `run_s` of launches after a rest of `pause_s`."""

    name: str
    title: str
    cases: tuple[Case, ...]
    run_s: float = 0.3
    pause_s: float = 0.2


def attention(
    shape: tuple[int, int, int, int, int], head_dim: int, *, causal: bool = False, dtype: str = "fp16"
) -> AttentionProblem:
    """`shape`: batch, heads, kv_heads, seq_q, seq_k."""
    batch, heads, kv_heads, seq_q, seq_k = shape
    mask = "causal" if causal else "none"
    return AttentionProblem.of(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        seq_q=seq_q,
        seq_k=seq_k,
        head_dim=head_dim,
        mask=mask,
        dtype=dtype,
    )


def flash2_shape(seq: int, head_dim: int) -> tuple[int, int, int, int, int]:
    """The benchmark of the FlashAttention-2 paper, section 4.1: 16k tokens, heads × head_dim = 2048."""
    heads = 2048 // head_dim
    return (16 * KI // seq, heads, heads, seq, seq)


LENGTHS = (512, 1 * KI, 2 * KI, 4 * KI, 8 * KI, 16 * KI)
PAPER = tuple(
    Case(problem=attention(flash2_shape(n, d), d, causal=causal))
    for d in (64, 128)
    for causal in (False, True)
    for n in LENGTHS
)

# Not multiples of any tile, more keys than queries and fewer (some rows then see nothing), shared key heads.
RAGGED = (
    (1, 1, 1, 1, 1),
    (1, 1, 1, 192, 128),
    (1, 2, 2, 1000, 1000),
    (2, 4, 1, 333, 777),
    (1, 2, 2, 700, 300),
    (3, 6, 2, 1, 1023),
)
CHECKS = tuple(
    Case(problem=attention(shape, d, causal=causal, dtype=dtype), timed=False, peers=False)
    for d in (32, 64, 96, 128, 256)
    for dtype in ("fp16", "bf16")
    for causal in (False, True)
    for shape in (RAGGED if d in (64, 128) and dtype == "fp16" else RAGGED[3:4])
)
MASK_CHECKS = tuple(
    Case(
        problem=attention(shape, d, causal=causal),
        block_mask="local:1+global:1",
        timed=False,
        peers=False,
        only=(MASKED,),
    )
    for d in (64, 128)
    for causal in (False, True)
    for shape in RAGGED[2:5]
)
# Every tile that a kernel is built for: ragged against all of them, keys shared by heads.
TILE_CHECKS = tuple(
    Case(
        problem=attention(RAGGED[3], d, causal=causal, dtype="fp16" if causal else "bf16"),
        timed=False,
        peers=False,
        every_tile=True,
    )
    for d in (64, 128)
    for causal in (False, True)
)

DECODE = tuple(
    Case(problem=attention(shape, 128))
    for shape in (
        (64, 32, 8, 1, 8 * KI),
        (8, 32, 32, 1, 16 * KI),
        (16, 32, 8, 1, 32 * KI),
        (1, 32, 8, 1, 64 * KI),
    )
)
GROUPED = (
    Case(problem=attention((4, 32, 8, 4 * KI, 4 * KI), 128, causal=True, dtype="bf16")),
    Case(problem=attention((4, 16, 16, 3333, 3333), 64)),
    Case(problem=attention((1, 16, 16, 1 * KI, 1 * KI), 128)),  # fits in the L2
    Case(problem=attention((8, 16, 16, 4 * KI, 4 * KI), 128, dtype="bf16")),
)
SOFTMAX = tuple(
    Case(problem=attention(flash2_shape(n, 64), 64), peers=False, only=SOFTMAX_VARIANTS)
    for n in (1 * KI, 4 * KI)
)
BLOCK_MASKS = tuple(
    Case(
        problem=attention((2, 16, 16, 8 * KI, 8 * KI), 128),
        block_mask=pattern,
        peers=False,
        only=(MASKED,),
    )
    for pattern in ("butterfly", "local:2+global:1", "random:0.25")
)
TILES = tuple(
    Case(problem=attention(flash2_shape(n, d), d), peers=False, only=("flash2",), every_tile=True)
    for d in (64, 128)
    for n in (1 * KI, 4 * KI, 16 * KI)
)
# The tile matters most where few of them fill the GPU.
SHORT_TILES = tuple(
    Case(
        problem=attention(flash2_shape(n, d), d, causal=causal),
        peers=False,
        only=("flash2_wgmma",),
        every_tile=True,
    )
    for d in (64, 128)
    for causal in (False, True)
    for n in (512, 1 * KI, 2 * KI)
)
QUICK = (
    *(
        Case(problem=attention(shape, d, causal=causal, dtype=dtype), timed=False, peers=False)
        for shape, d, causal, dtype in (
            ((2, 4, 1, 333, 777), 64, False, "fp16"),
            ((2, 4, 1, 333, 777), 128, True, "bf16"),
            ((1, 2, 2, 700, 300), 128, True, "fp16"),
        )
    ),
    Case(problem=attention(flash2_shape(2 * KI, 64), 64)),
    Case(problem=attention(flash2_shape(2 * KI, 128), 128, causal=True)),
    Case(problem=attention((16, 32, 8, 1, 8 * KI), 128)),
    Case(
        problem=attention((2, 8, 8, 2 * KI, 2 * KI), 128),
        block_mask="butterfly",
        peers=False,
        only=(MASKED,),
    ),
)

SUITES: Mapping[str, Suite] = MappingProxyType(
    {
        suite.name: suite
        for suite in (
            Suite(name="quick", title="is it right and about as fast", cases=QUICK, run_s=0.1, pause_s=0.05),
            Suite(
                name="checks",
                title="ragged shapes, every head dimension, every tile, not timed",
                cases=(*CHECKS, *MASK_CHECKS, *TILE_CHECKS),
            ),
            Suite(name="paper", title="the shapes of FlashAttention-2's benchmark", cases=PAPER),
            Suite(
                name="tiles",
                title="every tile of flash2 at six shapes, of flash2_wgmma at short ones",
                cases=(*TILES, *SHORT_TILES),
            ),
            Suite(
                name="families",
                title="decode, shared heads, softmax in four ways, block masks",
                cases=(*DECODE, *GROUPED, *SOFTMAX, *BLOCK_MASKS),
            ),
            Suite(
                name="record",
                title="what reports/h200-sxm shows, in five minutes: half of paper, tiles, and families in short",
                cases=(
                    *(case for n in (4 * KI, 16 * KI, 1 * KI) for case in PAPER if case.problem.seq_q == n),
                    *TILES,
                    *DECODE,
                    *BLOCK_MASKS,
                    *SOFTMAX,
                    *GROUPED[:2],
                ),
                run_s=0.25,
                pause_s=0.15,
            ),
            Suite(
                name="full",
                title="checks, paper, tiles and families",
                cases=(
                    *CHECKS,
                    *MASK_CHECKS,
                    *TILE_CHECKS,
                    *PAPER,
                    *TILES,
                    *SHORT_TILES,
                    *DECODE,
                    *GROUPED,
                    *SOFTMAX,
                    *BLOCK_MASKS,
                ),
            ),
        )
    }
)


def find_suite(name: str) -> Suite:
    """A suite by name. Errors: `UsageError` that lists them."""
    if name not in SUITES:
        raise UsageError(f"--suite: no suite {name!r}; known: {', '.join(SUITES)}")
    return SUITES[name]


def find_case(name: str) -> Case:
    """The attention of a name, from whatever suite has it. Errors: `UsageError`."""
    for suite in SUITES.values():
        for case in suite.cases:
            if case.name == name:
                return case
    raise UsageError(f"case: no suite has a case {name!r}")


def by_name(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """Cases of one attention together, in the order in which the attentions first appear."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.name, []).append(case)
    return found
