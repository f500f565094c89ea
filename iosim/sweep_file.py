"""A sweep into a file that is never half written and never lost.

Finished rows go to `NAME.part` as they come. When all are there the table is written under a temporary name and
renamed, with a JSON beside it that says how it was made. A sweep that was cut off (Ctrl-C, a full disk) goes on
from its part file when the same grid is run again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iosim import __version__
from iosim.errors import RunError, UsageError
from iosim.grid import Grid
from iosim.hardware import load_profile
from iosim.sweep import Progress, batches, columns

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".csv", ".parquet")


def sweep_to_file(
    grid: Grid, path: Path, *, command: str = "", progress: Progress | None = None
) -> pd.DataFrame:
    """Run the grid and write `path` (.csv or .parquet) and `path`.json; returns the table.

    Errors: `UsageError` for another ending; `RunError` when the disk refuses or the run is interrupted, saying
    how many rows are kept and where.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"out: {path.name} must end in {' or '.join(FORMATS)}")
    sidecar = _sidecar(grid, command)
    part, mark = path.with_name(path.name + ".part"), path.with_name(path.name + ".part.json")
    total = len(grid)
    with _saving(path, part, total), _alone(path):
        done = _resume(part, mark, sidecar["fingerprint"])
        if progress and done:
            progress(done, total)
        for frame in batches(grid, skip=done, progress=progress):
            _append(part, frame, header=done == 0)
            done += len(frame)
        table = _read(part, columns(grid))
        _publish(path, table)
        _write_text(path.with_name(path.name + ".json"), json.dumps(sidecar, indent=2) + "\n")
        part.unlink()
        mark.unlink()
    return table


def _sidecar(grid: Grid, command: str) -> dict[str, Any]:
    """How the table was made; the fingerprint tells whether a part file belongs to the same sweep."""
    profiles = {name: load_profile(name, grid.overrides) for name in grid.profile}
    made = {
        "version": __version__,
        "grid": grid.to_dict(),
        "profiles": {
            p.name: {"sha256": p.sha256, "overrides": list(grid.overrides)} for p in profiles.values()
        },
        "programs": {name: _file_sha256(name) for name in grid.algorithm if ".py" in name},
        "rows": len(grid),
        "columns": columns(grid),
    }
    digest = hashlib.sha256(json.dumps(made, sort_keys=True, default=str).encode()).hexdigest()
    return {"command": command, **made, "fingerprint": digest}


def _file_sha256(name: str) -> str:
    """The content of a user's program file, named as path.py:function."""
    path = Path(name.partition(".py:")[0] + ".py" if ".py:" in name else name)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _resume(part: Path, mark: Path, fingerprint: str) -> int:
    """Rows already finished by an earlier run of the same sweep; a part file of another one is set aside."""
    if part.exists() and mark.exists() and json.loads(mark.read_text()).get("fingerprint") == fingerprint:
        lines = part.read_bytes()
        whole = lines[: lines.rfind(b"\n") + 1]  # a row that was cut off while being written does not count
        rows = whole.count(b"\n") - 1
        if rows > 0:
            _write_bytes(part, whole)
            return rows
    part.write_bytes(b"")
    _write_text(mark, json.dumps({"fingerprint": fingerprint}) + "\n")
    return 0


def _append(part: Path, frame: pd.DataFrame, *, header: bool) -> None:
    with part.open("a", encoding="utf-8", newline="") as file:
        frame.to_csv(file, header=header, index=False, lineterminator="\n")
        file.flush()
        os.fsync(file.fileno())


def _read(part: Path, names: list[str]) -> pd.DataFrame:
    import pandas as pd

    table = pd.read_csv(part, dtype_backend="numpy_nullable", keep_default_na=False, na_values=[""])
    table["error"] = table["error"].astype("string").fillna("")
    return table[names]


def _publish(path: Path, table: pd.DataFrame) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        if path.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        else:
            table.to_csv(temporary, index=False, lineterminator="\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(path: Path, text: str) -> None:
    _write_bytes(path, text.encode())


def _write_bytes(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock on the output while a sweep writes it; a second one is refused instead of mixing rows."""
    try:
        import fcntl
    except ImportError:  # not on this system: nothing to lock with
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(
                f"out: another sweep is writing {path}; wait for it or choose another file"
            ) from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def _saving(path: Path, part: Path, total: int) -> Iterator[None]:
    """Interrupts and disk errors become one line that says what is kept."""

    def kept() -> str:
        try:
            rows = max(0, part.read_bytes().count(b"\n") - 1)
        except OSError:
            return "no rows are kept"
        return f"{rows} of {total} rows are kept in {part.name}; the same command goes on from there"

    try:
        yield
    except KeyboardInterrupt:
        raise RunError(f"sweep: interrupted; {kept()}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunError(f"out: cannot write {path}: {reason}; {kept()}") from None
