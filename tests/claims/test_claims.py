"""Claims: numbers are computed, verdicts follow from them and from nothing else, and flip when they flip."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from iosim.claims import CLAIMS, VERDICTS, Evidence, check_claims, claims_frame, claims_html, claims_markdown
from iosim.claims.claim import CONDITION, FAILS, HOLDS, UNDECIDED
from iosim.cli import main
from iosim.errors import UsageError

DOC = Path(__file__).resolve().parents[2] / "docs" / "claims.md"
BY_KEY = {claim.key: claim for claim in CLAIMS}

# What each sentence comes to, and numbers with which it would come to something else.
CASES: dict[str, tuple[str, dict[str, float], str]] = {
    "theta": (CONDITION, {"flash_m": -0.5}, FAILS),
    "linear": (CONDITION, {"sram_kib": 1e6}, HOLDS),
    "optimal": (CONDITION, {"below": 0.9}, HOLDS),
    "reduction": (FAILS, {"fused_over_compulsory": 1.5}, CONDITION),
    "block-rule": (CONDITION, {"floors_share": 1.2}, FAILS),
    "block-rule-swapped": (FAILS, {"literal_large": 0.5}, HOLDS),
    "always-wins": (FAILS, {"d256": 3.9}, HOLDS),
    "large-gain": (HOLDS, {"gain": 1.1}, FAILS),
    "only-o-written": (CONDITION, {"flash1_o": 1, "flash1_statistics": 0}, HOLDS),
    "p-not-saved": (HOLDS, {"p_bytes": 8}, FAILS),
    "decode": (FAILS, {"extra_percent": 50}, HOLDS),
    "outer-q": (CONDITION, {"v1_q": 1, "v1_k": 32}, HOLDS),
    "swap-saves-o": (HOLDS, {"total_after": 1e9}, CONDITION),
    "deferred-rescale": (CONDITION, {"dearer_h100": 16.1}, HOLDS),
    "split-q": (HOLDS, {"barriers_after": 9}, CONDITION),
    "recompute": (FAILS, {"more_in_all": 33.3}, HOLDS),
    "fewer-flops": (FAILS, {"more_in_all": -5}, HOLDS),
    "rescale-factor": (CONDITION, {"equal_percent": 0}, HOLDS),
    "passes": (CONDITION, {"naive": 3}, HOLDS),
    "safe-overflow": (HOLDS, {"safe_percent": 0}, FAILS),
    "bitwise": (FAILS, {"different_percent": 0}, HOLDS),
    "sram-20mb": (CONDITION, {"tb_per_s": 33.0}, FAILS),
    "bandwidth-ratios": (CONDITION, {"sram_in_range": 0, "l2_in_range": 0}, FAILS),
    "matrix-sizes": (CONDITION, {"held_bytes": 8}, HOLDS),
    "barely-fits": (FAILS, {"times": 0.9}, HOLDS),
    "fails-at-128k": (CONDITION, {"largest_gb": 50}, HOLDS),
    "two-regimes": (CONDITION, {"ridge": 1000}, FAILS),
    "slowest-level": (CONDITION, {"small_hbm_us": 100}, HOLDS),
    "bandwidth-limits": (FAILS, {"largest_percent": 90}, CONDITION),
    "sparse-linear": (CONDITION, {"unfused": 0.2}, FAILS),
    "block-sparse": (CONDITION, {"half": 2.1, "sixteenth": 3.5}, HOLDS),
    "linear-memory": (HOLDS, {"flash_growth": 4}, FAILS),
    "less-is-faster": (FAILS, {"time": 9.2}, HOLDS),
    "test-of-time": (FAILS, {"age": 10}, CONDITION),
}
BEYOND_BYTES = {"kernel-7.6x", "end-to-end", "bert-15", "gpt2-3x", "lra-2.4x", "path-x"}


@cache
def evidence(key: str) -> Evidence:
    (found,) = check_claims([key])
    return found


def test_every_claim_is_tried_here() -> None:
    assert set(CASES) | BEYOND_BYTES == set(BY_KEY)
    assert len(BY_KEY) == len(CLAIMS)


@pytest.mark.parametrize("key", CASES)
def test_the_verdict_follows_from_the_numbers_and_flips_with_them(key: str) -> None:
    verdict, changed, other = CASES[key]
    found = evidence(key)
    assert found.verdict == verdict
    judge = BY_KEY[key].judge
    assert judge(found.numbers) == verdict
    assert set(changed) <= set(found.numbers)
    assert judge({**found.numbers, **changed}) == other != verdict


@pytest.mark.parametrize("key", sorted(BEYOND_BYTES))
def test_clocks_and_accuracies_are_left_undecided(key: str) -> None:
    assert evidence(key).verdict == UNDECIDED


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.key)
def test_the_reason_is_written_with_the_numbers(claim: Any) -> None:
    found = evidence(claim.key)
    named = {field for _, field, _, _ in Formatter().parse(claim.because) if field}
    assert named <= set(found.numbers)
    assert not any(field in found.text for field in ("{", "}", "nan", "inf "))
    assert claim.source
    assert found.verdict in VERDICTS


# numbers worked out apart ----------------------------------------------------------------------------------


def test_numbers_that_can_be_worked_out_by_hand() -> None:
    assert evidence("always-wins").numbers["d256"] == pytest.approx(12 * 256**2 / 98304, rel=1e-3)
    assert evidence("large-gain").numbers["flash"] == pytest.approx(12 * 64**2 / 51200, rel=1e-3)
    assert evidence("recompute").numbers["more_in_all"] == pytest.approx(100 / 6)  # 7 matmuls against 6
    assert evidence("recompute").numbers["more_in_backward"] == pytest.approx(25)  # 5 against 4
    assert evidence("matrix-sizes").numbers["fp16_128k_gib"] == 32
    assert (
        evidence("only-o-written").numbers["flash1_o"] == 4096 / 128 + 1
    )  # each pass, and the initial zeros
    assert evidence("only-o-written").numbers["flash1_statistics"] == 2 * 4 * 4096 * (2 * 32 + 1)
    assert evidence("decode").numbers["extra_percent"] == pytest.approx(
        100 * 4 * 8192 / (8192 * 256), rel=0.01
    )
    small = evidence("two-regimes").numbers
    assert small["tiny"] == pytest.approx(2 * 128 / 3, rel=0.01)  # only Q, K and V come in, nothing goes out
    assert small["small"] == pytest.approx(2 * 512 / 3, rel=0.01)


# how it is shown -------------------------------------------------------------------------------------------


def test_commands_exist_and_the_quick_ones_run(capsys: pytest.CaptureFixture[str]) -> None:
    for command in dict.fromkeys(claim.command for claim in CLAIMS):
        words = shlex.split(command)
        assert words[0] == "iosim"
        if words[1] in ("bound", "explain", "claims", "reproduce") or "--levels" in words:
            assert main([words[1], "--help"]) == 0, command
        else:
            assert main(words[1:]) == 0, command
    capsys.readouterr()


def test_tables_hold_every_claim_once() -> None:
    found = [evidence(key) for key in ("theta", "matrix-sizes", "path-x")]
    assert list(claims_frame(found)["key"]) == ["theta", "matrix-sizes", "path-x"]
    markdown = claims_markdown(found)
    assert markdown.count("| **") == 3
    assert "## Hardware" in markdown
    html = claims_html(found)
    assert html.count("<tr>") == 4
    assert 'class="verdict-holds-with-a-condition"' in html
    assert "&" not in html.replace("&amp;", "").replace("&gt;", "").replace("&lt;", "").replace("&#x27;", "")


def test_the_page_in_the_docs_says_the_same() -> None:
    text = DOC.read_text(encoding="utf-8")
    for claim in CLAIMS:
        assert f"| {claim.sentence} | **{evidence(claim.key).verdict}** |" in text, claim.key


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown claim 'theat'; known: theta"):
        check_claims(["theat"])


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    run: Callable[[str], int] = lambda words: main(shlex.split(words))  # noqa: E731
    assert run("claims --only always-wins,path-x") == 0
    out = capsys.readouterr().out
    assert "DOES NOT HOLD" in out
    assert "2 claims: 1 does not hold, 1 cannot be decided from bytes" in out
    assert run("claims --only always-wins --format markdown") == 0
    assert capsys.readouterr().out.startswith("## IO")
    assert run("claims --format pdf") == 2
    assert "text, markdown, html" in capsys.readouterr().err
