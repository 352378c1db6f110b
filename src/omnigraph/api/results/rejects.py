"""The target of the rejected records of a load: a file, an object, a folder of files, a Spark table or a function.

Local and remote graphs share it. A file is written before the commit is published. In a folder its name has the id
of the commit, so a file whose commit does not exist belongs to a load that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ulid import ULID

from omnigraph.errors import InvalidInput, NotFound
from omnigraph.load.load_request import Rejects
from omnigraph.load.reject_log import RejectLog, reject_line
from omnigraph.store.location import Location
from omnigraph.store.storage_options import StorageOptions

if TYPE_CHECKING:
    from omnigraph.store.objects.object_store import ObjectStore

TABLE_PREFIX: Final = "table:"


def check_rejects(target: Any) -> None:
    """Raise `InvalidInput` for a target that cannot be written, and `NotFound` for a missing local folder."""
    if target is None or callable(target):
        return
    if not isinstance(target, str | Path):
        raise InvalidInput(
            f"rejected records cannot be written to a value of {type(target).__name__}",
            hint="give a path, an address such as s3://bucket/rejects/, table:NAME, or a function such as the"
            " `append` of a list",
        )
    text = str(target)
    if text.startswith(TABLE_PREFIX):
        if not text.removeprefix(TABLE_PREFIX):
            raise InvalidInput("the table of rejected records has no name", hint="give table:NAME")
    elif _is_local(text):
        folder = _local_path(text).parent
        if not folder.is_dir():
            raise NotFound(f"no such folder: {folder}", details={"path": text})
    else:
        Location.parse(text)


class RejectTarget:
    """Writes the log of rejected records to its target, for each preparation of a load anew.

    `location` is the file, object or table that was written; None for a function, and if no record was rejected.
    """

    def __init__(
        self, target: Rejects, log: RejectLog, options: StorageOptions | None = None, spark: Any = None
    ) -> None:
        self.log = log
        self.location: str | None = None
        self._target = target
        self._options = options or {}
        self._spark = spark
        self._id = str(ULID())
        self._is_written = False
        self._files: list[str] = []

    def begin(self, id_: str) -> None:
        """Begin a preparation. `id_` is the id of its commit."""
        self._id, self._is_written = id_, False

    def write(self) -> None:
        """Write the records of the present preparation, and remove the file of an earlier one.

        A function is called by `deliver`, because the records of an earlier preparation cannot be taken back.
        """
        self._is_written = True
        earlier, self._files, self.location = self._files, [], None
        if self.log.count and not callable(self._target):
            text = str(self._target)
            if text.startswith(TABLE_PREFIX):
                self._write_table(text.removeprefix(TABLE_PREFIX))
            else:
                self.location = self._write_file(text)
                self._files = [self.location]
        for name in set(earlier) - set(self._files):
            objects, key = _split(name, self._options)
            objects.delete(key)

    def write_failed(self) -> None:
        """Write the records of a load that was refused, unless they are written already."""
        if not self._is_written:
            self.write()

    def deliver(self) -> None:
        """Call the target with each record, if it is a function. The outcome of the load is known."""
        if callable(self._target):
            call: Callable[[Mapping[str, Any]], None] = self._target
            for line in self.log.lines():
                call(line)

    def _write_file(self, target: str) -> str:
        name = f"rejects-{self._id}.ndjson"
        if _is_local(target):
            path = _local_path(target)
            text = str(path / name if target.endswith("/") or path.is_dir() else path)
        else:
            text = target + name if target.endswith("/") else target
        objects, key = _split(text, self._options)
        with objects.open_write(key) as file:
            for line in self.log.lines():
                file.write(reject_line(line))
        return text

    def _write_table(self, name: str) -> None:
        from omnigraph.spark.engine.reject_table import append_rejects

        append_rejects(self._spark, name, self._id, self.log.lines())
        self.location = f"{TABLE_PREFIX}{name}"


def _is_local(target: str) -> bool:
    return "://" not in target or target.lower().startswith("file://")


def _local_path(target: str) -> Path:
    return Path(Location.parse(target).path) if "://" in target else Path(target)


def _split(name: str, options: StorageOptions) -> tuple[ObjectStore, str]:
    """Return the store of a file or object, and its key."""
    from omnigraph.store.objects.object_store import ObjectStore

    if _is_local(name):
        path = _local_path(name)
        return ObjectStore.open(Location.parse(path.parent)), path.name
    return ObjectStore.split_uri(name, options)
