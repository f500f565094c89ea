"""Reading a user's own file: faults carry file, line, key and the nearest right one; nothing gets through quietly."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iosim.errors import ProfileError
from iosim.hardware import check_file, load_profile
from iosim.hardware.load import MAX_FILE_BYTES
from iosim.hardware.schema import FIELDS
from iosim.resources import data_dir

TOY = data_dir("hwprofiles").joinpath("toy.yaml").read_text()


@pytest.fixture
def edit(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A function that writes the toy profile with one text replaced and returns its path."""

    def write(old: str = "", new: str = "") -> str:
        assert old in TOY
        path = tmp_path / "mine.yaml"
        path.write_text(TOY.replace(old, new, 1) if old else TOY)
        return str(path)

    return write


def line_of(text: str) -> int:
    return TOY[: TOY.index(text)].count("\n") + 1


def test_own_file_works_where_a_name_does(edit) -> None:  # type: ignore[no-untyped-def]
    path = edit("name: toy", "name: mine")
    profile = load_profile(path, ["compute.sm_count=8"])
    assert (profile.name, profile.sm_count) == ("mine", 8)
    assert check_file(path) == []


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        (
            "    bandwidth: 100 GB/s",
            "    bandwith: 100 GB/s",
            "memory.hbm.bandwith",
            "did you mean 'bandwidth'?",
        ),
        ("  l2:", "  l3:", "memory.l3", "did you mean 'l2'?"),
        ("limits:", "limit:", "limit", "did you mean 'limits'?"),
        ("title: Toy", "titel: Toy", "titel", "did you mean 'title'?"),
        (
            "    capacity: 64 KiB",
            "    capacity: 64",
            "memory.l2.capacity",
            "'64' has no unit; allowed: B, KiB",
        ),
        ("    capacity: 64 KiB", "    capacity: 64 KiBs", "memory.l2.capacity", "did you mean 'KiB'?"),
        ("    capacity: 1 GB", "    capacity: 1 GB/s", "memory.hbm.capacity", "unknown unit 'GB/s'"),
        ("    capacity: 1 GB", "    capacity: -1 GB", "memory.hbm.capacity", "not between 0 and 1e30"),
        ("    capacity: 1 GB", "    capacity: 0 GB", "memory.hbm.capacity", "must be above zero"),
        ("    capacity: 1 GB", "    capacity: [1]", "memory.hbm.capacity", "give either a value, or unknown"),
        ("  sm_count: 4", "  sm_count: 4.5", "compute.sm_count", "must be a whole number"),
        ("    line: 128 B", "    line: 0.3 B", "memory.l2.line", "not a whole number of bytes"),
        ("request_coalescer: false", "request_coalescer: 7", "memory.l2.request_coalescer", "not a flag"),
        (
            "TFLOP/s, clock: boost",
            "TFLOP/s, clock: bost",
            "compute.tensor_dense.fp16",
            "did you mean 'boost'?",
        ),
        (
            "TFLOP/s, clock: boost",
            "TFLOP/s, clok: boost",
            "compute.tensor_dense.fp16",
            "did you mean 'clock'?",
        ),
        (
            "TFLOP/s, clock: boost",
            "TFLOP/s, kind: rumour",
            "compute.tensor_dense.fp16",
            "theoretical, measured",
        ),
        ("TFLOP/s, clock: boost", "TFLOP/s, source: wp", "compute.tensor_dense.fp16", "unknown source 'wp'"),
        (
            "    per_block: 4 KiB",
            "    per_block: 9 KiB",
            "memory.sram.per_block",
            "more than memory.sram.per_sm",
        ),
        ("counter_data: false", "counter_data: no idea", "counter_data", "must be true or false"),
        ("aliases: []", "aliases: toy", "aliases", "must be a list of names"),
    ],
)
def test_fault_has_file_line_key_and_remedy(edit, old: str, new: str, key: str, message: str) -> None:  # type: ignore[no-untyped-def]
    path = edit(old, new)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    text = str(caught.value)
    assert text.startswith(f"{path}:{line_of(old)}: {key}: ")
    assert message in text
    assert "\n" not in text
    assert len(check_file(path)) == 1, "one slip, one fault"


@pytest.mark.parametrize("key", [key for key, field in FIELDS.items() if field.required])
def test_every_required_number_is_missed_by_name(tmp_path: Path, key: str) -> None:
    lines = TOY.splitlines()
    depth = key.count(".")
    parents = key.split(".")[:-1]
    at = 0
    for level, word in enumerate(parents):
        at = next(i for i in range(at, len(lines)) if lines[i] == "  " * level + word + ":")
    last = key.rsplit(".", 1)[1]
    at = next(i for i in range(at, len(lines)) if lines[i].startswith("  " * depth + last + ":"))
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(lines[:at] + lines[at + 1 :]))
    with pytest.raises(ProfileError, match=re.escape(f": {key}: missing; give a value")):
        load_profile(str(path))


def test_all_faults_are_listed_in_file_order(tmp_path: Path) -> None:
    text = TOY.replace("sm_count: 4", "sm_count: four").replace("    capacity: 64 KiB\n", "")
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("bandwidth: 100 GB/s", "bandwidth: 100"))
    faults = check_file(str(path))
    assert [re.search(r": ([\w.]+): ", fault)[1] for fault in faults] == [  # type: ignore[index]
        "compute.sm_count",
        "memory.l2.capacity",
        "memory.hbm.bandwidth",
    ]
    with pytest.raises(ProfileError, match="and 2 more; `iosim hw check` lists all"):
        load_profile(str(path))


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("3.35e12", 3_350_000_000_000),
        ("1e12", 1_000_000_000_000),
        ("1.0e10", 10_000_000_000),
        ('"3.35 TB/s"', 3_350_000_000_000),
        ("3.35 TB/s", 3_350_000_000_000),
        ("{value: 3.35, unit: TB/s}", 3_350_000_000_000),
        ("{value: 3.35 TB/s, source: a page of mine, kind: measured}", 3_350_000_000_000),
    ],
)
def test_ways_to_write_a_bandwidth(edit, entry: str, value: int) -> None:  # type: ignore[no-untyped-def]
    profile = load_profile(edit("    bandwidth: 100 GB/s", f"    bandwidth: {entry}"))
    assert profile.hbm_bandwidth_bytes_per_s == value
    assert isinstance(profile.hbm_bandwidth_bytes_per_s, int)


