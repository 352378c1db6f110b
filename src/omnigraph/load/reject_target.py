"""The target of the rejected records of a load: a file, an object, a folder of files, a Spark table or a function.

Local and remote graphs and the Spark data source share it. A file is written before the commit is published. In a
folder its name has the id of the commit, so a file whose commit does not exist belongs to a load that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ulid import ULID

from omnigraph.errors import InvalidInput, NotFound, OmnigraphError
from omnigraph.load.load_request import Rejects
from omnigraph.load.reject_log import RejectLog, reject_line
from omnigraph.store.location import Location
from omnigraph.store.storage_options import StorageOptions

if TYPE_CHECKING:
    from omnigraph.graph.transaction import Transaction
    from omnigraph.graph.write_plan import Prepared
    from omnigraph.graph.write_request import Prepare
    from omnigraph.store.objects.object_store import ObjectStore

T = TypeVar("T")
TABLE_PREFIX: Final = "table:"
# Appends records to a table; the arguments are its name, the id of the load, and the records.
AppendTable: TypeAlias = Callable[[str, str, Iterable[Mapping[str, Any]]], None]


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
    `append_table` appends the records to a Spark table. `name` stands for the id of the commit in the name of a
    file, for a write that is repeated under the same name until it is committed.
    """

    def __init__(
        self,
        target: Rejects,
        log: RejectLog,
        options: StorageOptions | None = None,
        append_table: AppendTable | None = None,
        name: str | None = None,
    ) -> None:
        self.log = log
        self.location: str | None = None
        self._target = target
        self._options = options or {}
        self._append_table = append_table
        self._name = name
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
        if self._name is not None:
            # An attempt in another process may have written the file, with other records.
            earlier = [self._file_name(str(self._target))]
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

    def writing(self, prepare: Prepare[T]) -> Prepare[T]:
        """Return a preparation that also writes the records, before its commit is published."""

        def prepare_and_write(transaction: Transaction) -> Prepared[T]:
            self.begin(transaction.commit_id)
            prepared = prepare(transaction)
            self.write()
            return prepared

        return prepare_and_write

    def write_refused(self, error: OmnigraphError) -> None:
        """Write the records of a load that was refused, and name the file in the details of its error."""
        try:
            self.write_failed()
        except OmnigraphError as failure:
            error.add_note(f"the rejected records could not be written: {failure.message}")
        if self.location is not None:
            error.details.setdefault("rejects", self.location)

    def deliver(self) -> None:
        """Call the target with each record, if it is a function. The outcome of the load is known."""
        if callable(self._target):
            call: Callable[[Mapping[str, Any]], None] = self._target
            for line in self.log.lines():
                call(line)

    def _file_name(self, target: str) -> str:
        name = f"rejects-{self._name or self._id}.ndjson"
        if not is_folder(target):
            return str(_local_path(target)) if _is_local(target) else target
        return str(_local_path(target) / name) if _is_local(target) else target + name

    def _write_file(self, target: str) -> str:
        text = self._file_name(target)
        objects, key = _split(text, self._options)
        with objects.open_write(key) as file:
            for line in self.log.lines():
                file.write(reject_line(line))
        return text

    def _write_table(self, name: str) -> None:
        assert self._append_table is not None, "the target was checked"
        self._append_table(name, self._id, self.log.lines())
        self.location = f"{TABLE_PREFIX}{name}"


def is_folder(target: str) -> bool:
    """Return whether a path is a folder: it ends with a slash, or is a folder on a local disk."""
    return target.endswith("/") or (_is_local(target) and _local_path(target).is_dir())


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
