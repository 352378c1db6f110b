"""A progress bar on stderr, removed when the operation ends."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

# Operations that finish sooner show no progress bar.
_DELAY_SECONDS = 0.5

# Stages that count bytes instead of rows: requests to a server, copies, and files that are verified.
_IN_BYTES = frozenset({"send", "receive", "copy", "files"})

# Called with the name of a stage and the number of rows, or bytes, that it has processed so far.
Report: TypeAlias = Callable[[str, int], None]


@contextmanager
def show_progress(operation: str, *, silent: bool) -> Iterator[Report | None]:
    """Show a progress bar and yield the callback that updates it.

    Yield None if `silent`, or if stderr is not a terminal.
    """
    if silent or not _is_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=True,
    ) as bar:
        try:
            yield _reporting(bar, operation)
        finally:
            bar.stop()


def _reporting(bar: Progress, operation: str) -> Report:
    started = time.monotonic()
    task = bar.add_task(operation, total=None, amount="")

    def report(stage: str, done: int) -> None:
        if bar.disable and time.monotonic() - started > _DELAY_SECONDS:
            bar.disable = False
            bar.start()
        bar.update(task, description=f"{operation}: {stage}", completed=done, amount=_amount(stage, done))

    return report


def _amount(stage: str, done: int) -> str:
    from rich.filesize import decimal

    if stage in _IN_BYTES:
        return decimal(done)
    return f"{done:,} row{'' if done == 1 else 's'}"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
