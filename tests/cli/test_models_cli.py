"""`iosim models` and `--model` in the commands that take a problem."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_list_and_show(iosim: Run) -> None:
    listed = iosim("models list --json").json
    assert "llama-3-8b" in [m["name"] for m in listed]
    shown = iosim("models show mistral-7b --json").json
    assert shown["fills"]["mask"] == "window:4096"
    assert "llama-3-70b" in iosim("models list").out
    assert "--kv-heads 8" in iosim("models show llama-3-8b").out


def test_a_model_stands_for_its_options(iosim: Run) -> None:
    named = iosim("simulate --json --model llama-3-8b --seq 8K --mask causal").json
    spelled = iosim(
        "simulate --json --heads 32 --kv-heads 8 --head-dim 128 --dtype bf16 --seq 8K --mask causal"
    ).json
    assert named == spelled


def test_given_options_win_over_the_model(iosim: Run) -> None:
    problem = iosim(
        "simulate --json --model mistral-7b --kv-heads 32 --head-dim 64 --mask none --dtype fp16"
    ).json["problem"]
    assert (problem["heads"], problem["kv_heads"], problem["head_dim"], problem["value_dim"]) == (
        32,
        32,
        64,
        64,
    )
    assert (problem["mask"], problem["dtype_k"]) == ("none", "fp16")


def test_a_window_is_filled_in_and_a_causal_mask_is_spoken_of(iosim: Run) -> None:
    assert iosim("simulate --json --model mistral-7b --seq 8K").json["problem"]["mask"] == "window:4096"
    record = iosim("simulate --json --model llama-3-8b").json
    assert record["problem"]["mask"] == "none"
    assert any("attends causally" in line for line in record["warnings"])


def test_a_local_config_warns_of_a_derived_head_dim(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_attention_heads": 16, "hidden_size": 1024, "torch_dtype": "float16"}))
    record = iosim("simulate", "--json", "--model", str(path)).json
    assert (record["problem"]["heads"], record["problem"]["head_dim"]) == (16, 64)
    assert any("hidden size / heads" in line for line in record["warnings"])


def test_mla_takes_the_cached_row_of_a_model_with_latent_attention(iosim: Run) -> None:
    step = "--seq-q 1 --seq-k 512"
    named = iosim(f"simulate --json --algorithm mla --model deepseek-v3 {step}").json
    spelled = iosim(
        f"simulate --json --algorithm mla --heads 128 --kv-heads 1 --head-dim 576 --value-dim 512 --dtype bf16 {step}"
    ).json
    assert named["traffic_by_tensor"] == spelled["traffic_by_tensor"]
    assert named["problem"]["scale"] == pytest.approx(192**-0.5)  # of the expanded heads: 128 + 64
    (row,) = iosim(f"sweep --json --algorithm mla --model deepseek-v3 {step}").json
    assert row["K_read_bytes"] == 2 * 512 * 1152  # the rows of 128 heads take two thread blocks
    assert iosim(f"show mla --json --model deepseek-v3 --batch 2 {step}").json["problem"]["head_dim"] == 576
    few = iosim(f"simulate --json --algorithm mla --model deepseek-v3 --value-dim 256 {step}").json["problem"]
    assert (few["head_dim"], few["value_dim"]) == (576, 256)
    assert iosim(f"simulate --json --model deepseek-v3 {step}").json["problem"]["head_dim"] == 192


def test_show_and_sweep_take_a_model(iosim: Run) -> None:
    assert iosim("show flash2 --json --model gpt2-medium").json["problem"]["heads"] == 16
    rows = iosim("sweep --json --model llama-3-8b --seq 1K,2K --mask causal").json
    assert {(row["heads"], row["kv_heads"], row["mask"]) for row in rows} == {(32, 8, "causal")}
    rows = iosim("sweep --json --model llama-3-8b --seq 1K --head-dim 64,128").json
    assert [row["head_dim"] for row in rows] == [64, 128]


@pytest.mark.parametrize("command", ["simulate", "show flash2", "sweep", "bound", "report"])
def test_an_unknown_model_is_one_line(iosim: Run, command: str) -> None:
    outcome = iosim(f"{command} --model no-such-model")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert "unknown model 'no-such-model'" in line
    assert "llama-3-8b" in line
