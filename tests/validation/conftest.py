"""NumPy in the place of CuPy, where a test asks for it."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def numpy_for_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iosim_validation.reference.cupy", lambda: np)
