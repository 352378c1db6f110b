"""How far long work has come, shown on a terminal while it lasts and gone when it is done."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

# What is done sooner needs no telling.
_PATIENCE = 0.5

# The stages of graphs on servers, which know bytes only.
_IN_BYTES = frozenset({"send", "receive"})

# Called with the name of a stage and the rows, or bytes, that it has done so far.
Report: TypeAlias = Callable[[str, int], None]


@contextmanager
def shown_progress(doing: str, *, silent: bool) -> Iterator[Report | None]:
    """Something to report progress to, or None where nobody would see it: off a terminal, or if `silent`."""
    if silent or not _is_watched():
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
            yield _reporting(bar, doing)
        finally:
            bar.stop()


def _reporting(bar: Progress, doing: str) -> Report:
    begun = time.monotonic()
    task = bar.add_task(doing, total=None, amount="")

    def report(stage: str, done: int) -> None:
        if bar.disable and time.monotonic() - begun > _PATIENCE:
            bar.disable = False
            bar.start()
        bar.update(task, description=f"{doing}: {stage}", completed=done, amount=_amount(stage, done))

    return report


def _amount(stage: str, done: int) -> str:
    from rich.filesize import decimal

    return decimal(done) if stage in _IN_BYTES else f"{done:,} rows"


def _is_watched() -> bool:
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
