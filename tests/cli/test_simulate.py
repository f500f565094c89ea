"""`iosim simulate`: the exact numbers through its JSON, the JSON's shape, bad input, overrides, the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]

LAYER = "simulate --json --seq 8192 --head-dim 128 --heads 32"


def total(record: dict[str, Any]) -> int:
    return int(record["traffic"]["sm_read_bytes"] + record["traffic"]["sm_write_bytes"])


def of_tensor(record: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [t for t in record["traffic_by_tensor"] if t["tensor"] == name]
    return dict(found)


# --- the numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "total_bytes"),
    [
        ("--algorithm standard", 17_448_304_640),
        ("--algorithm flash2 --tiles 128x64", 8_724_152_320),
        ("--algorithm flash2 --tiles 64x64", 17_314_086_912),
    ],
)
def test_bytes_of_a_layer(iosim: Run, words: str, total_bytes: int) -> None:
    record = iosim(f"{LAYER} {words}").json
    assert total(record) == total_bytes == record["theory"]["closed_form_bytes"]
    assert record["theory"]["compulsory_bytes"] == 268_435_456
    assert record["work"]["useful_flops"] == record["work"]["executed_flops"] == 1_099_511_627_776


def test_a_causal_mask_executes_whole_tiles(iosim: Run) -> None:
    work = iosim(f"{LAYER} --mask causal --tiles 128x128").json["work"]
    assert work["executed_flops"] == 558_345_748_480
    assert work["executed_flops"] == 2080 * (4 * 128 * 128 * 128) * 32  # tiles x flops of one x heads
    assert work["useful_flops"] == 549_822_922_752


def test_a_window_counts_its_pairs(iosim: Run) -> None:
    record = iosim("simulate --json --seq 32K --head-dim 128 --mask window:1024").json
    assert record["work"]["useful_flops"] == 4 * 128 * 33_030_656


def test_a_small_cross_attention(iosim: Run) -> None:
    words = "simulate --json --seq-q 4 --seq-k 10 --head-dim 8 --value-dim 16 --mask causal"
    assert iosim(words).json["work"]["useful_flops"] == 1632


def test_a_decode_step_reads_shared_heads_once_at_best_and_once_a_query_head_here(iosim: Run) -> None:
    record = iosim("simulate --json --seq-q 1 --seq-k 8192 --heads 32 --kv-heads 8 --head-dim 128").json
    queries_and_outputs = 2 * 32 * 128 * 2
    assert record["theory"]["compulsory_bytes"] - queries_and_outputs == 33_554_432
    assert of_tensor(record, "K")["read_bytes"] + of_tensor(record, "V")["read_bytes"] == 134_217_728


@pytest.mark.parametrize(
    ("softmax", "passes_over_scores", "passes", "accesses"),
    [("fused", 4, 1, 2), ("naive", 5, 2, 3), ("safe", 6, 3, 4), ("online", 5, 2, 3)],
)
def test_softmax_kinds_differ_by_passes(
    iosim: Run, softmax: str, passes_over_scores: int, passes: int, accesses: int
) -> None:
    record = iosim(f"simulate --json --algorithm standard --softmax {softmax} --seq 1024").json
    moved = sum(
        t["read_bytes"] + t["write_bytes"] for t in record["traffic_by_tensor"] if t["tensor"] in "SP"
    )
    assert moved == passes_over_scores * 1024 * 1024 * 2
    assert record["softmax"] == {"variant": softmax, "passes": passes, "accesses_per_element": accesses}


def test_each_option_reaches_the_algorithm_that_has_it(iosim: Run) -> None:
    words = "simulate --json --algorithm flash1,flash2 --lse --flash1-variant skip-first-read --seq 512"
    flash1, flash2 = iosim(words).json
    assert flash1["options"]["variant"] == "skip-first-read"
    assert "lse" not in flash1["options"]
    assert flash2["options"]["lse"] == "on"
    assert "variant" not in flash2["options"]
    assert of_tensor(flash2, "LSE")["write_bytes"] == 4 * 512


def test_bytes_of_mixed_dtypes(iosim: Run) -> None:
    words = "simulate --json --seq 64 --head-dim 32 --dtype bf16 --dtype-k fp8 --dtype-o fp32 --tiles 64x64"
    record = iosim(words).json
    moved = {t["tensor"]: t["read_bytes"] + t["write_bytes"] for t in record["traffic_by_tensor"]}
    assert moved == {"Q": 64 * 32 * 2, "K": 64 * 32, "V": 64 * 32 * 2, "O": 64 * 32 * 4}


def test_sizes_take_binary_suffixes_and_elements_are_those_of_k(iosim: Run) -> None:
    record = iosim("simulate --json --seq 8k --sram 98304el --dtype-k fp8 --head-dim 64").json
    assert record["problem"]["seq_q"] == 8192
    assert record["sram"]["capacity_bytes"] == 98304


# --- the contract ---------------------------------------------------------------------------------------------

INT_OR_NONE = (int, type(None))
CONTRACT: dict[str, Any] = {
    "schema_version": int,
    "problem": dict,
    "algorithm": str,
    "tiles": {"rows": INT_OR_NONE, "cols": INT_OR_NONE},
    "profile": str,
    "traffic": {"sm_read_bytes": int, "sm_write_bytes": int},
    "traffic_by_tensor": [{"tensor": str, "level": str, "read_bytes": int, "write_bytes": int}],
    "work": {
        "useful_flops": int,
        "executed_flops": int,
        "tensor_flops": int,
        "vector_flops": int,
        "special_ops": int,
    },
    "sram": {"model": str, "live_bytes": int, "capacity_bytes": int, "fits": bool, "buffers": list},
    "theory": {
        "closed_form_bytes": INT_OR_NONE,
        "compulsory_bytes": int,
        "lower_bound_bytes": int,
        "bounds": [{"name": str, "bytes": INT_OR_NONE, "valid": bool, "reason": str, "source": str}],
    },
    "warnings": list,
}


def check(value: Any, contract: Any, at: str) -> None:
    """Every key of the contract is there with its type; later work may add keys, never rename them."""
    if isinstance(contract, dict):
        for key, inner in contract.items():
            assert key in value, f"{at}.{key}"
            check(value[key], inner, f"{at}.{key}")
    elif isinstance(contract, list):
        assert value, at
        for item in value:
            check(item, contract[0], at)
    else:
        assert isinstance(value, contract), at
        assert contract is bool or not isinstance(value, bool), at


@pytest.mark.parametrize(
    "algorithm", ["standard", "online_attention", "flash1", "flash2", "seed_flash", "small_cache", "gemm"]
)
def test_the_json_keeps_its_contract(iosim: Run, algorithm: str) -> None:
    record = iosim(f"simulate --json --algorithm {algorithm} --seq 256 --head-dim 64").json
    check(record, CONTRACT, "record")
    assert record["algorithm"] == algorithm
    assert sum(t["read_bytes"] + t["write_bytes"] for t in record["traffic_by_tensor"]) == total(record)
    assert record["theory"]["lower_bound_bytes"] <= total(record)


def test_several_algorithms_give_a_list_in_their_order(iosim: Run) -> None:
    outcome = iosim("simulate --json --algorithm standard,flash2 --seq 8192")
    assert [record["algorithm"] for record in outcome.json] == ["standard", "flash2"]
    assert outcome.err == ""
    assert any("idealised" in line for line in outcome.json[0]["warnings"])


# --- bad input ------------------------------------------------------------------------------------------------

BAD = [
    ("--seq 0", "--seq: must be a whole number from 1 to 2^40"),
    ("--seq -5", "--seq"),
    ("--seq 12.5", "--seq"),
    ("--seq many", "--seq"),
    ("--seq 99999999999999999999999999999999", "--seq"),
    ("--seq 4096T", "--seq"),
    ("--seq-q 5", "seq_k"),
    ("--seq 5 --seq-k 5", "seq"),
    ("--head-dim 0", "--head-dim"),
    ("--value-dim x", "--value-dim"),
    ("--batch 0", "--batch"),
    ("--heads 1e3", "--heads"),
    ("--heads 6 --kv-heads 4", "multiple of kv_heads"),
    ("--dtype fp12", "known: fp64"),
    ("--dtype-v half", "dtype"),
    ("--mask sideways", "allowed: none, causal, window:W"),
    ("--mask window:0", "mask window"),
    ("--scale nan", "scale"),
    ("--algorithm flash9", "known: standard"),
    ("--algorithm flash2,,flash1", "--algorithm"),
    ("--algorithm flash2,flash2", "given twice"),
    ("--algorithm ./nowhere.py:program", "nowhere.py"),
    ("--softmax safe", "belongs to standard"),
    ("--softmax quick --algorithm standard", "fused, naive, safe, online"),
    ("--gemm-tiles big --algorithm standard", "128x128"),
    ("--flash1-variant x --algorithm flash1", "literal, skip-first-read"),
    ("--tiles 128", "rows x cols"),
    ("--tiles 4096x4096", "largest tile that fits"),
    ("--granularity 0", "--granularity"),
    ("--footprint real", "paper, kernel"),
    ("--sram 192", "no unit"),
    ("--sram 64B", "smaller than any tile"),
    ("--hw h100", "h100-sxm"),
    ("--hw nowhere.yaml", "nowhere.yaml"),
    ("--hw /dev/zero", "not a file"),
    ("--seq 1048576M --mask causal --tiles 64x64", "shorter sequence"),
    ("--seq 1048576M --mask causal", "shorter sequence"),
    ("--set l2=5MiB", "--set l2: unknown key"),
    ("--set memory.l2.capacity", "key=value"),
]


@pytest.mark.parametrize(("words", "said"), BAD)
def test_bad_input_is_one_line_that_names_the_argument(iosim: Run, words: str, said: str) -> None:
    outcome = iosim(f"simulate {words}")
    assert outcome.code == 2
    assert outcome.out == ""
    (line,) = outcome.err.splitlines()
    assert line.startswith("iosim: ")
    assert said in line


# --- overrides ------------------------------------------------------------------------------------------------


def idle(warnings: list[str]) -> list[str]:
    return [line.split(":")[0] for line in warnings if "changes nothing" in line]


@pytest.mark.parametrize(
    ("words", "said_idle"),
    [
        ("--set memory.l2.capacity=100MiB", ["--set memory.l2.capacity=100MiB"]),
        ("--set memory.sram.per_block=100KiB", []),
        ("--set memory.sram.per_block=227KiB", ["--set memory.sram.per_block=227KiB"]),
        ("--set memory.sram.per_block=100KiB --sram 64KiB", ["--set memory.sram.per_block=100KiB"]),
        (
            "--set memory.sram.per_block=100KiB --set memory.l2.capacity=100MiB",
            ["--set memory.l2.capacity=100MiB"],
        ),
    ],
)
def test_an_override_that_changes_nothing_says_so(iosim: Run, words: str, said_idle: list[str]) -> None:
    assert idle(iosim(f"simulate --json {words}").json["warnings"]) == said_idle


# --- for people -----------------------------------------------------------------------------------------------


def test_bare_simulate_says_what_it_ran(iosim: Run) -> None:
    outcome = iosim("simulate")
    first, second, third, *_ = outcome.out.splitlines()
    assert first == "batch 1, heads 1, seq 4096, head-dim 128, fp16, mask none"
    assert second.startswith("h100-sxm, M = 232,448 B (227 KiB)")
    assert "between slow memory and the SMs" in third
    assert outcome.err == ""


def test_the_table_stands_side_by_side_with_exact_bytes(iosim: Run) -> None:
    outcome = iosim(
        "simulate --seq 8192 --heads 32 --algorithm standard,flash2 --tiles 128x64 --softmax safe"
    )
    rows = {line[:28].strip(): line[28:] for line in outcome.out.splitlines()}
    assert rows["total"].split("  ")[-1].strip() == "8,724,152,320 B (8.125 GiB)"
    assert "equal to the total" in rows["closed form"]
    assert "safe: 3 passes, 4 accesses an element" in rows["softmax"]
    assert rows["fits in M"].split() == ["no", "yes"]
    assert rows["which bound"].split() == ["score", "round", "trip", "fused"]
    assert "warning: standard: idealised" in outcome.err
    assert not set("│─┃━\x1b") & set(outcome.out)


def test_a_warning_names_the_algorithm_that_it_concerns(iosim: Run) -> None:
    one = iosim("simulate --algorithm standard --softmax naive --seq 512 --head-dim 32").err
    both = iosim("simulate --algorithm standard,flash2 --softmax naive --seq 512 --head-dim 32").err
    assert one == "warning: softmax: naive takes no maximum, so large scores overflow\n"
    assert both == "warning: standard: softmax: naive takes no maximum, so large scores overflow\n"
