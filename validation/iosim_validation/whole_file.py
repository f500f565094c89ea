"""Files that are there whole or not at all: written under another name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iosim.errors import RunError


@contextmanager
def written_whole(path: Path, ending: str = "") -> Iterator[Path]:
    """A path to write to; it takes the place of `path` at the end, and is gone after any error.

    `ending`: of the temporary name, where a reader asks for one. Errors: `RunError` when the disk refuses.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part{ending}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)
