"""Purge: remove at once the versions of some tables that only earlier commits refer to.

A hard drop promises that the dropped data cannot be read any more. Garbage collection would wait for its grace
period and keep retained commits. Purge keeps only the versions that the head of a branch, a tag or a pending bulk
write needs. Files that no commit refers to are left to garbage collection, because a write in progress may be
about to commit them.

No lock is taken. Version files are removed first, and their content is kept in memory. Then the registry is
replaced by an equal one with the next epoch, so that a concurrent `create_branch` at one of these versions must
read again and finds it missing. Then the heads are read again, and a version that a new branch refers to is
written back. Only then are the data files removed. A crash on the way leaves files that no reader can open;
garbage collection removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from omnigraph.errors import NotFound
from omnigraph.graph.history import branch_heads, get_commit
from omnigraph.graph.recovery.intents import Intent
from omnigraph.graph.repository import Repository
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.graph.tags import tagged_commits
from omnigraph.store.lance.lance_files import version_file
from omnigraph.store.manifest.branch_swaps import touch_bucket
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.tables.table_files import NeededFiles, TableFile, TableFiles
from omnigraph.store.tables.tables import EMPTY_VERSION


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The number and size of the removed files."""

    files: int = 0
    bytes: int = 0


def purge(repository: Repository, paths: Iterable[str]) -> PurgeReport:
    """Remove the versions of the tables at these paths that no head, no tag and no pending bulk write needs.

    Nothing is removed from a graph in memory, because its files cannot be listed. They end with the process.
    """
    files = TableFiles(repository.tables.root, repository.objects)
    if not files.are_visible:
        return PurgeReport()
    reports = [_Purge(repository, files, path).run() for path in sorted(set(paths))]
    return PurgeReport(sum(item.files for item in reports), sum(item.bytes for item in reports))


class _Purge:
    """The purge of one table."""

    def __init__(self, repository: Repository, files: TableFiles, path: str) -> None:
        self._repository = repository
        self._files = files
        self._path = path

    def run(self) -> PurgeReport:
        # Read the intents before the manifest: the manifest has the commit of an intent that has ended.
        intents = self._repository.intents
        pending = [item for item in map(intents.read, intents.pending().ids) if item is not None]
        view = self._repository.manifest.refresh()
        heads, in_use = self._head_versions(view), self._pending_versions(pending, view)
        # The empty version that every table starts with has no data.
        committed = self._committed_versions(view) - heads - in_use - {EMPTY_VERSION}
        listing = self._files.table(self._path)
        purged = {version: self._needed_by(version) for version in committed if listing.has_version(version)}
        names = set(map(version_file, purged))
        versions = [file for file in listing.files if file.name in names]
        contents = {file.name: self._repository.objects.get(self._key(file)).data for file in versions}
        self._remove(versions)
        fence_branches(self._repository)
        new_heads = self._head_versions(self._repository.manifest.refresh())
        for version in new_heads & purged.keys():
            name = version_file(version)
            self._repository.objects.put(f"{self._path}/{name}", contents.pop(name))
        # All new heads: a merge may have created one that shares files with a purged version.
        heads |= new_heads
        # The versions of heads must exist. Otherwise this raises, and nothing more is removed.
        needed = NeededFiles.union(
            [
                *(self._files.needed_by(self._path, version) for version in heads),
                *(self._needed_by(version) for version in in_use),
            ]
        )
        removable = NeededFiles.union(purged.values())
        data = [
            file
            for file in listing.files
            if file.is_removable
            and not file.is_version
            and file.name in removable
            and file.name not in needed
        ]
        self._remove(data)
        self._repository.tables.evict(self._path)
        removed = [*(file for file in versions if file.name in contents), *data]
        return PurgeReport(len(removed), sum(file.size for file in removed))

    def _head_versions(self, view: ManifestView) -> set[int]:
        """Return the versions that the heads of branches and tagged commits pin."""
        manifest = self._repository.manifest
        heads = (head.commit for head in branch_heads(manifest, view))
        tagged = tagged_commits(manifest, view, partial(get_commit, manifest, view))
        pins = (pin for commit in chain(heads, tagged) for pin in commit.tables.values())
        return {pin.version for pin in pins if pin.path == self._path}

    def _pending_versions(self, pending: Iterable[Intent], view: ManifestView) -> set[int]:
        """Return the versions that bulk writes in progress need."""
        versions: set[int] = set()
        for intent in pending:
            base = self._repository.manifest.find_commit(view, intent.base)
            pins = [] if base is None else list(base.tables.values())
            if intent.plan is not None:
                pins += intent.plan.base_tables.values()
                versions |= {item.version for item in intent.plan.writes.values() if item.path == self._path}
            versions |= {pin.version for pin in pins if pin.path == self._path}
        return versions

    def _committed_versions(self, view: ManifestView) -> set[int]:
        """Return the versions that any commit pins."""
        commits = self._repository.manifest.all_commits(view)
        pins = (pin for commit in commits for pin in commit.tables.values())
        return {pin.version for pin in pins if pin.path == self._path}

    def _needed_by(self, version: int) -> NeededFiles:
        try:
            return self._files.needed_by(self._path, version)
        except NotFound:
            # An earlier garbage collection or purge removed it.
            return NeededFiles()

    def _remove(self, files: Sequence[TableFile]) -> None:
        for _ in self._files.remove(self._path, files):
            continue

    def _key(self, file: TableFile) -> str:
        return f"{self._path}/{file.name}"


def fence_branches(repository: Repository) -> None:
    """Replace the registry and the entries of all branches by equal ones.

    A concurrent swap that creates a branch, or that adopts versions, then fails and reads the graph again.
    """
    manifest = repository.manifest

    def advance(view: ManifestView) -> None:
        registry = manifest.registry(view)
        change = ManifestChange(registry=registry.with_next_epoch())
        manifest.replace_registry_if_equals(view, registry, change)

    retry_swap(manifest, advance)
    for bound in manifest.refresh().buckets.bounds:
        retry_swap(manifest, partial(touch_bucket, manifest, name=bound))
