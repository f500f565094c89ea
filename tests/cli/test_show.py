"""`iosim show` and `iosim algorithms list`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def test_show_prints_the_program_with_costs_on_every_line(iosim: Run) -> None:
    out = iosim("show flash2 --seq 1024 --head-dim 64 --tiles 128x64").out
    assert "tile 128x64" in out
    (load,) = [line for line in out.splitlines() if "load K_j" in line]
    # 1024/128 passes over K of 1024 x 64 fp16, out of Q + O + passes over K and V
    assert load.split()[0] == "7"
    assert f"{8 * 1024 * 64 * 2:,}" in load
    assert load.split()[-1] == f"{100 * 8 / (2 + 2 * 8):.2f}"
    assert out.splitlines()[-1].split()[-1] == "100.00"


def test_the_total_of_the_listing_is_the_traffic_of_simulate(iosim: Run) -> None:
    words = "--seq-q 700 --seq-k 900 --head-dim 80 --heads 4 --kv-heads 2 --mask causal --json"
    shown = iosim(f"show flash1 {words}").json
    record = iosim(f"simulate --algorithm flash1 {words}").json
    totals = shown["totals"]
    assert totals["read_bytes"] == record["traffic"]["sm_read_bytes"]
    assert totals["write_bytes"] == record["traffic"]["sm_write_bytes"]
    for unit in ("tensor_flops", "vector_flops", "special_ops"):
        assert totals[unit] == record["work"][unit] == sum(line[unit] for line in shown["lines"])


def test_show_of_an_algorithm_without_tiles_and_with_options(iosim: Run) -> None:
    shown = iosim("show standard --softmax safe --dropout --seq 256 --json").json
    assert shown["options"]["softmax"] == "safe"
    assert [k["text"] for k in shown["lines"] if k["depth"] == 0] == [
        "kernel scores",
        "kernel softmax",
        "kernel dropout",
        "kernel output",
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("show", "Missing argument"),
        ("show flash1,flash2", "takes one"),
        ("show flash7", "known: standard"),
        ("show flash2 --softmax safe", "belongs to standard"),
        ("show flash2 --seq 0", "--seq"),
    ],
)
def test_bad_words_to_show(iosim: Run, words: str, said: str) -> None:
    outcome = iosim(words)
    assert (outcome.code, outcome.out) == (2, "")
    (line,) = outcome.err.splitlines()
    assert said in line


def test_algorithms_list_names_sources_and_options(iosim: Run) -> None:
    out = iosim("algorithms list").out
    assert "Dao et al. 2022, Algorithms 1 and 4" in out
    (row,) = [line for line in out.splitlines() if "--flash1-variant" in line]
    assert "literal, skip-first-read" in row


def test_the_options_of_algorithms_list_can_be_given_to_simulate(iosim: Run) -> None:
    known = iosim("algorithms list --json").json
    assert [item["name"] for item in known][:2] == ["standard", "online_attention"]
    for item in known:
        for option in item["options"]:
            assert option["default"] == option["values"][0]
            words = _words(option)
            shape = ["--heads", "2", "--kv-heads", "1", "--seq", "128", "--json", *words]
            record = iosim("simulate", "--algorithm", item["name"], *shape).json
            chosen = words[1] if len(words) == 2 else {"--no-pack-gqa": "off"}.get(words[0], "on")
            assert record["options"][option["name"]] == chosen


def _words(option: dict[str, Any]) -> list[str]:
    """An option as it is given on the command line, with a value that is not its default."""
    if option["name"] == "pack-gqa":
        return ["--no-pack-gqa"]
    examples = {"RxC": "64x64", "PATTERN": "local:1", "COUNT": "2"}
    value = examples.get(option["takes"], option["values"][-1])
    return [option["flag"]] if value == "on" else [option["flag"], value]
