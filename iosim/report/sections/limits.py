"""What the numbers leave out."""

from __future__ import annotations

from iosim.report.blocks import Section, items
from iosim.report.sections.facts import Facts

NOT_MODELLED = (
    "What a compiler makes of a kernel: spilled registers are known only for kernels that were measured.",
    "Times of kernels whose class nobody has measured; bytes and bounds hold for them all the same.",
    "Other work on the GPU at the same time: the L2, the memory and the power are the attention's alone.",
)


def section(facts: Facts) -> Section:
    """The list."""
    return Section(key="limits", title="Not modelled", nav="Not modelled", blocks=tuple(items(NOT_MODELLED)))
