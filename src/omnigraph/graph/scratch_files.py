"""What a bulk write sets down on its way: files below the graph's root, where all of its machines find them."""

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

# Cleanup removes what is found below, once it is older than every write that is still on its way.
PREFIX = "__staging/"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder of one write. A value that can be pickled; nothing is there before something is written.

    What is in it need not survive a power failure: nobody goes on with the work of a writer that died.
    """

    uri: str
    options: StorageOptions = field(default_factory=dict, repr=False)
    folder: str = field(default_factory=lambda: f"{PREFIX}{new_id()}")

    def open_write(self, name: str) -> AbstractContextManager[Writable]:
        """Write a file, whole or not at all."""
        return self._objects().open_write(f"{self.folder}/{name}")

    def open_read(self, name: str) -> ObjectReader:
        """Read a file."""
        objects = self._objects()
        return objects.open_read(objects.head(f"{self.folder}/{name}"))

    def path(self, name: str) -> Path | None:
        """Where a file is on a disk of this machine; None when it is not on a disk."""
        location = Location.parse(self.uri)
        return Path(location.path, self.folder, name) if location.is_local else None

    def names(self) -> Iterator[str]:
        """The files that are there."""
        return (item.key.rpartition("/")[2] for item in self._objects().list(self.folder))

    def remove(self) -> None:
        """Remove everything."""
        objects = self._objects()
        objects.delete_many(item.key for item in objects.list(self.folder))
        folder = self.path("")
        if folder is not None and folder.is_dir():
            # An attempt that nobody waits for may be writing yet; then it stays for cleanup.
            with suppress(OSError):
                folder.rmdir()

    def _objects(self) -> ObjectStore:
        return ObjectStore.open(self.uri, self.options, durability="os")


def old_folders(location: Location, before: int) -> list[Path]:
    """On a local disk the folders in which nothing was made or removed since, in epoch microseconds."""
    if not location.is_local:
        return []
    found: list[Path] = []
    for folder in Path(location.path, PREFIX).glob("*"):
        # Whose writer is done may be gone by now.
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime_ns < before * 1000:
                found.append(folder)
    return found


def remove_folder(folder: Path) -> None:
    """Remove an old folder that has no files left but those of writers that were killed, which no listing shows.

    One that holds anything else, or cannot be removed, stays for the next time.
    """
    with suppress(OSError):
        for file in folder.iterdir():
            if is_temporary(file.name):
                file.unlink()
        folder.rmdir()
