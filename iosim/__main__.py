"""The `iosim` command, also as `python -m iosim`: an interrupt is one line from the first import on."""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command line on this process's arguments and return the exit code."""
    try:
        from iosim.cli import main

        return main()
    except KeyboardInterrupt:  # while the command line itself is imported, or after it is done
        print("iosim: interrupted", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run())
