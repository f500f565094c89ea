"""An audit in several processes is the audit in one; unfused kernels that move the same are simulated once."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from iosim.algorithms.registry import find_algorithm
from iosim.audit import audit_file, unfused
from iosim.audit.predict import LEAST_ROWS
from iosim.hardware import load_profile
from iosim.kernels import load_kernel
from iosim.memory.moves import moves_of
from iosim.problem import AttentionProblem

H200 = Path(__file__).resolve().parents[2] / "validation" / "measurements" / "h200"


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of the smallest attentions, unfused ones among them, and one that cannot be simulated."""
    with (H200 / "attention.csv").open(newline="") as file:
        reader = csv.DictReader(file)
        rows = sorted(
            reader, key=lambda r: int(r["batch"]) * int(r["heads"]) * int(r["seq_q"]) * int(r["seq_k"])
        )
        names = list(reader.fieldnames or [])
    kept = rows[: 3 * LEAST_ROWS]
    assert {"qk_gemm", "softmax", "pv_gemm", "flash_fwd"} <= {row["kernel"] for row in kept}
    fused = next(row for row in kept if row["kernel"] == "flash_fwd" and row["block_rows"])
    path = tmp_path_factory.mktemp("some") / "some.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows([*kept, fused | {"batch": "1000000", "heads": "1000", "kv_heads": "1000"}])
    return path


def test_the_same_with_any_number_of_processes(some: Path) -> None:
    told: list[tuple[int, int]] = []
    one = audit_file(some)
    several = audit_file(some, processes=3, progress=lambda done, total: told.append((done, total)))
    assert several.to_dict() == one.to_dict()
    assert [item.row.line for item in several.items] == list(range(2, 2 + 3 * LEAST_ROWS))
    assert len(several.faults) == 1
    assert "thread blocks" in several.faults[0]
    assert told[-1] == (3 * LEAST_ROWS + 1, 3 * LEAST_ROWS + 1)
    assert told == sorted(told)


def test_moves_are_what_a_kernel_loads_and_stores() -> None:
    standard = find_algorithm("standard")

    def moves(kernel: str, mask: str = "none", **options: str) -> object:
        given = standard.resolve({"gemm-tiles": "128x128", **options})
        return moves_of(next(k for k in standard.program(mask, given).kernels if k.name == kernel).body)

    assert moves("scores") == moves("scores", softmax="naive") == moves("scores", "causal")
    assert moves("softmax", softmax="naive") != moves("softmax", softmax="fused")  # it reads S twice
    assert moves("scores") != moves("output")


def test_the_gemms_of_every_softmax_are_one_simulation() -> None:
    problem, gpu = AttentionProblem.of(seq=512, heads=2, head_dim=64), load_profile("h200-sxm")
    unfused._simulated.cache_clear()
    for card in ("iosim-standard", "iosim-standard_naive", "iosim-standard_safe"):
        unfused.unfused_bytes("qk_gemm", problem, load_kernel(card), gpu)
    assert unfused._simulated.cache_info().misses == 1
