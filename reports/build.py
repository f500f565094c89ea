"""Rebuild the gallery: `make gallery`, or `python reports/build.py [GPU ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

from iosim.report.gallery import GPUS, gallery_files, gallery_index, gone
from iosim.report.write import write_folder

HERE = Path(__file__).resolve().parent
H200 = HERE.parent / "validation" / "measurements" / "h200"
MEASURED = {"h200-sxm": H200 / "rungs" / "attention.csv"}
HEADED_BY = {"h200-sxm": H200 / "attention.csv"}


def main(names: list[str]) -> None:
    """One folder a GPU, and the index."""
    for name in names or GPUS:
        print(f"gallery: {name}", flush=True)
        files = gallery_files(name, MEASURED.get(name), headed_by=HEADED_BY.get(name))
        folder = HERE / name
        for path in gone(folder, files):
            path.unlink(missing_ok=True)
        write_folder(folder, files)
    write_folder(HERE, {"README.md": gallery_index(list(MEASURED)).encode()})


if __name__ == "__main__":
    main(sys.argv[1:])
