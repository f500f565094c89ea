"""Every build that a rung lists, for every architecture: it compiles, holds its registers, and spills nothing."""

from __future__ import annotations

import pytest

from iosim_validation.launch import Build
from iosim_validation.nvrtc import compile_cubin
from iosim_validation.rungs import RUNGS

ALL = tuple(build for rung in RUNGS.values() for build in rung.builds())


def test_every_rung_lists_what_it_is_built_for() -> None:
    assert {build.rung for build in ALL} >= set(RUNGS) - {
        "standard_naive",
        "standard_safe",
        "standard_online",
    }
    assert {"sm_80", "sm_90a"} <= {build.architecture for build in ALL}


@pytest.mark.slow
@pytest.mark.parametrize("build", ALL, ids=lambda build: build.name)
def test_it_compiles_clean(build: Build) -> None:
    found = compile_cubin(build.source(), build.architecture, build.entry).resources[build.entry]
    assert found.registers_per_thread <= build.registers_at_most
    assert (found.spill_store_bytes, found.spill_load_bytes) == (0, 0)
    assert found.notes == ()
