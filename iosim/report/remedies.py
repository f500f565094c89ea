"""What would make a kernel faster, and by how much: each remedy is the time again without, or with less of, a term.

Compute terms add up and HBM runs beside them, so the time is the longer of the two and what belongs to neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from iosim.kernels import CLASSES
from iosim.report.times import all_terms
from iosim.roofline.lower_bound import compulsory_bytes
from iosim.timing import Timing

APART = ("start", "side kernels")
"""Terms that nothing else hides."""
WORTH = 0.02
"""A remedy that saves less of the time is not told."""
STRAY = 1.1
"""HBM bytes over the compulsory ones, above which a better order comes before fewer bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to do, and the seconds that the kernel takes then."""

    text: str
    seconds: float

    def gain(self, before_s: float) -> float:
        """How many times as fast."""
        return before_s / self.seconds


def remedies(timing: Timing, architecture: str) -> list[Remedy]:
    """What helps, most first; nothing for a kernel without a prediction or of several launches."""
    if timing.once_s is None or len(timing.launches) != 1:
        return []
    before = timing.once_s
    found = [r for r in _all(timing, architecture) if r.seconds < before * (1 - WORTH)]
    return sorted(found, key=lambda r: r.seconds)


def _all(timing: Timing, architecture: str) -> Iterator[Remedy]:
    terms = {t.name: t.seconds for t in all_terms(timing)}
    hbm = terms.get("HBM", 0.0)
    apart = sum(terms.get(name, 0.0) for name in APART)
    compute = sum(s for name, s in terms.items() if name not in (*APART, "HBM"))

    def then(less_compute: float = 0.0, memory: float = hbm, rest: float = apart) -> float:
        return max(compute - less_compute, memory) + rest

    tensor, special = terms.get("tensor", 0.0), terms.get("special functions", 0.0)
    yield Remedy(
        text="run the exponentials behind the matmuls, as groups of warps out of phase do",
        seconds=then(min(tensor, special)),
    )
    share, best = _shares(timing, architecture)
    if best > share:
        yield Remedy(
            text=f"bring the matmuls from {share:.0%} to {best:.0%} of the tensor cores' peak, which wgmma reaches",
            seconds=then(tensor * (1 - share / best)),
        )
    for name, text in (
        (
            "shared memory",
            "let each warp read fewer bytes of K and V from shared memory, or the tensor cores read it",
        ),
        ("waves and tail", "even out the SMs, by longest blocks first or keys split over more blocks"),
        ("edge", "load the next Q and store the last O behind the tiles of another block"),
        ("masking", "compare with the mask only in the tiles that it crosses, and cheaper"),
        ("vector", "spend fewer instructions a score"),
    ):
        yield Remedy(text=text, seconds=then(terms.get(name, 0.0)))
    yield from _fewer_bytes(timing, hbm, then)
    if "start" in terms:
        yield Remedy(
            text="launch less often, with more work in a launch", seconds=then(rest=apart - terms["start"])
        )


def _fewer_bytes(timing: Timing, hbm: float, then: Callable[..., float]) -> Iterator[Remedy]:
    p, moved = timing.problem, timing.hbm_bytes
    if not moved or timing.passes != "fwd":
        return
    least = sum(compulsory_bytes(p))
    if moved > STRAY * least:
        yield Remedy(
            text=f"keep K and V in the L2, as HBM moves {moved / least:.2f} times the compulsory bytes",
            seconds=then(memory=hbm * least / moved),
        )
    rows = p.batch * p.kv_heads * p.visible_keys
    keys = rows * (p.head_dim * p.dtype_k.itemsize + p.value_dim * p.dtype_v.itemsize)
    yield Remedy(
        text="halve K and V, by half as many kv heads or half as wide a dtype",
        seconds=then(memory=hbm * (1 - 0.5 * keys / least)),
    )


def _shares(timing: Timing, architecture: str) -> tuple[float, float]:
    """Share of the tensor peak that the kernel's class reaches, and the best that any class does on this GPU."""
    term = next((t for t in all_terms(timing) if t.name == "tensor"), None)
    share = next((i.value for i in term.inputs if i.name == "share of peak"), 0.0) if term else 0.0
    if not share or timing.passes != "fwd":
        return 1.0, 1.0
    fused = [c for c in CLASSES.values() if c.name != "unfused"]
    rates = [c.tensor_share[architecture].value for c in fused if architecture in c.tensor_share]
    return share, max(rates, default=share)
