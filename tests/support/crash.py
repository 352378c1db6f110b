"""Writer processes that are killed, or held, exactly before their K-th change on a local disk."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from tests.support.forked import Worker, start_worker
from tests.support.waiting import HANG

TRACER: Final = Path(__file__).with_name("tracer.py")


class WorkerTask(Protocol):
    """What a worker process is asked to do: the module to run, its argument, and the directory that it changes."""

    @property
    def module(self) -> str: ...

    @property
    def uri(self) -> str: ...

    def to_argument(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Run:
    """How a traced process ended: what it changed in order, and what it said."""

    changes: list[str]
    killed: bool
    code: int
    lines: list[str]

    @property
    def acknowledged(self) -> str | None:
        """The commit that it was told of, empty when the kind has none; None when it was told nothing."""
        return next((line.removeprefix("ACK").strip() for line in self.lines if line.startswith("ACK")), None)

    @property
    def refused(self) -> str | None:
        """The code of the error that it got."""
        return next((line.split()[1] for line in self.lines if line.startswith("REFUSED")), None)

    @property
    def cut(self) -> str:
        """The change that did not happen."""
        return self.changes[-1] if self.killed else "nothing"


@dataclass(slots=True)
class Frozen:
    """A process that stands still before a change."""

    process: Worker
    lines: list[str]
    change: str | None = None
    pid: int = 0
    _ended: Run | None = field(default=None, repr=False)

    def resume(self) -> Run:
        """Let it go on to its end."""
        if self._ended is None:
            output, errors = self.process.communicate("go\n")
            self._ended = _ended([*self.lines, *output.splitlines()], errors)
        return self._ended

    def kill(self) -> None:
        """End it where it stands: its tracer takes it along."""
        self.process.kill()
        self.process.wait(HANG)


def worker(task: WorkerTask) -> list[str]:
    """The command line of a worker process, for a program that starts it."""
    return [sys.executable, "-m", "tests.support.lean", task.module, task.to_argument()]


def run_traced(task: WorkerTask, at: int = 0) -> Run:
    """Run a task and kill it before its change number `at`, counted from one; 0 lets it finish."""
    output, errors = _start(task, at, "kill").communicate()
    return _ended(output.splitlines(), errors)


def run_with_failed_write(task: WorkerTask, at: int = 0) -> Run:
    """Run a task and let its write number `at` to a file below the graph fail, as on a full disk; 0 fails none.

    `Run.changes` lists the writes.
    """
    output, errors = _start(task, at, "fail").communicate()
    return _ended(output.splitlines(), errors)


@contextmanager
def frozen(task: WorkerTask, at: int) -> Iterator[Frozen]:
    """Run a task up to its change number `at` and hold it there; it is gone afterwards in any case.

    When it ends before that, `change` is None.
    """
    held = Frozen(_start(task, at, "freeze"), [])
    with held.process as process, _bounded(process):
        try:
            for line in process.stdout:
                held.lines.append(line.rstrip("\n"))
                if line.startswith("@"):
                    news = json.loads(line[1:])
                    held.change, held.pid = news.get("frozen"), news.get("pid", 0)
                    break
            yield held
        finally:
            process.kill()


def copy_graph(source: Path, target: Path) -> str:
    """A graph of one's own, equal to a prepared one; an absent one gives a place for a new one."""
    shutil.rmtree(target, ignore_errors=True)
    if source.exists():
        shutil.copytree(source, target)
    return str(target)


def spread(count: int, chosen: int) -> list[int]:
    """So many of the numbers 1 to `count`, evenly spread and with both ends.

    >>> spread(10, 4), spread(2, 4), spread(5, 1)
    ([1, 4, 7, 10], [1, 2], [1])
    """
    if chosen >= count:
        return list(range(1, count + 1))
    if chosen == 1:
        return [1]
    return sorted({1 + round(step * (count - 1) / (chosen - 1)) for step in range(chosen)})


def position(changes: Sequence[str], *, starts: str = "", holds: str = "", last: bool = False) -> int:
    """The number of the first change, or the last, that a description fits."""
    found = [
        number
        for number, change in enumerate(changes, start=1)
        if change.startswith(starts) and holds in change
    ]
    assert found, f"no change is {starts!r} {holds!r} among {changes}"
    return found[-1 if last else 0]


def start(task: WorkerTask, trace: dict[str, Any] | None = None) -> Worker:
    """Start a worker process with a task."""
    return start_worker(task.module, task.to_argument(), trace=trace, imports=(task.module,))


def _start(task: WorkerTask, at: int, action: str) -> Worker:
    return start(task, {"root": task.uri, "at": at, "action": action})


@contextmanager
def _bounded(process: Worker) -> Iterator[None]:
    watchdog = threading.Timer(HANG, process.kill)
    watchdog.daemon = True
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


def _ended(lines: list[str], errors: str) -> Run:
    news = [json.loads(line[1:]) for line in lines if line.startswith("@")]
    assert news, f"the tracer did not report; it said:\n{errors}"
    assert "code" in news[-1], f"the tracer did not report the end; it said:\n{errors}"
    end = news[-1]
    said = [line for line in lines if not line.startswith("@")]
    assert end["killed"] or end["code"] == 0, f"the worker ended with {end['code']}:\n{errors}"
    return Run(end["changes"], end["killed"], end["code"], said)
