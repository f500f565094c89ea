"""Kernel cards: what they must and may say, and that a stranger's file can do no more than be refused in one line."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.algorithms.registry import find_algorithm
from iosim.audit.measurements import MeasuredRow, read_measurements
from iosim.audit.predict import special_ops
from iosim.audit.unfused import unfused_bytes
from iosim.errors import IosimError, ProfileError
from iosim.hardware import load_profile
from iosim.kernels import KernelFacts, kernel_names, kernels_by_measurement, load_kernel, measured_kernel
from iosim.problem import AttentionProblem, TileShape

ATTENTION = Path(__file__).parents[2] / "validation" / "measurements" / "h200" / "attention.csv"
MINE = """\
name: mine
kernel_class: mma-sync
algorithm: flash2
tiles:
  - {head_dim_max: 128, rows: 128, cols: 64}
threads_per_block: 128
registers_per_thread: 200
"""


@pytest.fixture
def card(tmp_path: Path) -> Callable[[str], KernelFacts]:
    def load(text: str) -> KernelFacts:
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        return load_kernel(str(path))

    return load


def test_a_short_card_is_enough(card: Callable[[str], KernelFacts]) -> None:
    found = card(MINE)
    assert found.tile(64) == TileShape(rows=128, cols=64)
    assert found.tile(256) is None
    assert (found.title, found.kv_walk, found.stages, found.persistent) == ("mine", "forward", 1, False)
    assert found.options == find_algorithm("flash2").resolve({})
    problem = AttentionProblem.of(seq=100, head_dim=64)
    assert found.padded(problem).seq_k == 100


def test_what_a_card_says_is_what_it_holds(card: Callable[[str], KernelFacts]) -> None:
    more = "stages: 2\nkv_walk: backward\ngrid_order: [batch, head, row_tile]\n"
    more += "pad: {rows: 128, cols: 64, head_dim: 64}\n"
    more += "row_lanes: 8\nspecial: {per_row: 1, per_row_tile: 2, per_block: 3}\noptions: {lse: on}\nin_step: 0.5\n"
    found = card(MINE + more)
    out = found.to_dict()
    assert (found.stages, found.kv_walk, found.grid_order) == (2, "backward", ("batch", "head", "row_tile"))
    assert out["pad"] == {"rows": 128, "cols": 64, "head_dim": 64}
    assert found.special is not None
    assert (found.special.row_lanes, found.special.per_row) == (8, 1)
    assert out["special"] == {
        "per_row": 1,
        "per_row_tile": 2,
        "per_block": 3,
        "step_rows": 0,
        "per_causal_tile": 0,
    }
    assert out["options"]["lse"] == "on"


def test_counted_instructions_by_part(card: Callable[[str], KernelFacts]) -> None:
    more = "interleaves_exp: true\ninstructions:\n  loop:\n    - {head_dim: 64, step: 10, block: 0}\n"
    found = card(MINE + more)
    assert found.interleaves_exp
    assert found.instructions_of("loop", 64) == (10, 0)
    assert found.to_dict()["instructions"] == {"loop": ({"head_dim": 64, "step": 10, "block": 0},)}
    with pytest.raises(ProfileError, match=r"instructions\.lop: unknown key"):
        card(MINE + "instructions: {lop: []}\n")
    with pytest.raises(ProfileError, match=r"instructions\.loop: missing: block"):
        card(MINE + "instructions: {loop: [{head_dim: 64, step: 10}]}\n")
    twice = ", ".join(f"{{head_dim: 64, step: {step}, block: 0}}" for step in (10, 20))
    with pytest.raises(ProfileError, match=r"instructions\.loop: each head_dim once"):
        card(MINE + f"instructions: {{loop: [{twice}]}}\n")


@pytest.mark.parametrize(
    ("kind", "algorithm", "allowed"),
    [("unfused", "flash2", "mma-sync, wgmma, wgmma-ping-pong"), ("wgmma", "standard", "unfused")],
)
def test_scores_in_slow_memory_are_one_class(
    card: Callable[[str], KernelFacts], kind: str, algorithm: str, allowed: str
) -> None:
    text = MINE.replace("mma-sync", kind).replace("flash2", algorithm)
    said = (
        rf"mine\.yaml:2: kernel_class: {kind} does not run algorithm {algorithm}; allowed with it: {allowed}"
    )
    with pytest.raises(ProfileError, match=said):
        card(text)
    assert card(MINE.replace("mma-sync", "unfused").replace("flash2", "standard")).kernel_class == "unfused"


def test_an_unfused_card_of_ones_own_moves_what_it_says(card: Callable[[str], KernelFacts]) -> None:
    """Also under the name of a card that ships, whose softmax reads S once; three passes read it three times."""
    gpu = load_profile("toy", ["memory.l2.capacity=16KiB"])  # no row of S fits
    problem = AttentionProblem.of(seq_q=8, seq_k=32768, head_dim=16)
    text = MINE.replace("mma-sync", "unfused").replace("flash2", "standard")
    safe = text + "options: {softmax: safe}\n"
    cards = card(text), card(safe), card(safe.replace("name: mine", "name: torch-unfused"))
    read = [unfused_bytes("softmax", problem, facts, gpu).hbm_read_bytes for facts in cards]
    scores = 8 * 32768 * 2
    assert read == [scores, 3 * scores, 3 * scores]


def test_stages_are_key_and_value_tiles(card: Callable[[str], KernelFacts]) -> None:
    problem, tile = AttentionProblem.of(seq=512, head_dim=64), TileShape(rows=128, cols=64)
    q, keys = 128 * 64 * 2, 64 * (64 + 64) * 2
    assert card(MINE).shared_bytes(problem, tile) == q + keys
    assert card(MINE + "stages: 3\n").shared_bytes(problem, tile) == q + 3 * keys


def test_warps_that_divide_keys_share_their_parts_of_a_row(card: Callable[[str], KernelFacts]) -> None:
    problem, tile = AttentionProblem.of(seq=512, head_dim=64), TileShape(rows=64, cols=64)
    rows, keys = card(MINE), card(MINE + "warps_divide: keys\n")
    exchange = 4 * 64 * (64 + 1 + 1) * 4  # four warps: O, a maximum and a sum of each of 64 rows, fp32
    assert keys.shared_bytes(problem, tile) == rows.shared_bytes(problem, tile) + exchange
    with pytest.raises(ProfileError, match="rows, keys"):
        card(MINE + "warps_divide: columns\n")


def _with(line: str, instead: str) -> str:
    assert line in MINE
    return MINE.replace(line, instead)


FAULTS = [
    (MINE + "warp: 4\n", 8, "warp: unknown key"),
    (_with("registers_per_thread: 200\n", ""), 1, "missing: registers_per_thread"),
    (_with("128\nregisters", "many\nregisters"), 6, "threads_per_block: must be a whole number"),
    (_with("128\nregisters", "2048\nregisters"), 6, "from 1 to 1024"),
    (_with("200", "9" * 5000), 7, "registers_per_thread: must be a whole number"),
    (_with("flash2", "flash9"), 3, "did you mean 'flash2'?"),
    (_with("flash2", "./evil.py:program"), 3, "algorithm: unknown algorithm"),
    (_with("mma-sync", "fast"), 2, "kernel_class: must be one of"),
    (_with("rows: 128", "rows: 0"), 5, "tiles.rows: must be a whole number from 1"),
    (_with("rows: 128", "row: 128"), 5, "tiles.row: unknown key, did you mean 'rows'?"),
    (_with("  - {head_dim_max: 128, rows: 128, cols: 64}\n", "  []\n"), 4, "tiles: at least one tile"),
    (_with("name: mine", "name: ../../mine"), 1, "name: must be letters"),
    (_with("name: mine", "name: {a: b}"), 1, "name: must be a printable text"),
    (MINE + "name: again\n", 8, "given twice"),
    (MINE + "spills: 5\n", 8, "spills: must be a list"),
    (MINE + "pad: {rows: 0, cols: 1, head_dim: 1}\n", 8, "pad.rows: must be a whole number from 1"),
    (MINE + "pad: 8\n", 8, "pad: must be a mapping"),
    (MINE + "options: {lse: maybe}\n", 8, "lse"),
    (MINE + "options: [lse]\n", 8, "options: must map"),
    (MINE + "grid_order: [row_tile, head, head]\n", 8, "grid_order: must name"),
    (MINE + "persistent: yes\n", 8, "persistent: must be one of true, false"),
    (MINE + "in_step: nan\n", 8, "in_step: must be a finite number"),
    (MINE + "special: {per_row: 1}\n", 8, "special: missing: per_row_tile, per_block"),
    (MINE + "title: &a x\n", 8, "anchors and aliases are not allowed"),
    (MINE + 'title: "a\\x07b"\n', 8, "title: must be a printable text"),
    ("just text\n", 1, "a kernel card is a mapping"),
    ("", 1, "a kernel card is a mapping"),
]


@pytest.mark.parametrize(("text", "line", "said"), FAULTS, ids=[said for *_, said in FAULTS])
def test_a_fault_is_one_line_with_its_place(
    card: Callable[[str], KernelFacts], text: str, line: int, said: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        card(text)
    message = str(caught.value)
    assert message.startswith(f"mine.yaml:{line}: ")
    assert said in message
    assert "\n" not in message
    assert len(message) < 400


@pytest.mark.parametrize("name", ["missing.yaml", "no-such-kernel", "\0.yaml", ".", "../cards/torch-flash2"])
def test_a_name_that_is_no_card(name: str) -> None:
    with pytest.raises(ProfileError):
        load_kernel(name)


@given(st.text(max_size=60), st.integers(0, 7))
def test_any_text_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: str, where: int
) -> None:
    lines = MINE.splitlines()
    lines.insert(where, noise)
    path = tmp_path_factory.getbasetemp() / "noise.yaml"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    try:
        said = load_kernel(str(path)).name
    except IosimError as error:
        said = str(error)
    assert said
    assert "\n" not in said


def test_shipped_cards_name_their_sources() -> None:
    for name in kernel_names():
        found = load_kernel(name)
        assert found.name == name
        assert found.sources


def _rows_with_tiles() -> list[MeasuredRow]:
    return [row for row in read_measurements(ATTENTION).rows if row.kernel == "flash_fwd" and row.tile]


def test_the_audit_takes_the_exact_special_functions() -> None:
    with ATTENTION.open() as file:
        assert "special_ops" in next(csv.reader(file))
    gpu, rows = load_profile("h200-sxm"), _rows_with_tiles()
    assert len(rows) > 60
    for row in rows:
        facts = kernels_by_measurement()[row.implementation]
        program = find_algorithm(facts.algorithm).program(facts.packed(row.problem).mask.kind, facts.options)
        assert row.tile is not None
        found = special_ops(program, facts, row.problem, row.tile, gpu)
        assert found == row.measured["special_ops"], f"case {row.case}"


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kernels.md").read_text()
    for key in load_kernel("torch-flash2").to_dict():
        assert re.search(rf"`{key}`", page), key


def test_cards_that_tell_the_tiles_of_one_kernel_apart() -> None:
    problem = AttentionProblem.of(seq=4096, head_dim=128)
    for rows, name in ((192, ""), (128, "_128"), (64, "_64"), (96, "")):
        card = measured_kernel("iosim_flash2_wgmma", problem, TileShape(rows=rows, cols=128))
        assert card == load_kernel(f"iosim-flash2_wgmma{name}")
    assert measured_kernel("iosim_flash2_wgmma", problem, None) == load_kernel("iosim-flash2_wgmma")
    assert measured_kernel("nobody's", problem, None) is None
