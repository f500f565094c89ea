"""A report with the algorithms' own options: every number in it is of those programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iosim.algorithms.registry import ALGORITHMS
from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.hardware import load_profile
from iosim.plots.style import PAPER
from iosim.problem import AttentionProblem
from iosim.ragged import analyze_ragged
from iosim.report import Report, build_report, workload_text
from iosim.report.answers import law_answer
from iosim.scaling import Lengths

PROBLEM = AttentionProblem.of(seq=512, heads=2, head_dim=64)
BACKWARD = {name: {"pass": "bwd"} for name in ("standard", "flash1", "flash2")}
TEXT = "pass=bwd (standard, flash1, flash2)"


@pytest.fixture(scope="module")
def report() -> Report:
    return build_report(PROBLEM, ["h200-sxm"], PAPER, options=BACKWARD)


def test_the_records_are_of_the_backward(report: Report) -> None:
    (part,) = report.parts
    assert [r.algorithm for r in part.records] == ["standard", "flash1", "flash2"]
    for record in part.records:
        alone = analyze(PROBLEM, record.algorithm, profile="h200-sxm", options={"pass": "bwd"})
        assert record.to_dict() == alone.to_dict()
    assert {t.tensor for t in part.records[2].traffic_by_tensor} >= {"dQ", "dK", "dV"}


def test_tiles_levels_and_study_too(report: Report) -> None:
    (part,) = report.parts
    moved = part.tiles.set_index(["algorithm", "tiles", "footprint"])["sm_bytes"]
    alone = analyze(PROBLEM, "flash2", profile="h200-sxm", options={"pass": "bwd"}, tiles="paper")
    assert moved["flash2", "paper", "paper"] == alone.traffic.total_bytes
    by_name = {r.algorithm: r.traffic for r in part.records}
    for row in part.levels.to_dict("records"):
        assert row["sm_read_bytes"] == by_name[row["algorithm"]].sm_read_bytes
    assert part.study.under_a_bound == 0
    assert part.study.options == BACKWARD


def test_it_says_so_first(report: Report) -> None:
    assert report.answers[0] == f"Everything here is counted with {TEXT}."
    assert report.workload.endswith(f"; {TEXT}")
    assert report.to_dict()["options"] == BACKWARD
    assert workload_text(PROBLEM) == report.workload.removesuffix(f"; {TEXT}")


def test_a_law_that_does_not_hold_is_not_claimed(report: Report) -> None:
    def claim(exponent_m: float) -> str:
        fits = tuple(replace(fit, exponent_m=exponent_m) for fit in report.laws.fits)
        return law_answer(replace(report.laws, fits=fits))

    assert claim(-1.0).startswith("Traffic does fall")
    assert claim(-0.26).startswith("Traffic does not fall")  # as with a bias matrix, read with every tile


def test_an_option_that_cannot_work_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mask.npy"
    np.save(path, np.ones((2, 2), dtype=bool))
    with pytest.raises(UsageError, match="a file has the blocks of one tile"):
        build_report(PROBLEM, ["h200-sxm"], PAPER, options={"flash2": {"block-mask": str(path)}})


def test_a_block_mask_reaches_the_records_and_the_bound_of_a_report() -> None:
    own = {"flash2": {"block-mask": "local:2"}}
    done = build_report(PROBLEM, ["h200-sxm"], PAPER, options=own)
    (part,) = done.parts
    alone = analyze(PROBLEM, "flash2", profile="h200-sxm", options=own["flash2"])
    assert next(r for r in part.records if r.algorithm == "flash2").traffic == alone.traffic
    assert any("At density s of blocks" in sentence for sentence in part.study.sentences)
    assert part.study.under_a_bound == 0


def test_a_report_of_a_ragged_batch_has_bytes_levels_and_bounds_and_says_why_no_times() -> None:
    lengths = (300, 37, 512)
    padded = AttentionProblem.of(batch=3, seq=512, heads=2, head_dim=64)
    done = build_report(padded, ["h200-sxm"], PAPER, batch=Lengths(seq_lens=lengths))
    (part,) = done.parts
    record = next(r for r in part.records if r.algorithm == "flash2")
    run = analyze_ragged(
        padded, lengths, ALGORITHMS["flash2"], tiles="best", profile=load_profile("h200-sxm"), options={}
    )
    assert record.traffic == run.traffic
    assert set(part.levels["algorithm"]) == {"flash1", "flash2"}
    assert part.levels.set_index("algorithm")["sm_read_bytes"]["flash2"] == run.traffic.sm_read_bytes
    assert (part.gap, part.memory, part.times.timings) == (None, (), ())
    assert "no time is predicted: Kernels for sequences of different lengths" in done.answers[0]
    tokens_bytes = 849 * 2 * 64 * 2  # of Q, K or V: two heads, 64 columns of 16 bits
    pairs = sum(n * n for n in lengths) * 2
    gpu = load_profile("h200-sxm")
    assert part.times.bound is not None
    terms = {term.name: term.seconds for term in part.times.bound.terms}
    assert terms["HBM"] == pytest.approx(3 * tokens_bytes / gpu.hbm_bandwidth_bytes_per_s)
    assert terms["special functions"] == pytest.approx(pairs / (16 * 132 * 1.98e9))
    assert "The least that any kernel needs on h200-sxm is" in done.answers[1]
    assert "3 sequences of 37 to 512 keys, 2 heads, 849 tokens" in done.workload
    assert done.to_dict()["seq_lens"] == list(lengths)
    assert "memory" not in {section.key for section in done.sections}


def test_further_algorithms_are_counted_studied_and_told_apart() -> None:
    step = AttentionProblem.of(seq_q=1, seq_k=2048, heads=8, kv_heads=2, head_dim=64)
    whole = build_report(
        step, ["h200-sxm"], PAPER, options={"decode": {"splits": "best"}}, also=("decode", "linear")
    )
    (part,) = whole.parts
    found = {r.algorithm: r for r in part.records}
    alone = analyze(step, "decode", profile="h200-sxm", options={"splits": "best"})
    assert found["decode"].traffic == alone.traffic
    assert found["linear"].traffic == analyze(step, "linear", profile="h200-sxm").traffic
    assert f"splits={alone.options['splits']} (decode)" in whole.workload
    assert {"decode", "linear"} <= set(part.study.by_sram["algorithm"])
    assert {"decode", "linear"} <= {fit.algorithm for fit in whole.laws.fits}
    assert list(part.levels["algorithm"]) == ["flash1", "flash2", "decode", "linear"]
    assert part.times.timings  # splits are not an option of the library kernels
