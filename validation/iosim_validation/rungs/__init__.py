"""Our kernels, one file each, from the plainest to the fastest; `RUNGS` names them all."""

from __future__ import annotations

from types import MappingProxyType

from iosim_validation.rung import Rung
from iosim_validation.rungs.block_sparse import BlockSparse
from iosim_validation.rungs.decode import Decode
from iosim_validation.rungs.flash1 import Flash1
from iosim_validation.rungs.flash2 import Flash2
from iosim_validation.rungs.flash2_wgmma import Flash2Wgmma
from iosim_validation.rungs.split_k_warps import SplitKWarps
from iosim_validation.rungs.standard import Standard, StandardNaive, StandardOnline, StandardSafe

_ALL: tuple[Rung, ...] = (
    Standard(),
    StandardNaive(),
    StandardSafe(),
    StandardOnline(),
    Flash1(),
    Flash2(),
    SplitKWarps(),
    BlockSparse(),
    Decode(),
    Flash2Wgmma(),
)

RUNGS = MappingProxyType({rung.name: rung for rung in _ALL})
