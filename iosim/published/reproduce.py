"""Every group of published numbers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from iosim.errors import UsageError
from iosim.published.check import Group
from iosim.published.flash1_paper import figure_2, memory, runtime
from iosim.published.later_papers import Progress, flash2_speed, flash3_exp, flash4_cycles, softmax

GROUPS: Mapping[str, Callable[[], Group]] = MappingProxyType(
    {
        "runtime": runtime,
        "memory": memory,
        "figure-2": figure_2,
        "flash2-speed": flash2_speed,
        "flash3": flash3_exp,
        "flash4-cycles": flash4_cycles,
        "softmax": softmax,
    }
)


def reproduce(names: Sequence[str] = (), progress: Progress | None = None) -> tuple[Group, ...]:
    """The model against the chosen groups (all where none is named). `UsageError` lists the names.

    `progress`: told of the steps of the one slow group, the speeds.
    """
    for name in names:
        if name not in GROUPS:
            raise UsageError(f"group: unknown group {name!r}; known: {', '.join(GROUPS)}")
    chosen = list(dict.fromkeys(names)) or list(GROUPS)
    return tuple(flash2_speed(progress) if name == "flash2-speed" else GROUPS[name]() for name in chosen)
