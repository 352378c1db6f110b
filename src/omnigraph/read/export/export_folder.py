"""The target folder of an export with many files. A complete export has a marker file.

The marker `_SUCCESS` is written last, with the commit and the row counts. Files without it are not a complete
export.

On a local disk, parts are written to a hidden folder and renamed when all are complete, so a failed export leaves
the previous content. An object store has no rename, so parts have their final names from the start.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from omnigraph.errors import InvalidInput, OmnigraphError, StorageError
from omnigraph.store.location import Location
from omnigraph.store.objects.object_store import ObjectInfo, ObjectStore
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.sync import make_directories, storage_error_from_os, sync_directory

MARKER: Final = "_SUCCESS"
_NAMES = re.compile(
    rf"{MARKER}|(node|edge)-\w+-\d{{5,}}\.ndjson|(nodes|edges)/\w+/part-\d{{5,}}\.parquet", re.ASCII
)


@dataclass(frozen=True)
class ExportFolder:
    """A folder that was checked and may be written to. `prefix` precedes the names of unfinished parts."""

    store: ObjectStore
    prefix: str

    @classmethod
    def prepare(cls, target: str, options: StorageOptions, *, overwrite: bool = False) -> ExportFolder:
        """Open the folder at an address. Raises `InvalidInput` if it has files, unless `overwrite` is true and it
        has only files of an export.

        With `overwrite`, an export on an object store is removed now; on a local disk it is kept until `publish`.
        """
        location = Location.parse(target)
        if location.is_local and Path(location.path).exists() and not Path(location.path).is_dir():
            raise InvalidInput(f"`{target}` is a file; an export with many files needs a folder")
        store = ObjectStore.open(location, options)
        found = list(store.list())
        for info in found:
            if not overwrite:
                raise InvalidInput(
                    f"folder `{target}` is not empty",
                    hint="choose another folder, or overwrite the export in it",
                    details={"path": target, "file": info.key},
                )
            if not is_export_file(info.key):
                raise InvalidInput(
                    f"folder `{target}` contains `{info.key}`, which is not part of an export",
                    hint="choose another folder; only exports are overwritten",
                    details={"path": target, "file": info.key},
                )
        if location.is_local:
            return cls(store, f".omnigraph-{secrets.token_hex(8)}.tmp/")
        _remove(store, found)
        return cls(store, "")

    def publish(self, names: Sequence[str], report: Mapping[str, Any]) -> None:
        """Move the parts to their final names and write the marker."""
        if self.prefix:
            self._check_parts(names)
            _remove(self.store, list(self.store.list()))
            self._move(names)
        self.store.put(MARKER, (json.dumps(report, indent=2) + "\n").encode())

    def discard(self, names: Sequence[str], error: BaseException) -> None:
        """Remove the parts of a failed export. Files that cannot be removed are added to the error as a note."""
        try:
            if self.prefix:
                self._remove_unfinished()
            else:
                self.store.delete_many(names)
        except OmnigraphError as left:
            error.add_note(f"unfinished files are left in {self.store.location}: {left.message}")

    @property
    def _root(self) -> Path:
        return Path(self.store.location.path)

    def _check_parts(self, names: Sequence[str]) -> None:
        for name in names:
            if not (self._root / self.prefix / name).is_file():
                raise StorageError(
                    f"a part of the export is missing in {self._root}",
                    hint="all processes that write parts must share the disk; use a shared folder or s3://",
                    details={"file": name},
                )

    def _move(self, names: Sequence[str]) -> None:
        folders = dict.fromkeys((self._root / name).parent for name in names)
        for folder in folders:
            make_directories(folder)
        for name in names:
            try:
                (self._root / self.prefix / name).rename(self._root / name)
            except OSError as error:
                raise storage_error_from_os(error, f"cannot rename `{name}` to its final name") from error
        for folder in folders:
            sync_directory(folder)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        # An abandoned task may still be writing there. Leftover files are hidden and belong to no export.
        shutil.rmtree(self._root / self.prefix, ignore_errors=True)


def is_export_file(name: str) -> bool:
    """Return whether a name is a file name of an export, and thus does not lead out of the folder.

    >>> is_export_file("nodes/Person/part-00000.parquet"), is_export_file("../_SUCCESS")
    (True, False)
    """
    return _NAMES.fullmatch(name) is not None


def _remove(store: ObjectStore, found: Sequence[ObjectInfo]) -> None:
    """Remove the files of an export, the marker first, because a partial export must not look complete."""
    names = [info.key for info in found]
    if MARKER in names:
        store.delete(MARKER)
    store.delete_many(name for name in names if name != MARKER)
