"""The compiled schedule of long lists is the plain one, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from iosim.memory import sm_time
from iosim.memory.sm_time import MANY_BLOCKS, busiest_sm_cycles

COSTS = {
    "drawn": np.random.default_rng(1).random(MANY_BLOCKS + 7),
    "few values": np.random.default_rng(2).integers(1, 9, MANY_BLOCKS + 7).astype(float),
    "alike": np.ones(MANY_BLOCKS + 7),
}


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS.keys())
@pytest.mark.parametrize("residents", [1, 2, 3])
def test_long_lists_give_what_short_ones_do(
    costs: np.ndarray, residents: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = busiest_sm_cycles(costs, 13, residents, alone=0.7)
    monkeypatch.setattr(sm_time, "MANY_BLOCKS", 1 << 60)
    assert compiled == busiest_sm_cycles(costs, 13, residents, alone=0.7)
