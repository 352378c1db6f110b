"""Search for the damaged file of a table, after a read of the table has failed.

The search reads as little as possible. It compares the files with what their version records, and decodes the rows
of single fragments and columns only if that finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lance

from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.store.lance.file_checks import find_problem
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.tables import Tables
from omnigraph.store.tables.version_files import fragment_files, segment_folders
from omnigraph.store.text.text_index_names import is_text_index
from omnigraph.store.text.text_segment_reader import TextSegment

# A larger table is not decoded to find the damage. `omnigraph verify` does.
_MAX_DECODED_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class TableDamage:
    """A damaged file. `file` is relative to the root of the graph, `column` is a physical column if it is known."""

    file: str
    problem: str
    column: str | None = None


def has_version(root: LanceRoot, pin: TablePin) -> bool:
    """Return whether the file of a version is in storage, without regard to any cache."""
    try:
        root.uncached().open(pin.path, pin.version)
    except NotFound:
        return False
    except StorageError:
        # It exists and cannot be read.
        return True
    return True


def find_damage(root: LanceRoot, pin: TablePin, columns: Iterable[str] = ()) -> TableDamage | None:
    """Return the first damaged file of a pinned table; None if every file can be read.

    `columns` are physical columns that the table must have.
    """
    try:
        dataset = root.uncached().open(pin.path, pin.version)
    except NotFound:
        return TableDamage(f"{pin.path}/{version_file(pin.version)}", "it is missing")
    except StorageError as error:
        if error.is_refusal:
            raise
        return TableDamage(f"{pin.path}/{version_file(pin.version)}", _cause(error))
    try:
        files = _sizes(dataset, pin)
    except OmnigraphError as error:
        return TableDamage(f"{pin.path}/{version_file(pin.version)}", _cause(error))
    for column in columns:
        if column not in dataset.schema.names:
            return TableDamage(
                f"{pin.path}/{version_file(pin.version)}", f"it has no column '{column}'", column
            )
    found = find_missing_file(root, pin, files) or _find_without_footer(root, pin, files)
    if found is None and sum(size or 0 for size in files.values()) <= _MAX_DECODED_BYTES:
        found = _find_by_decoding(dataset, pin)
    return _find_in_indexes(root, dataset, pin) if found is None else found


def recorded_sizes(tables: Tables, pin: TablePin) -> dict[str, int | None]:
    """Return the version, data and deletion files of a pinned table with their sizes, None if not recorded."""
    return _sizes(tables.open(pin.path, pin.version), pin)


def _sizes(dataset: lance.LanceDataset, pin: TablePin) -> dict[str, int | None]:
    with translate_lance_errors(f"open {pin.path}"):
        files = list(fragment_files(item.metadata for item in dataset.get_fragments()))
    return {version_file(pin.version): None, **{file.name: file.size for file in files}}


def find_missing_file(root: LanceRoot, pin: TablePin, files: Mapping[str, int | None]) -> TableDamage | None:
    """Return a file on a local disk that is missing or does not have its recorded size."""
    if root.local is None:
        return None
    for name, size in files.items():
        path = root.local / pin.path / name
        try:
            actual = path.stat().st_size
        except FileNotFoundError:
            return TableDamage(f"{pin.path}/{name}", "it is missing")
        except OSError as error:
            return TableDamage(f"{pin.path}/{name}", str(error.strerror))
        if size and actual != size:
            return TableDamage(f"{pin.path}/{name}", f"it has {actual:,} bytes instead of {size:,}")
    return None


def _find_without_footer(root: LanceRoot, pin: TablePin, files: Iterable[str]) -> TableDamage | None:
    """Return a file on a local disk that is truncated."""
    if root.local is None:
        return None
    for name in files:
        try:
            problem = find_problem(root.local / pin.path / name)
        except OSError as error:
            problem = str(error.strerror)
        if problem is not None:
            return TableDamage(f"{pin.path}/{name}", problem)
    return None


def _find_by_decoding(dataset: lance.LanceDataset, pin: TablePin) -> TableDamage | None:
    """Return the deletion file, or the file of the column, that cannot be decoded in the first such fragment."""
    for fragment in dataset.get_fragments():
        for name in (file.name for file in fragment_files([fragment.metadata])):
            if not name.startswith("_deletions/"):
                continue
            try:
                # Row addresses are in no data file.
                with translate_lance_errors(f"read {pin.path}"):
                    dataset.scanner(columns=[], fragments=[fragment], with_row_address=True).to_table()
            except OmnigraphError as error:
                return TableDamage(f"{pin.path}/{name}", _cause(error))
        for field in dataset.schema:
            try:
                with translate_lance_errors(f"read {pin.path}"):
                    scanner = dataset.scanner(columns=[field.name], fragments=[fragment])
                    for batch in scanner.to_batches():
                        batch.validate(full=True)
            except OmnigraphError as error:
                name = error.details.get("file") or data_files([fragment.metadata])[0]
                return TableDamage(f"{pin.path}/{name}", _cause(error), field.name)
    return None


def _find_in_indexes(root: LanceRoot, dataset: lance.LanceDataset, pin: TablePin) -> TableDamage | None:
    """Return a file or the directory of the first index that cannot be loaded."""
    try:
        with translate_lance_errors(f"open {pin.path}"):
            indexes = list(dataset.describe_indices())
    except OmnigraphError as error:
        return TableDamage(f"{pin.path}/{version_file(pin.version)}", _cause(error))
    for index in indexes:
        try:
            with translate_lance_errors(f"read {pin.path}"):
                if is_text_index(index.field_names[0], index.name):
                    for segment in index.segments:
                        TextSegment(root, pin.path, str(segment.uuid)).check()
                else:
                    dataset.prewarm_index(index.name)
        except OmnigraphError as error:
            folders = segment_folders(index)
            name = error.details.get("file") or _incomplete_file(root, pin, folders) or folders[0]
            return TableDamage(f"{pin.path}/{name}", _cause(error), index.field_names[0])
    return None


def _incomplete_file(root: LanceRoot, pin: TablePin, folders: Sequence[str]) -> str | None:
    """Return a file of directories on a local disk that has no footer."""
    if root.local is None:
        return None
    for folder in folders:
        for path in sorted((root.local / pin.path / folder).glob("*.lance")):
            with suppress(FileNotFoundError):
                if find_problem(path) is not None:
                    return f"{folder}/{path.name}"
    return None


def _cause(error: OmnigraphError) -> str:
    if isinstance(error, NotFound):
        return "it is missing"
    text: Any = error.details.get("cause") or error.message
    return f"it cannot be decoded ({str(text).splitlines()[0][:200]})"
