"""Execution of the tasks of maintenance, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from omnigraph.engine.engine_choice import Engine, RunTasks, wants_spark
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.request_counts import propagate_context

# The engine `auto` uses Spark for at least this much data. Lance uses all cores of this machine, so Spark is faster
# only with more machines, and only if the ten seconds to start a session do not matter.
SPARK_BYTES = 4 << 30


class Task(Protocol):
    """A task. The task and its result can be pickled."""

    @property
    def rows(self) -> int:
        """The number of rows, or of other items, that it processes."""
        ...

    def run(self, root: LanceRoot) -> Any:
        """Execute the task and return its result."""
        ...


P = TypeVar("P", bound=Task)


class TaskRunner:
    """Runs tasks on the tables of a graph. `run_on_spark` is None if there is no Spark session.

    In this process `threads` tasks run at a time. One is enough for tasks of Lance that use all cores.
    """

    def __init__(
        self,
        root: LanceRoot,
        engine: Engine,
        run_on_spark: RunTasks | None,
        progress: Progress | None,
        threads: int = 1,
    ) -> None:
        self._root = root
        self._engine: Engine = engine
        # Raises InvalidInput for an impossible choice of engine before anything is planned.
        self._wants_spark(0)
        self._run_on_spark = run_on_spark
        self._progress = progress
        self._threads = threads

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
        for task, result in zip(tasks, self._run_here(tasks), strict=True):
            results.append(result)
            rows += task.rows
            self._report(stage, rows)
        return results

    def _run_here(self, tasks: Sequence[P]) -> Iterator[Any | OmnigraphError]:
        if self._threads == 1 or len(tasks) == 1:
            yield from (_attempt(task, self._root) for task in tasks)
            return

        def work(task: P) -> Any | OmnigraphError:
            return _attempt(task, self._root)

        with ThreadPoolExecutor(self._threads, thread_name_prefix="omnigraph-task") as threads:
            yield from threads.map(propagate_context(work), tasks)

    def _distribute(self, tasks: Sequence[P]) -> list[Any | OmnigraphError]:
        # Without its session, which belongs to this process.
        root = self._root

        def work(task: P) -> Any | OmnigraphError:
            return _attempt(task, root)

        if self._run_on_spark is None:
            raise InvalidInput("work on Spark requires a Spark session", hint="use engine='local'")
        return self._run_on_spark(tasks, work)

    def _wants_spark(self, nbytes: int) -> bool:
        in_memory = self._root.uri.partition("://")[0].endswith("memory")
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
