"""The one place that knows numba: a typed decorator for compiled functions. Import it only where a
simulation runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")

# Without reference counting (`_nrt`) a kernel cannot allocate, but its calls cost next to nothing: a line
# that misses takes 25 ns instead of 110.
OPTIONS: Any = {"cache": True, "nogil": True, "forceinline": True, "_nrt": False}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on the first call and keep the result on disk, so that later runs do not pay for it.

    A kernel allocates nothing and calls kernels of its own file only: the stored code is renewed when that
    file changes, and no other.
    """
    return cast(Callable[P, R], numba.njit(**OPTIONS)(function))
