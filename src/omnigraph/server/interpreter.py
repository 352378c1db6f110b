"""Settings of the Python interpreter for a server process."""

from __future__ import annotations

import sys

_SWITCH_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Set how often the interpreter switches threads."""
    # A write releases the interpreter lock at each file operation and competes with reads for it. With the
    # default of 5 ms, commits beside many reads were a quarter slower, and reads were no faster.
    sys.setswitchinterval(_SWITCH_SECONDS)
