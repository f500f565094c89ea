"""Claims about bytes: the Θ statements, optimality, block rules, what is written."""

from __future__ import annotations

from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers
from iosim.claims.readings import FP16, KIB, head, profile, run, tensor_bytes
from iosim.problem import AttentionProblem
from iosim.scaling import fit_exponents
from iosim.scaling.constants import coefficient_of_n_squared, constants
from iosim.scaling.sentences import FAMOUS_SRAM_BYTES, STANDARD_PASSES
from iosim.theory.bounds import bounds, matmul_bound_bytes
from iosim.theory.closed_forms import closed_form

_DAO = "FlashAttention (2022)"


def _near(value: float, target: float, off: float = 0.05) -> bool:
    return abs(value - target) <= off


def _theta() -> Numbers:
    standard = fit_exponents("standard")[0]
    flash = fit_exponents("flash1")[0]
    N, d = 1 << 16, 128
    matmuls = 2 * matmul_bound_bytes(N * N * d, (FP16, FP16, FP16), d * d // 4 * FP16)
    return {
        "standard_n": standard.exponent_n,
        "standard_m": standard.exponent_m,
        "flash_n": flash.exponent_n,
        "flash_d": flash.exponent_d,
        "flash_m": flash.exponent_m,
        "least_below_d_squared": matmuls / FP16 / N**2,
        "standard_count": float(STANDARD_PASSES),
    }


def _judge_theta(n: Numbers) -> str:
    shapes = _near(n["standard_n"], 2) and _near(n["standard_m"], 0)
    shapes = shapes and _near(n["flash_n"], 2) and _near(n["flash_d"], 2) and _near(n["flash_m"], -1)
    if not shapes:
        return FAILS
    return CONDITION if n["least_below_d_squared"] > n["standard_count"] else HOLDS


def _linear() -> Numbers:
    d, seqs = 128, (1024, 8192)
    moved = []
    for N in seqs:
        record = run(head(N, d), "flash2", sram_bytes=4 * N * d * FP16)
        moved.append(record.traffic.total_bytes / (N * d * FP16))
    return {
        "growth": moved[1] / moved[0],
        "needed_kib": 4 * seqs[1] * d * FP16 / KIB,
        "sram_kib": profile("h100-sxm").sram_per_block_bytes / KIB,
    }


def _judge_linear(n: Numbers) -> str:
    if not _near(n["growth"], 1, 0.1):
        return FAILS
    return CONDITION if n["needed_kib"] > n["sram_kib"] else HOLDS


def _optimal() -> Numbers:
    small, d = head(2048, 512), 512
    M = d * d // 16 * FP16
    flash = run(small, "flash2", sram_bytes=M, granularity=1).traffic.total_bytes
    blocked = run(small, "small_cache", sram_bytes=M).traffic.total_bytes
    large = run(head(1 << 17, 64), "flash2", sram_bytes=64 * KIB)
    return {
        "below": flash / blocked,
        "above": large.traffic.total_bytes / large.theory.lower_bound_bytes,
    }


def _judge_optimal(n: Numbers) -> str:
    if n["above"] > 4:
        return FAILS
    return CONDITION if n["below"] > 1 else HOLDS


def _reduction() -> Numbers:
    problem = head(4096, 128)
    M = problem.seq_q * problem.head_dim * FP16
    found = {b.name: b.bytes or 0 for b in bounds(problem, M, spills_scores=False)}
    return {"fused_over_compulsory": found["fused"] / found["compulsory"]}


def _rule() -> Numbers:
    problem, M = head(8192, 64), 20_000
    paper = run(problem, "flash1", "paper", M)
    literal = run(problem, "flash1", "paper-literal", M)
    found = {c.tiles: c.value for c in constants(("flash1",))}
    return {
        "floors_share": paper.sram.live_bytes / M,
        "ceilings_share": literal.sram.live_bytes / M,
        "paper_constant": found["paper"],
        "best_constant": found["best"],
    }


def _judge_rule(n: Numbers) -> str:
    if n["floors_share"] > 1:
        return FAILS
    good = n["ceilings_share"] <= 1 and n["paper_constant"] <= 1.1 * n["best_constant"]
    return HOLDS if good else CONDITION


def _swapped() -> Numbers:
    d = 64
    small, large = 8 * d * d, 32 * d * d
    at = {
        (rule, M): coefficient_of_n_squared("flash2", rule, d, M)
        for rule in ("paper-literal", "paper")
        for M in (small, large)
    }
    return {
        "literal_small": at["paper-literal", small],
        "literal_large": at["paper-literal", large],
        "swapped_small": at["paper", small],
        "swapped_large": at["paper", large],
    }


def _judge_swapped(n: Numbers) -> str:
    return FAILS if n["literal_large"] > 0.9 * n["literal_small"] else HOLDS


def _always() -> Numbers:
    M = FAMOUS_SRAM_BYTES // FP16
    return {f"d{d}": coefficient_of_n_squared("flash1", "paper", d, M) for d in (64, 128, 256)} | {
        "standard": float(STANDARD_PASSES)
    }


def _judge_always(n: Numbers) -> str:
    worst = max(n[f"d{d}"] for d in (64, 128, 256))
    return FAILS if worst > n["standard"] else HOLDS


def _large_gain() -> Numbers:
    flash = coefficient_of_n_squared("flash1", "paper", 64, 100 * KIB // FP16)
    return {"flash": flash, "standard": float(STANDARD_PASSES), "gain": STANDARD_PASSES / flash}


def _written() -> Numbers:
    problem = head(4096, 128)
    one, two = (run(problem, name, "128x128") for name in ("flash1", "flash2"))
    o = problem.seq_q * problem.value_dim * FP16
    return {
        "flash1_o": tensor_bytes(one, "O")[1] / o,
        "flash2_o": tensor_bytes(two, "O")[1] / o,
        "flash1_statistics": float(sum(sum(tensor_bytes(one, t)) for t in ("M", "L"))),
        "flash2_statistics": float(sum(sum(tensor_bytes(two, t)) for t in ("M", "L"))),
    }


def _judge_written(n: Numbers) -> str:
    two = n["flash2_o"] == 1 and n["flash2_statistics"] == 0
    one = n["flash1_o"] == 1 and n["flash1_statistics"] == 0
    return HOLDS if one and two else CONDITION if two else FAILS


def _p_saved() -> Numbers:
    problem = head(4096, 128)
    flash = run(problem, "flash2", "64x64", options={"pass": "fwd+bwd"})
    standard = run(problem, "standard", options={"pass": "fwd+bwd"})
    return {
        "p_bytes": float(sum(tensor_bytes(flash, "P"))),
        "standard_p_bytes": float(sum(tensor_bytes(standard, "P"))),
        "matmuls": float(flash.notes["pass"]["matmuls"]),
        "recomputed": float(flash.notes["pass"]["recomputed_matmuls"]),
    }


def _decode() -> Numbers:
    problem = AttentionProblem.of(seq_q=1, seq_k=8192, head_dim=128)
    standard = closed_form("standard", problem, None)
    assert standard is not None
    fused = run(problem, "flash2").traffic.total_bytes
    return {"extra_percent": 100 * (standard.total_bytes / fused - 1)}


SECTION = "IO"
IO_CLAIMS = (
    Claim(
        key="theta",
        section=SECTION,
        sentence="Standard attention moves Θ(Nd + N²), FlashAttention Θ(N²d²/M).",
        source=f"{_DAO}, theorem 2",
        command="iosim bound --hw a100-sxm-80gb",
        measure=_theta,
        judge=_judge_theta,
        because="Counted: standard N^{standard_n:.2f} M^{standard_m:.2f}, FlashAttention-1 N^{flash_n:.2f} "
        "d^{flash_d:.2f} M^{flash_m:.2f}. For M of order d² and above only: at M = d²/4 the two "
        "matmuls alone need {least_below_d_squared:.1f} N² elements, more than the "
        "{standard_count:.0f} N² of the ideal count.",
    ),
    Claim(
        key="linear",
        section=SECTION,
        sentence="With M = Θ(Nd) the traffic is linear in N.",
        source=f"{_DAO}, section 3.2",
        command="iosim simulate --seq 8192 --sram 8MiB",
        measure=_linear,
        judge=_judge_linear,
        because="With M = 4Nd, bytes over Nd change by a factor of {growth:.2f} from N = 1,024 to 8,192. But "
        "that takes {needed_kib:,.0f} KiB a thread block, and an H100 has {sram_kib:.0f}: M does not "
        "grow with N.",
    ),
    Claim(
        key="optimal",
        section=SECTION,
        sentence="FlashAttention is IO-optimal for all M.",
        source="Saha and Ye 2024; FlashAttention, proposition 3",
        command="iosim simulate --algorithm flash2,small_cache --seq 2048 --head-dim 512 --sram 32KiB --granularity 1",
        measure=_optimal,
        judge=_judge_optimal,
        because="For M >= d²: at d = 64 and 64 KiB it is within {above:.2f} times the lower bound. Below, at "
        "M = d²/16, it moves {below:.2f} times what blocked matmuls with S in memory do.",
    ),
    Claim(
        key="reduction",
        section=SECTION,
        sentence="The lower bound is proved by reduction from matrix multiplication.",
        source="FlashAttention, proposition 3; Saha and Ye 2024",
        command="iosim simulate --seq 4096 --sram 1MiB",
        measure=_reduction,
        judge=lambda n: FAILS if n["fused_over_compulsory"] <= 1 else CONDITION,
        because="Proposition 3 looks at M = Nd alone, where reading inputs and writing outputs already gives "
        "Nd: there the N²d²/M bound is {fused_over_compulsory:.2f} of the compulsory bytes. The "
        "matmul argument belongs to M < d²; above, the proof is a compression argument.",
    ),
    Claim(
        key="block-rule",
        section=SECTION,
        sentence="Bc = M/4d and Br = min(M/4d, d) is the right block size.",
        source=f"{_DAO}, algorithm 1, line 1",
        command="iosim simulate --algorithm flash1 --tiles paper --seq 8192 --head-dim 64 --sram 20000B",
        measure=_rule,
        judge=_judge_rule,
        because="With floors the tiles take {floors_share:.3f} of M, with the printed ceilings "
        "{ceilings_share:.3f}. The constant is {paper_constant:.1f} N²d²/M, where the best tile gives "
        "{best_constant:.1f}.",
    ),
    Claim(
        key="block-rule-swapped",
        section=SECTION,
        sentence="The same rule serves FlashAttention-2, whose loops are swapped.",
        source=f"{_DAO}, algorithm 1; FlashAttention-2, algorithm 1",
        command="iosim simulate --algorithm flash2 --tiles paper-literal --head-dim 64 --sram 131072el",
        measure=_swapped,
        judge=_judge_swapped,
        because="As printed, Br stays at d: {literal_small:.2f} N² elements at M = 8d² and "
        "{literal_large:.2f} N² at 32d². With the roles swapped too, {swapped_small:.2f} and "
        "{swapped_large:.2f}.",
    ),
    Claim(
        key="always-wins",
        section=SECTION,
        sentence="d² is much smaller than M, so FlashAttention always moves less.",
        source=f"{_DAO}, section 3.2",
        command="iosim simulate --algorithm standard,flash1 --tiles paper --head-dim 256 --sram 192KiB",
        measure=_always,
        judge=_judge_always,
        because="At 192 KiB in fp16 FlashAttention-1 moves {d64:.2f} N² at d = 64, {d128:.2f} N² at 128 and "
        "{d256:.2f} N² at 256; standard attention {standard:.0f} N² at all three.",
    ),
    Claim(
        key="large-gain",
        section=SECTION,
        sentence="At d = 64 and 100 KB a block the gain is large.",
        source=f"{_DAO}, section 3.2",
        command="iosim simulate --algorithm standard,flash1 --tiles paper --head-dim 64 --sram 100KiB",
        measure=_large_gain,
        judge=lambda n: HOLDS if n["gain"] >= 2 else FAILS,
        because="{flash:.2f} N² elements against {standard:.0f} N²: {gain:.1f} times less.",
    ),
    Claim(
        key="only-o-written",
        section=SECTION,
        sentence="Only O is written; m and l never leave the chip.",
        source="FlashAttention, algorithm 1; FlashAttention-2, algorithm 1",
        command="iosim simulate --algorithm flash1,flash2 --tiles 128x128 --seq 4096",
        measure=_written,
        judge=_judge_written,
        because="FlashAttention-2 forward: O written {flash2_o:.0f} time, {flash2_statistics:,.0f} B of m and "
        "l. Version 1 writes O {flash1_o:.0f} times and moves {flash1_statistics:,.0f} B of m and l "
        "(N = 4,096, 128 x 128).",
    ),
    Claim(
        key="p-not-saved",
        section=SECTION,
        sentence="P need not be saved for the backward pass.",
        source=f"{_DAO}, section 3.1",
        command="iosim simulate --algorithm standard,flash2 --pass fwd+bwd --seq 4096",
        measure=_p_saved,
        judge=lambda n: HOLDS if n["p_bytes"] == 0 and n["recomputed"] >= 1 else FAILS,
        because="Forward and backward of FlashAttention-2 move {p_bytes:.0f} B of P (standard: "
        "{standard_p_bytes:,.0f} B); {recomputed:.0f} of its {matmuls:.0f} matmuls computes S again.",
    ),
    Claim(
        key="decode",
        section=SECTION,
        sentence="Decoding needs FlashAttention to cut its IO.",
        source="counts",
        command="iosim simulate --algorithm standard,flash2 --seq-q 1 --seq-k 8192",
        measure=_decode,
        judge=lambda n: HOLDS if n["extra_percent"] > 20 else FAILS,
        because="With one query, S and P in memory add {extra_percent:.1f} % to the reading of K and V.",
    ),
)
