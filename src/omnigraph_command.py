"""Entry points of the programs `omnigraph` and `omnigraph-server`.

This module is outside the package so that it can handle Ctrl-C while the package is being imported: an interrupt
then exits without a traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys

# The conventional exit code of a process that SIGINT ended: 128 + 2.
INTERRUPTED = 130


# Started by editors and scripts, so that the parser of the command line, half of the start-up time, is left out.
_VERSION = (["version"], ["--version"], ["-v"])


def main() -> None:
    """Run the program `omnigraph`."""
    _start("omnigraph.cli.commands.version" if sys.argv[1:] in _VERSION else "omnigraph.cli.main")


def serve() -> None:
    """Run the program `omnigraph-server`."""
    _start("omnigraph.cli.commands.serving.serve")


def _start(module: str) -> None:
    """Import a program and run its `main`. Exit with `INTERRUPTED` on Ctrl-C."""
    # An ignored SIGINT, as of a background job, stays ignored.
    handles_interrupt = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles_interrupt:
        signal.signal(signal.SIGINT, _exit_interrupted)
    program = importlib.import_module(module)
    try:
        if handles_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        program.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _exit_interrupted(*_: object) -> None:
    # No work has started yet. A KeyboardInterrupt could be caught by the module that is being imported.
    os._exit(INTERRUPTED)
