"""The study's answers in words; every number in them comes from a count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from iosim.problem import AttentionProblem
from iosim.scaling.constants import HEAD_DIMS, Constant, Crossing, coefficient_of_n_squared
from iosim.scaling.elements import NO_OPTIONS, Options
from iosim.scaling.exponents import Fit
from iosim.scaling.passes import BOTH
from iosim.scaling.sparse import SparseLaw
from iosim.units import counted, format_bytes

NAMES = {
    "flash1": "FlashAttention-1",
    "flash2": "FlashAttention-2",
    "standard": "standard attention",
    "small_cache": "the blocked small-cache algorithm",
    "gemm": "the matmul Q Kᵀ alone",
}
_RULE_TEXT = {"paper": "the paper's tiles", "best": "the best tiles"}
FAMOUS_SRAM_BYTES = 192 * 1024  # the "192 KB of SRAM" of the FlashAttention paper, at d = 256 in fp16
FAMOUS_HEAD_DIM = 256
STANDARD_PASSES = 4


def named(algorithm: str) -> str:
    """An algorithm as a sentence calls it."""
    return NAMES.get(algorithm, algorithm)


def power(letter: str, exponent: float) -> str:
    """`N^2.00`, with a real minus sign and no negative zero."""
    return f"{letter}^{exponent:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def on_exponents(fits: Sequence[Fit]) -> Iterator[str]:
    """One sentence a fitted series."""
    for fit in fits:
        law = " · ".join(
            power(letter, value)
            for letter, value in (("N", fit.exponent_n), ("d", fit.exponent_d), ("M", fit.exponent_m))
        )
        yield _sentence(
            f"{named(fit.algorithm)}: {fit.series} grow as {law} "
            f"({fit.where}, {fit.points} counted points, R² = {fit.r_squared:.5f})."
        )


def on_constants(found: Sequence[Constant]) -> Iterator[str]:
    """One sentence an algorithm: its constant under each tile rule."""
    for algorithm in dict.fromkeys(c.algorithm for c in found):
        parts = [f"{c.value:.2f} with {_RULE_TEXT[c.tiles]}" for c in found if c.algorithm == algorithm]
        yield _sentence(f"{named(algorithm)} moves N²d²/M matrix elements times {' and '.join(parts)}.")


def on_crossings(found: Sequence[Crossing], statistics: str = "m and l") -> Iterator[str]:
    """One sentence an algorithm and tile rule, over all head dimensions: in matrix elements, then in bytes."""
    for key in dict.fromkeys((c.algorithm, c.tiles) for c in found):
        mine = [c for c in found if (c.algorithm, c.tiles) == key]
        same = all(c.sram_elements == c.sram_elements_by_bytes for c in mine)
        by_elements = _crossing_text([(c.head_dim, c.sram_elements, c.over_d_squared) for c in mine])
        by_bytes = _crossing_text(
            [(c.head_dim, c.sram_elements_by_bytes, c.over_d_squared_by_bytes) for c in mine]
        )
        yield _sentence(
            f"{named(key[0])} with {_RULE_TEXT[key[1]]} moves no more matrix elements than standard attention "
            f"from {by_elements} on; "
            + (
                "in fp16 bytes it is the same M."
                if same
                else f"no more bytes, with {statistics} in fp32, from {by_bytes}."
            )
        )


def _crossing_text(points: Sequence[tuple[int, int, float]]) -> str:
    """`M = 1.51 to 1.53 d² (6,272 elements at d = 64, …)` from (d, M, M over d²)."""
    ratios = sorted({f"{ratio:.2f}" for _, _, ratio in points})
    times = ratios[0] if len(ratios) == 1 else f"{ratios[0]} to {ratios[-1]}"
    (d, M, _), *rest = points
    where = ", ".join([f"{M:,} elements at d = {d}", *(f"{M:,} at {d}" for d, M, _ in rest)])
    return f"M = {times} d² ({where})"


def on_options(options: Options) -> Iterator[str]:
    """Which options the counts are of; nothing where all are the defaults."""
    text = options_text(options)
    if text:
        apart = any(own.get("pass") == BOTH for own in options.values())
        yield f"Everything here is counted with {text}{'; each pass has its own tiles' if apart else ''}."


def options_text(options: Options) -> str:
    """`pass=bwd (standard, flash1, flash2)`: each value with the algorithms that have it."""
    owners: dict[str, list[str]] = {}
    for algorithm, own in options.items():
        for name, value in own.items():
            owners.setdefault(f"{name}={value}", []).append(algorithm)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in owners.items())


def short_options_text(options: Options) -> str:
    """`pass=bwd`: each value once, for the line under a heading."""
    return ", ".join(
        dict.fromkeys(f"{name}={value}" for own in options.values() for name, value in own.items())
    )


def _verdict(coefficient: float, standard: float) -> str:
    ratio = coefficient / standard
    times = "twice" if round(ratio, 2) == 2 else f"{ratio:.2f} times"
    return f"{times} as much, so it {'loses' if ratio > 1 else 'wins'}"


def _passes_of_standard(options: Options) -> float:
    """N² matrix elements of standard attention, counted: 4, or 7 backward."""
    counted = coefficient_of_n_squared("standard", "best", HEAD_DIMS[0], HEAD_DIMS[0] ** 2, options)
    return round(counted, 2)


def on_losing(profile: str, sram_bytes: int, itemsize: int, options: Options = NO_OPTIONS) -> Iterator[str]:
    """Where tiling loses: the paper's 192 KiB at d = 256, and M of this GPU at each head dimension."""
    standard = _passes_of_standard(options)
    elements = FAMOUS_SRAM_BYTES // 2
    for algorithm in ("flash1", "flash2"):
        c = coefficient_of_n_squared(algorithm, "paper", FAMOUS_HEAD_DIM, elements, options)
        yield (
            f"At d = {FAMOUS_HEAD_DIM} and 192 KiB ({elements:,} fp16 elements) {named(algorithm)} with the paper's "
            f"tiles moves {c:.2f} N² matrix elements, standard attention {standard:g} N²: {_verdict(c, standard)}."
        )
    elements = sram_bytes // itemsize
    for algorithm in ("flash1", "flash2"):
        parts = []
        for d in HEAD_DIMS:
            if elements >= 4 * d:
                c = coefficient_of_n_squared(algorithm, "paper", d, elements, options)
                parts.append(f"{c:.2f} N² at d = {d}{' (more than standard)' if c > standard else ''}")
        if parts:
            yield (
                f"On {profile} a thread block may hold {format_bytes(sram_bytes)} ({elements:,} elements): "
                f"{named(algorithm)} with the paper's tiles moves, in matrix elements, {', '.join(parts)}; "
                f"standard attention {standard:g} N²."
            )


