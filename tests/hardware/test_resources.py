"""Packaged data is found in a checkout and in a wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from iosim import resources
from iosim.errors import RunError


def test_data_inside_the_package_wins_over_data_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "iosim"
    beside, inside = tmp_path / "hwprofiles", package / "hwprofiles"
    monkeypatch.setattr(resources, "_PACKAGE", package)
    with pytest.raises(RunError, match="lacks its data folder 'hwprofiles'"):
        resources.data_dir("hwprofiles")
    beside.mkdir()
    assert resources.data_dir("hwprofiles") == beside  # a checkout
    inside.mkdir(parents=True)
    assert resources.data_dir("hwprofiles") == inside  # a wheel
