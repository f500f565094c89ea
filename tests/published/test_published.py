"""Published numbers: the file is sound, the model meets what it claims, and an error does not pass unseen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from iosim.errors import RunError, UsageError
from iosim.published import GROUPS, Check, Group, past_limit, published_numbers, reproduce, select
from iosim.published.later_papers import accesses_per_element
from iosim.theory.softmax import SOFTMAX_COSTS


@cache
def group(name: str) -> Group:
    (found,) = reproduce([name])
    return found


def test_every_row_says_where_it_is_from() -> None:
    rows = published_numbers()
    assert len(rows) > 400
    for row in rows:
        assert row.source
        assert row.place
        assert row.quantity
        assert row.unit
        assert row.status in ("read", "read (secondary)", "recalled")
    assert len({tuple(getattr(r, f) for f in r.__dataclass_fields__ if f != "value") for r in rows}) == len(
        rows
    )


def test_a_range_is_no_number() -> None:
    (row,) = select("Sec 3.1.1")
    with pytest.raises(RunError, match=r"1\.7-1\.8' is a range"):
        _ = row.number


def test_pytorch_forward_is_six_passes_over_n_squared() -> None:
    found = group("runtime")
    assert [c.what for c in found.counted] == [
        "PyTorch forward, N = 2,048",
        "PyTorch forward, N = 4,096",
        "PyTorch forward, N = 8,192",
        "Megatron forward, N = 2,048",
    ]
    for check, N in zip(found.counted, (2048, 4096, 8192, 2048), strict=True):
        by_hand = 16 * 8 * (6 * N**2 + 4 * N * 64) * 2 / 1555e9 * 1e3
        assert check.model == pytest.approx(by_hand, rel=1e-12)
        assert check.holds


def test_memory_meets_every_entry() -> None:
    found = group("memory")
    assert len(found.checks) == 31
    assert all(c.holds for c in found.checks)


def test_figure_2_is_shown_in_both_printings_and_not_counted() -> None:
    found = group("figure-2")
    assert not found.counted
    standard = {c.paper: c.model for c in found.checks if "Algorithms 0 and 3" in c.what}
    assert sorted(standard) == [35.3, 40.3]
    N, d, heads = 1024, 64, 16 * 64
    assert set(standard.values()) == {heads * (11 * N**2 + 12 * N * d) * 2 / 1e9}
    low, high = sorted({c.model for c in found.checks if "flash," in c.what and "bytes" in c.what})
    assert low < 4.4 < high
    assert low == pytest.approx(3.83, abs=0.01)
    assert high == pytest.approx(4.65, abs=0.01)


def test_tile_cycles_are_exact() -> None:
    found = [c for c in group("flash4-cycles").checks if c.unit == "clocks"]
    assert [c.model for c in found] == [1024, 1024, 768, 2560, 1024, 3328]
    assert all(c.holds for c in found)


def test_accesses_are_counted_by_the_program_and_known_to_the_theory() -> None:
    assert [c.model for c in group("softmax").checks] == [3, 4, 3]
    for kind in ("naive", "safe", "online", "fused"):
        assert accesses_per_element(kind) == SOFTMAX_COSTS[kind].accesses


def test_flash3_exponentials_take_half_of_the_matmul_time() -> None:
    found = group("flash3")
    assert all(c.holds for c in found.checks)
    assert {c.model for c in found.checks if c.unit == "%"} == {50.0}


def test_flash2_speeds() -> None:
    found = group("flash2-speed")
    assert len(found.counted) == 24
    assert found.mean_error is not None
    assert found.mean_error <= 0.03


def test_a_wrong_model_breaks_its_limit_and_max_error() -> None:
    check = Check(place="T", what="x", unit="ms", paper=100.0, model=107.0, limit=0.06)
    assert check.holds is False
    assert replace(check, model=105.0).holds is True
    assert replace(check, limit=8.0, absolute=True).holds is True
    found = Group(name="g", title="g", source="s", method="m", checks=(check, replace(check, counted=False)))
    assert past_limit([found], 0.05) == ["T, x: off by +7.0%, limit 5.0%"]
    assert past_limit([found], 0.08) == []


def test_unknown_groups_are_named() -> None:
    with pytest.raises(UsageError, match="unknown group 'tables'; known: runtime, memory"):
        reproduce(["tables"])
    assert set(GROUPS) == {g.name for g in map(group, GROUPS)}
