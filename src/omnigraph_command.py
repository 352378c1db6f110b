"""Where the programs `omnigraph` and `omnigraph-server` begin.

This is no part of the package, because to import anything of the package takes a while, and whoever interrupts a
program meanwhile has not asked for a Python trace.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

# What a shell reports of a program that was interrupted.
INTERRUPTED = 130


def main() -> None:
    """The program `omnigraph`."""
    _start("omnigraph.cli.main")


def serve() -> None:
    """The program `omnigraph-server`."""
    _start("omnigraph.cli.commands.serve")


def _start(module: str) -> None:
    """Load a program and run its `main`; an interruption ends it silently, unless the program itself says more."""
    # One that is ignored, as that of a program in the background may be, stays ignored.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    program = importlib.import_module(module)
    try:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        program.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _leave(*_: object) -> None:
    # Nothing has been begun yet, and an exception could be swallowed or reworded by whatever is being imported.
    os._exit(INTERRUPTED)
