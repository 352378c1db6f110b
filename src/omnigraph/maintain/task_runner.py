"""Where the pieces of an optimize are done: in this process, or by Spark's tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from omnigraph.engine.engine_choice import Engine, RunTasks, wants_spark
from omnigraph.errors import InvalidInput, OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.graph.repository import Repository
from omnigraph.store.lance.lance_root import LanceRoot

# From here on work is one for Spark, unless told otherwise: Lance uses all cores of this machine by itself, so that
# only more machines are faster, and those only when the ten seconds that a session takes to start do not matter.
SPARK_BYTES = 4 << 30


class Piece(Protocol):
    """A piece of work. A value that can be pickled, as what it gives."""

    @property
    def rows(self) -> int:
        """The rows that it goes through."""
        ...

    def run(self, root: LanceRoot) -> Any:
        """Do it."""
        ...


P = TypeVar("P", bound=Piece)


class TaskRunner:
    """Does pieces of work on a graph's tables. `spark` is a session, the address of one, or None."""

    def __init__(
        self,
        repository: Repository,
        engine: Engine,
        run_on_spark: RunTasks | None,
        progress: Progress | None,
    ) -> None:
        self._repository = repository
        self._engine: Engine = engine
        # Asked for in vain, it is refused before anything is planned.
        self._wants_spark(0)
        self._run_on_spark = run_on_spark
        self._progress = progress

    def run(self, stage: str, pieces: Sequence[P], nbytes: int) -> list[Any | OmnigraphError]:
        """What each piece gives, or the error that it ended in, in their order."""
        if not pieces:
            return []
        self._report(stage, 0)
        if self._wants_spark(nbytes):
            found = self._distribute(pieces)
            self._report(stage, sum(item.rows for item in pieces))
            return found
        found, rows = [], 0
        for piece in pieces:
            found.append(_attempt(piece, self._repository.tables.root))
            rows += piece.rows
            self._report(stage, rows)
        return found

    def _distribute(self, pieces: Sequence[P]) -> list[Any | OmnigraphError]:
        place = (
            self._repository.location.uri,
            dict(self._repository.objects.options),
            self._repository.durability,
        )

        def work(piece: P) -> Any | OmnigraphError:
            return _attempt(piece, LanceRoot.from_uri(*place))

        if self._run_on_spark is None:
            raise InvalidInput("no Spark session was given", hint="use engine='local'")
        return self._run_on_spark(pieces, work)

    def _wants_spark(self, nbytes: int) -> bool:
        in_memory = self._repository.location.scheme == "memory"
        return wants_spark(self._engine, in_memory=in_memory, large=nbytes >= SPARK_BYTES)

    def _report(self, stage: str, rows: int) -> None:
        if self._progress is not None:
            self._progress(stage, rows)


def _attempt(piece: Piece, root: LanceRoot) -> Any | OmnigraphError:
    """An error is what came of one piece, and does not stop the others."""
    try:
        return piece.run(root)
    except OmnigraphError as error:
        return error
