"""The waterfall: steps add up, amounts up to the SMs are counted, measured rows end at the audit's numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.algorithms.registry import ALGORITHMS, find_algorithm
from iosim.analysis import analyze
from iosim.audit.measurements import MeasuredRow, MeasurementFile, read_measurements
from iosim.audit.predict import predict
from iosim.errors import UsageError
from iosim.gap import Gap, gap, gap_of_rows, rows_of_case
from iosim.gap.law import find_law
from iosim.gap.record import Ladder
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.problem import AttentionProblem, TileShape

H200 = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200" / "attention.csv"


@pytest.fixture(scope="module")
def measurements() -> MeasurementFile:
    return read_measurements(H200)


def assert_telescopes(found: Gap) -> None:
    level = 0
    for entry in found.entries:
        if entry.kind == "total" and level:
            assert entry.bytes == level, entry.name
        level = entry.bytes if entry.kind == "total" else level + entry.bytes
        assert entry.after_bytes == level, entry.name


shapes = st.builds(
    lambda n, extra, d, heads, group, mask: AttentionProblem.of(
        seq_q=n, seq_k=n + extra, head_dim=d, heads=heads * group, kv_heads=heads, mask=mask
    ),
    st.integers(1, 3000),
    st.integers(0, 700),
    st.sampled_from([16, 40, 64, 128]),
    st.integers(1, 3),
    st.sampled_from([1, 4]),
    st.sampled_from(["none", "causal", "window:100"]),
)


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from(["flash1", "flash2", "seed_flash", "standard"]))
def test_the_exact_part_adds_up_to_the_count_and_starts_at_the_compulsory_bytes(
    problem: AttentionProblem, algorithm: str
) -> None:
    found = gap(problem, algorithm, levels=False)
    assert_telescopes(found)
    record = analyze(problem, algorithm, footprint_model="kernel", tiles="best")
    assert found.entry("sm").bytes == record.traffic.total_bytes
    assert found.entry("compulsory").bytes == record.theory.compulsory_bytes
    # a run by footprint "kernel" may keep O in registers, so its bounds allow M that much more
    assert found.entry("bound").after_bytes >= record.theory.lower_bound_bytes
    assert found.entry("loop_order").bytes >= 0  # no law lies under a valid bound
    assert found.entry("bound").bytes >= 0


def test_whole_tiles_without_a_mask_lose_nothing_at_the_edges() -> None:
    found = gap(AttentionProblem.of(seq=4096, head_dim=64), "flash2", tiles="128x64", levels=False)
    assert found.entry("edges").bytes == 0


def test_a_causal_diagonal_costs_the_masked_half_of_each_row_tile() -> None:
    N, d, Br = 4096, 64, 128
    found = gap(
        AttentionProblem.of(seq=N, head_dim=d, mask="causal"), "flash2", tiles=f"{Br}x64", levels=False
    )
    # row tile i reads (i+1)·Br keys; its pairs need (i·Br + (Br+1)/2) of them a row: (Br−1)/2 too many, N/Br times
    too_many_rows = (Br - 1) * (N // Br) // 2
    assert found.entry("edges").bytes == too_many_rows * 2 * d * 2


def test_a_ragged_last_row_tile_costs_the_part_of_a_pass_that_it_lacks() -> None:
    N, d, Br = 1000, 64, 128  # 7.8125 row tiles, counted as 8
    found = gap(AttentionProblem.of(seq=N, head_dim=d), "flash2", tiles=f"{Br}x8", levels=False)
    assert found.entry("edges").bytes == (8 * Br - N) * N * 4 * d // Br


def test_loop_order_alone_is_worth_half_of_flash1() -> None:
    problem = AttentionProblem.of(seq=1 << 17, head_dim=64)
    one, two = (
        gap(problem, name, levels=False).entry("loop_order").after_bytes for name in ("flash1", "flash2")
    )
    # 6 N²d²/M elements of 2 bytes against 4; and beside each 3d of them flash1 reads and writes m and l, 16 bytes
    assert one / two == pytest.approx(1.5 * (1 + 16 / (3 * 64 * 2)), rel=0.005)


def test_the_best_tile_on_paper_is_not_beaten_by_one_that_fits() -> None:
    for name in ("flash1", "flash2"):
        for sram_bytes in (65536, 100_000, 232_448):
            problem = AttentionProblem.of(seq=5000, head_dim=64, mask="causal")
            found = gap(problem, name, sram_bytes=sram_bytes, footprint_model="paper", levels=False)
            assert found.entry("tile").bytes >= 0


@pytest.mark.parametrize("name", [n for n, a in ALGORITHMS.items() if a.computes == "attention"])
@pytest.mark.parametrize("tile", [TileShape(rows=8, cols=4), TileShape(rows=3, cols=7)])
def test_the_law_of_every_algorithm_gives_back_its_counts(name: str, tile: TileShape) -> None:
    algorithm = find_algorithm(name)
    options = algorithm.resolve({"softmax": "safe"} if name == "standard" else {})
    problem = AttentionProblem.of(
        seq_q=tile.rows * 6, seq_k=tile.cols * 10, head_dim=8, value_dim=16, heads=2
    )
    law = find_law(algorithm, problem, options, tile)
    assert law is not None
    counted = analyze(problem, algorithm, tiles=tile, options=options, granularity=1).traffic.total_bytes
    assert law.bytes_at(problem.seq_q, problem.seq_k, problem.pairs) == counted


def test_a_program_without_a_law_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(
        "def program(p):\n"
        "    Q, K, O = p.tensors('Q K O')\n"
        "    for i in p.blocks(Q):\n"
        "        q = p.load('Q_i', Q.tile(i))\n"
        "        for j in p.loop('j', *p.key_tiles(q.rows)):\n"
        "            for h in p.loop('h', *p.key_tiles(q.rows)):\n"  # quadratic in the key tiles
        "                k = p.load('K_h', K.tile(h))\n"
        "        p.store(O.tile(i), p.fill('O_i', 0, q.rows, O.tile(i).cols, of=O))\n"
    )
    found = gap(AttentionProblem.of(seq=640, head_dim=64), f"{file}:program", tiles="64x64", levels=False)
    assert_telescopes(found)
    assert "no simple law" in found.entry("loop_order").reading
    assert {e.name for e in found.entries} == {"compulsory", "bound", "loop_order", "sm"}


def test_a_kernel_that_holds_o_in_registers_may_beat_the_tile_on_paper_and_says_why() -> None:
    found = gap(
        AttentionProblem.of(seq=2048, heads=8, head_dim=128), "flash2", sram_bytes=99 * 1024, levels=False
    )
    assert_telescopes(found)
    assert found.entry("tile").bytes < 0
    assert found.entry("tile").note.endswith("O in registers")
    assert found.entry("bound").bytes == 0  # a bound in M says nothing about a kernel that has more


def test_no_step_is_named_without_saying_what_it_is() -> None:
    found = gap(AttentionProblem.of(seq=2048, head_dim=64, mask="causal"), "flash2", levels=False)
    assert all(e.title and e.note and e.reading for e in found.entries)
    assert all(e.leaves_out for e in found.entries if e.name in ("loop_order", "tile", "bound"))


def test_the_ladder_refuses_a_total_that_the_steps_do_not_reach() -> None:
    ladder = Ladder()
    ladder.total("a", "least", "a", 10, "", "")
    ladder.step("b", "program", "b", 25, "", "")
    with pytest.raises(UsageError, match="24 bytes, but the steps reach 25"):
        ladder.total("c", "program", "c", 24, "", "")


# below the SMs ---------------------------------------------------------------------------------------------


def test_the_simulated_part_ends_at_the_prediction_of_the_levels() -> None:
    from iosim.levels import add_levels

    problem = AttentionProblem.of(seq=2048, heads=4, head_dim=64, mask="causal")
    found = gap(problem, "flash2", profile="h200-sxm")
    assert_telescopes(found)
    record = analyze(problem, "flash2", footprint_model="kernel", profile="h200-sxm")
    levels = add_levels(record, find_algorithm("flash2"), load_profile("h200-sxm")).level_bytes
    assert levels is not None
    assert found.entry("hbm").bytes == levels.hbm_read_bytes + levels.hbm_write_bytes


def test_what_a_gpu_lacks_is_no_step() -> None:
    problem = AttentionProblem.of(seq=1024, head_dim=64)
    names = {e.name for e in gap(problem, "flash2", profile="a100-sxm-80gb", chosen={"skew": 0.0}).entries}
    assert not names & {"coalescer", "schedule", "spills", "padding"}
    assert "partition_copies" in names


def test_an_unknown_l2_ends_the_waterfall_at_the_sms_with_a_warning() -> None:
    gpu = load_profile("h100-sxm")
    hidden = replace(gpu.quantity("memory.l2.capacity"), value=None, unknown="never printed")
    blind = replace(gpu, quantities={**gpu.quantities, "memory.l2.capacity": hidden})
    found = gap(AttentionProblem.of(seq=1024, head_dim=64), "flash2", profile=blind)
    assert found.entries[-1].name == "sm"
    assert any("ends at the SMs" in line for line in found.warnings)


@pytest.mark.parametrize("case", ["0", "1", "44", "95", "96"])
def test_a_fused_row_ends_at_what_the_audit_predicts_and_at_its_counters(
    measurements: MeasurementFile, case: str
) -> None:
    profile = load_profile("h200-sxm")
    (row,) = rows_of_case(measurements, case, "attention.csv")
    found = gap_of_rows([row], profile)
    assert_telescopes(found)
    said = predict(row, profile)
    hbm = [said["hbm_read_bytes"], said["hbm_write_bytes"]]
    assert found.entry("hbm").bytes == sum(v for v in hbm if v is not None)
    assert found.entry("measured").bytes == row.measured["hbm_read_bytes"] + row.measured["hbm_write_bytes"]
    assert found.entry("residual").bytes == found.entry("measured").bytes - found.entry("hbm").bytes


def test_a_padding_kernel_has_its_padding_named(measurements: MeasurementFile) -> None:
    found = gap_of_rows(rows_of_case(measurements, "96", "x"), load_profile("h200-sxm"))
    padding = found.entry("padding")
    assert padding.bytes > 0
    assert "3456 x 3456 rows, head dim 128" in padding.reading
    assert found.entry("sm").measured_bytes == pytest.approx(found.entry("sm").bytes, rel=0.01)


def test_the_kernels_of_an_unfused_case_stand_together(measurements: MeasurementFile) -> None:
    profile = load_profile("h200-sxm")
    rows = rows_of_case(measurements, "4", "x")
    found = gap_of_rows(rows, profile)
    assert_telescopes(found)
    said = [predict(row, profile) for row in rows]
    total = sum(v or 0 for p in said for v in (p["hbm_read_bytes"], p["hbm_write_bytes"]))
    assert found.entry("hbm").bytes == pytest.approx(total, abs=3)
    assert found.entry("loop_order").title == "S and P through slow memory"


def test_rows_that_cannot_be_taken_apart_say_why(measurements: MeasurementFile) -> None:
    profile = load_profile("h200-sxm")
    with pytest.raises(UsageError, match="no case '9999'"):
        rows_of_case(measurements, "9999", "attention.csv")
    (row,) = rows_of_case(measurements, "0", "x")
    unknown: MeasuredRow = replace(row, implementation="mystery")
    with pytest.raises(UsageError, match="no facts about 'mystery'"):
        gap_of_rows([unknown], profile)
    with pytest.raises(UsageError, match="block_rows"):
        gap_of_rows([replace(row, tile=None)], profile)
    with pytest.raises(UsageError, match="lacks the kernels"):
        gap_of_rows(rows_of_case(measurements, "4", "x")[:1], profile)


def test_a_card_gives_tile_and_padding() -> None:
    problem = AttentionProblem.of(seq=1000, heads=4, head_dim=96)
    found = gap(problem, kernel=load_kernel("cudnn-sdpa"), profile="h200-sxm", levels=False)
    assert str(found.tiles) == "128x128"
    assert found.entry("padding").bytes > 0
    with pytest.raises(UsageError, match="not built for head_dim 512"):
        gap(AttentionProblem.of(seq=128, head_dim=512), kernel=load_kernel("cudnn-sdpa"))


def test_records_go_to_plain_values() -> None:
    found = gap(AttentionProblem.of(seq=512, head_dim=64), "flash2", tiles="128x64", levels=False)
    table = found.to_frame()
    assert list(table["name"]) == [e["name"] for e in found.to_dict()["entries"]]
    assert found.headline == "2.5× the compulsory bytes at the SMs"  # Q, O once, K, V four times
