"""What befalls the tasks of a load when their work is done and their report is not given yet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

# `die` ends the Python of the first attempt at the first task; `straggle` has that attempt wait until Spark ends it
# because another has reported the same work; `hold` has all tasks but the first two wait until they are let go.
Action: TypeAlias = Literal["die", "straggle", "hold"]
# Ends a hang. This module travels to processes that have no other module of the tests.
_SECONDS = 300.0


@dataclass(frozen=True)
class Trap:
    """An action, and the folder where files tell which attempts have done their work. Travels to the tasks."""

    folder: str
    action: Action

    def around(self, kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function, and then what befalls the task."""

        def trapped(*given: Any) -> Any:
            result = work(*given)
            self._spring(kind)
            return result

        return trapped

    def _spring(self, kind: str) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        task = context.partitionId()
        is_first = not self._attempts(kind, task)
        own = Path(self.folder, f"{kind}-{task}-{context.attemptNumber()}")
        own.write_text(f"{os.getpid()}", encoding="ascii")
        if task > 1 and self.action == "hold":
            _await("to be let go", self._go.exists)
        elif task == 0 and is_first and self.action == "die":
            os._exit(1)
        elif task == 0 and is_first and self.action == "straggle":
            _await("another attempt", lambda: len(self._attempts(kind, task)) > 1)
            # Spark ends this attempt as soon as the other one has reported.
            _await("the end of this attempt", lambda: False)

    def let_go(self) -> None:
        """Let those go that are held."""
        self._go.touch()

    def attempts(self, task: int, kind: str = "split") -> list[int]:
        """The processes that have done the work of a task."""
        # A file is there a moment before what is in it.
        texts = (path.read_text(encoding="ascii") for path in self._attempts(kind, task))
        return [int(text) for text in texts if text]

    def held(self, kind: str = "split") -> dict[int, int]:
        """By task, the processes that wait to be let go."""
        tasks = {int(path.name.split("-")[1]) for path in Path(self.folder).glob(f"{kind}-*")}
        return {task: pid for task in tasks if task > 1 for pid in self.attempts(task, kind)}

    def _attempts(self, kind: str, task: int) -> list[Path]:
        return list(Path(self.folder).glob(f"{kind}-{task}-*"))

    @property
    def _go(self) -> Path:
        return Path(self.folder, "go")


def _await(what: str, is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SECONDS
    while not is_there():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_SECONDS:g} s {what}")
        time.sleep(0.02)
