"""A change of a table that is staged and not committed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omnigraph.store.file_digests import FileDigest
from omnigraph.store.manifest.records import TablePin


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A detached version with a change that no commit pins yet. `inserted` and `deleted` count rows.

    `files` has the digests of the files that the version needs in addition to those of its base version.
    """

    path: str
    base_version: int
    version: int
    rows: int
    inserted: int = 0
    deleted: int = 0
    files: tuple[FileDigest, ...] = ()

    @classmethod
    def unchanged(cls, pin: TablePin) -> StagedTable:
        """Return a pinned version without a change."""
        return cls(pin.path, pin.version, pin.version, pin.rows)

    def pin(self, content: str) -> TablePin:
        """Return a pin of the version, to stage on."""
        return TablePin(self.path, self.version, self.rows, content)

    def followed_by(self, later: StagedTable) -> StagedTable:
        """Return both changes as one; `later` was staged on this version."""
        return dataclasses.replace(
            later,
            base_version=self.base_version,
            inserted=self.inserted + later.inserted,
            deleted=self.deleted + later.deleted,
            files=(*content_files(self.files), *later.files) if later.version != self.version else self.files,
        )


def content_files(files: Iterable[FileDigest]) -> Iterator[FileDigest]:
    """Yield the files that the next version shares: all except the manifest and the transaction of the version."""
    return (file for file in files if not file.name.startswith(("_versions/", "_transactions/")))
