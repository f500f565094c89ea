"""The bound studied with the algorithms' own options: the backward above all."""

from __future__ import annotations

import pytest

from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.grid import Grid
from iosim.hardware import load_profile
from iosim.plots.bound import gap_by_sram, traffic_by_sram
from iosim.plots.style import SCREEN
from iosim.problem import AttentionProblem
from iosim.scaling import BoundStudy, Laws, study_bound
from iosim.scaling.constants import coefficient_of_n_squared, constants
from iosim.scaling.exponents import fit_exponents
from iosim.scaling.passes import sweep_passes
from iosim.scaling.studied_options import with_settled_splits
from iosim.scaling.study import find_laws
from iosim.scaling.traffic import ALIKE, bound_lines, shape_lines
from iosim.theory.backward_bounds import backward_bounds, both_bounds

PROBLEM = AttentionProblem.of(seq=1024, head_dim=64)
BACKWARD = {name: {"pass": "bwd"} for name in ("standard", "flash1", "flash2")}
GPU = load_profile("a100-sxm-80gb")


@pytest.fixture(scope="module")
def laws() -> Laws:
    return find_laws(options=BACKWARD)


@pytest.fixture(scope="module")
def study(laws: Laws) -> BoundStudy:
    return study_bound(PROBLEM, GPU, laws=laws, options=BACKWARD)


def test_constants_are_those_of_the_printed_algorithms(laws: Laws) -> None:
    """Tc = N/Bc passes, Bc = M/8d (eight tiles on chip): 5 Tc Nd is 40 N²d²/M, 4 Tc Nd is 32."""
    found = {(c.algorithm, c.tiles): c.value for c in laws.constants}
    assert found[("flash1", "paper")] == pytest.approx(40, rel=0.01)
    assert found[("flash2", "paper")] == pytest.approx(32, rel=0.01)
    assert set(found) == {(a, t) for a in ("flash1", "flash2") for t in ("paper", "best")}


def test_exponents_of_the_backward(laws: Laws) -> None:
    matrices = {f.algorithm: f for f in laws.fits if f.series == "matrix elements"}
    assert set(matrices) == {"standard", "flash1", "flash2"}  # small_cache and gemm have no backward
    for name in ("flash1", "flash2"):
        fit = matrices[name]
        assert (fit.exponent_n, fit.exponent_d, fit.exponent_m) == pytest.approx((2, 2, -1), abs=0.02)


def test_standard_moves_seven_n_squared() -> None:
    assert coefficient_of_n_squared("standard", "best", 64, 4096, BACKWARD) == pytest.approx(7, abs=0.01)


def test_gaps_are_to_the_bounds_of_the_backward(study: BoundStudy) -> None:
    assert study.under_a_bound == 0
    assert set(study.gaps["algorithm"]) == {"standard", "flash1", "flash2"}
    rows = study.by_sram[(study.by_sram["algorithm"] == "flash2") & (study.by_sram["tiles"] == "best")]
    for M in (1 << 14, GPU.sram_per_block_bytes):
        (row,) = rows[rows["sram_bytes"] == M].to_dict("records")
        found = backward_bounds(PROBLEM, M, spills_scores=False)
        assert row["lower_bound_bytes"] == max(b.bytes for b in found if b.valid and b.bytes is not None)
        record = analyze(
            PROBLEM, "flash2", options={"pass": "bwd"}, sram_bytes=M, granularity=int(row["granularity"])
        )
        assert row["sm_bytes"] == record.traffic.total_bytes


def test_lines_are_those_of_the_pass() -> None:
    M = 1 << 15
    for which, of_pass in (("bwd", backward_bounds), ("fwd+bwd", both_bounds)):
        drawn = bound_lines(PROBLEM, [M], which).set_index("bound")["bytes"]
        fused = next(b for b in of_pass(PROBLEM, M, spills_scores=False) if b.name == "fused")
        matmul = next(b for b in of_pass(PROBLEM, M, spills_scores=True) if b.name == "matmul")
        assert (drawn["fused bound"], drawn["matmul bound"]) == (fused.bytes, matmul.bytes)
    (source,) = shape_lines(PROBLEM, [M], "bwd")["source"]
    assert source.startswith("Li et al. 2024")
    assert source not in set(shape_lines(PROBLEM, [M])["source"])
    assert shape_lines(PROBLEM, [M], "fwd+bwd").empty


