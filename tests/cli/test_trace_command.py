"""`iosim trace`: rows against the tracer of single blocks, the merged order, both formats, bad input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet
import pytest

from iosim import trace_file
from iosim.algorithms.registry import find_algorithm
from iosim.errors import RunError
from iosim.interpret.binding import bind
from iosim.interpret.trace import blocks, trace
from iosim.memory import tile_streams
from iosim.problem import AttentionProblem, TileShape

Run = Callable[..., Any]
SHAPE = "--seq-q 100 --seq-k 130 --head-dim 16 --heads 4 --kv-heads 2 --batch 2 --mask causal --tiles 32x16"
PROBLEM = {
    "seq_q": 100,
    "seq_k": 130,
    "head_dim": 16,
    "heads": 4,
    "kv_heads": 2,
    "batch": 2,
    "mask": "causal",
}
REGION = ["tensor", "batch", "head", "row_start", "row_stop", "col_start", "col_stop", "store"]


def expected(name: str) -> pd.DataFrame:
    problem = AttentionProblem.of(**PROBLEM)
    algorithm = find_algorithm(name)
    program = algorithm.program("causal", algorithm.resolve({}))
    binding = bind(problem, TileShape(rows=32, cols=16))
    names, rows = list(program.tensors), []
    for kernel in program.kernels:
        for number, block in enumerate(blocks(kernel, binding)):
            step = 0
            for piece in trace(program, kernel, block, binding):
                for access in piece:
                    region = {n: access[n].item() for n in REGION} | {"tensor": names[access["tensor"]]}
                    rows.append({"kernel": kernel.name, "block": number, "step": step} | region)
                    step += 1
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", ["flash2", "flash1", "small_cache"])
def test_rows_are_those_of_each_block_in_turn(iosim: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.parquet"
    assert iosim(f"trace {SHAPE} --algorithm {name} --out {path}").code == 0
    found = pd.read_parquet(path)
    assert list(found.columns) == list(trace_file.COLUMNS)
    want = expected(name)
    pd.testing.assert_frame_equal(
        found.drop(columns="bytes").astype({"kernel": str, "tensor": str}),
        want.astype(found[[*want.columns]].dtypes.to_dict() | {"kernel": str, "tensor": str}),
    )


def test_bytes_add_up_to_what_simulate_counts(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    iosim(f"trace {SHAPE} --algorithm standard --gemm-tiles 32x32 --tiles best --out {path}")
    counted = iosim(f"simulate --json {SHAPE} --algorithm standard --gemm-tiles 32x32 --tiles best").json
    found = pd.read_csv(path)
    assert found.loc[~found["store"], "bytes"].sum() == counted["traffic"]["sm_read_bytes"]
    assert found.loc[found["store"], "bytes"].sum() == counted["traffic"]["sm_write_bytes"]
    assert list(dict.fromkeys(found["kernel"])) == ["scores", "softmax", "output"]


def test_merged_rows_are_the_same_in_the_order_of_time(iosim: Run, tmp_path: Path) -> None:
    alone, merged = tmp_path / "a.parquet", tmp_path / "m.parquet"
    iosim(f"trace {SHAPE} --out {alone}")
    outcome = iosim(f"trace {SHAPE} --out {merged} --merged --blocks-per-sm 1 --json --hw toy")
    found, one = pd.read_parquet(merged), pd.read_parquet(alone)
    assert list(found.columns) == ["order", "slot", *trace_file.COLUMNS]
    assert found["order"].tolist() == list(range(len(found))) == list(range(outcome.json["rows"]))
    back = found.sort_values(["block", "step"]).drop(columns=["order", "slot"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(back, one)
    assert (found.groupby("block")["slot"].nunique() == 1).all()
    assert found["slot"].max() + 1 <= outcome.json["policies"]["sms"]
    assert (found.groupby("block")["step"].diff().dropna() == 1).all()


def test_a_backward_walk_turns_the_keys_round(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    iosim(f"trace {SHAPE} --out {path} --merged --kv-walk backward")
    found = pd.read_parquet(path)
    first_block = found[(found["block"] == 0) & (found["tensor"] == "K")].sort_values("step")
    assert first_block["row_start"].is_monotonic_decreasing
    assert len(first_block) > 1


def test_small_pieces_write_the_same_table(
    iosim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "w.parquet", tmp_path / "c.parquet"
    iosim(f"trace {SHAPE} --out {whole}")
    monkeypatch.setattr(tile_streams, "PIECE", 50)
    iosim(f"trace {SHAPE} --out {cut}")
    assert pyarrow.parquet.ParquetFile(cut).metadata.num_row_groups > 10
    pd.testing.assert_frame_equal(pd.read_parquet(whole), pd.read_parquet(cut))


def test_columns_are_described_in_the_file_and_in_the_json(iosim: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    document = iosim(f"trace {SHAPE} --out {path} --json").json
    for field in pyarrow.parquet.read_schema(path):
        assert field.metadata[b"description"].decode() == document["columns"][field.name]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    algorithm = find_algorithm("flash2")
    program = algorithm.program("causal", algorithm.resolve({}))
    monkeypatch.setattr(tile_streams, "PIECE", 50)

    def fail_late(done: int, total: int) -> None:
        if done > total // 2:
            raise failure

    path = tmp_path / "t.parquet"
    path.write_text("an older file")
    with pytest.raises(RunError):
        trace_file.write_trace(
            path,
            program,
            AttentionProblem.of(**PROBLEM),
            TileShape(rows=32, cols=16),
            progress=fail_late,
        )
    assert [p.name for p in tmp_path.iterdir()] == ["t.parquet"]
    assert path.read_text() == "an older file"


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        ("--out trace.txt", "must end in .parquet or .csv", 2),
        ("--out t.csv --kv-walk backward", "with --merged only", 2),
        ("--out t.csv --merged --kv-walk spiral", "--kv-walk: unknown walk 'spiral'", 2),
        ("--out t.csv --algorithm flash1,flash2", "one at a time", 2),
        ("--out t.csv --algorithm flash1 --seq 256K --tiles 16x16", "too many", 2),
        ("--out /proc/none/t.csv", "cannot write", 1),
    ],
)
def test_bad_input_is_one_line(
    iosim: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = iosim(f"trace {words}")
    assert (outcome.code, outcome.out) == (code, "")
    (line,) = outcome.err.splitlines()
    assert says in line
    assert list(tmp_path.iterdir()) == []
