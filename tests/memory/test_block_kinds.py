"""Blocks that are alike are found by counting; sorting whole rows finds the same, dearer."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from iosim.memory.streams import _kinds

FAR = 10**9  # a table of that many entries would not fit: the blocks are sorted


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=40), st.sampled_from([1, FAR]))
def test_the_same_as_sorting_rows(rows: list[tuple[int, int, int]], factor: int) -> None:
    table = np.array(rows, dtype=np.int64) * [1, factor, 1]
    keys, kind = _kinds(list(table.T))
    expected, places = np.unique(table, axis=0, return_inverse=True)
    assert keys.tolist() == expected.tolist()
    assert kind.tolist() == places.ravel().tolist()
