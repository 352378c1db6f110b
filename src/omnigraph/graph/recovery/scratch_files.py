"""Temporary files of a bulk write below the root of the graph, where all machines that take part can read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest_files import new_id
from omnigraph.store.objects.local_backend import is_temporary
from omnigraph.store.objects.object_store import ObjectReader, ObjectStore, Writable
from omnigraph.store.storage_options import StorageOptions

# Garbage collection removes files below this prefix that are older than every write in progress.
PREFIX = "__staging/"


@dataclass(frozen=True, slots=True)
class ScratchFolder:
    """The directory of one write. It can be pickled, and is created by the first file.

    Its files need not survive a power failure, because no process continues the work of a dead writer with them.
    """

    uri: str
    options: StorageOptions = field(default_factory=dict, repr=False)
    folder: str = field(default_factory=lambda: f"{PREFIX}{new_id()}")

    def open_write(self, name: str) -> AbstractContextManager[Writable]:
        """Return a context to write a file. The file appears when the block ends without an error."""
        return self._objects().open_write(f"{self.folder}/{name}")

    def open_read(self, name: str) -> ObjectReader:
        """Open a file for reading; `NotFound` if there is none."""
        objects = self._objects()
        return objects.open_read(objects.head(f"{self.folder}/{name}"))

    def path(self, name: str) -> Path | None:
        """Return the local path of a file, or None if the graph is not on a local disk."""
        location = Location.parse(self.uri)
        return Path(location.path, self.folder, name) if location.is_local else None

    def names(self) -> Iterator[str]:
        """Yield the names of the files."""
        return (item.key.rpartition("/")[2] for item in self._objects().list(self.folder))

    def remove(self) -> None:
        """Remove all files."""
        objects = self._objects()
        objects.delete_many(item.key for item in objects.list(self.folder))
        folder = self.path("")
        if folder is not None and folder.is_dir():
            # A superseded task may still be writing here. Garbage collection removes the directory later.
            with suppress(OSError):
                folder.rmdir()

    def _objects(self) -> ObjectStore:
        return ObjectStore.open(self.uri, self.options, durability="os")


def old_scratch_folders(location: Location, before: int) -> list[Path]:
    """Return the directories on a local disk that did not change since a time in microseconds since the epoch."""
    if not location.is_local:
        return []
    old: list[Path] = []
    for folder in Path(location.path, PREFIX).glob("*"):
        # A writer that finished may have removed its directory.
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime_ns < before * 1000:
                old.append(folder)
    return old


def remove_scratch_folder(folder: Path) -> None:
    """Remove an old directory whose only files are temporary files of killed writers, which listings omit.

    A directory with other files, or one that cannot be removed, stays until the next garbage collection.
    """
    with suppress(OSError):
        for file in folder.iterdir():
            if is_temporary(file.name):
                file.unlink()
        folder.rmdir()
