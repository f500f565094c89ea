"""Claims about speed-ups, training runs, accuracies and an award: most of them beyond what bytes can decide."""

from __future__ import annotations

from iosim.claims.claim import CONDITION, FAILS, HOLDS, Claim, Numbers, undecided
from iosim.claims.readings import MIB, head, run
from iosim.published import select

SECTION = "Speed-ups and fame"


def _less_is_faster() -> Numbers:
    def printed(quantity: str, implementation: str, source: str) -> float:
        (n,) = [
            n for n in select("Figure 2 left", quantity, implementation=implementation) if source in n.source
        ]
        return n.number

    return {
        "bytes": printed("HBM R/W", "standard", "arXiv") / printed("HBM R/W", "flash", "arXiv"),
        "time": printed("runtime", "standard", "arXiv") / printed("runtime", "flash", "arXiv"),
        "time_proceedings": printed("runtime", "standard", "NeurIPS")
        / printed("runtime", "flash", "NeurIPS"),
    }


def _kernel_speed() -> Numbers:
    problem = head(1024, 64, batch=64, heads=16)
    standard = run(problem, "standard").traffic.total_bytes
    flash = run(problem, "flash1", "64x256").traffic.total_bytes
    return {"bytes_ratio": standard / flash, "standard_mib": standard / MIB, "flash_mib": flash / MIB}


def _minutes(text: str) -> float:
    return float(text.partition("+-")[0])


def _bert() -> Numbers:
    old, new = (
        _minutes(n.value)
        for name in ("Nvidia MLPerf1.1", "flash")
        for n in select("Table 1", implementation=name)
    )
    return {"printed_percent": 100 * (old / new - 1)}


def _gpt2() -> Numbers:
    days = {n.implementation: n.number for n in select("Table 2", "training time")}
    return {
        "over_hf": days["HF GPT2-medium"] / days["Flash GPT2-medium"],
        "over_hf_small": days["HF GPT2-small"] / days["Flash GPT2-small"],
        "over_megatron": days["Megatron GPT2-medium"] / days["Flash GPT2-medium"],
    }


def _nothing() -> Numbers:
    return {}


_AWARD_YEAR, _AWARD_AGE, _PAPER_YEAR = 2024, 10, 2022


def _award() -> Numbers:
    return {"age": float(_AWARD_YEAR - _PAPER_YEAR), "needed": float(_AWARD_AGE)}


SPEEDUP_CLAIMS = (
    Claim(
        key="less-is-faster",
        section=SECTION,
        sentence="Nine times less HBM traffic is nine times faster.",
        source="FlashAttention (2022), figure 2, both printings",
        command="iosim reproduce --only figure-2",
        measure=_less_is_faster,
        judge=lambda n: HOLDS if n["time"] >= 0.95 * n["bytes"] else FAILS,
        because="The paper prints {bytes:.1f} times fewer bytes and {time:.1f} times (proceedings: "
        "{time_proceedings:.1f}) less time.",
    ),
    Claim(
        key="kernel-7.6x",
        section=SECTION,
        sentence="The attention of GPT-2 becomes 7.6 times faster.",
        source="FlashAttention (2022), figure 1",
        command="iosim simulate --algorithm standard,flash1 --batch 64 --heads 16 --seq 1K --head-dim 64",
        measure=_kernel_speed,
        judge=undecided,
        because="A time. The forward bytes fall {bytes_ratio:.1f} times ({standard_mib:,.0f} to "
        "{flash_mib:,.0f} MiB at N = 1,024, tile 64x256); dropout and masks of the baseline, and the "
        "clock, make the rest.",
    ),
    Claim(
        key="end-to-end",
        section=SECTION,
        sentence="Models train 2 to 4 times faster end to end.",
        source="FlashAttention (2022), section 4.1",
        command="iosim reproduce --only runtime",
        measure=_gpt2,
        judge=undecided,
        because="That depends on what the rest of the model takes. Printed: {over_megatron:.1f} to "
        "{over_hf_small:.1f} times for GPT-2.",
    ),
    Claim(
        key="bert-15",
        section=SECTION,
        sentence="BERT trains 15 % faster.",
        source="FlashAttention (2022), table 1",
        command="iosim claims --only bert-15",
        measure=_bert,
        judge=undecided,
        because="A training run. The printed minutes differ by {printed_percent:.0f} %.",
    ),
    Claim(
        key="gpt2-3x",
        section=SECTION,
        sentence="GPT-2 trains 3 times faster.",
        source="FlashAttention (2022), table 2",
        command="iosim claims --only gpt2-3x",
        measure=_gpt2,
        judge=undecided,
        because="A training run. Printed days for GPT-2 medium: {over_hf:.1f} times fewer than HuggingFace, "
        "{over_megatron:.1f} times fewer than Megatron.",
    ),
    Claim(
        key="lra-2.4x",
        section=SECTION,
        sentence="Long-range arena runs 2.4 times faster.",
        source="FlashAttention (2022), table 3",
        command="iosim claims --only lra-2.4x",
        measure=_nothing,
        judge=undecided,
        because="A training run of whole models.",
    ),
    Claim(
        key="path-x",
        section=SECTION,
        sentence="Path-X reaches 61.4 % and Path-256 63.1 % accuracy.",
        source="FlashAttention (2022), section 4.2",
        command="iosim claims --only path-x",
        measure=_nothing,
        judge=undecided,
        because="Accuracies of trained models.",
    ),
    Claim(
        key="test-of-time",
        section=SECTION,
        sentence="FlashAttention won the NeurIPS 2024 Test of Time award.",
        source="the award looks back ten years (recalled); FlashAttention is of 2022",
        command="iosim claims --only test-of-time",
        measure=_award,
        judge=lambda n: FAILS if n["age"] < n["needed"] else CONDITION,
        because="The paper was {age:.0f} years old, the award is for papers of about {needed:.0f} years. What "
        "it won is a best paper award of a workshop at ICML 2022.",
    ),
)
