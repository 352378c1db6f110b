"""Backup, restore and clone: copy the files of commits, check them, and publish them with one compare-and-swap.

The copy is consistent because it is made from one version of `__manifest`: the files that its commits name are
complete and immutable. A lease holds back garbage collection meanwhile. Files are copied under their own names, and
the `__manifest` of the target names them only after all of them were checked. Until then the target is what it was
before, whenever the run is interrupted; the next run copies only what is missing.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from omnigraph.errors import Conflict, NotFound, OmnigraphError
from omnigraph.graph.branch_names import MAIN
from omnigraph.graph.commit_names import find_named_commit
from omnigraph.graph.format_version import CURRENT
from omnigraph.graph.history import ancestors_by_distance, branch_heads, get_commit
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery.leases import TargetLock, has_unfinished_copy
from omnigraph.graph.repository import Repository
from omnigraph.graph.tags import tagged_commits
from omnigraph.maintain.backup.copy_files import FileCopier
from omnigraph.maintain.backup.copy_options import DEFAULT_OPTIONS, CopyOptions
from omnigraph.maintain.backup.copy_report import CopyReport
from omnigraph.maintain.backup.copy_run import CopyRun, CopyState
from omnigraph.maintain.backup.copy_target import graph_exists
from omnigraph.maintain.backup.selection import Selection, select_commits
from omnigraph.store.manifest.bucket_entries import first_buckets
from omnigraph.store.manifest.manifest import Manifest
from omnigraph.store.manifest.manifest_change import ManifestChange
from omnigraph.store.manifest.manifest_copy import CopiedManifestFile
from omnigraph.store.manifest.manifest_files import BUCKETS, RECLAIMED, TAGS, ManifestFile, new_id
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import (
    BackupMark,
    BranchEntry,
    CommitRecord,
    HeadRecord,
    Registry,
    TagEntry,
)


def backup(
    source: Repository,
    uri: str | os.PathLike[str],
    options: CopyOptions = DEFAULT_OPTIONS,
    *,
    since: str | None = None,
) -> CopyReport:
    """Bring a backup up to date, or create it in an empty place.

    The backup has every commit of every branch, every tag, and the data of all commits whose data the graph still
    has. With `since` it has the data of that commit, of all commits that are not its ancestors, of tags and of
    merge bases. What the target has already stays there. Raises `Conflict` if the target is another graph, is not a
    backup, has commits that the source lacks, or is being written.

    A missing or damaged table file raises `StorageError`. With `skip_damaged` everything else is copied, and the
    report lists the files that were left out. The next run tries them again.
    """
    return _Backup(source, uri, options, since).run()


def restore(
    source: Repository, uri: str | os.PathLike[str], options: CopyOptions = DEFAULT_OPTIONS
) -> CopyReport:
    """Copy a backup, or any other graph, into an empty place as a graph that can be written.

    It has the id, the branches, the tags and the history of the source. Raises `Conflict` or `InvalidInput` if the
    place is not empty. An interrupted restore leaves nothing that can be opened; the next call completes it.
    """
    return _Restore(source, uri, options).run()


def clone(
    source: Repository,
    uri: str | os.PathLike[str],
    options: CopyOptions = DEFAULT_OPTIONS,
    *,
    branch: str = MAIN,
    history: bool = True,
) -> CopyReport:
    """Create a new graph in an empty place whose `main` is the head of one branch.

    The graph has an id of its own, one branch, the commits of the history of that branch and their tags. Without
    `history` only the head has data, and only its tags are there. Raises the same errors as `restore`.
    """
    return _Clone(source, uri, options, branch, history).run()


class _Backup(CopyRun):
    operation = "backup"

    def __init__(
        self, source: Repository, uri: str | os.PathLike[str], options: CopyOptions, since: str | None
    ) -> None:
        super().__init__(source, uri, options)
        self._since = since

    def check_target(self, state: CopyState) -> None:
        if self._since is not None:
            self._since = find_named_commit(self.source.manifest, state.view, self._since).id
        copy = state.copy
        if copy is None:
            self.target.check_empty()
            return
        registry = copy.registry(copy.view)
        if registry.backup is None:
            raise graph_exists(self.target.location, "it is not a backup")
        if registry.graph_id != state.registry.graph_id:
            raise graph_exists(self.target.location, "it is a backup of another graph")
        for head in branch_heads(copy, copy.view):
            if self.source.manifest.find_commit(state.view, head.commit.id) is None:
                raise Conflict(
                    f"the backup has commit '{head.commit.id}' of branch '{head.branch}', which "
                    f"{self.source.location} does not have",
                    details={"commit_id": head.commit.id, "branch": head.branch},
                    hint="the graph was replaced by an older copy; back it up to another place",
                )

    def select(self, state: CopyState) -> Selection:
        copy = state.copy
        manifest = self.source.manifest
        if copy is None or not self._covers(copy):
            return select_commits(manifest, state.view, state.heads, state.tags.values(), since=self._since)
        return select_commits(
            manifest,
            state.view,
            state.heads,
            state.tags.values(),
            since=self._since,
            is_copied=lambda id_: copy.find_commit(copy.view, id_) is not None,
            copied_heads=[
                *(head.commit for head in branch_heads(copy, copy.view)),
                *tagged_commits(copy, copy.view, partial(get_commit, copy, copy.view)),
            ],
        )

    def _covers(self, copy: Manifest) -> bool:
        """Return whether the target has the data of every commit that it has and that this run needs."""
        mark = copy.registry(copy.view).backup
        return mark is not None and not mark.incomplete and mark.since in (None, self._since)

    def _coverage(self, copy: Manifest | None) -> str | None:
        """Return the commit from which on the target has data after this run."""
        if copy is None or self._since is None or not self._covers(copy):
            return self._since
        mark = copy.registry(copy.view).backup
        has_gap = copy.find_commit(copy.view, self._since) is None
        return self._since if mark is None or has_gap else mark.since

    def manifest_files(self, state: CopyState) -> list[ManifestFile]:
        return _without_registry(state.view)

    def is_current(self, state: CopyState) -> bool:
        copy = state.copy
        if copy is None:
            return False
        stored = copy.registry(copy.view)
        mark = stored.backup
        names = {file.name for file in _without_registry(copy.view)}
        return (
            mark is not None
            and mark.since == self._coverage(copy)
            and mark.incomplete == self.is_incomplete
            and replace(stored, backup=None) == replace(state.registry, backup=None)
            and names == {file.name for file in self.manifest_files(state)}
        )

    def publish(
        self,
        state: CopyState,
        selection: Selection,  # noqa: ARG002 - the commits are in the copied files
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        copy = state.copy
        source, version = self.source.location.uri, state.view.version
        mark = BackupMark(source, version, self._coverage(copy), now_micros(), self.is_incomplete)
        registry = replace(state.registry, backup=mark)
        fragments = [file.fragment for file in files]
        if copy is None:
            return Manifest.create(self.target.root, ManifestChange(registry=registry), fragments)
        kept = {file.name for file in self.manifest_files(state)}
        old = [file for file in _without_registry(copy.view) if file.name not in kept]
        copy.replace_copied_files(copy.view, registry, old, fragments)
        if copy.take_trim():
            self._remove_old_versions(copy)
        return copy

    def _remove_old_versions(self, copy: Manifest) -> None:
        try:
            copy.remove_old_versions(self.target.objects)
        except OmnigraphError as error:
            self._warnings.append(f"cannot remove old versions of __manifest: {error.message}")


class _NewGraph(CopyRun):
    """A copy into an empty place that can be written afterwards."""

    def check_target(self, state: CopyState) -> CopyReport | None:
        copy = state.copy
        if copy is None:
            self.target.check_empty()
            return None
        if has_unfinished_copy(self.target.objects) and self._holds(copy, state):
            # The last run was interrupted after it had published.
            lock = TargetLock.acquire(
                self.target.objects, self.operation, state.registry.graph_id, resume=True
            )
            lock.release(finished=True)
            return self._report(copy, state, None, published=False)
        raise graph_exists(self.target.location, f"{self.operation} does not replace it")

    @abstractmethod
    def source_heads(self, state: CopyState) -> Sequence[HeadRecord]:
        """Return the heads of the branches that are copied."""

    def _holds(self, copy: Manifest, state: CopyState) -> bool:
        return all(
            copy.find_commit(copy.view, head.commit.id) is not None for head in self.source_heads(state)
        )


class _Restore(_NewGraph):
    operation = "restore"

    def source_heads(self, state: CopyState) -> Sequence[HeadRecord]:
        return state.heads

    def select(self, state: CopyState) -> Selection:
        return select_commits(self.source.manifest, state.view, state.heads, state.tags.values())

    def manifest_files(self, state: CopyState) -> list[ManifestFile]:
        return _without_registry(state.view)

    def publish(
        self,
        state: CopyState,
        selection: Selection,  # noqa: ARG002 - the commits are in the copied files
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        registry = replace(state.registry, backup=None, epoch=state.registry.epoch + 1)
        fragments = [file.fragment for file in files]
        return Manifest.create(self.target.root, ManifestChange(registry=registry), fragments)


class _Clone(_NewGraph):
    operation = "clone"

    def __init__(
        self,
        source: Repository,
        uri: str | os.PathLike[str],
        options: CopyOptions,
        branch: str,
        history: bool,
    ) -> None:
        super().__init__(source, uri, options)
        self._branch = source.head(branch).branch
        self._history = history

    def source_heads(self, state: CopyState) -> Sequence[HeadRecord]:
        heads = [head for head in state.heads if head.branch == self._branch]
        if not heads:
            raise NotFound(f"branch '{self._branch}' not found", details={"branch": self._branch})
        return heads

    def select(self, state: CopyState) -> Selection:
        (head,) = self.source_heads(state)
        tags = self._tags(state, self._history_of(state, head))
        return select_commits(self.source.manifest, state.view, [head], tags.values(), history=self._history)

    def _history_of(self, state: CopyState, head: HeadRecord) -> list[CommitRecord]:
        get = partial(get_commit, self.source.manifest, state.view)
        return [get(item.id) for _, item in ancestors_by_distance(get, head.commit)]

    def _tags(self, state: CopyState, history: Sequence[CommitRecord]) -> dict[str, TagEntry]:
        """Return the tags of commits that have data in the clone. `history` begins with the head."""
        ids = {commit.id for commit in (history if self._history else history[:1])}
        return {name: entry for name, entry in state.tags.items() if entry.commit in ids}

    def manifest_files(self, state: CopyState) -> list[ManifestFile]:
        # Digests that were recorded later belong to files and not to commits.
        return [file for file in state.view.files if file.kind == "digests"]

    def _copy_idempotency_keys(self, copier: FileCopier) -> list[str]:  # noqa: ARG002 - see below
        # A key belongs to one branch of one graph.
        return []

    def publish(
        self,
        state: CopyState,
        selection: Selection,  # noqa: ARG002 - all commits of the history are kept, with or without data
        files: Sequence[CopiedManifestFile],
    ) -> Manifest:
        manifest, now = self.source.manifest, now_micros()
        (head,) = self.source_heads(state)
        commits = self._history_of(state, head)
        schemas = {name: manifest.schema(state.view, name) for name in {item.schema for item in commits}}
        incarnation = new_id()
        registry = Registry(
            CURRENT,
            new_id(),
            now,
            next_id=state.registry.next_id,
            main=incarnation,
            settings=state.registry.settings,
        )
        change = ManifestChange(
            registry,
            [HeadRecord(MAIN, incarnation, head.commit)],
            commits,
            schemas,
            buckets=[
                *first_buckets(BUCKETS, [(MAIN, BranchEntry(incarnation, now))]),
                *first_buckets(TAGS, self._tags(state, commits).items()),
            ],
        )
        return Manifest.create(self.target.root, change, [file.fragment for file in files])


def _without_registry(view: ManifestView) -> list[ManifestFile]:
    """Return the files of a manifest that a copy takes over. The target has a registry of its own.

    The versions that a garbage collection of the source is removing are not copied.
    """
    return [file for file in view.files if file.kind not in ("registry", RECLAIMED)]
