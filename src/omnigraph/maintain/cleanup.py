"""Garbage collection (the command `cleanup`): mark the files that are needed and sweep the rest.

Needed are the files of retained commits and of pending bulk writes.

No lock is taken. Files are listed first. If some are not needed, the fence is advanced, so that a write which began
before is prepared again. Then the needed files are marked once more, and the versions to remove are announced. All
ages are differences between times of the storage system. `docs/design/0004-cleanup.md` and
`docs/design/0031-collection-fence.md` have the argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, PermissionDenied, StorageError
from omnigraph.graph import idempotency
from omnigraph.graph.history import branch_heads
from omnigraph.graph.publish import now_micros
from omnigraph.graph.recovery import intents, scratch_files
from omnigraph.graph.recovery.intents import Intent
from omnigraph.graph.recovery.leases import FoundLeases, Lease, TargetLock, find_leases
from omnigraph.graph.repository import Repository
from omnigraph.graph.swap_retries import retry_swap
from omnigraph.graph.tags import tagged_commits
from omnigraph.lang.temporal import epoch_micros
from omnigraph.maintain.collection_clock import CollectionClock
from omnigraph.maintain.collection_fence import CollectionFence
from omnigraph.maintain.collector_memory import CollectorMemory
from omnigraph.maintain.commit_memory import CommitMemory
from omnigraph.maintain.retention import MergeBases, Retention, micros, parse_duration, retained_commits
from omnigraph.maintain.version_memory import VersionMemory
from omnigraph.store.manifest.collection_fence import reclaimed_versions
from omnigraph.store.manifest.manifest_view import ManifestView
from omnigraph.store.manifest.records import CommitRecord
from omnigraph.store.tables.table_files import (
    DELETE_BATCH,
    TABLE_FOLDERS,
    NeededFiles,
    TableFile,
    TableFiles,
    TableListing,
)
from omnigraph.store.tables.tables import EMPTY_VERSION

# The age before which unreferenced files are kept. A reader can use a snapshot for this time, and a merge the state
# that it reads.
GRACE = timedelta(hours=1)
# The age at which upkeep removes idempotency keys.
KEY_AGE = timedelta(days=1)
# When so many files are listed, those that are not needed are removed before more are listed.
MAX_LISTED = 200_000


@dataclass(frozen=True, slots=True)
class TypeCleanup:
    """The files removed or to be removed of one type. After an error the counts cover the removals before it."""

    type_key: str
    files_removed: int = 0
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "type_key": self.type_key,
            "bytes_removed": self.bytes_removed,
            "files_removed": self.files_removed,
            "old_versions_removed": self.old_versions_removed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """The result of a garbage collection, or of its preview if `confirmed` is false.

    `objects_removed` counts control objects that are no longer needed. `objects_error` is the reason why some
    of them may remain.
    """

    keep: int | None
    older_than: timedelta | None
    confirmed: bool
    datasets: tuple[TypeCleanup, ...]
    objects_removed: int = 0
    objects_error: str | None = None

    @property
    def files_removed(self) -> int:
        """The number of files, over all types."""
        return sum(item.files_removed for item in self.datasets)

    @property
    def bytes_removed(self) -> int:
        """The size of these files in bytes."""
        return sum(item.bytes_removed for item in self.datasets)

    @property
    def old_versions_removed(self) -> int:
        """The number of table versions, over all types."""
        return sum(item.old_versions_removed for item in self.datasets)


def cleanup(
    repository: Repository,
    *,
    keep: int | None = None,
    older_than: timedelta | str | None = None,
    confirm: bool = False,
    grace: timedelta = GRACE,
) -> CleanupReport:
    """Remove the files that no retained commit needs; without `confirm` only report them.

    A commit is retained if it is one of the newest `keep` commits of a branch, if it was the head of a branch
    within `older_than`, if it is a head or has a tag, or if it is the merge base of two branches. Files younger
    than `grace` are kept, and so are commits that were a head within `grace`. Ages are measured with the clock of
    the storage system. With any `grace` a concurrent write is safe: if its files may have been removed, it is
    prepared again. A type that fails is reported and does not stop the others. After an interruption nothing that
    is retained is missing, and a second run removes the rest.
    """
    policy = Retention.of(keep, older_than)
    if confirm and repository.requested_mode == "r":
        raise PermissionDenied(
            "cannot run cleanup: the graph is open for reading only", hint="open it with mode='rw'"
        )
    if grace < timedelta(0):
        raise InvalidInput(f"grace: expected a duration of at least 0, got {grace}")
    with _exclude_backups(repository) if confirm else nullcontext():
        return _GarbageCollection(repository, policy, parse_duration(grace), confirm).run()


def collect(
    repository: Repository, policy: Retention, grace: timedelta, memory: CollectorMemory
) -> CleanupReport:
    """Run a garbage collection that is bounded, and that remembers what the one before it has read.

    Commits that the thinning of `memory` selects are retained besides those of the policy. Raises `WorkStopped` if
    it was asked to stop.
    """
    return _GarbageCollection(repository, policy, grace, confirm=True, memory=memory).run()


@contextmanager
def _exclude_backups(repository: Repository) -> Iterator[None]:
    """Lock a backup, because a run that continues an interrupted one uses files that no commit refers to yet."""
    if not repository.is_backup:
        yield
        return
    graph_id = repository.manifest.registry(repository.manifest.view).graph_id
    lock = TargetLock.acquire(repository.objects, "cleanup", graph_id, resume=False)
    try:
        yield
    finally:
        lock.release(finished=True)


@dataclass(slots=True)
class _Counter:
    """The counts of one type during the run."""

    files: int = 0
    size: int = 0
    versions: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, files: Iterable[TableFile]) -> None:
        for file in files:
            self.files += 1
            self.size += file.size
            self.versions += file.is_version

    def report(self, key: str) -> TypeCleanup:
        return TypeCleanup(key, self.files, self.size, self.versions, "; ".join(self.errors) or None)


@dataclass(slots=True)
class _Marks:
    """The table versions to keep, according to one view of the manifest.

    `pins` has the versions to keep of every table, each with the time of the newest commit that pins it.
    `heads` has those that the head of a branch pins, with the name of the branch. `keys` has the type key of
    each table.
    """

    view: ManifestView
    pins: dict[str, dict[int, int]] = field(default_factory=dict)
    heads: dict[tuple[str, int], str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def pin(self, path: str, version: int, moment: int) -> None:
        versions = self.pins.setdefault(path, {})
        versions[version] = max(moment, versions.get(version, 0))


class _GarbageCollection:
    """One run. Its safety depends on the order of the steps."""

    def __init__(
        self,
        repository: Repository,
        policy: Retention,
        grace: timedelta,
        confirm: bool,
        memory: CollectorMemory | None = None,
    ) -> None:
        self._repository = repository
        self._manifest = repository.manifest
        self._objects = repository.objects
        root = repository.tables.root
        self._files = TableFiles(root if memory is None else root.uncached(), repository.objects)
        self._memory = memory
        self._commits = CommitMemory(self._manifest) if memory is None else memory.commits
        self._merge_bases = (
            MergeBases(self._manifest, self._commits) if memory is None else memory.merge_bases
        )
        self._versions = VersionMemory() if memory is None else memory.versions
        self._policy = policy
        self._confirm = confirm
        self._distances: dict[str, int] = {}
        self._catalogs: dict[str, Catalog] = {}
        self._old_keys: dict[str, str] | None = None
        self._counters: dict[str, _Counter] = {}
        self._candidates: list[tuple[TableListing, Sequence[TableFile]]] = []
        self._listed = 0
        # Nothing is published in a backup, which is locked. Its fence is that of the graph it is a copy of.
        self._fence = CollectionFence(self._manifest) if confirm and not repository.is_backup else None
        self._grace = micros(grace)
        self._clock = CollectionClock(repository) if confirm else None
        self._started = now_micros() if self._clock is None else self._clock.started
        self._horizon = self._started - self._grace
        # Upkeep leaves objects, and tables that no commit names, for longer than the files of old commits.
        self._object_grace = self._grace if memory is None else max(self._grace, micros(GRACE))
        self._marks = _Marks(self._manifest.view)
        self._read_and_mark()
        if memory is not None:
            memory.listed, memory.retained = 0, len(self._distances)

    def run(self) -> CleanupReport:
        for key in self._current_keys():
            self._counters[key] = _Counter()
        for folder in TABLE_FOLDERS:
            self._examine_folder(folder)
        self._sweep_candidates()
        if self._fence is not None:
            self._fence.withdraw(self._files.detached_versions, self._repository.warnings)
        removed, error = 0, None
        try:
            removed = self._sweep_objects()
        except OmnigraphError as failure:
            error = failure.message
        self._forget()
        return CleanupReport(
            keep=self._policy.keep,
            older_than=self._policy.older_than,
            confirmed=self._confirm,
            datasets=tuple(self._counters[key].report(key) for key in sorted(self._counters, key=_sort_key)),
            objects_removed=removed,
            objects_error=error,
        )

    def _forget(self) -> None:
        """Keep in memory only what this run has used."""
        pinned = {
            (path, version)
            for path, versions in self._marks.pins.items()
            for version in (EMPTY_VERSION, *versions)
        }
        self._versions.keep_only(pinned)
        self._commits.end_run()

    def _pause(self) -> None:
        if self._memory is not None:
            self._memory.pace.step()

    # --- marking -----------------------------------------------------------------------------------------

    def _read_and_mark(self) -> None:
        """Read the intents and leases, then the manifest.

        An intent that is not listed has either ended, so that the manifest has its commit, or begins later, so that
        its files are not among those that were listed before. A backup whose lease is not listed reads the manifest
        later than this, and the heads it finds are retained.
        """
        pending = self._repository.intents.with_times()
        self._intents: list[Intent] = [intent for intent, _ in pending]
        self._horizon = min([self._horizon, *(since - self._grace for _, since in pending)])
        self._leases = self._find_leases()
        view = self._manifest.refresh()
        self._marks = self._mark(view, self._marks)

    @property
    def _object_horizon(self) -> int:
        return self._horizon + self._grace - self._object_grace

    def _find_leases(self) -> FoundLeases:
        return find_leases(self._objects, None if self._clock is None else self._clock.now())

    def _mark(self, view: ManifestView, before: _Marks) -> _Marks:
        """Return the marks of a view. What was marked before in this run stays marked."""
        pins = {path: dict(versions) for path, versions in before.pins.items()}
        marks = _Marks(view, pins, keys=before.keys)
        heads_of_branches = branch_heads(self._manifest, view)
        since = self._horizon
        if self._policy.older_than is not None:
            since = min(since, self._started - micros(self._policy.older_than))
        heads = [head.commit for head in heads_of_branches]
        get = self._commits.getter(view)
        for commit in retained_commits(
            get, heads, keep=self._policy.keep or 1, since=since, known=self._distances
        ):
            self._pause()
            self._mark_commit(marks, commit)
        if self._memory is not None:
            for id_ in self._memory.thinning.advance(get, heads_of_branches, self._started):
                self._pause()
                self._mark_commit(marks, get(id_))
        for base in self._merge_bases.of(view, heads_of_branches):
            self._mark_commit(marks, base)
        for commit in tagged_commits(self._manifest, view, get):
            self._pause()
            self._mark_commit(marks, commit)
        for head in heads_of_branches:
            for pin in head.commit.tables.values():
                marks.heads[pin.path, pin.version] = head.branch
        self._unmark_reclaimed(marks)
        for intent in self._intents:
            self._mark_intent(marks, intent)
        for lease in self._leases.live:
            self._mark_lease(marks, lease)
        if self._fence is not None:
            for commit in self._fence.recent_heads(view):
                self._mark_commit(marks, commit)
        return marks

    def _unmark_reclaimed(self, marks: _Marks) -> None:
        """Remove the marks of versions that an interrupted garbage collection has begun to remove."""
        for versions in reclaimed_versions(self._manifest, marks.view).values():
            for path, items in versions.items():
                pins = marks.pins.get(path, {})
                for version in items & pins.keys():
                    if (path, version) not in marks.heads:
                        del pins[version]

    def _mark_commit(self, marks: _Marks, commit: CommitRecord) -> None:
        for pin in commit.tables.values():
            marks.pin(pin.path, pin.version, commit.created_at)
        marks.keys.update(self._keys_by_path(commit))

    def _mark_intent(self, marks: _Marks, intent: Intent) -> None:
        base = self._manifest.find_commit(marks.view, intent.base)
        if base is not None:
            self._mark_commit(marks, base)
        if intent.plan is not None:
            for pin in intent.plan.base_tables.values():
                marks.pin(pin.path, pin.version, intent.created_at)
            for write in intent.plan.writes.values():
                marks.pin(write.path, write.version, intent.created_at)

    def _mark_lease(self, marks: _Marks, lease: Lease) -> None:
        """Mark the commits that a backup in progress copies."""
        if lease.commits is None:
            for commit in self._manifest.all_commits(marks.view):
                self._mark_commit(marks, commit)
            return
        for id_ in lease.commits:
            held = self._manifest.find_commit(marks.view, id_)
            if held is not None:
                self._mark_commit(marks, held)

    def _keys_by_path(self, commit: CommitRecord) -> dict[str, str]:
        """Return the type keys of a commit's tables by the path of the table."""
        tables = self._catalog(commit.schema).tables.values()
        pins = commit.tables
        return {pins[str(item.id)].path: item.key for item in tables if str(item.id) in pins}

    def _catalog(self, schema: str) -> Catalog:
        catalog = self._catalogs.get(schema)
        if catalog is None:
            catalog = Catalog.from_json(json.loads(self._manifest.schema(self._manifest.view, schema)))
            self._catalogs[schema] = catalog
        return catalog

    def _current_keys(self) -> set[str]:
        at_heads = {path for path, _ in self._marks.heads}
        return {key for path, key in self._marks.keys.items() if path in at_heads}

    # --- sweeping ----------------------------------------------------------------------------------------

    def _examine_folder(self, folder: str) -> None:
        done: set[str] = set()
        try:
            for listing in self._files.tables(folder):
                done.add(listing.path)
                self._examine_table(listing.path, listing)
        except OmnigraphError as error:
            # A table that cannot be listed hides those after it, so list each of them separately.
            for path in sorted(self._marks.pins):
                if path.startswith(f"{folder}/") and path not in done:
                    self._examine_table(path, None)
            if not any(counter.errors for counter in self._counters.values()):
                self._counters.setdefault(folder, _Counter()).errors.append(error.message)

    def _examine_table(self, path: str, listing: TableListing | None) -> None:
        """List a table and add its files that are not needed to the candidates."""
        with self._reporting_errors(path):
            listing = self._files.table(path) if listing is None else listing
            if self._memory is not None:
                self._memory.listed += len(listing.files)
            # Also for a table without such files: the report lists all types.
            self._counter(path)
            files = self._within_budget(self._unneeded(listing))
            if files:
                self._candidates.append((listing, files))
                self._listed += len(listing.files)
        if self._listed >= MAX_LISTED:
            self._sweep_candidates()

    def _within_budget(self, files: Sequence[TableFile]) -> Sequence[TableFile]:
        if self._memory is None:
            return files
        chosen = sum(len(items) for _, items in self._candidates)
        removed = sum(counter.files for counter in self._counters.values())
        # Versions first: without its version a file is certainly not needed when the next run removes it.
        ordered = sorted(files, key=lambda file: not file.is_version)
        return ordered[: max(self._memory.max_files - removed - chosen, 0)]

    @contextmanager
    def _reporting_errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except OmnigraphError as error:
            self._counter(path).errors.append(error.message)

    def _sweep_candidates(self) -> None:
        """Remove the candidates that are still not needed, or count them in a preview."""
        candidates, self._candidates, self._listed = self._candidates, [], 0
        if candidates and self._fence is not None:
            self._fence.advance()
            candidates = self._announce(self._fence, candidates)
        for listing, files in candidates:
            counter = self._counter(listing.path)
            if not self._confirm:
                counter.add(files)
                continue
            with self._reporting_errors(listing.path):
                self._refresh_marks()
                for batch in self._remove(listing, self._still_unneeded(listing, files)):
                    counter.add(batch)
                    self._pause()

    def _announce(
        self, fence: CollectionFence, candidates: Sequence[tuple[TableListing, Sequence[TableFile]]]
    ) -> list[tuple[TableListing, Sequence[TableFile]]]:
        """Mark again behind the fence; return the candidates to remove. Their versions are announced before."""

        def attempt(_: ManifestView) -> list[tuple[TableListing, Sequence[TableFile]]]:
            self._read_and_mark()
            found: list[tuple[TableListing, Sequence[TableFile]]] = []
            for listing, files in candidates:
                with self._reporting_errors(listing.path):
                    found.append((listing, self._still_unneeded(listing, files)))
            versions = {
                listing.path: [version for file in files if (version := file.detached_version) is not None]
                for listing, files in found
            }
            fence.announce(self._marks.view, {path: items for path, items in versions.items() if items})
            return found

        return retry_swap(self._manifest, attempt)

    def _still_unneeded(self, listing: TableListing, files: Sequence[TableFile]) -> list[TableFile]:
        unneeded = {file.name for file in self._unneeded(listing)}
        return [file for file in files if file.name in unneeded]

    def _refresh_marks(self) -> None:
        """Mark again if there are new commits or leases.

        A new backup may copy a commit that was not retained before.
        """
        leases, view = self._find_leases(), self._manifest.refresh()
        if view.version != self._marks.view.version or leases.live != self._leases.live:
            self._leases = leases
            self._marks = self._mark(view, self._marks)

    def _counter(self, path: str) -> _Counter:
        return self._counters.setdefault(self._key(path), _Counter())

    def _key(self, path: str) -> str:
        """Return the type key of a table in a retained commit, else in any commit, else its path."""
        key = self._marks.keys.get(path)
        if key is None:
            if self._old_keys is None:
                commits = self._manifest.all_commits(self._marks.view)
                self._old_keys = {
                    at: name for item in commits for at, name in self._keys_by_path(item).items()
                }
            key = self._old_keys.get(path, path)
        return key

    def _unneeded(self, listing: TableListing) -> Sequence[TableFile]:
        """Return the files that are not needed and older than the grace period."""
        if not self._marks.pins.get(listing.path):
            # No retained commit has this table: its type was dropped, or a concurrent `init` lost. While any of its
            # files is young the table may still be published, so it is removed completely or not at all.
            horizon = self._object_horizon
            return listing.files if all(file.modified < horizon for file in listing.files) else ()
        old = [file for file in listing.files if file.is_removable and file.modified < self._horizon]
        needed = self._needed_files(listing) if old else NeededFiles()
        return [file for file in old if file.name not in needed]

    def _remove(self, listing: TableListing, files: Sequence[TableFile]) -> Iterator[Sequence[TableFile]]:
        """Remove files and yield each batch after its removal."""
        if len(files) == len(listing.files):
            return self._files.remove_table(listing)
        return self._files.remove(listing.path, files)

    def _needed_files(self, listing: TableListing) -> NeededFiles:
        path, pins = listing.path, {EMPTY_VERSION: 0, **self._marks.pins[listing.path]}
        known = [version for version in pins if (path, version) in self._versions]
        remembered = self._versions.union((path, version) for version in known)
        others = (
            self._files_of_version(listing, version, pins[version]) for version in pins.keys() - set(known)
        )
        return NeededFiles.union(chain([remembered], others))

    def _files_of_version(self, listing: TableListing, version: int, moment: int) -> NeededFiles:
        path = listing.path
        self._pause()
        branch = self._marks.heads.get((path, version))
        if branch is None and moment <= self._horizon and not listing.has_version(version):
            # An earlier garbage collection removed it.
            return NeededFiles()
        try:
            needed = self._files.needed_by(path, version)
        except NotFound as error:
            if branch is not None:
                raise StorageError(
                    f"the head of branch '{branch}' needs version {version} of {path}, which does not exist",
                    details={"branch": branch, "path": path, "version": str(version)},
                    hint=f"restore the files, or delete branch '{branch}'",
                ) from error
            if self._files.has_version(path, version):
                raise
            return NeededFiles()
        self._versions.add((path, version), needed)
        return needed

    def _sweep_objects(self) -> int:
        """Remove old idempotency keys, and the objects and scratch files of bulk writes that have ended.

        Returns the number of objects.
        """
        unneeded: list[str] = []
        key_age = self._policy.older_than if self._memory is None else KEY_AGE
        horizon = self._object_horizon
        if key_age is not None:
            limit = min(horizon, self._started - micros(key_age))
            keys = self._objects.list(idempotency.PREFIX.rstrip("/"))
            unneeded += [item.key for item in keys if epoch_micros(item.last_modified) < limit]
        recovery = list(self._objects.list(intents.PREFIX.rstrip("/")))
        pending = {item.key.removesuffix(".json") for item in recovery if item.key.endswith(".json")}
        unneeded += [
            item.key
            for item in recovery
            if item.key.rpartition(".")[0] not in pending and epoch_micros(item.last_modified) < horizon
        ]
        unneeded += self._leases.dead_keys
        # The horizon is before the start of every bulk write in progress.
        unneeded += [
            item.key
            for item in self._objects.list(scratch_files.PREFIX.rstrip("/"))
            if epoch_micros(item.last_modified) < horizon
        ]
        if self._confirm:
            # Before the removal of files, which changes the modification time of their directory.
            folders = scratch_files.old_scratch_folders(self._objects.location, horizon)
            for start in range(0, len(unneeded), DELETE_BATCH):
                self._objects.delete_many(unneeded[start : start + DELETE_BATCH])
            for folder in folders:
                scratch_files.remove_scratch_folder(folder)
        return len(unneeded)


def _sort_key(key: str) -> tuple[bool, str]:
    return not key.startswith("node:"), key
