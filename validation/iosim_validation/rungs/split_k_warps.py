"""`flash2` with the warp partition of FlashAttention-1, to measure what split-Q saves."""

from __future__ import annotations

from typing import ClassVar

from iosim_validation.rungs.flash2 import Flash2


class SplitKWarps(Flash2):
    """The keys of a tile are divided among the warps, which sum their parts of O through shared memory."""

    name: ClassVar[str] = "split_k_warps"
    title: ClassVar[str] = "FlashAttention-2 with the keys of a tile split among the warps"
