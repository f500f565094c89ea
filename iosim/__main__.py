"""`python -m iosim` is the `iosim` command."""

from __future__ import annotations

import sys

from iosim.cli import main

if __name__ == "__main__":
    sys.exit(main())
