"""The whole study of the bound for one problem and one GPU, as tables and sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pandas as pd

from iosim.errors import UsageError
from iosim.hardware import HardwareProfile
from iosim.problem import AttentionProblem
from iosim.scaling import sentences as say
from iosim.scaling.constants import HEAD_DIMS, Constant, Crossing, constants, crossings
from iosim.scaling.elements import NO_OPTIONS, Options
from iosim.scaling.exponents import Fit, fit_exponents
from iosim.scaling.sparse import (
    LAW_TEXT,
    MASKED,
    SparseLaw,
    block_mask_of,
    least_sram_bytes,
    narrowed,
    sparse_laws,
    without_block_mask,
)
from iosim.scaling.studied_options import check_also, checked_options, in_pass, pass_of, with_settled_splits
from iosim.scaling.traffic import (
    ALIKE,
    BLOCKED_GRANULARITY,
    CURVES,
    Curve,
    Lengths,
    along,
    best_schedule,
    bound_lines,
    shape_lines,
)

FITTED = ("flash1", "flash2", "standard", "small_cache", "gemm")
SEQS = tuple(1 << k for k in range(9, 18))  # 512 to 131,072
WIDTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512)
GRID_SEQS = (1024, 4096, 16384)
Progress = Callable[[str], None]


def sram_axis(quarter_octaves: int = 4) -> list[int]:
    """M from 1 KiB to 8 MiB in even steps of a ratio, whole elements of up to 4 bytes."""
    return [round(1024 * 2 ** (k / quarter_octaves) / 4) * 4 for k in range(13 * quarter_octaves + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """What belongs to the algorithms and no GPU: one head, fp16, no mask, on grids of their own."""

    fits: tuple[Fit, ...]
    constants: tuple[Constant, ...]
    crossings: tuple[Crossing, ...]


def find_laws(fitted: Sequence[str] = FITTED, options: Options = NO_OPTIONS) -> Laws:
    """Fit the exponents of `fitted` (names, or files such as ./mine.py:program), and the constants and crossings.

    `options`: by algorithm; constants and crossings are those of the paper's algorithms under them. A block mask is
    left out: its blocks are tiles, so that every point of a fit would have another mask.
    """
    options = without_block_mask(options)
    if any(own.get("splits") == "best" for own in options.values()):
        raise UsageError("splits: best is found for one problem on one GPU, and a law needs a number")
    if any(options.values()):
        fits = tuple(
            fit
            for name in in_pass(fitted, options)
            for fit in fit_exponents(name, options=options.get(name, {}))
        )
        return Laws(fits=fits, constants=constants(options=options), crossings=crossings(options=options))
    base = _shipped_laws()
    if tuple(fitted) == FITTED:
        return base
    known = {name: tuple(f for f in base.fits if f.algorithm == name) for name in FITTED}
    fits = tuple(fit for name in fitted for fit in known.get(name) or fit_exponents(name))
    return Laws(fits=fits, constants=base.constants, crossings=base.crossings)


@lru_cache(maxsize=1)
def _shipped_laws() -> Laws:
    """Those of the shipped algorithms: they depend on nothing that a caller can change."""
    fits = tuple(fit for name in FITTED for fit in fit_exponents(name))
    return Laws(fits=fits, constants=constants(), crossings=crossings())


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStudy:
    """What `iosim bound` found: the records, the tables behind the figures, and the answers in words.

    Of a ragged batch (`batch`; `problem` is its padded alternative) there is no `by_seq`, and of a block mask there is
    the law in its density (`sparse`); neither has lines of bounds, since these are not of the padded or dense problem.
    `by_sram`, `by_seq`, `by_head_dim`: traffic along one axis, the others as in the problem and the GPU. `gaps`: the
    grid of N, d and M on which no count may lie under a bound; `under_a_bound` is how many do.
    """

    problem: AttentionProblem
    profile: str
    sram_bytes: int
    laws: Laws
    by_sram: pd.DataFrame
    by_seq: pd.DataFrame
    by_head_dim: pd.DataFrame
    best: pd.DataFrame
    bounds: pd.DataFrame
    shapes: pd.DataFrame
    gaps: pd.DataFrame
    sentences: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    batch: Lengths = ALIKE
    sparse: tuple[SparseLaw, ...] = ()

    @property
    def options_text(self) -> str:
        """The options in one line, empty where all are the defaults."""
        return say.options_text(self.options)

    @property
    def short_options_text(self) -> str:
        """The same without the algorithms' names."""
        return say.short_options_text(self.options)

    @property
    def under_a_bound(self) -> int:
        """Counts that lie under a valid bound: 0, or the model is wrong."""
        return int((self.gaps["gap"] < 1).sum() + (self.by_sram["gap"] < 1).sum())

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table by name; the records as tables too."""
        return {
            "exponents": pd.DataFrame([f.to_dict() for f in self.laws.fits]),
            "constants": pd.DataFrame([c.to_dict() for c in self.laws.constants]),
            "crossings": pd.DataFrame([c.to_dict() for c in self.laws.crossings]),
            "traffic_by_sram": self.by_sram,
            "traffic_by_seq": self.by_seq,
            "traffic_by_head_dim": self.by_head_dim,
            "best_schedule": self.best,
            "bounds": self.bounds,
            "shapes": self.shapes,
            "gaps": self.gaps,
            **({"sparse": pd.DataFrame([s.to_dict() for s in self.sparse])} if self.sparse else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the problem, M, the answers and every table as a list of rows."""
        tables = {name: records(table) for name, table in self.tables().items()}
        return {
            "problem": self.problem.to_dict(),
            "profile": self.profile,
            "sram_bytes": self.sram_bytes,
            "options": {name: dict(own) for name, own in self.options.items()},
            **({"seq_lens": list(self.batch.seq_lens)} if self.batch.seq_lens else {}),
            "sentences": list(self.sentences),
            "under_a_bound": self.under_a_bound,
            **tables,
        }


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain numbers and text; what is missing is None."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records", double_precision=15))
    return rows


