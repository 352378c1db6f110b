"""The folder that an export of many files goes to: empty before, complete afterwards, or marked by nothing.

The last thing that is written is `_SUCCESS`, with the commit and the rows. Without it the files are no export.

On a local disk the parts are written into a hidden folder and get their names when all are there, so an export that
fails leaves what was there before. A store has no such step: there the parts have their names from the beginning.
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
    """A folder that was looked at and may be written to. `prefix` stands before the names of unfinished parts."""

    store: ObjectStore
    prefix: str

    @classmethod
    def prepare(cls, target: str, options: StorageOptions, *, overwrite: bool = False) -> ExportFolder:
        """The folder at an address. One that holds something is refused, unless it may be overwritten and holds
        nothing but an export.

        An export that is overwritten on a store is gone from here on, on a local disk it stays until `publish`.
        """
        location = Location.parse(target)
        if location.is_local and Path(location.path).exists() and not Path(location.path).is_dir():
            raise InvalidInput(f"`{target}` is a file, and many files need a folder")
        store = ObjectStore.open(location, options)
        found = list(store.list())
        for info in found:
            if not overwrite:
                raise InvalidInput(
                    f"folder `{target}` is not empty",
                    hint="choose another one, or overwrite the export in it",
                    details={"path": target, "file": info.key},
                )
            if not is_export_file(info.key):
                raise InvalidInput(
                    f"folder `{target}` holds `{info.key}`, which is of no export",
                    hint="only exports are overwritten",
                    details={"path": target, "file": info.key},
                )
        if location.is_local:
            return cls(store, f".omnigraph-{secrets.token_hex(8)}.tmp/")
        _remove(store, found)
        return cls(store, "")

    def publish(self, names: Sequence[str], report: Mapping[str, Any]) -> None:
        """Make the parts the content of the folder, and mark it as complete."""
        if self.prefix:
            self._check_parts(names)
            _remove(self.store, list(self.store.list()))
            self._move(names)
        self.store.put(MARKER, (json.dumps(report, indent=2) + "\n").encode())

    def discard(self, names: Sequence[str], error: BaseException) -> None:
        """Remove the parts of an export that failed. What cannot be removed is noted with the error."""
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
                    f"a part of the export is not in {self._root}",
                    hint="whoever writes the parts must see the same disk; use a shared folder or s3://",
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
                raise storage_error_from_os(error, f"cannot move `{name}` to its place") from error
        for folder in folders:
            sync_directory(folder)
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        # An attempt that nobody waits for may still be writing there; what stays is hidden and belongs to nothing.
        shutil.rmtree(self._root / self.prefix, ignore_errors=True)


def is_export_file(name: str) -> bool:
    """Whether this is what a file of an export is called, and so no way out of its folder.

    >>> is_export_file("nodes/Person/part-00000.parquet"), is_export_file("../_SUCCESS")
    (True, False)
    """
    return _NAMES.fullmatch(name) is not None


def _remove(store: ObjectStore, found: Sequence[ObjectInfo]) -> None:
    """Remove the files of an export, its mark first: half of one is none."""
    names = [info.key for info in found]
    if MARKER in names:
        store.delete(MARKER)
    store.delete_many(name for name in names if name != MARKER)
