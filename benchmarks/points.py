"""How long a single point of any family takes at N = 131,072, best-tile search included where tiles are searched.

    python -m benchmarks.points [SLOWEST]

Prints the slowest points (20 unless told), in milliseconds of processor time at the first call once imported, and below
them the finest search: granularity 1 at 1M tokens. A minute or two.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.problem import AttentionProblem

SEQ, LONG = 131_072, 1 << 20
LIMIT_MS = 100
MASKS = ("none", "causal", "window:4096", "prefix:4096")
BLOCKS = ("local:4+global:1", "strided:7", "butterfly", "random:0.1")
PASSES = ("fwd", "bwd", "fwd+bwd")
SEARCHED: tuple[tuple[str, dict[str, str]], ...] = (
    *((name, {"pass": p}) for name in ("standard", "flash1", "flash2") for p in PASSES),
    ("flash1", {"variant": "skip-first-read"}),
    ("flash2", {"page": "16"}),
    ("flash2", {"bias": "matrix"}),
    *((name, {}) for name in ("seed_flash", "small_cache", "masked_standard", "online_attention", "linear")),
)
Case = tuple[str, AttentionProblem, dict[str, str], str]


def cases() -> Iterator[Case]:
    """Every family: searched tiles under every mask, a million blocks, decode steps and latent attention."""
    for width in (64, 128):
        for mask in MASKS:
            problem = AttentionProblem.of(seq=SEQ, head_dim=width, mask=mask)
            for name, options in SEARCHED:
                yield name, problem, options, "best"
            for passes in PASSES:
                for pattern in BLOCKS:
                    tile = "128x128" if passes == "fwd" else "128x64"  # one and two million blocks
                    for name in ("flash1", "flash2"):
                        yield name, problem, {"pass": passes, "block-mask": pattern}, tile
            few = AttentionProblem.of(heads=32, kv_heads=8, seq_q=512, seq_k=SEQ, head_dim=width, mask=mask)
            step = AttentionProblem.of(heads=32, kv_heads=8, seq_q=1, seq_k=SEQ, head_dim=width, mask=mask)
            for own in (few, step):
                yield "decode", own, {"splits": "best"}, "best"
                yield "decode", own, {"splits": "8", "page": "16"}, "best"
    latent = AttentionProblem.of(
        heads=128, kv_heads=1, seq_q=1, seq_k=SEQ, head_dim=576, value_dim=512, dtype_v="fp16"
    )
    yield "mla", latent, {"splits": "8"}, "best"


def main(arguments: Sequence[str]) -> None:
    """Time every case once."""
    gpu = load_profile("h100-sxm")
    analyze(AttentionProblem.of(seq=64, head_dim=16), profile=gpu)  # imports
    found: list[tuple[float, str]] = []
    for name, problem, options, tiles in cases():
        started = time.process_time()
        try:
            analyze(problem, name, options=options, tiles=tiles, profile=gpu)
        except UsageError:  # no tile fits, or the algorithm has no such mask
            continue
        spent = 1e3 * (time.process_time() - started)
        own = " ".join(f"{k}={v}" for k, v in options.items())
        found.append((spent, f"{name} {own} d={problem.head_dim} mask {problem.mask} {tiles}"))
    found.sort(reverse=True)
    for spent, text in found[: int(arguments[0]) if arguments else 20]:
        print(f"{spent:7.1f} ms  {text}")
    over = sum(spent > LIMIT_MS for spent, _ in found)
    print(f"{len(found)} points, {over} above {LIMIT_MS} ms")
    for mask in MASKS[1:]:
        for name in ("flash1", "flash2"):
            problem = AttentionProblem.of(seq=LONG, head_dim=64, mask=mask)
            started = time.process_time()
            analyze(problem, name, profile=gpu, granularity=1)
            print(f"{time.process_time() - started:7.2f} s   {name} 1M tokens, granularity 1, mask {mask}")


if __name__ == "__main__":
    main(sys.argv[1:])
