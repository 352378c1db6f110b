"""File names inside a Lance dataset, relative to its directory."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, Final

import lance
from lance.fragment import DataFile, FragmentMetadata

from omnigraph.errors import StorageError

# The file format of every graph. It is pinned so that a newer Lance does not change it silently.
FILE_FORMAT: Final = "2.2"

_U64_MAX = 2**64 - 1
_DETACHED_BIT = 1 << 63


def version_file(version: int) -> str:
    """Return the manifest file of a version."""
    if version & _DETACHED_BIT:
        return f"_versions/d{version}.manifest"
    return f"_versions/{_U64_MAX - version:020d}.manifest"


def new_detached_version() -> int:
    """Return a number for a detached version. It is random, as in Lance."""
    return secrets.randbits(63) | _DETACHED_BIT


def parse_version_file(name: str) -> int | None:
    """Return the version of a manifest file on the HEAD lineage; None for any other file.

    >>> parse_version_file(version_file(7))
    7
    """
    stem = name.removeprefix("_versions/").removesuffix(".manifest")
    return _U64_MAX - int(stem) if len(stem) == 20 and stem.isdecimal() and stem != name else None


def parse_detached_version(name: str) -> int | None:
    """Return the version of the manifest file of a detached version; None for any other file.

    >>> parse_detached_version(version_file(1 << 63))
    9223372036854775808
    """
    stem = name.removeprefix("_versions/d").removesuffix(".manifest")
    return int(stem) if stem.isdecimal() and name == f"_versions/d{stem}.manifest" else None


def transaction_file(transaction: lance.Transaction, parent: int | None = None) -> str:
    """Return the file in which a commit records its transaction.

    Lance rebases a commit that lost a race and names the file after the version that the commit finally follows.
    In a HEAD lineage this is `parent`, the version before the committed one.
    """
    version = transaction.read_version if parent is None else parent
    return f"_transactions/{version}-{transaction.uuid}.txn"


def data_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    """Return the data files of fragments."""
    return [f"data/{file_name(item)}" for fragment in fragments for item in fragment.files]


def file_name(file: DataFile) -> str:
    """Return the name of a data file in its folder.

    The public property `path` creates a class on every call, which takes longer than all other uses of the result.
    """
    return file._path  # noqa: SLF001


def data_file_sizes(fragments: Iterable[FragmentMetadata]) -> dict[str, int | None]:
    """Return the data files of fragments, each with the size that its writer reported."""
    return {
        f"data/{file_name(item)}": item.file_size_bytes for fragment in fragments for item in fragment.files
    }


def deletion_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    """Return the deletion files of fragments."""
    names: list[str] = []
    for fragment in fragments:
        file: Any = fragment.deletion_file
        if file is not None:
            names.append(file.path(fragment.id))
    return names


def get_fragment(dataset: lance.LanceDataset, id_: int) -> lance.LanceFragment:
    """Return a fragment of a dataset; `StorageError` when the version does not have it."""
    fragment = dataset.get_fragment(id_)
    if fragment is None:
        raise StorageError(f"{dataset.uri} has no fragment {id_} at version {dataset.version}")
    return fragment
