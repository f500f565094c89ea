"""Quantities: exact values, decimal and binary apart, refusals that name what is allowed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import UsageError
from iosim.units import (
    UNITS,
    Dimension,
    counted,
    decimal_hint,
    format_bytes,
    format_quantity,
    format_rate,
    parse_quantity,
    parse_sram,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("3.35 TB/s", Dimension.BYTES_PER_S, 3_350_000_000_000),
        ("2039GB/s", Dimension.BYTES_PER_S, 2_039_000_000_000),
        ("1 GiB/s", Dimension.BYTES_PER_S, 1_073_741_824),
        ("3.35e12", Dimension.BYTES_PER_S, 3_350_000_000_000),
        ("1e12", Dimension.FLOP_PER_S, 1_000_000_000_000),
        ("1.0e10", Dimension.BYTES, 10_000_000_000),
        ("192 KiB", Dimension.BYTES, 196_608),
        ("192kib", Dimension.BYTES, 196_608),
        ("192 KB", Dimension.BYTES, 192_000),
        ("50 MiB", Dimension.BYTES, 52_428_800),
        ("80 GB", Dimension.BYTES, 80_000_000_000),
        ("126.5 MiB", Dimension.BYTES, 132_644_864),
        ("1.98 GHz", Dimension.HERTZ, 1_980_000_000),
        ("989.4 TFLOP/s", Dimension.FLOP_PER_S, 989_400_000_000_000),
        ("624 TOP/s", Dimension.FLOP_PER_S, 624_000_000_000_000),
        ("2.25 PFLOP/s", Dimension.FLOP_PER_S, 2_250_000_000_000_000),
        ("16 op/clk", Dimension.OPS_PER_CLK, 16),
        ("128 B/clk", Dimension.BYTES_PER_CLK, 128),
        ("126.7 B/clk", Dimension.BYTES_PER_CLK, 126.7),
        ("265.5 clk", Dimension.CYCLES, 265.5),
        ("2.5 us", Dimension.SECONDS, 2.5e-6),
        ("132", Dimension.COUNT, 132),
        ("65_536", Dimension.COUNT, 65536),
        ("true", Dimension.FLAG, True),
    ],
)
def test_value_in_the_base_unit(text: str, dimension: Dimension, value: float) -> None:
    result = parse_quantity(text, dimension)
    assert result == value
    assert type(result) is type(value)


def test_unit_may_stand_beside_the_number() -> None:
    assert parse_quantity("227", Dimension.BYTES, unit="KiB") == 227 * 1024


@pytest.mark.parametrize(
    ("text", "dimension", "part"),
    [
        ("3350", Dimension.BYTES_PER_S, "has no unit; allowed: GB/s, TB/s"),
        ("52428800", Dimension.BYTES, "has no unit; allowed: B, KiB, MiB"),
        ("50 MiBs", Dimension.BYTES, "did you mean 'MiB'?"),
        ("3.35 Tb/s", Dimension.BYTES_PER_S, "did you mean 'TB/s'?"),  # a terabit is not a terabyte
        ("3.35 tb/s", Dimension.BYTES_PER_S, "did you mean 'TB/s'?"),
        ("3,35 TB/s", Dimension.BYTES_PER_S, "unknown unit ',35 TB/s'"),
        ("50 GB/s", Dimension.BYTES, "unknown unit 'GB/s'"),
        ("-3 GB", Dimension.BYTES, "not between 0 and 1e30"),
        ("1e31", Dimension.BYTES, "not between 0 and 1e30"),
        ("1e99999999", Dimension.BYTES, "not between 0 and 1e30"),
        ("nan", Dimension.BYTES, "is not a number with a unit"),
        (".inf GB", Dimension.BYTES, "is not a number with a unit"),
        ("", Dimension.HERTZ, "is not a number with a unit"),
        ("1.5", Dimension.COUNT, "must be a whole number"),
        ("3 SMs", Dimension.COUNT, "allowed: a plain whole number"),
        ("maybe", Dimension.FLAG, "allowed: true, false"),
    ],
)
def test_refusal_says_what_is_allowed(text: str, dimension: Dimension, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_quantity(text, dimension)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_units_are_refused() -> None:
    with pytest.raises(UsageError, match="give one"):
        parse_quantity("50 MiB", Dimension.BYTES, unit="KiB")


@given(
    number=st.decimals(min_value=0, max_value=10**9, places=3),
    dimension=st.sampled_from([d for d in Dimension if d is not Dimension.FLAG and d is not Dimension.COUNT]),
    data=st.data(),
)
def test_parse_is_number_times_unit(number: Decimal, dimension: Dimension, data: st.DataObject) -> None:
    unit, factor = data.draw(st.sampled_from(sorted(UNITS[dimension].items())))
    exact = Decimal(factor.numerator) * number / Decimal(factor.denominator)
    assert parse_quantity(f"{number} {unit}", dimension) == pytest.approx(float(exact), rel=1e-15)


@given(st.text(max_size=30))
def test_any_text_gives_a_value_or_a_one_line_usage_error(text: str) -> None:
    for dimension in Dimension:
        message = ""
        try:
            assert parse_quantity(text, dimension) >= 0
        except UsageError as error:
            message = str(error)
        assert len(message.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "itemsize", "size"),
    [("98304el", 2, 196_608), ("98304 elements", 4, 393_216), ("192KiB", 2, 196_608), ("1024 B", 2, 1024)],
)
def test_sram_in_bytes_or_elements(text: str, itemsize: int, size: int) -> None:
    warnings: list[str] = []
    assert parse_sram(text, itemsize, warnings) == size
    assert warnings == []


@pytest.mark.parametrize("text", ["1.5el", "0.5 elements", "-3el", "el", "1e3el"])
def test_elements_come_whole(text: str) -> None:
    with pytest.raises(UsageError, match="is not a whole number of elements, 1 or more"):
        parse_sram(text, 2)


def test_sram_in_decimal_kilobytes_is_taken_at_its_word_and_warns() -> None:
    warnings: list[str] = []
    assert parse_sram("163 KB", 2, warnings) == 163_000
    assert warnings == ["sram: '163 KB' is decimal (163,000 B); on-chip memories come in '163 KiB'"]


@pytest.mark.parametrize("text", ["98304", "1e5", "0 KiB", "0el", "0.3 B", "KiB", "-1KiB", "1.5el"])
def test_sram_refusals(text: str) -> None:
    with pytest.raises(UsageError, match=r"^sram: "):
        parse_sram(text, 2)


def test_bare_sram_says_what_to_write() -> None:
    with pytest.raises(UsageError, match="write 98304B, 98304KiB or 98304el"):
        parse_sram("98304", 2)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(166_912), "163 KiB"),
        (format_bytes(52_428_800), "50 MiB"),
        (format_bytes(1000), "1000 B"),
        (format_bytes(80 * 10**9, decimal=True), "80 GB"),
        (format_bytes(17_448_304_640, decimal=True), "17.45 GB"),
        (format_rate(3.352e12), "3.352 TB/s"),
        (format_rate(989.4e12, "FLOP/s"), "989.4 TFLOP/s"),
        (format_rate(1_410_000_000, "Hz"), "1.41 GHz"),
        (format_quantity(132, Dimension.COUNT), "132"),
        (format_quantity(True, Dimension.FLAG), "yes"),
        (format_quantity(141 * 10**9, Dimension.BYTES), "141 GB"),
        (format_quantity(2.62e-6, Dimension.SECONDS), "2.62 us"),
        (format_quantity(0, Dimension.BYTES), "0 B"),
    ],
)
def test_formats_for_people(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.integers(min_value=1, max_value=1023), st.sampled_from(["B", "KiB", "MiB", "GiB"]))
def test_whole_binary_sizes_survive_a_round_trip(count: int, unit: str) -> None:
    size = parse_quantity(f"{count} {unit}", Dimension.BYTES)
    assert parse_quantity(format_bytes(size), Dimension.BYTES) == size


def test_decimal_hint_names_the_binary_unit() -> None:
    assert decimal_hint("50 MB", 50_000_000).endswith("'50 MiB'")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 heads"), (1, "1 head"), (2, "2 heads"), (8192, "8,192 heads")]
)
def test_a_number_with_its_noun(count: int, text: str) -> None:
    assert counted(count, "head") == text
