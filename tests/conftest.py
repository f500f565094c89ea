"""Settings of the whole test suite."""

from __future__ import annotations

from hypothesis import settings

# a loaded machine is not a failing test: speed is held by benchmarks, not by a deadline an example
settings.register_profile("iosim", deadline=None)
settings.load_profile("iosim")
