"""Settings of the Python interpreter for a server process."""

from __future__ import annotations

import gc
import sys

_SWITCH_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Set how often the interpreter switches threads."""
    # A write releases the interpreter lock at each file operation and competes with reads for it. With the
    # default of 5 ms, commits beside many reads were a quarter slower, and reads were no faster.
    sys.setswitchinterval(_SWITCH_SECONDS)


def freeze_heap() -> None:
    """Exclude the objects of the started process from garbage collection.

    A full collection holds the interpreter lock while it visits every object, and most objects of a server are
    modules and models that live as long as the process. Called once, when the process is about to accept requests.
    """
    gc.collect()
    gc.freeze()
