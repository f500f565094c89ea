"""Model shapes: the packaged table, a local config.json, and `--model` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from iosim.errors import UsageError
from iosim.models import find_model, model_names
from iosim.models.load import read_table
from iosim.problem import AttentionProblem


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads", "head_dim", "window"),
    [
        ("llama-3-8b", 32, 8, 128, None),
        ("llama-3-70b", 64, 8, 128, None),
        ("gpt2-medium", 16, 16, 64, None),
        ("bert-large", 16, 16, 64, None),
        ("mistral-7b", 32, 8, 128, 4096),
        ("deepseek-v3", 128, 128, 192, None),
        ("qwen3-4b", 32, 8, 128, None),
        ("Qwen3_32B", 64, 8, 128, None),
    ],
)
def test_published_shapes(name: str, heads: int, kv_heads: int, head_dim: int, window: int | None) -> None:
    shape = find_model(name)
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.window) == (heads, kv_heads, head_dim, window)


def test_latent_attention_caches_one_row_of_576_elements() -> None:
    shape = find_model("deepseek-v3")
    assert (shape.latent, shape.rope_dim, shape.value_dim) == (512, 64, 128)


def test_a_model_gives_a_problem_of_one_layer() -> None:
    llama = find_model("llama-3-8b").problem(seq=8192, mask="causal")
    assert llama == AttentionProblem.of(
        seq=8192, heads=32, kv_heads=8, head_dim=128, mask="causal", dtype="bf16"
    )
    mistral = find_model("mistral-7b").problem(seq=100, head_dim=64)
    assert (str(mistral.mask), mistral.head_dim, mistral.value_dim) == ("window:4096", 64, 64)
    deepseek = find_model("deepseek-v3").problem(seq_q=1, seq_k=100, dtype="fp8")
    assert (deepseek.head_dim, deepseek.value_dim, deepseek.dtype_k.name) == (192, 128, "fp8")


@pytest.mark.parametrize("name", model_names())
def test_every_model_names_a_source(name: str) -> None:
    shape = find_model(name)
    assert len(shape.source) > 10
    assert shape.layers is not None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lama-3-8b", "did you mean llama-3-8b"),
        ("", "known: gpt2"),
        ("meta-llama/Meta-Llama-3-8B", "path of a config.json"),
        ("./missing.json", "no such file"),
    ],
)
def test_an_unknown_model_lists_the_known_ones(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        find_model(name)
    assert "\n" not in str(caught.value)


HEAD = "m: {heads: 4, kv_heads: 2, head_dim: 8, layers: 1, dtype: fp16, mask: none, source: a paper"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD + ", head: 3}", r"t.yaml:1: m.head: unknown key"),
        (HEAD.replace("heads: 4, ", "") + "}", "t.yaml:1: m: missing: heads"),
        (HEAD.replace("heads: 4", "heads: four") + "}", "m.heads: must be a whole number"),
        (HEAD.replace("heads: 4", "heads: 5") + "}", "heads 5 is not a multiple of kv_heads 2"),
        (HEAD.replace("fp16", "half") + "}", "unknown dtype 'half'"),
        ("m: {", "not valid YAML"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(Exception, match=says):
        read_table(text, "t.yaml")


# config.json ----------------------------------------------------------------------------------------------------

LLAMA = {
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "torch_dtype": "bfloat16",
}


def write(folder: Path, **config: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return str(path)


def test_head_dim_is_the_files_own_where_it_has_one(tmp_path: Path) -> None:
    shape = find_model(write(tmp_path, **LLAMA | {"hidden_size": 5120, "head_dim": 128}))
    assert shape.head_dim == 128
    assert "head_dim" not in shape.notes


def test_a_derived_head_dim_is_said_to_be_derived(tmp_path: Path) -> None:
    shape = find_model(write(tmp_path, **LLAMA))
    assert shape.head_dim == 4096 // 32
    assert "derived as hidden size / heads" in shape.notes["head_dim"]
    assert any("hidden size / heads" in line for line in shape.remarks())
    assert not any("hidden size" in line for line in shape.remarks({"head_dim"}))


def test_the_folder_of_a_config_works_as_well(tmp_path: Path) -> None:
    write(tmp_path, **LLAMA)
    assert find_model(str(tmp_path)).kv_heads == 8


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"n_head": 16, "n_embd": 1024, "n_layer": 24}, (16, 16, 64, 64, 24)),
        ({"num_attention_heads": 71, "hidden_size": 4544, "multi_query": True}, (71, 1, 64, 64, None)),
        (
            {
                "num_attention_heads": 128,
                "num_key_value_heads": 128,
                "kv_lora_rank": 512,
                "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64,
                "v_head_dim": 96,
            },
            (128, 128, 192, 96, None),
        ),
        (
            {"text_config": {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}},
            (8, 4, 256, 256, None),
        ),
    ],
)
def test_families_name_their_sizes_differently(
    tmp_path: Path, config: dict[str, Any], want: tuple[int | None, ...]
) -> None:
    shape = find_model(write(tmp_path, **config))
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.value_dim, shape.layers) == want


@pytest.mark.parametrize(
    ("more", "window", "layers"),
    [
        ({"sliding_window": 4096}, 4096, "all"),
        ({"sliding_window": None}, None, "all"),
        ({"sliding_window": 4096, "use_sliding_window": False}, None, "all"),
        ({"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"]}, 512, "alternate"),
        ({"sliding_window": 512, "layer_types": ["full_attention"] * 2}, None, "all"),
    ],
)
def test_windows_count_only_where_they_are_in_use(
    tmp_path: Path, more: dict[str, Any], window: int | None, layers: str
) -> None:
    shape = find_model(write(tmp_path, **LLAMA | more))
    assert (shape.window, shape.window_layers) == (window, layers)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "no object"),
        ("{}", "no number of attention heads"),
        ('{"num_attention_heads": 4}', "neither head_dim nor a hidden size"),
        ('{"num_attention_heads": 3, "hidden_size": 100}', "no multiple of 3 heads; add head_dim"),
        ('{"num_attention_heads": -1}', "num_attention_heads: must be a whole number"),
        ('{"num_attention_heads": true}', "num_attention_heads: must be a whole number"),
        ('{"num_attention_heads": 4, "hidden_size": 64, "num_key_value_heads": 3}', "not a multiple"),
        ('{"num_attention_heads": 4, "kv_lora_rank": 8}', "qk_nope_head_dim"),
        ('{"text_config": 3}', "text_config: must be an object"),
    ],
)
def test_a_config_that_lacks_something_says_what(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(Exception, match=says) as caught:
        find_model(str(path))
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)
