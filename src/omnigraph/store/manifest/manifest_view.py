"""`__manifest` at one version: the files that the version lists, and the check that the list is complete.

The manifest file of a version has no checksum. One flipped bit can hide a file from the list, and with it a commit.
Every file therefore has a weight, and the weights of the files of a version add up to zero. The files that a
swap adds have the weight of the files that it removes. Swaps that Lance rebases keep the sum as well, so no writer
has to know the whole list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import lance

from omnigraph.errors import StorageError
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import file_name, get_fragment, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment, StoredVersion, read_version
from omnigraph.store.manifest.manifest_errors import MANIFEST, damaged_file
from omnigraph.store.manifest.manifest_files import BUCKETS, TAGS, WEIGHT_MODULUS, ManifestFile, parse_file
from omnigraph.store.manifest.name_buckets import BucketIndex


@dataclass(frozen=True)
class ManifestView:
    """`__manifest` at one version. Files are immutable, so a file has the same content in all views.

    `base` is the last dataset that was opened before the view, or for it. Reads of single rows need none.
    """

    version: int
    files: tuple[ManifestFile, ...]
    base: lance.LanceDataset

    @cached_property
    def dataset(self) -> lance.LanceDataset:
        """The dataset at this version; `NotFound` if the version was removed before it was first needed."""
        if self.base.version == self.version:
            return self.base
        with translate_lance_errors(f"open {MANIFEST}"):
            return self.base.checkout_version(self.version)

    @property
    def latest_dataset(self) -> lance.LanceDataset:
        """The dataset if it was opened, else the one before. It needs no file of this version."""
        found: lance.LanceDataset = self.__dict__.get("dataset", self.base)
        return found

    def of_kind(self, kind: str) -> list[ManifestFile]:
        """Return the files of one kind."""
        return list(self._by_kind.get(kind, ()))

    @cached_property
    def _by_kind(self) -> dict[str, list[ManifestFile]]:
        found: dict[str, list[ManifestFile]] = {}
        for item in self.files:
            found.setdefault(item.kind, []).append(item)
        return found

    @cached_property
    def buckets(self) -> BucketIndex:
        """The buckets of branches, ordered by name. A graph of a format before 3 has none."""
        return BucketIndex(self.of_kind(BUCKETS))

    @cached_property
    def _tag_buckets(self) -> BucketIndex:
        return BucketIndex(self.of_kind(TAGS))

    def bucket_index(self, kind: str) -> BucketIndex:
        """Return the buckets of branches or of tags, ordered by name. A graph without tags has none of tags."""
        return self.buckets if kind == BUCKETS else self._tag_buckets

    @property
    def registry_file(self) -> ManifestFile:
        """The file of the registry."""
        files = self.of_kind("registry")
        if len(files) != 1:
            raise StorageError(f"{MANIFEST}: expected 1 registry file, got {len(files)}")
        return files[0]

    def head_file(self, incarnation: str) -> ManifestFile | None:
        """Return the head file of a branch incarnation, or None if the branch is at rest or was deleted."""
        return self._heads.get(incarnation)

    @cached_property
    def _heads(self) -> dict[str, ManifestFile]:
        # Of two files of one incarnation the first counts.
        return {item.parts[0]: item for item in reversed(self.of_kind("head"))}


def make_view(dataset: lance.LanceDataset, before: ManifestView | None = None) -> ManifestView:
    """Return the view of an opened version; `StorageError` if its list of files is damaged.

    `before` is an earlier view. Only the ids of its files are read again.
    """
    if before is None:
        files = [_parse_fragment(dataset, fragment) for fragment in dataset.get_fragments()]
        if len({file.fragment for file in files}) != len(files):
            raise _damaged(dataset.version, "two of its fragments have the same id")
    else:
        known = {item.fragment: item for item in before.files}
        files = [
            known.get(id_) or _parse_fragment(dataset, get_fragment(dataset, id_))
            for id_ in dataset.fragment_ids()
        ]
    return _checked_view(dataset.version, files, dataset)


def read_view(root: LanceRoot, version: int, before: ManifestView) -> ManifestView | None:
    """Return the view of a version on a local disk from its manifest file; None if it must be opened.

    Raises the errors of `make_view`.
    """
    stored = read_version(f"{root.local}/{MANIFEST}/{version_file(version)}", version)
    if stored is None:
        return None
    return view_of(stored, before)


def view_of(stored: StoredVersion, before: ManifestView) -> ManifestView:
    """Return the view of a version whose manifest file was read. Raises the errors of `make_view`."""
    # A fragment with the id of a known one and another name is damage, which the weights tell.
    known = {(item.fragment, item.name, item.rows): item for item in before.files}
    files = [
        known.get((item.id, item.files, item.physical_rows)) or _file_of(item, stored.version)
        for item in stored.fragments
    ]
    return _checked_view(stored.version, files, before.latest_dataset)


def _checked_view(version: int, files: Iterable[ManifestFile], base: lance.LanceDataset) -> ManifestView:
    found = tuple(files)
    if sum(file.weight for file in found) % WEIGHT_MODULUS:
        raise _damaged(version, "the files that it lists are not those that were committed")
    return ManifestView(version, found, base)


def _parse_fragment(dataset: lance.LanceDataset, fragment: lance.LanceFragment) -> ManifestFile:
    meta = fragment.metadata
    _require_one_file(dataset.version, meta.id, len(meta.files))
    data = meta.files[0]
    return parse_file(meta.id, file_name(data), meta.physical_rows, data.file_size_bytes)


def _file_of(fragment: StoredFragment, version: int) -> ManifestFile:
    _require_one_file(version, fragment.id, len(fragment.sizes))
    return parse_file(fragment.id, fragment.files, fragment.physical_rows, fragment.sizes[0])


def _require_one_file(version: int, fragment: int, files: int) -> None:
    if files != 1:
        raise _damaged(version, f"fragment {fragment} has {files} files, expected 1")


def require_version(dataset: lance.LanceDataset, version: int) -> None:
    """Raise `StorageError` unless the manifest file of a version states that version."""
    if dataset.version != version:
        file = f"{MANIFEST}/{version_file(version)}"
        raise damaged_file(file, f"it states version {dataset.version}, expected {version}")


def _damaged(version: int, problem: str) -> StorageError:
    return damaged_file(f"{MANIFEST}/{version_file(version)}", problem)
