"""Causal tiles by groups of heads: what a kernel with a work counter does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import SimulationError
from iosim.memory.hierarchy import Policies
from iosim.memory.launch import grid_order


@given(st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.integers(1, 9))
def test_groups_follow_each_other_and_the_last_rows_lead_each(
    batch: int, heads: int, row_tiles: int, group: int
) -> None:
    b, h, i = (
        axis.ravel()
        for axis in np.meshgrid(*(np.arange(n) for n in (batch, heads, row_tiles)), indexing="ij")
    )
    order = grid_order({"batch": b, "head": h, "i": i}, Policies(sms=1, head_group=group))
    assert sorted(order) == list(range(batch * heads * row_tiles))
    plane = (b * heads + h)[order]
    seen = list(zip(plane // group, -i[order], plane, strict=True))
    assert seen == sorted(seen)


def test_groups_of_heads_need_blocks_that_own_rows() -> None:
    b, h = np.zeros(4, np.int64), np.arange(4)
    with pytest.raises(SimulationError, match=r"causal_groups orders row tiles, .* leave it out of the card"):
        grid_order({"batch": b, "head": h}, Policies(sms=1, head_group=2))
