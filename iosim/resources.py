"""Finds the data that ships with the package: one function, for a wheel and for a checkout."""

from __future__ import annotations

from pathlib import Path

from iosim.errors import RunError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder `name` (such as "hwprofiles"): inside the package in a wheel, beside it in a checkout."""
    for folder in (_PACKAGE / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise RunError(f"{name}: this installation lacks its data folder {name!r}; reinstall iosim")
