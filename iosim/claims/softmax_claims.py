"""Claims about the softmax and about equality."""

from __future__ import annotations

import numpy as np

from iosim.algorithms.registry import find_algorithm
from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers
from iosim.claims.readings import head
from iosim.interpret.numeric import run as run_numbers
from iosim.problem import TileShape
from iosim.published.later_papers import accesses_per_element
from iosim.theory.softmax import SOFTMAX_COSTS, naive_softmax, safe_softmax

SECTION = "Softmax"


def _passes() -> Numbers:
    """Reads of an element by the counted softmax kernel: a pass reads a row once; one access of all is the write."""
    found = {kind: accesses_per_element(kind) - 1 for kind in ("naive", "safe", "online", "fused")}
    return found | {"naive_accesses": float(SOFTMAX_COSTS["naive"].accesses)}


def _judge_passes(n: Numbers) -> str:
    others = (n["safe"], n["online"], n["fused"]) == (3, 2, 1)
    if not others:
        return FAILS
    return HOLDS if n["naive"] == 3 else CONDITION


def _overflow() -> Numbers:
    scores = np.array([1000.0, 999.0, 998.0])
    return {
        "naive_percent": 100 * float(np.isfinite(naive_softmax(scores)).mean()),
        "safe_percent": 100 * float(np.isfinite(safe_softmax(scores)).mean()),
    }


def _bitwise() -> Numbers:
    problem = head(256, 64)
    random = np.random.default_rng(0)
    names = ("Q", "K", "V")
    inputs = {name: random.standard_normal((1, 1, 256, 64)).astype(np.float32) for name in names}
    out = []
    for name in ("standard", "flash2"):
        chosen = find_algorithm(name)
        program = chosen.program("none", chosen.resolve({}))
        found = run_numbers(program, problem, TileShape(rows=64, cols=64), inputs, dtype=np.float32)
        out.append(found["O"])
    difference = np.abs(out[0].astype(np.float64) - out[1].astype(np.float64))
    return {
        "different_percent": 100 * float((difference > 0).mean()),
        "largest": float(difference.max()),
    }


SOFTMAX_CLAIMS = (
    Claim(
        key="passes",
        section=SECTION,
        sentence="Softmax takes 3 passes naive, 3 safe, 2 online, and 1 inside attention.",
        source="Milakov and Gimelshein 2018",
        command="iosim reproduce --only softmax",
        measure=_passes,
        judge=_judge_passes,
        because="Counted: naive {naive:.0f} passes ({naive_accesses:.0f} accesses an element, hence the "
        "mix-up), safe {safe:.0f}, online {online:.0f}, a row kept on chip {fused:.0f}.",
    ),
    Claim(
        key="safe-overflow",
        section=SECTION,
        sentence="Safe softmax avoids overflow.",
        source="Milakov and Gimelshein 2018",
        command="iosim simulate --algorithm standard --softmax naive",
        measure=_overflow,
        judge=lambda n: HOLDS if n["safe_percent"] == 100 > n["naive_percent"] else FAILS,
        because="Of a row of scores near 1000 the naive softmax gets {naive_percent:.0f} % finite, the safe one "
        "{safe_percent:.0f} %.",
    ),
    Claim(
        key="bitwise",
        section=SECTION,
        sentence="The output is bitwise the same as that of standard attention.",
        source="FlashAttention-3, table 3",
        command="iosim claims --only bitwise",
        measure=_bitwise,
        judge=lambda n: FAILS if n["different_percent"] > 0 else HOLDS,
        because="Both tile programs run in fp32 on the same inputs: {different_percent:.0f} % of the outputs "
        "differ, by at most {largest:.1e}. Equal in real arithmetic, summed in another order.",
    ),
)
