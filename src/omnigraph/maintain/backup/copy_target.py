"""The place that a copy is written to: the checks before, the files of `__manifest`, and the publish."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import Conflict, InvalidInput
from omnigraph.graph.open_storage import connect
from omnigraph.graph.recovery.leases import has_unfinished_copy
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.location import Location
from omnigraph.store.manifest.manifest import Manifest, NotAGraph
from omnigraph.store.manifest.version_digests import record_stored_version
from omnigraph.store.objects.local_backend import is_temporary
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import Durability, sync_tree
from omnigraph.store.tables.table_files import TableFiles

# Files that Lance renames when they are complete.
_LANCE_TEMPORARY = ".tmp"


@dataclass(frozen=True)
class CopyTarget:
    """A place for a copy. `objects` does not sync each file; `sync` makes all files of a copy durable at once."""

    location: Location
    root: LanceRoot
    objects: ObjectStore

    @classmethod
    def at(
        cls, uri: str | os.PathLike[str], options: StorageOptions | None, durability: Durability
    ) -> CopyTarget:
        """Return the place at an address. Storage is not accessed."""
        location, root, _ = connect(uri, options, durability)
        return cls(location, root, ObjectStore.open(location, options, durability="os"))

    @property
    def files(self) -> TableFiles:
        """The table files of the copy."""
        return TableFiles(self.root, self.objects)

    def open_manifest(self) -> Manifest | None:
        """Return the manifest of the copy that is published here, or None."""
        try:
            return Manifest.open(self.root)
        except NotAGraph:
            return None

    def record_version(self) -> None:
        """Record the digest of the newest version of `__manifest` on an object store.

        On a local disk the publish has recorded it. A run that ends before leaves a copy without this digest.
        """
        manifest = None if self.root.local is not None else self.open_manifest()
        if manifest is not None:
            record_stored_version(self.root, self.objects, manifest.view.version)

    def check_empty(self) -> None:
        """Raise `InvalidInput` if the place holds anything but an unfinished copy."""
        if self.objects.exists_any() and not has_unfinished_copy(self.objects):
            raise InvalidInput(
                f"{self.location} is not empty",
                details={"uri": str(self.location)},
                hint="use an empty directory or prefix",
            )

    def remove_temporary_files(self) -> None:
        """Remove what an interrupted run left of files in transfer. The caller holds the lock of the target."""
        if self.root.local is not None:
            for file in self.root.local.rglob("*"):
                if is_temporary(file.name) or file.name.startswith(_LANCE_TEMPORARY):
                    file.unlink(missing_ok=True)

    def sync(self, keys: Iterable[str]) -> None:
        """Make files durable, on a local disk."""
        local = self.root.local
        if local is not None and self.root.durable:
            files = [Path(local, key) for key in keys]
            if files:
                sync_tree(local.parent, files)


def check_locations(source: Location, target: Location) -> None:
    """Raise `InvalidInput` unless the two places are separate and can be listed."""
    for location in (source, target):
        if location.scheme == "memory":
            raise InvalidInput(
                f"{location} cannot be copied: the files of a graph in memory cannot be listed",
                hint="use a path or an s3:// address; `export` writes the rows of a graph in memory",
            )
    if (source.scheme, source.authority) != (target.scheme, target.authority):
        return
    parts = [tuple(part for part in item.path.split("/") if part) for item in (source, target)]
    shorter, longer = sorted(parts, key=len)
    if longer[: len(shorter)] == shorter:
        raise InvalidInput(
            f"{target} and {source} are not separate places",
            hint="neither may contain the other",
            details={"source": str(source), "target": str(target)},
        )


def graph_exists(location: Location, why: str) -> Conflict:
    """Return the error for a place that holds a graph which must not be replaced."""
    return Conflict(
        f"there is a graph at {location} already: {why}",
        details={"uri": str(location)},
        hint="use an empty directory or prefix",
    )
