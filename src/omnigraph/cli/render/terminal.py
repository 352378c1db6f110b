"""The width of the terminal that stdout writes to."""

from __future__ import annotations

import shutil
import sys


def terminal_width() -> int | None:
    """Return the columns of the terminal; None if stdout is not a terminal, so that nothing is cut."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns
