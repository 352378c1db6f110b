"""The files of one table version, and what each of them holds.

Lance opens a file when it needs it. A damaged or missing file is therefore not noticed when a version is opened.
This module lists every file that reading the version can need, so that each of them can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import lance
from lance.fragment import FragmentMetadata

from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import deletion_files, transaction_file, version_file
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
        fragments = [item.metadata for item in dataset.get_fragments()]
        rows = sum(meta.num_rows for meta in fragments)
        files = [VersionFile(version_file(version), "version", rows=rows)]
        transaction = dataset.read_transaction(version)
        if transaction is not None:
            # Lance reads a copy inside the version file. Tools that read the history of a table need the file.
            files.append(VersionFile(transaction_file(transaction), "transaction"))
        names = _column_names(dataset)
        for file in fragment_files(fragments, names):
            files.append(file)
            if file.kind == "data":
                blobs = by_folder.get(blob_folder(file.name), ())
                files += [replace(file, name=name, kind="blob", size=None) for name in blobs]
        indexes = []
        for index in dataset.describe_indices():
            columns = tuple(index.field_names)
            indexes.append(IndexCoverage(index.name, columns, int(index.num_rows_indexed)))
            for folder in segment_folders(index):
                found = by_folder.get(folder) or [f"{folder}/"]
                files += [VersionFile(name, "index", columns=columns) for name in found]
    return VersionFiles(path, version, rows, tuple(dict.fromkeys(files)), tuple(indexes))


def fragment_files(
    fragments: Iterable[FragmentMetadata], names: Mapping[int, str] | None = None
) -> Iterator[VersionFile]:
    """Yield the data and deletion files of fragments.

    `names` are the columns of the table by field id. Without them the columns of the files are not determined.
    """
    for meta in fragments:
        for item in meta.files:
            columns = () if names is None else _columns(item.fields, names)
            # The public property `path` creates a class on every call.
            name = f"data/{item._path}"  # noqa: SLF001
            yield VersionFile(name, "data", item.file_size_bytes, columns, meta.num_rows, meta.id)
        for name in deletion_files([meta]):
            yield VersionFile(name, "deletion", rows=meta.num_rows, fragment=meta.id)


def index_folders(dataset: lance.LanceDataset) -> list[str]:
    """Return the directories of the indexes of a version. Lance may open index files to describe them.

    This includes segments that no longer cover a fragment, because Lance may still open them.
    """
    return list(
        dict.fromkeys(folder for index in dataset.describe_indices() for folder in segment_folders(index))
    )


def blob_folder(data_file: str) -> str:
    """Return the directory of the large blobs of a data file. It exists only if there are any."""
    return data_file.removesuffix(".lance")


def segment_folders(index: Any) -> list[str]:
    """Return the directories of an index, one for each segment."""
    return [f"_indices/{segment.uuid}" for segment in index.segments]


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
