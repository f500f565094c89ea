"""The few sentences at the top: what limits this workload, by how much, what to do; then the bytes. All computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iosim.report.gpu import GpuPart
from iosim.report.remedies import APART, WORTH, remedies
from iosim.report.times import all_terms, range_of
from iosim.scaling import Laws
from iosim.scaling.sentences import power
from iosim.timing import Timing
from iosim.units import format_bytes, format_seconds

LAW_SLACK = 0.05  # of the fitted exponent of M, within which traffic falls as 1/M
MOST_REMEDIES = 2
SMALL = 0.05  # terms of a smaller share are not worth a place in the sentence
TERM_WORDS = {
    "tensor": "matmuls",
    "special functions": "exponentials that they do not cover",
    "shared memory": "reads of shared memory",
    "masking": "masking",
    "edge": "first loads and last stores of the thread blocks",
    "waves and tail": "waiting for the busiest SM",
    "HBM": "bytes from and to HBM",
    "start": "the launch",
    "vector": "other instructions on the scores",
    "side kernels": "the small kernels before and after",
}
BOUND_WORDS = {
    "tensor": "the matmuls",
    "special functions": "the exponentials",
    "HBM": "the compulsory bytes",
}


def time_answers(part: GpuPart) -> Iterator[str]:
    """What limits the workload on one GPU, by how much, and what to do; why not, where nothing is predicted."""
    name, main = part.profile.name, part.times.main
    if main is None or main.once_s is None:
        yield from _only_a_bound(part)
        return
    yield _limit(name, main, main.once_s)
    yield _how_far(main, main.once_s)
    yield _what_to_do(main, main.once_s, part.profile.architecture)
    yield from _others(part, main, main.once_s)


def _only_a_bound(part: GpuPart) -> Iterator[str]:
    """Why nothing is predicted, and the least all the same where that is known."""
    name, times = part.profile.name, part.times
    yield from (f"On {name} no time is predicted: {line.rstrip('.')}." for line in times.remarks[:1])
    if times.bound is not None:
        bound = times.bound
        unit = BOUND_WORDS.get(bound.limit, bound.limit)
        yield f"The least that any kernel needs on {name} is {format_seconds(bound.seconds)}, set by {unit}."


def _limit(gpu: str, main: Timing, seconds: float) -> str:
    """What takes the time of the preferred kernel, the largest part first."""
    low, high = range_of(main)
    terms = all_terms(main)
    shown = sorted((t for t in terms if not t.hidden), key=lambda t: -t.seconds)
    first, *others = [t for t in shown if t.seconds > SMALL * seconds] or shown[:1]
    which = "" if main.passes == "fwd" else " backward"
    text = (
        f"On {gpu} the limit is {_words(first.name)}: {first.seconds / seconds:.0%} of the {format_seconds(seconds)} "
        f"that {main.kernel}{which} takes (predicted, {format_seconds(low)} to {format_seconds(high)})"
    )
    if others:
        text += "; then " + ", ".join(f"{_words(t.name)} {t.seconds / seconds:.0%}" for t in others)
    hbm = next((t for t in terms if t.name == "HBM" and t.hidden and t.seconds), None)
    if hbm is not None:
        busy = sum(t.seconds for t in shown if t.name not in APART)
        share = hbm.seconds / seconds
        text += (
            f". HBM works beside that for {f'{share:.0%}' if share >= 0.01 else 'less than 1%'} of the time and could "
            f"be {busy / hbm.seconds:.3g} times slower before it counts"
        )
    return text + "."


def _how_far(main: Timing, seconds: float) -> str:
    """The distance to the lower bound."""
    bound = main.bound
    unit = BOUND_WORDS.get(bound.limit, bound.limit)
    return (
        f"By how much: the least that any kernel needs is {format_seconds(bound.seconds)}, set by {unit} at the "
        f"highest rate; the prediction is {seconds / bound.seconds:.3g} times that."
    )


def _words(term: str) -> str:
    known = TERM_WORDS.get(term)
    if known is None and " " in term:  # of one of several launches
        launch, _, rest = term.partition(" ")
        return f"{TERM_WORDS.get(rest, rest)} of {launch}"
    return known or term


def _what_to_do(main: Timing, seconds: float, architecture: str) -> str:
    found = remedies(main, architecture)[:MOST_REMEDIES]
    if not found:
        return (
            f"What to do: no change of the kernel alone saves more than {WORTH:.0%}; only less work does, as by a "
            "narrower mask."
        )
    told = "; ".join(f"{r.text}: {r.gain(seconds):.2f} times as fast" for r in found)
    return f"What to do: {told}."


def _others(part: GpuPart, main: Timing, seconds: float) -> Iterator[str]:
    for timing in part.times.timings:
        if timing.kernel == main.kernel or not timing.once_s:
            continue
        ratio = timing.once_s / seconds
        how = f"{ratio:.2f} times as long" if ratio >= 1 else f"{1 / ratio:.2f} times as fast"
        yield f"{timing.kernel} takes {format_seconds(timing.once_s)}, {how}."


def bytes_answers(laws: Laws, parts: Sequence[GpuPart]) -> list[str]:
    """How many bytes, and whether they fall as the papers say."""
    out = []
    for part in parts:
        by_name = {record.algorithm: record for record in part.records}
        base, best = by_name["standard"], by_name.get("flash2")
        if best is None:
            out.append(f"On {part.profile.name} no tile of flash2 fits in {format_bytes(part.sram_bytes)}.")
            continue
        moved, least = best.traffic.total_bytes, best.theory.compulsory_bytes
        times = base.traffic.total_bytes / moved
        out.append(
            f"On {part.profile.name} (M = {format_bytes(part.sram_bytes)} a thread block) FlashAttention-2 moves "
            f"{format_bytes(moved, decimal=True)} into and out of the SMs with {best.tiles} tiles; idealised standard "
            f"attention moves {format_bytes(base.traffic.total_bytes, decimal=True)}, {times:.2f} times as much. "
            f"Each tensor moved once is {format_bytes(least, decimal=True)}; the strongest lower bound at this M is "
            f"{format_bytes(best.theory.lower_bound_bytes, decimal=True)}, so the gap is "
            f"{moved / best.theory.lower_bound_bytes:.2f}."
        )
    out.append(law_answer(laws))
    sentences = parts[0].study.sentences
    out.append(next(s for s in sentences if not s.startswith("Everything here")))
    checked = sum(len(part.study.gaps) + len(part.study.by_sram) for part in parts)
    below = sum(part.study.under_a_bound for part in parts)
    found = "None" if below == 0 else f"{below} (an error in the model)"
    out.append(f"{found} of {checked:,} counts on the grids of N, d and M lies under a valid lower bound.")
    return out


def law_answer(laws: Laws) -> str:
    """Whether traffic falls as N²d²/M, and with which constants."""
    fits = {(f.algorithm, f.series): f for f in laws.fits}
    two = fits[("flash2", "matrix elements")]
    paper = {c.algorithm: c.value for c in laws.constants if c.tiles == "paper"}
    best = {c.algorithm: c.value for c in laws.constants if c.tiles == "best"}
    law = ", ".join((power("N", two.exponent_n), power("d", two.exponent_d), power("M", two.exponent_m)))
    does = "does" if abs(two.exponent_m + 1) < LAW_SLACK else "does not"
    return (
        f"Traffic {does} fall as N²d²/M: fitted on counted elements, FlashAttention-2 goes as {law}. The constant is "
        f"{paper['flash1']:.2f} (FlashAttention-1) and {paper['flash2']:.2f} (FlashAttention-2) with the paper's "
        f"tiles, {best['flash1']:.2f} and {best['flash2']:.2f} with the best."
    )
