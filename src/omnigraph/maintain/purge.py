"""Purge: take from some tables, at once, what only earlier states of the graph hold of them.

A hard drop promises that what it dropped cannot be read any more. Cleanup would wait for its grace and keep what it
retains; here only what a branch stands at, or a pending bulk write builds upon, is kept. Files that no commit names
are left to cleanup: a write that is on its way may be about to name them.

Nothing is locked. Versions go first, and are remembered. Then the registry is replaced by itself, so that whoever
was about to make a branch at one of them has to look again and finds it gone. Then the heads are looked at once
more: a version that a branch was made at in between is put back. Only then does the data go. A crash on the way
leaves files that nobody can read, which the next cleanup takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omnigraph.errors import NotFound
from omnigraph.graph.intents import Intent
from omnigraph.graph.repository import Repository
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.manifest.manifest import ManifestView
from omnigraph.store.tables.table_files import NeededFiles, TableFile, TableFiles
from omnigraph.store.tables.tables import EMPTY_VERSION


@dataclass(frozen=True, slots=True)
class Purged:
    """What was removed."""

    files: int = 0
    bytes: int = 0


def purge(repository: Repository, paths: Iterable[str]) -> Purged:
    """Make the versions of the tables at these paths unreadable that no head and no pending work needs.

    A graph in memory keeps them: its files cannot be listed, and go with the process.
    """
    files = TableFiles(repository.tables.root, repository.objects)
    if not files.are_visible:
        return Purged()
    done = [_Purge(repository, files, path).run() for path in sorted(set(paths))]
    return Purged(sum(item.files for item in done), sum(item.bytes for item in done))


class _Purge:
    """The purge of one table."""

    def __init__(self, repository: Repository, files: TableFiles, path: str) -> None:
        self._repository = repository
        self._files = files
        self._path = path

    def run(self) -> Purged:
        # Intents before the manifest: one that is not seen has ended, and then the manifest shows its commit.
        intents = self._repository.intents
        pending = [item for item in map(intents.read, intents.pending().ids) if item is not None]
        view = self._repository.manifest.refresh()
        heads, built_upon = self._heads(view), self._built_upon(pending, view)
        # The empty version that every table begins with holds nothing.
        named = self._named(view) - heads - built_upon - {EMPTY_VERSION}
        listing = self._files.table(self._path)
        doomed = {version: self._needs(version) for version in named if listing.has_version(version)}
        names = set(map(version_file, doomed))
        versions = [file for file in listing.files if file.name in names]
        contents = {file.name: self._repository.objects.get(self._key(file)).data for file in versions}
        self._remove(versions)
        # Nobody asks for a number; what counts is that the registry is another one from here on.
        self._repository.reserve_identities(0, 0)
        standing = self._heads(self._repository.manifest.refresh())
        for version in standing & doomed.keys():
            name = version_file(version)
            self._repository.objects.put(f"{self._path}/{name}", contents.pop(name))
        # Also those that were never doomed: a merge may have built one on files of a version that is.
        heads |= standing
        # What a branch stands at must be there: if it is not, nothing more is removed.
        needed = NeededFiles.union(
            [
                *(self._files.needed_by(self._path, version) for version in heads),
                *(self._needs(version) for version in built_upon),
            ]
        )
        unreadable = NeededFiles.union(doomed.values())
        data = [
            file
            for file in listing.files
            if file.is_removable
            and not file.is_version
            and file.name in unreadable
            and file.name not in needed
        ]
        self._remove(data)
        self._repository.tables.evict(self._path)
        gone = [*(file for file in versions if file.name in contents), *data]
        return Purged(len(gone), sum(file.size for file in gone))

    def _heads(self, view: ManifestView) -> set[int]:
        """The versions that a branch stands at."""
        manifest = self._repository.manifest
        entries = manifest.registry(view).branches.values()
        heads = (manifest.head(view, entry.incarnation) for entry in entries)
        pins = (pin for head in heads if head is not None for pin in head.commit.tables.values())
        return {pin.version for pin in pins if pin.path == self._path}

    def _built_upon(self, pending: Iterable[Intent], view: ManifestView) -> set[int]:
        """The versions that bulk writes which are on their way need."""
        found: set[int] = set()
        for intent in pending:
            base = self._repository.manifest.find_commit(view, intent.base)
            pins = [] if base is None else list(base.tables.values())
            if intent.plan is not None:
                pins += intent.plan.base_tables.values()
                found |= {item.version for item in intent.plan.writes.values() if item.path == self._path}
            found |= {pin.version for pin in pins if pin.path == self._path}
        return found

    def _named(self, view: ManifestView) -> set[int]:
        """The versions that any commit names."""
        commits = self._repository.manifest.all_commits(view)
        pins = (pin for commit in commits for pin in commit.tables.values())
        return {pin.version for pin in pins if pin.path == self._path}

    def _needs(self, version: int) -> NeededFiles:
        try:
            return self._files.needed_by(self._path, version)
        except NotFound:
            # An earlier cleanup or purge has taken it.
            return NeededFiles()

    def _remove(self, files: Sequence[TableFile]) -> None:
        for _ in self._files.remove(self._path, files):
            continue

    def _key(self, file: TableFile) -> str:
        return f"{self._path}/{file.name}"
