"""A folder of files that is never half new: all is written beside it first, then renamed into place."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from iosim.errors import RunError


def write_folder(out: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write `files` (path below `out` -> content). A full or read-only disk leaves an older report as it was.

    Files that are not part of the report are left alone. `RunError` names the folder and the reason.
    """
    temporary: Path | None = None
    try:
        if out.exists() and not out.is_dir():
            raise RunError(f"{out}: is a file; --out needs a folder")
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        for name, content in files.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for (
            name
        ) in files:  # all that can stand in the way is found before the first file of an older report goes
            _make_way(out / name)
        return [_move(temporary / name, out / name) for name in files]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"{out}: the report cannot be written: {reason}; nothing was half written") from None
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _make_way(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise RunError(
            f"{target.parent}: is a file where a folder of the report goes; move it away"
        ) from None
    if target.is_dir():
        raise RunError(f"{target}: is a folder where a file of the report goes; move it away")


def _move(source: Path, target: Path) -> Path:
    source.replace(target)
    return target