def test_figures_and_answers_say_what_is_counted(study: BoundStudy) -> None:
    text = "pass=bwd (standard, flash1, flash2)"
    assert study.sentences[0] == f"Everything here is counted with {text}."
    assert study.to_dict()["options"] == BACKWARD
    assert any("standard attention 7 N²" in sentence for sentence in study.sentences)
    for plot in (traffic_by_sram(study, SCREEN), gap_by_sram(study, SCREEN)):
        assert plot.caption.endswith(f"Counted with {text}.")
        assert any("pass=bwd" in words.get_text() for words in plot.figure.texts)
        assert "small_cache is drawn" not in plot.caption


def test_an_option_reaches_only_its_algorithm() -> None:
    plain, safe = (
        coefficient_of_n_squared("standard", "best", 64, 4096, o)
        for o in ({}, {"standard": {"softmax": "safe"}})
    )
    assert safe == pytest.approx(plain + 2, abs=0.01)  # two more readings of S than the fused softmax
    lse = {"flash2": {"lse": "on"}}
    assert constants(("flash1",), ("paper",), lse) == constants(("flash1",), ("paper",))
    (_, statistics) = fit_exponents("flash2", options=lse["flash2"])
    assert (statistics.exponent_n, statistics.exponent_d) == pytest.approx((1, 0), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "also", "says"),
    [
        (BACKWARD, ("decode",), "decode has a forward pass only"),
        ({"flash2": {"pass": "bwd", "bias": "alibi"}}, (), "bias belongs to the forward pass alone"),
    ],
)
def test_what_cannot_be_studied_is_said_first(
    options: dict[str, dict[str, str]], also: tuple[str, ...], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        study_bound(PROBLEM, GPU, options=options, also=also)


def test_best_splits_are_found_once_and_studied_as_a_number() -> None:
    step = AttentionProblem.of(seq_q=1, seq_k=2048, heads=8, kv_heads=2, head_dim=64)
    best = {"decode": {"splits": "best"}}
    number = analyze(step, "decode", profile=GPU, options=best["decode"]).options["splits"]
    M = GPU.sram_per_block_bytes
    assert int(number) > 1
    assert with_settled_splits(step, GPU, M, best, ALIKE) == {"decode": {"splits": number}}
    with pytest.raises(UsageError, match="a law needs a number"):
        find_laws(("decode",), best)


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_two_passes_with_one_tile_are_the_run_of_both(name: str) -> None:
    grid = Grid(
        algorithm=(name,),
        seq=(300, 512),
        head_dim=(64,),
        tiles=("64x32",),
        options={name: {"pass": "fwd+bwd"}},
    )
    for row in sweep_passes(grid).to_dict("records"):
        problem = AttentionProblem.of(seq=int(row["seq_q"]), head_dim=64)
        record = analyze(problem, name, tiles="64x32", options={"pass": "fwd+bwd"})
        assert row["sm_read_bytes"] + row["sm_write_bytes"] == record.traffic.total_bytes
        assert row["executed_flops"] == record.work.executed_flops
        assert row["closed_form_bytes"] == record.theory.closed_form_bytes
        assert row.get("LSE_write_bytes", 0) == 4 * problem.seq_q * (name == "flash2")
        assert row["sram_live_bytes"] == record.sram.live_bytes
        assert row["lower_bound_bytes"] >= record.theory.lower_bound_bytes
        assert row["backward_tile_rows"] == row["tile_rows"] == 64


def test_the_constant_of_both_passes_is_that_of_one_plus_that_of_the_other() -> None:
    # with one tile for both it was no constant: 48 to 544 with the paper's, whose rows stay at d in a backward
    forward, backward, both = (
        {(c.algorithm, c.tiles): c for c in constants(options={n: {"pass": p} for n in ("flash1", "flash2")})}
        for p in ("fwd", "bwd", "fwd+bwd")
    )
    for key, constant in both.items():
        assert constant.value == pytest.approx(forward[key].value + backward[key].value, rel=1e-12)
        assert constant.largest < 1.02 * constant.value
    assert both["flash2", "paper"].value == pytest.approx(8 + 32, rel=1e-3)


def test_a_tile_that_serves_both_passes_by_the_papers_rule_is_remarked_on() -> None:
    for passes, said in (("fwd", False), ("bwd", False), ("fwd+bwd", True)):
        record = analyze(PROBLEM, "flash2", tiles="paper", options={"pass": passes})
        assert any("one tile serves both passes" in w for w in record.warnings) == said