def on_lengths(seq_lens: Sequence[int]) -> Iterator[str]:
    """What is counted of a ragged batch, and what is not."""
    if seq_lens:
        yield (
            f"Bytes and bounds are those of {counted(len(seq_lens), 'sequence')} of {min(seq_lens):,} to "
            f"{max(seq_lens):,} keys, {sum(seq_lens):,} tokens without padding; exponents, constants and crossings are "
            "those of one sequence, since fixed lengths have no law over N."
        )


def on_sparse(laws: Sequence[SparseLaw], where: str) -> Iterator[str]:
    """Proposition 4, and what a study of a block mask is of."""
    if not laws:
        return
    parts = [
        f"{named(law.algorithm)} moves {law.once:.2f} Nd + {law.constant:.2f} · s · N²d²/M (R² = {law.r_squared:.5f})"
        for law in laws
    ]
    yield f"At density s of blocks {' and '.join(parts)} matrix elements with the paper's tiles: {where}."
    yield (
        "The blocks of the mask are tiles, so each M has a mask of its own, and is held against the bound of its own "
        "visible pairs. Algorithms that have no block mask are dense, and so are exponents, constants and crossings."
    )


def on_best(best: pd.DataFrame, problem: AttentionProblem, seq_lens: Sequence[int] = ()) -> Iterator[str]:
    """Which algorithm wins in which stretch of M."""
    at = f"{counted(len(seq_lens), 'sequence')}" if seq_lens else f"N = {problem.seq_q:,}"
    names = best["algorithm"].astype(str).tolist()
    sizes = best["sram_bytes"].astype(int).tolist()
    stretches: list[tuple[str, int, int]] = []
    for name, size in zip(names, sizes, strict=True):
        if stretches and stretches[-1][0] == name:
            stretches[-1] = (name, stretches[-1][1], size)
        else:
            stretches.append((name, size, size))
    parts = [f"{named(n)} from {format_bytes(a)} to {format_bytes(b)}" for n, a, b in stretches]
    yield (
        f"Fewest bytes at {at}, d = {problem.head_dim} (M on a grid from {format_bytes(sizes[0])} "
        f"to {format_bytes(sizes[-1])}): {'; '.join(parts)}."
    )
    reached = best[best["sm_bytes"] == best["compulsory_bytes"]]
    if len(reached):
        yield (
            "The compulsory bytes are reached, each tensor moved once, from M = "
            f"{format_bytes(int(reached['sram_bytes'].astype(int).min()))} on."
        )


def on_gaps(by_sram: pd.DataFrame, gaps: pd.DataFrame, sram_bytes: int) -> Iterator[str]:
    """The gap at this GPU's M, its range over the grid, and the check that nothing lies under a bound."""
    here = by_sram[by_sram["sram_bytes"] == sram_bytes]
    searched = set(here.loc[here["tiles"] == "best", "algorithm"])
    here = here[(here["tiles"] == "best") | ~here["algorithm"].isin(searched)]
    parts = [
        f"{named(str(row['algorithm']))} {float(row['gap']):.2f}"
        for _, row in here.iterrows()
        if bool(row["attainable"])
    ]
    if parts:
        yield f"Bytes over the strongest valid bound at M = {format_bytes(sram_bytes)}: {', '.join(parts)}."
    seen = pd.concat([by_sram, gaps], ignore_index=True)
    for name, group in seen[seen["attainable"]].groupby("algorithm", sort=False):
        parts = [
            f"{float(some['gap'].min()):.2f} to {float(some['gap'].max()):.2f} times its bound with {_RULE_TEXT[rule]}"
            for rule in ("best", "paper")
            if len(some := group[group["tiles"] == rule])
        ]
        yield _sentence(
            f"{named(str(name))} moves {' and '.join(parts)}, over {len(group)} points: {_grid(group)}."
        )
    below = int((seen["gap"] < 1).sum())
    yield (
        f"No count lies under a valid bound ({len(seen)} points checked)."
        if below == 0
        else f"{below} of {len(seen)} counts lie UNDER a valid bound: the model is wrong there."
    )


def _grid(table: pd.DataFrame) -> str:
    """`N 1,024 to 16,384, d 64 to 256, M 1 KiB to 8 MiB`."""

    def ends(column: str) -> tuple[int, int]:
        return int(table[column].min()), int(table[column].max())

    sizes = [
        f"{letter} {low:,} to {high:,}" if low < high else f"{letter} {low:,}"
        for letter, (low, high) in (("N", ends("seq_q")), ("d", ends("head_dim")))
    ]
    low, high = ends("sram_bytes")
    return ", ".join([*sizes, f"M {format_bytes(low)} to {format_bytes(high)}"])
