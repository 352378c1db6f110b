"""Show long output in a pager, on a terminal only."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, Final

# `less` shows colours, and leaves the text on the screen when it ends.
_LESS_OPTIONS: Final = "RX"


def pager_command(environment: Mapping[str, str]) -> list[str]:
    """Return the words of the pager: `OMNIGRAPH_PAGER`, else `PAGER`, else `less` or `more`; empty for none.

    >>> pager_command({"PAGER": "less -S"}), pager_command({"PAGER": "cat"}), pager_command({"PAGER": ""})
    (['less', '-S'], [], [])
    """
    for name in ("OMNIGRAPH_PAGER", "PAGER"):
        if name in environment:
            with suppress(ValueError):
                words = shlex.split(environment[name])
                return [] if words == ["cat"] else words
            return []
    found = next((name for name in ("less", "more") if shutil.which(name)), None)
    return [] if found is None else [found]


@contextmanager
def paged_output() -> Iterator[None]:
    """Show what is written to stdout in a pager if it is longer than the terminal is high.

    Does nothing if stdout is not a terminal or there is no pager. Output that fits is written unchanged. Leaving
    the pager early ends the output.
    """
    out = sys.stdout
    command = pager_command(os.environ)
    if out is None or not out.isatty() or not command or os.environ.get("TERM") == "dumb":
        yield
        return
    out.flush()
    screen = _Screen(out.buffer, command, shutil.get_terminal_size().lines)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(screen), encoding=out.encoding, errors="backslashreplace")
    try:
        with suppress(BrokenPipeError):
            yield
    finally:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.stdout = out
        screen.finish()


class _Screen(io.RawIOBase):
    """A terminal that holds the first lines back, and starts the pager when they do not fit."""

    def __init__(self, terminal: BinaryIO, command: list[str], lines: int) -> None:
        super().__init__()
        self._terminal = terminal
        self._command = command
        self._lines = lines
        self._held = b""
        self._pager: subprocess.Popen[bytes] | None = None

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Write to the pager, or hold the data back while it fits on the screen."""
        written = bytes(data)
        if self._pager is not None:
            self._send(written)
        else:
            self._held += written
            # The prompt of the shell takes a line.
            if self._held.count(b"\n") >= self._lines:
                self._start()
        return len(written)

    def finish(self) -> None:
        """Write the output that fits, or wait until the reader leaves the pager."""
        if self._pager is None:
            self._terminal.write(self._held)
            self._terminal.flush()
            return
        assert self._pager.stdin is not None
        with suppress(BrokenPipeError):
            self._pager.stdin.close()
        # An interrupt is for the pager, which stays open.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._pager.wait()
        finally:
            signal.signal(signal.SIGINT, before)

    def _start(self) -> None:
        environment = {"LESS": _LESS_OPTIONS, **os.environ}
        try:
            self._pager = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=environment)
        except OSError:
            # Without a pager the output goes to the terminal as it is.
            self._pager = None
            self._lines = sys.maxsize
            self._terminal.write(self._held)
            self._held = b""
            return
        held, self._held = self._held, b""
        self._send(held)

    def _send(self, data: bytes) -> None:
        assert self._pager is not None
        assert self._pager.stdin is not None
        self._pager.stdin.write(data)
        self._pager.stdin.flush()
