"""`iosim memory`: footprints, the longest sequence that fits, the figure, bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
TABLE_21 = "memory --json --batch 16 --heads 8 --head-dim 64 --seq 4096 --hw a100-sxm-40gb"


def entry(document: dict[str, Any], algorithm: str, which: str) -> dict[str, Any]:
    (found,) = [m for m in document["memory"] if (m["algorithm"], m["pass"]) == (algorithm, which)]
    return dict(found)


def test_table_21_and_what_fits_in_40_gb(iosim: Run) -> None:
    document = iosim(TABLE_21).json
    assert document["capacity_bytes"] == 40 * 10**9
    training = entry(document, "standard", "fwd+bwd")
    assert abs(training["bytes"] / 2**20 - 17024) <= 0.6
    assert training["status"] == "fitted"
    assert sum(part["bytes"] for part in training["parts"]) == training["bytes"]
    # the table's standard attention runs out of memory at 8192, FlashAttention does not at 65536
    assert 4096 <= training["largest_seq_layer"] < 8192
    flash = entry(document, "flash1", "fwd+bwd")
    assert flash["largest_seq_layer"] > 65536
    assert flash["fits_128k"]
    assert not flash["fits_1m"]


def test_one_head_reaches_further_than_a_layer(iosim: Run) -> None:
    for found in iosim(TABLE_21).json["memory"]:
        assert found["largest_seq_head"] > found["largest_seq_layer"]


def test_reserved_memory_is_not_there(iosim: Run) -> None:
    document = iosim("memory --json --model llama-3-8b --hw h100-sxm --reserve 16GB").json
    assert document["capacity_bytes"] == 64 * 10**9
    assert document["problem"]["kv_heads"] == 8


def test_the_table_names_parts_and_rules(iosim: Run) -> None:
    out = iosim("memory --seq 1K --algorithm flash2 --pass fwd+bwd").out
    for words in ("longest, layer", "dQ accumulator (fp32)", "derived", "128K"):
        assert words in out


def test_the_figure_and_its_data(iosim: Run, tmp_path: Path) -> None:
    assert iosim("memory", "--out", str(tmp_path), "--formats", "png").code == 0
    assert (tmp_path / "memory_by_seq.png").read_bytes().startswith(b"\x89PNG")
    header = (tmp_path / "memory_by_seq.csv").read_text().splitlines()[0]
    assert header == "algorithm,pass,seq,bytes,capacity_bytes"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--algorithm gemm", "unknown algorithm 'gemm'; known: standard"),
        ("--algorithm standard,standard", "each once"),
        ("--pass both", "allowed: fwd, bwd, fwd+bwd"),
        ("--reserve 16", "--reserve: '16' has no unit"),
        ("--reserve 1TB", "leave nothing of the GPU's"),
        ("--hw h100", "say which"),
        ("--seq 0", "--seq"),
    ],
)
def test_bad_input_is_one_line(iosim: Run, words: str, says: str) -> None:
    outcome = iosim(f"memory {words}")
    assert outcome.code == 2
    (line,) = outcome.err.splitlines()
    assert says in line