def study_bound(
    problem: AttentionProblem,
    profile: HardwareProfile,
    *,
    sram_bytes: int | None = None,
    laws: Laws | None = None,
    also: Sequence[str] = (),
    options: Options = NO_OPTIONS,
    batch: Lengths = ALIKE,
    progress: Progress | None = None,
) -> BoundStudy:
    """Count, fit and compare; the tables are those of the problem and of M on this GPU.

    `laws`: found before, so that several GPUs share them. `also`: further algorithms (names, or files such as
    ./mine.py:program) to fit and draw. `options`: by algorithm; with another pass than fwd only the algorithms that
    have it are studied, against the bounds of that pass. Under a block mask these are the paper's tiles alone: the best
    dense tile is a sliver of keys, whose blocks mask nothing that a person means. Laws are those of dense attention.
    `batch`: a ragged batch, of which `problem` is the padded alternative; what it moves and its bounds are sums over
    the sequences, and there is no law over N, whose laws are those of one sequence. `progress` is told what comes next.
    splits=best is chosen once, for the problem (or batch) and M, and that number is studied.
    Errors: `UsageError` and its kinds.
    """
    M = profile.sram_per_block_bytes if sram_bytes is None else sram_bytes
    options = checked_options(with_settled_splits(problem, profile, M, options, batch), also)
    check_also(problem, also, options)
    which = pass_of(options)
    tell = progress or (lambda _: None)
    if laws is None:
        tell("exponents, constants and crossings")
        laws = find_laws((*FITTED, *(name for name in also if name not in FITTED)), options)
    masked, curves = block_mask_of(options), _curves(also, options)
    special = bool(masked or batch.seq_lens)
    tell(f"bytes against M, N and d on {profile.name}")
    axis = sorted({*_axis(problem, options, 1 if special else 4), M})
    by_sram = along(problem, sram_bytes=axis, curves=curves, batch=batch)
    seqs = () if batch.seq_lens else SEQS
    by_seq = along(problem, sram_bytes=[M], seq=seqs, curves=curves) if seqs else by_sram.iloc[:0]
    by_head_dim = along(problem, sram_bytes=[M], head_dim=WIDTHS, curves=curves, batch=batch)
    tell(f"gaps to the bounds on {profile.name}")
    gaps = _gaps(problem, M, curves, options, batch)
    best = best_schedule(by_sram, "sram_bytes")
    sparse = sparse_laws(options, in_pass(MASKED, options)) if masked else ()
    return BoundStudy(
        problem=problem,
        profile=profile.name,
        sram_bytes=M,
        laws=laws,
        by_sram=by_sram,
        by_seq=by_seq,
        by_head_dim=by_head_dim,
        best=best,
        bounds=bound_lines(problem, () if special else axis, which),
        shapes=shape_lines(problem, () if special else axis, which),
        gaps=gaps,
        sentences=(
            *say.on_options(options),
            *say.on_lengths(batch.seq_lens),
            *say.on_sparse(sparse, LAW_TEXT),
            *say.on_losing(profile.name, M, problem.dtype_k.itemsize, without_block_mask(options)),
            *say.on_exponents(laws.fits),
            *say.on_constants(laws.constants),
            *say.on_crossings(laws.crossings, "m and l" if which == "fwd" else "row statistics"),
            *say.on_best(best, problem, batch.seq_lens),
            *say.on_gaps(by_sram, gaps, M),
        ),
        options=options,
        batch=batch,
        sparse=sparse,
    )


def _axis(problem: AttentionProblem, options: Options, quarter_octaves: int) -> list[int]:
    """M at which the study counts: with a block mask only those that make masks of a sensible size."""
    least = least_sram_bytes(problem, options) if block_mask_of(options) else 0
    return [M for M in sram_axis(quarter_octaves) if least <= M]


def _gaps(
    problem: AttentionProblem, sram_bytes: int, curves: Sequence[Curve], options: Options, batch: Lengths
) -> pd.DataFrame:
    """The grid on which no count may lie under a bound: of N, d and M, or of d and M for a ragged batch."""
    if batch.seq_lens:
        steps = sorted({*_axis(problem, options, 1), sram_bytes})
        return along(problem, sram_bytes=steps, head_dim=HEAD_DIMS, curves=curves, batch=batch)
    if not block_mask_of(options):
        steps = sorted({*sram_axis(1), sram_bytes})
        return along(problem, sram_bytes=steps, seq=GRID_SEQS, head_dim=HEAD_DIMS, curves=curves)
    parts = [
        along(problem, sram_bytes=sorted({*steps, sram_bytes}), seq=[N], head_dim=[d], curves=curves)
        for N in GRID_SEQS
        for d in HEAD_DIMS
        if (steps := _axis(narrowed(problem, d, N), options, 1))
    ]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _curves(also: Sequence[str], options: Options) -> list[Curve]:
    """The curves of the pass, each with its own options."""
    every = (*CURVES, *(Curve(algorithm=name, granularity=BLOCKED_GRANULARITY) for name in also))
    there = in_pass([curve.algorithm for curve in every], options)
    return [
        replace(curve, options=options.get(curve.algorithm, {}))
        for curve in every
        if curve.algorithm in there and not _is_dense_search(curve, options)
    ]


def _is_dense_search(curve: Curve, options: Options) -> bool:
    """Whether a curve searches its tile as for dense attention, and then has a block mask on it."""
    return curve.tiles == "best" and options.get(curve.algorithm, {}).get("block-mask", "off") != "off"
