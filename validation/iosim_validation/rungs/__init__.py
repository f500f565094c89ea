"""Our kernels, one file each, from the plainest to the fastest; `RUNGS` names them all."""

from __future__ import annotations

from types import MappingProxyType

from iosim_validation.rung import Rung

_ALL: tuple[Rung, ...] = ()

RUNGS = MappingProxyType({rung.name: rung for rung in _ALL})
