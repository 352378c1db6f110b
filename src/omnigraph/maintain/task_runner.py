"""Execution of the tasks of an optimize, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from omnigraph.engine.engine_choice import Engine, RunTasks, wants_spark
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.graph.repository import Repository
from omnigraph.store.lance.lance_root import LanceRoot

# The engine `auto` uses Spark for at least this much data. Lance uses all cores of this machine, so Spark is faster
# only with more machines, and only if the ten seconds to start a session do not matter.
SPARK_BYTES = 4 << 30


class Task(Protocol):
    """A task. The task and its result can be pickled."""

    @property
    def rows(self) -> int:
        """The number of rows that it processes."""
        ...

    def run(self, root: LanceRoot) -> Any:
        """Execute the task and return its result."""
        ...


P = TypeVar("P", bound=Task)


class TaskRunner:
    """Runs tasks on the tables of a graph. `run_on_spark` is None if there is no Spark session."""

    def __init__(
        self,
        repository: Repository,
        engine: Engine,
        run_on_spark: RunTasks | None,
        progress: Progress | None,
    ) -> None:
        self._repository = repository
        self._engine: Engine = engine
        # Raises InvalidInput for an impossible choice of engine before anything is planned.
        self._wants_spark(0)
        self._run_on_spark = run_on_spark
        self._progress = progress

    def run(self, stage: str, tasks: Sequence[P], nbytes: int) -> list[Any | OmnigraphError]:
        """Run tasks and return the result or the error of each, in their order."""
        if not tasks:
            return []
        self._report(stage, 0)
        if self._wants_spark(nbytes):
            results = self._distribute(tasks)
            self._report(stage, sum(item.rows for item in tasks))
            return results
        results, rows = [], 0
        for task in tasks:
            results.append(_attempt(task, self._repository.tables.root))
            rows += task.rows
            self._report(stage, rows)
        return results

    def _distribute(self, tasks: Sequence[P]) -> list[Any | OmnigraphError]:
        uri = self._repository.location.uri
        options = dict(self._repository.objects.options)
        durability = self._repository.durability

        def work(task: P) -> Any | OmnigraphError:
            return _attempt(task, LanceRoot.from_uri(uri, options, durability))

        if self._run_on_spark is None:
            raise InvalidInput("optimize on Spark requires a Spark session", hint="use engine='local'")
        return self._run_on_spark(tasks, work)

    def _wants_spark(self, nbytes: int) -> bool:
        in_memory = self._repository.location.scheme == "memory"
        return wants_spark(self._engine, in_memory=in_memory, large=nbytes >= SPARK_BYTES)

    def _report(self, stage: str, rows: int) -> None:
        if self._progress is not None:
            self._progress(stage, rows)


def _attempt(task: Task, root: LanceRoot) -> Any | OmnigraphError:
    """Run a task and return its result or its error, so that one failure does not stop the other tasks."""
    try:
        return task.run(root)
    except OmnigraphError as error:
        return error
