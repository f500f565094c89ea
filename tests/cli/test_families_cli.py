"""The options of the families on the command line: they reach the record, the listing and the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]


def of_tensor(record: dict[str, Any], name: str) -> int:
    return sum(t["read_bytes"] + t["write_bytes"] for t in record["traffic_by_tensor"] if t["tensor"] == name)


def test_pass(iosim: Run) -> None:
    record = iosim("simulate --json --pass bwd --seq 1024 --head-dim 64 --tiles 128x128").json
    assert record["options"]["pass"] == "bwd"
    assert record["pass"] == {"name": "bwd", "matmuls": 5, "recomputed_matmuls": 1}
    matrices = sum(of_tensor(record, t) for t in ("Q", "K", "V", "O", "dO", "dQ", "dK", "dV"))
    assert matrices == (4 * 8 + 7) * 1024 * 64 * 2
    assert "bwd: 5 matmuls, 1 of them again" in iosim("simulate --pass bwd --seq 1024").out
    listing = iosim("show flash2 --json --pass bwd --seq 512 --tiles 64x64").json
    assert any(line["text"].startswith("add dQ[i] += ") for line in listing["lines"])


def test_block_mask_by_name_and_by_file(iosim: Run, tmp_path: Any) -> None:
    words = "--json --seq 1024 --tiles 128x128 --algorithm flash2 --block-mask"
    named = iosim(f"simulate {words} local:1").json
    assert named["block_mask"]["blocks"] == 8
    path = tmp_path / "mask.npy"
    np.save(path, np.eye(8, dtype=bool))
    saved = iosim(f"simulate {words} {path}").json
    assert saved["traffic"] == named["traffic"]
    text = iosim("simulate --seq 1024 --tiles 128x128 --block-mask local:1").out
    assert "8 of 64 blocks" in text


def test_decode_splits_and_pages(iosim: Run) -> None:
    words = "simulate --json --algorithm decode --heads 32 --kv-heads 8 --seq-q 1 --seq-k 8192 --head-dim 128"
    best = iosim(f"{words} --splits best").json
    assert of_tensor(best, "K") + of_tensor(best, "V") == 33_554_432
    assert best["options"]["splits"] == str(best["splits"]["best"])
    assert best["splits"]["table"][0]["splits"] == 1
    apart = iosim(f"{words} --no-pack-gqa").json
    assert of_tensor(apart, "K") == 4 * of_tensor(best, "K")
    paged = iosim(f"{words} --page 64 --tiles 16x64").json
    assert of_tensor(paged, "PAGES") == 8 * 128 * 4
    assert paged["pages"]["pages_a_sequence"] == 128


def test_latent_attention(iosim: Run) -> None:
    shape = "--heads 16 --kv-heads 1 --head-dim 576 --value-dim 512 --seq-q 1 --seq-k 4096"
    record = iosim(f"simulate --json --algorithm mla {shape}").json
    assert of_tensor(record, "K") == 4096 * 1152
    assert of_tensor(record, "V") == 0


def test_ragged_batch(iosim: Run, tmp_path: Any) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("512\n1024\n37\n")
    listed = iosim("simulate --json --seq-lens 512,1024,37 --tiles 128x128").json
    assert iosim(f"simulate --json --seq-lens {path} --tiles 128x128").json == listed
    assert listed["ragged"]["tokens"] == 1573
    assert listed["theory"]["closed_form_bytes"] == sum(listed["traffic"].values())
    assert "padding would add" in iosim("simulate --seq-lens 512,1024,37").out


RAGGED = "--seq-lens 512,1024,37 --heads 2 --head-dim 40 --tiles 64x64"


def test_a_ragged_batch_with_levels_on_chip_and_padded_head_dims(iosim: Run) -> None:
    whole = iosim(f"simulate --json {RAGGED} --levels --on-chip --pad-head-dim 64 --hw h200-sxm").json
    plain = iosim(f"simulate --json {RAGGED} --hw h200-sxm").json
    assert whole["levels"]["kernels"][0]["blocks"] == 2 * (8 + 16 + 1)
    assert whole["levels"]["kernels"][0]["sm_read_bytes"] == plain["traffic"]["sm_read_bytes"]
    assert whole["on_chip"]["schemes"][0]["steps"] == 2 * (8 * 8 + 16 * 16 + 1)
    assert whole["padding"] == {"multiple": 64, "head_dim": 64, "value_dim": 64}
    assert whole["work"]["padded_executed_flops"] * 40 == whole["work"]["executed_flops"] * 64
    card = iosim("simulate --json --seq-lens 512,1024,37 --kernel torch-flash2 --hw h200-sxm").json
    assert card["levels"]["kernel"] == "torch-flash2"


def test_the_listing_and_the_sweep_of_a_ragged_batch_are_those_of_simulate(iosim: Run) -> None:
    record = iosim(f"simulate --json {RAGGED} --mask causal").json
    listing = iosim(f"show flash2 --json {RAGGED} --mask causal").json
    assert listing["ragged"] == record["ragged"]
    assert listing["totals"]["read_bytes"] == record["traffic"]["sm_read_bytes"]
    assert listing["totals"]["tensor_flops"] == record["work"]["executed_flops"]
    assert "3 sequences of 37 to 1,024 keys" in iosim(f"show flash2 {RAGGED}").out
    rows = iosim(f"sweep --json {RAGGED.replace('40', '40,64')} --mask none,causal").json
    assert [(r["head_dim"], r["mask"]) for r in rows] == [
        (d, m) for m in ("none", "causal") for d in (40, 64)
    ]
    (row,) = [r for r in rows if (r["head_dim"], r["mask"]) == (40, "causal")]
    assert row["sm_read_bytes"] == record["traffic"]["sm_read_bytes"]
    assert (
        row["K_read_bytes"]
        == next(t for t in record["traffic_by_tensor"] if t["tensor"] == "K")["read_bytes"]
    )
    assert row["lower_bound_bytes"] == record["theory"]["lower_bound_bytes"]
    assert (row["batch"], row["seq_k"], row["tokens"]) == (3, 1024, 1573)
    assert row["padding_bytes"] == record["ragged"]["padding_bytes"]
    decode = "--seq-lens 512,1024,37 --seq-q 1 --algorithm decode --levels --hw h200-sxm"
    (step,) = iosim(f"sweep --json {decode}").json
    assert (step["seq_q"], step["seq_k"]) == (1, 1024)
    assert step["hbm_read_bytes"] > 0
    failed = iosim("sweep --json --seq-lens 512,37 --tiles 64x64,4096x4096").json
    assert "4096x4096 needs" in failed[1]["error"]


def test_prefix_bias_and_dropout(iosim: Run) -> None:
    words = "simulate --json --algorithm flash2 --mask prefix:256 --seq 1024 --tiles 128x128"
    plain, more = iosim(words).json, iosim(f"{words} --bias alibi --dropout").json
    assert plain["problem"]["mask"] == "prefix:256"
    assert plain["traffic"] == more["traffic"]
    assert plain["work"]["vector_flops"] < more["work"]["vector_flops"]


def test_a_sweep_takes_the_options_of_the_families(iosim: Run) -> None:
    table = iosim(
        "sweep --json --algorithm standard,flash1,flash2 --pass fwd+bwd --seq 256,512 --head-dim 64"
    ).json
    assert len(table) == 6
    assert all(row["error"] == "" and row["dQ_write_bytes"] > 0 for row in table)
    assert all(row["closed_form_bytes"] == row["sm_read_bytes"] + row["sm_write_bytes"] for row in table)
    table = iosim("sweep --json --algorithm decode --splits 4 --page 16 --seq-q 1 --seq-k 1024,2048").json
    assert [row["O_parts_write_bytes"] for row in table] == [4 * 128 * 4] * 2
    table = iosim("sweep --json --algorithm mla --kv-heads 1,2 --heads 2 --seq 128").json
    assert [bool(row["error"]) for row in table] == [False, True]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("simulate --pass back", "--pass: 'back' is not one of fwd, bwd, fwd+bwd"),
        ("simulate --algorithm linear --pass bwd", "--pass: not an option of linear"),
        ("simulate --block-mask locl:2", "allowed: local:W"),
        ("simulate --block-mask no.npy", "no.npy is not a file"),
        ("simulate --algorithm decode --splits 0", "--splits: must be a whole number from 1"),
        ("simulate --algorithm decode --page x", "--page: must be a whole number from 1"),
        ("simulate --algorithm mla --heads 2", "kv_heads: mla has one latent row"),
        ("simulate --algorithm linear --mask causal", "linear has no causal mask; allowed: none"),
        ("simulate --mask prefix:0", "between 1 and 2"),
        ("simulate --seq-lens 0,5,3", "offsets, which must rise"),
        ("simulate --seq-lens 5,6 --seq 8", "leave out --seq, --seq-k and --batch"),
        (
            "report --algorithm decode --splits best --seq-q 1 --seq-k 64",
            "--splits: best is found for one GPU",
        ),
        ("report --algorithm mla", "kv_heads: mla has one latent row"),
        ("bound --algorithm linear --mask causal", "linear has no causal mask"),
    ],
)
def test_one_line_says_what_is_wrong(iosim: Run, words: str, said: str) -> None:
    result = iosim(words)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.strip().splitlines()) == 1
