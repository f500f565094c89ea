"""iosim: the bytes an attention moves at each level of a GPU's memory.

>>> import iosim
>>> problem = iosim.AttentionProblem.of(seq=8192, head_dim=128, heads=32)
>>> iosim.analyze(problem, "flash2", tiles="128x64").traffic.total_bytes
8724152320

Names are imported when they are first used, so that `import iosim` stays fast.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know this name; importing it would cost more than all the rest here
if TYPE_CHECKING:
    from typing import Any

    from iosim.algorithms.registry import ALGORITHMS, find_algorithm
    from iosim.analysis import analyze
    from iosim.errors import IosimError
    from iosim.grid import Grid
    from iosim.hardware import HardwareProfile, load_profile, profile_names
    from iosim.kernels import load_kernel
    from iosim.models import ModelShape, find_model, model_names
    from iosim.problem import AttentionProblem, DType, Mask, TileShape
    from iosim.results import RunRecord
    from iosim.sweep import sweep
    from iosim.timing import time_kernel

__version__ = "0.1.0"

_HOME = {
    "ALGORITHMS": "iosim.algorithms.registry",
    "AttentionProblem": "iosim.problem",
    "DType": "iosim.problem",
    "Grid": "iosim.grid",
    "HardwareProfile": "iosim.hardware",
    "IosimError": "iosim.errors",
    "Mask": "iosim.problem",
    "ModelShape": "iosim.models",
    "RunRecord": "iosim.results",
    "TileShape": "iosim.problem",
    "analyze": "iosim.analysis",
    "find_algorithm": "iosim.algorithms.registry",
    "find_model": "iosim.models",
    "load_kernel": "iosim.kernels",
    "load_profile": "iosim.hardware",
    "model_names": "iosim.models",
    "profile_names": "iosim.hardware",
    "sweep": "iosim.sweep",
    "time_kernel": "iosim.timing",
}

__all__ = [
    "ALGORITHMS",
    "AttentionProblem",
    "DType",
    "Grid",
    "HardwareProfile",
    "IosimError",
    "Mask",
    "ModelShape",
    "RunRecord",
    "TileShape",
    "__version__",
    "analyze",
    "find_algorithm",
    "find_model",
    "load_kernel",
    "load_profile",
    "model_names",
    "profile_names",
    "sweep",
    "time_kernel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'iosim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