def test_own_source_and_kind_are_kept(edit) -> None:  # type: ignore[no-untyped-def]
    entry = "{value: 90 GB/s, source: a page of mine, kind: measured, note: at noon}"
    quantity = load_profile(edit("bandwidth: 100 GB/s", f"bandwidth: {entry}")).quantity(
        "memory.hbm.bandwidth"
    )
    assert (quantity.source, quantity.kind, quantity.note) == ("a page of mine", "measured", "at noon")


def test_number_without_any_source_is_refused(edit) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ProfileError, match="no source; every number says where it is from"):
        load_profile(edit("source: made up for hand computation\n", ""))


def test_theoretical_number_under_measured_is_refused(edit) -> None:  # type: ignore[no-untyped-def]
    more = "measured:\n  l1_latency: {value: 30 clk, kind: theoretical}\nlimits:"
    with pytest.raises(ProfileError, match=r"measured\.l1_latency: stands under measured"):
        load_profile(edit("limits:", more))


def test_decimal_size_on_chip_is_taken_at_its_word_and_warns(edit) -> None:  # type: ignore[no-untyped-def]
    profile = load_profile(edit("    per_block: 4 KiB", "    per_block: 4 KB"))
    assert profile.sram_per_block_bytes == 4000
    assert [w for w in profile.warnings if "memory.sram.per_block" in w and "'4 KiB'" in w]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a profile is a mapping"),
        ("# nothing\n", "a profile is a mapping"),
        ("just text", "a profile is a mapping"),
        ("- a\n- b\n", "a profile is a mapping"),
        ("name: [unclosed", "not valid YAML"),
        ("name: a\n\tb: c", "not valid YAML"),
        ("name: a\nname: b\n", "given twice, first in line 1"),
        ("name: a\n---\nname: b\n", "more than one document"),
        ("a: &x [1]\nb: *x\n", "anchors and aliases are not allowed"),
        ("b: *x\n", "anchors and aliases are not allowed"),
        ('a: !!python/object/apply:os.system ["true"]\n', "tags are not allowed"),
        ("? [a, b]\n: c\n", "a key must be plain text"),
        ("[" * 50_000, "nested deeper than 8 levels"),
        ("{a: " * 5_000, "nested deeper than 8 levels"),
        ("name: \x00", "not valid YAML"),
        ("%YAML 9.9\n---\nname: x\n", ""),
    ],
)
def test_hostile_or_broken_files_end_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(ProfileError) as caught:
        load_profile(str(path))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00n", b"name: \xe9"])
def test_other_encodings_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match="not a UTF-8 text file"):
        load_profile(str(path))


def test_byte_order_mark_and_carriage_returns_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "mine.YML"
    path.write_bytes(b"\xef\xbb\xbf" + TOY.replace("\n", "\r\n").encode())
    assert load_profile(str(path)).sha256 == load_profile("toy").sha256


def test_unreadable_files(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_text("#" * (MAX_FILE_BYTES + 1))
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    for path, message in (
        (big, "larger than"),
        (folder, "cannot read"),
        (tmp_path / "no.yaml", "no such file"),
    ):
        with pytest.raises(ProfileError, match=message):
            load_profile(str(path))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.integers(0, TOY.count("\n") - 1), text=st.text(max_size=12), start=st.integers(0, 40))
def test_any_damage_to_a_line_loads_or_is_a_fault_with_its_place(
    tmp_path: Path, line: int, text: str, start: int
) -> None:
    lines = TOY.splitlines()
    lines[line] = lines[line][:start] + text + lines[line][start + len(text) :]
    path = tmp_path / "mine.yaml"
    path.write_bytes("\n".join(lines).encode("utf-8", "replace"))
    for fault in check_file(str(path)):
        assert re.match(re.escape(str(path)) + r":\d+: \S", fault)
        assert len(fault.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("line", "100 B", "memory.l2.line: 100 B must be a power of two"),
        ("line", "4096 B", "memory.l2.line: 128 sectors of 32 B; a line has at most 8"),
        ("sector", "33 B", "memory.l2.sector: 33 B must be a power of two"),
        ("capacity", "1 KiB", "memory.l2.capacity: must hold 16 lines a partition, 4096 B"),
    ],
)
def test_an_l2_that_cannot_be_simulated_is_no_good_profile(
    tmp_path: Path, key: str, value: str, said: str
) -> None:
    text = data_dir("hwprofiles").joinpath("h200-sxm.yaml").read_text()
    head, l2, rest = text.partition("\n  l2:")
    changed = re.sub(rf"(\n    {key}: {{value: )[^,}}]*", rf"\g<1>{value}", rest, count=1)
    path = tmp_path / "mine.yaml"
    path.write_text(head + l2 + changed)
    faults = check_file(str(path))
    assert any(said in fault for fault in faults), faults
    line = next(
        n for n, row in enumerate(path.read_text().splitlines(), 1) if f"    {key}: {{value: {value}" in row
    )
    assert any(f"mine.yaml:{line}: " in fault for fault in faults)
