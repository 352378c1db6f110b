"""Removal of old versions of `__manifest`, with the files that only they name.

Commit rows are complete, so no reader needs an old version for long. Every commit adds a version, a transaction
file and two data files. Trimming keeps their number constant however many commits a graph has.

All ages are differences between times of the store, so no clock of any machine matters. A swap whose competitor's
version is gone fails nevertheless, because the files that it replaces are not part of the newest version. The files
that a swap has written and not yet committed are protected by their age. A process that was paused for longer
notices it and repeats the swap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from omnigraph.store.lance.lance_files import parse_version_file, version_file
from omnigraph.store.manifest.manifest_files import BUCKET_KINDS
from omnigraph.store.objects.backend import ObjectInfo

# A commit whose version is a multiple of this number trims. Exactly one commit has it, whichever process made it.
TRIM_EVERY: Final = 256
# The newest versions are kept whatever their age.
KEEP_ALWAYS: Final = 256
# Younger versions are kept as well, up to this number.
KEEP_YOUNG: Final = 1_024
YOUNG: Final = timedelta(seconds=60)
# Files that are younger than this when a version is made may become part of a later version. A swap that takes
# longer than half of it is checked afterwards.
UNCOMMITTED: Final = timedelta(seconds=30)
# A registry that is damaged is rebuilt with the help of older ones.
KEPT_REGISTRIES: Final = 4
_REGISTRIES: Final = "data/registry-"
_BUCKETS: Final = tuple(f"data/{kind}-" for kind in BUCKET_KINDS)


@dataclass(frozen=True, slots=True)
class StoredVersions:
    """The files of `__manifest` in storage: its versions with their times, transaction files, data files.

    Names are relative to the dataset.
    """

    versions: Mapping[int, datetime]
    transactions: Mapping[str, datetime]
    data: Mapping[str, datetime]

    @classmethod
    def of(cls, listed: Iterable[ObjectInfo], path: str) -> StoredVersions:
        """Sort the files of a listing by their kind. Other files are ignored."""
        versions: dict[int, datetime] = {}
        transactions: dict[str, datetime] = {}
        data: dict[str, datetime] = {}
        for info in listed:
            name = info.key.removeprefix(f"{path}/")
            version = parse_version_file(name)
            if version is not None:
                versions[version] = info.last_modified
            elif name.startswith("_transactions/") and name.endswith(".txn"):
                transactions[name] = info.last_modified
            elif name.startswith("data/") and name.endswith(".lance"):
                data[name] = info.last_modified
        return cls(versions, transactions, data)

    def oldest_kept(self) -> int | None:
        """Return the oldest version to keep; None if there is nothing to remove."""
        if len(self.versions) <= KEEP_ALWAYS:
            return None
        newest = max(self.versions)
        now = self.versions[newest]
        kept = newest
        for version in sorted(self.versions, reverse=True):
            is_young = now - self.versions[version] < YOUNG and newest - version < KEEP_YOUNG
            if newest - version >= KEEP_ALWAYS and not is_young:
                break
            kept = version
        return kept if kept > min(self.versions) else None

    def version_files_before(self, kept: int) -> Iterator[str]:
        """Yield the files of the versions before the oldest kept one, oldest first.

        A probe relies on this order: as long as a version exists, its successor has not been removed.
        """
        for version in sorted(self.versions):
            if version < kept:
                yield version_file(version)

    def other_files_before(self, kept: int, needed: frozenset[str]) -> Iterator[str]:
        """Yield the transaction and data files that no version from `kept` on needs.

        `needed` has the data files of the oldest kept version and of the newest one. A file of a version between
        them is either one of these or younger than the oldest kept version.
        """
        horizon = self.versions[kept] - UNCOMMITTED
        for name, modified in self.transactions.items():
            parent = name.removeprefix("_transactions/").partition("-")[0]
            if parent.isdecimal() and int(parent) + 1 < kept and modified < horizon:
                yield name
        spared = self._spared(needed)
        for name, modified in self.data.items():
            if name not in needed and modified < horizon and name not in spared:
                yield name

    def _spared(self, needed: frozenset[str]) -> frozenset[str]:
        """Return the old files that help to rebuild a damaged registry or a damaged bucket."""
        registries = sorted(name for name in self.data if name.startswith(_REGISTRIES) and name not in needed)
        # The newest old file of every bucket that exists.
        newest: dict[tuple[str, str], str] = {}
        for name in sorted(self.data):
            if name.startswith(_BUCKETS) and name not in needed:
                newest[_bucket_of(name)] = name
        buckets = {_bucket_of(name) for name in needed if name.startswith(_BUCKETS)}
        kept = [name for bucket, name in newest.items() if bucket in buckets]
        return frozenset([*registries[-KEPT_REGISTRIES:], *kept])


def _bucket_of(name: str) -> tuple[str, str]:
    """Return the kind and the lower bound of a bucket, as its file name states them."""
    kind, bound, *_ = name.removeprefix("data/").split("-")
    return kind, bound
