"""The files of one table version, and what each of them holds.

Lance opens a file when it needs it. A damaged or missing file is therefore not noticed when a version is opened.
This module lists every file that reading the version can need, so that each of them can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import lance

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import transaction_file, version_file
from omnigraph.store.lance.lance_root import LanceRoot

FileKind: TypeAlias = Literal["version", "transaction", "data", "deletion", "index", "blob"]


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A file that a version needs. `name` is relative to the table; a directory without files ends with a slash.

    `size` is the size that the version states, if it does. `columns` are the physical columns that the file holds,
    or none if it holds all columns. `rows` is the number of live rows that cannot be read without it.
    """

    name: str
    kind: FileKind
    size: int | None = None
    columns: tuple[str, ...] = ()
    rows: int = 0
    fragment: int | None = None


@dataclass(frozen=True, slots=True)
class IndexCoverage:
    """The rows of a version that an index covers. A query scans the others."""

    name: str
    columns: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version as its manifest file states it: the number of live rows, the files and the indexes."""

    path: str
    version: int
    rows: int
    files: tuple[VersionFile, ...]
    indexes: tuple[IndexCoverage, ...] = ()


def describe_version(root: LanceRoot, path: str, version: int, stored: Iterable[str] = ()) -> VersionFiles:
    """Return the files that a version needs. Only its manifest file is read.

    Lance does not list the files of an index or of large blobs, only their directory. They are selected from
    `stored`, the names of all known files of the table. Raises `NotFound` or `StorageError` if the manifest file
    does not exist or cannot be read.
    """
    dataset = root.open(path, version)
    by_folder = _by_folder(stored)
    with translate_lance_errors(f"list the files of {path}"):
        names = _column_names(dataset)
        files = [VersionFile(version_file(version), "version", rows=0)]
        transaction = dataset.read_transaction(version)
        if transaction is not None:
            files.append(VersionFile(transaction_file(transaction), "transaction"))
        rows = 0
        for fragment in dataset.get_fragments():
            meta = fragment.metadata
            rows += meta.num_rows
            for item in meta.files:
                columns = _columns(item.fields, names)
                data = f"data/{item.path}"
                files.append(VersionFile(data, "data", item.file_size_bytes, columns, meta.num_rows, meta.id))
                files += [
                    VersionFile(name, "blob", None, columns, meta.num_rows, meta.id)
                    for name in by_folder.get(data.removesuffix(".lance"), ())
                ]
            deletions: Any = meta.deletion_file
            if deletions is not None:
                name = deletions.path(meta.id)
                files.append(VersionFile(name, "deletion", None, (), meta.num_rows, meta.id))
        files[0] = VersionFile(version_file(version), "version", rows=rows)
        indexes = []
        for index in dataset.describe_indices():
            columns = tuple(index.field_names)
            indexes.append(IndexCoverage(index.name, columns, int(index.num_rows_indexed)))
            for segment in index.segments:
                folder = f"_indices/{segment.uuid}"
                found = by_folder.get(folder) or [f"{folder}/"]
                files += [VersionFile(name, "index", None, columns) for name in found]
    return VersionFiles(path, version, rows, tuple(dict.fromkeys(files)), tuple(indexes))


def _by_folder(names: Iterable[str]) -> Mapping[str, list[str]]:
    folders: dict[str, list[str]] = {}
    for name in names:
        if name.count("/") > 1:
            folders.setdefault("/".join(name.split("/", 2)[:2]), []).append(name)
    return folders


def _column_names(dataset: lance.LanceDataset) -> dict[int, str]:
    """Return the top-level column of every field id, nested fields included."""
    names: dict[int, str] = {}

    def collect(field: Any, name: str) -> None:
        names[field.id()] = name
        for child in field.children():
            collect(child, name)

    for field in dataset.lance_schema.fields():
        collect(field, field.name())
    return names


def _columns(fields: Iterable[int], names: Mapping[int, str]) -> tuple[str, ...]:
    """Return the columns of some field ids; none if they are all columns of the table."""
    held = {names[field] for field in fields if field in names}
    return () if held == set(names.values()) else tuple(sorted(held))
