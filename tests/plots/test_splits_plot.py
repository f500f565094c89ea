"""The figure of the splits: it draws the counts, and marks the count of the run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from iosim.analysis import analyze
from iosim.errors import UsageError
from iosim.plots.files import save
from iosim.plots.splits import splits_plot
from iosim.plots.style import PAPER, SCREEN, Style
from iosim.problem import AttentionProblem
from iosim.results import RunRecord

LLAMA = AttentionProblem.of(heads=32, kv_heads=8, seq_q=1, seq_k=8192, head_dim=128)


def run(splits: str, problem: AttentionProblem = LLAMA) -> RunRecord:
    return analyze(problem, "decode", options={"splits": splits})


@pytest.mark.parametrize("style", [SCREEN, PAPER])
def test_every_point_drawn_is_a_run_of_its_own(style: Style) -> None:
    figure = splits_plot(run("best"), style).figure
    upper, lower = figure.axes[1], figure.axes[0]
    (moved,) = [line for line in upper.get_lines() if line.get_label() == "bytes moved"]
    busy = next(line for line in lower.get_lines() if len(np.asarray(line.get_xdata())) > 2)
    bytes_at = dict(zip(moved.get_xdata(), moved.get_ydata(), strict=True))
    share_at = dict(zip(busy.get_xdata(), busy.get_ydata(), strict=True))
    for splits in (1, 2, 16, 17):
        record = run(str(splits))
        assert bytes_at[splits] == record.traffic.total_bytes
        assert share_at[splits] == record.notes["launch"]["sm_share"]


def test_the_best_is_the_least_of_its_column_and_the_chosen_the_one_asked_for() -> None:
    data = splits_plot(run("4"), SCREEN).data
    assert data.loc[data["chosen"], "splits"].tolist() == [4]
    (best,) = data.index[data["best"]]
    assert best == (data["total_bytes"] / data["sm_share"]).idxmin()
    assert best != data.index[data["chosen"]][0]


def test_one_possible_split_is_drawn_as_well() -> None:
    tiny = AttentionProblem.of(seq_q=1, seq_k=8, head_dim=64)
    plot = splits_plot(run("best", tiny), SCREEN)
    assert plot.data["splits"].tolist() == [1]


def test_the_table_is_saved_beside_the_figure(tmp_path: Path) -> None:
    plot = splits_plot(run("best"), PAPER)
    paths = save(plot, tmp_path / plot.name, ["png"])
    assert [path.name for path in paths] == ["splits.png", "splits.csv"]
    assert pd.read_csv(paths[1])["total_bytes"].tolist() == plot.data["total_bytes"].tolist()


def test_an_algorithm_without_splits_is_refused() -> None:
    with pytest.raises(UsageError, match="flash2 does not split its keys"):
        splits_plot(analyze(LLAMA, "flash2"), SCREEN)
