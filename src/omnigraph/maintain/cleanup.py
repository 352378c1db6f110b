"""Cleanup: mark every file that a retained commit or a pending bulk write needs, and sweep the rest.

Nothing is locked. What makes it safe beside writers, readers and other cleanups is the order of the looks at
storage and the grace period; `docs/design/0004-cleanup.md` has the argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import InvalidInput, NotFound, OmnigraphError, PermissionDenied, StorageError
from omnigraph.graph import idempotency, intents, scratch_files
from omnigraph.graph.intents import Intent
from omnigraph.graph.publish import now_micros
from omnigraph.graph.repository import Repository
from omnigraph.lang.temporal import epoch_micros
from omnigraph.maintain.retention import Lineage, Retention, micros, parse_duration, retained_commits
from omnigraph.store.manifest.manifest import ManifestView
from omnigraph.store.manifest.records import CommitRecord, HeadRecord
from omnigraph.store.tables.table_files import (
    DELETE_BATCH,
    TABLE_FOLDERS,
    NeededFiles,
    TableFile,
    TableFiles,
    TableListing,
)
from omnigraph.store.tables.tables import EMPTY_VERSION

# How long what nothing refers to is left alone. A write without an intent must publish within this time of having
# staged its first file.
GRACE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class TypeCleanup:
    """What cleanup removed of one type, or would remove. After an error the counts say what went before it."""

    type_key: str
    files_removed: int = 0
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "bytes_removed": self.bytes_removed,
            "files_removed": self.files_removed,
            "old_versions_removed": self.old_versions_removed,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What cleanup did, or with `confirmed` false would do.

    `objects_removed` counts spent control objects; `objects_error` says why some of them may be left.
    """

    keep: int | None
    older_than: timedelta | None
    confirmed: bool
    datasets: tuple[TypeCleanup, ...]
    objects_removed: int = 0
    objects_error: str | None = None

    @property
    def files_removed(self) -> int:
        """Files of all types."""
        return sum(item.files_removed for item in self.datasets)

    @property
    def bytes_removed(self) -> int:
        """Bytes of those files."""
        return sum(item.bytes_removed for item in self.datasets)

    @property
    def old_versions_removed(self) -> int:
        """Table versions of all types."""
        return sum(item.old_versions_removed for item in self.datasets)


def cleanup(
    repository: Repository,
    *,
    keep: int | None = None,
    older_than: timedelta | str | None = None,
    confirm: bool = False,
    grace: timedelta = GRACE,
) -> CleanupReport:
    """Give back the space of versions that no retained commit needs; without `confirm` only say which.

    A commit is retained when it is one of the newest `keep` of a live branch, or was a branch's current commit
    within `older_than`, or is a head, or is where two live branches part. Nothing younger than `grace`, and nothing
    that was current within it, is removed. A type that fails is reported and does not stop the others.
    Interrupted anywhere, what was removed is a part of what would have been: nothing that is retained is touched,
    and running it again finishes it.
    """
    policy = Retention.of(keep, older_than)
    if confirm and repository.mode == "r":
        raise PermissionDenied(
            "cannot clean up: the graph is open for reading only", hint="open it with mode='rw'"
        )
    if grace < timedelta(0):
        raise InvalidInput(f"grace is {grace}, which is negative")
    return _Cleanup(repository, policy, parse_duration(grace), confirm).run()


@dataclass(slots=True)
class _Tally:
    """A type's counts while they grow."""

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
    """What must stay, as one view of the manifest has it.

    `pins` gives for every table the versions that must stay, each with the time of the newest commit that pins it;
    `heads` the versions among them that a branch stands at, with its name; `keys` what each table is called.
    """

    view: ManifestView
    pins: dict[str, dict[int, int]] = field(default_factory=dict)
    heads: dict[tuple[str, int], str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)

    def pin(self, path: str, version: int, moment: int) -> None:
        versions = self.pins.setdefault(path, {})
        versions[version] = max(moment, versions.get(version, 0))


class _Cleanup:
    """One run. The order of what happens here is what its safety rests on."""

    def __init__(self, repository: Repository, policy: Retention, grace: timedelta, confirm: bool) -> None:
        self._manifest = repository.manifest
        self._objects = repository.objects
        self._files = TableFiles(repository.tables.root, repository.objects)
        self._lineage = Lineage(repository.manifest)
        self._policy = policy
        self._confirm = confirm
        self._catalogs: dict[str, Catalog] = {}
        self._old_keys: dict[str, str] | None = None
        self._tallies: dict[str, _Tally] = {}
        self._needed: dict[tuple[str, int], NeededFiles] = {}
        # The clock first, then intents, then the manifest. An intent that is not seen has either ended, and then
        # the manifest shows its commit, or begins after the clock was read, and then its files are too young.
        self._started = now_micros()
        pending = [repository.intents.read(id_) for id_ in repository.intents.pending().ids]
        self._intents: list[Intent] = [item for item in pending if item is not None]
        oldest = min([self._started, *(item.created_at for item in self._intents)])
        self._horizon = oldest - micros(grace)
        self._marks = self._mark(self._manifest.refresh())

    def run(self) -> CleanupReport:
        for key in self._live_keys():
            self._tallies[key] = _Tally()
        for folder in TABLE_FOLDERS:
            self._sweep_folder(folder)
        removed, error = 0, None
        try:
            removed = self._sweep_objects()
        except OmnigraphError as failure:
            error = failure.message
        return CleanupReport(
            keep=self._policy.keep,
            older_than=self._policy.older_than,
            confirmed=self._confirm,
            datasets=tuple(self._tallies[key].report(key) for key in sorted(self._tallies, key=_order)),
            objects_removed=removed,
            objects_error=error,
        )

    # --- marking -----------------------------------------------------------------------------------------

    def _mark(self, view: ManifestView) -> _Marks:
        marks = _Marks(view)
        standing = self._heads(view)
        since = self._horizon
        if self._policy.older_than is not None:
            since = min(since, self._started - micros(self._policy.older_than))
        heads = [head.commit for head in standing]
        for commit in retained_commits(self._manifest, view, heads, keep=self._policy.keep or 1, since=since):
            self._mark_commit(marks, commit)
        for base in self._lineage.merge_bases(view, standing):
            self._mark_commit(marks, base)
        for head in standing:
            for pin in head.commit.tables.values():
                marks.heads[pin.path, pin.version] = head.branch
        for intent in self._intents:
            self._mark_intent(marks, intent)
        return marks

    def _heads(self, view: ManifestView) -> list[HeadRecord]:
        found = []
        for name, entry in self._manifest.registry(view).branches.items():
            head = self._manifest.head(view, entry.incarnation)
            if head is None:
                raise StorageError(f"__manifest names branch '{name}' but has no head of it")
            found.append(head)
        return found

    def _mark_commit(self, marks: _Marks, commit: CommitRecord) -> None:
        for pin in commit.tables.values():
            marks.pin(pin.path, pin.version, commit.created_at)
        marks.keys.update(self._names(commit))

    def _mark_intent(self, marks: _Marks, intent: Intent) -> None:
        base = self._manifest.find_commit(marks.view, intent.base)
        if base is not None:
            self._mark_commit(marks, base)
        if intent.plan is not None:
            for pin in intent.plan.base_tables.values():
                marks.pin(pin.path, pin.version, intent.created_at)
            for write in intent.plan.writes.values():
                marks.pin(write.path, write.version, intent.created_at)

    def _names(self, commit: CommitRecord) -> dict[str, str]:
        """What a commit calls the tables at their paths."""
        tables = self._catalog(commit.schema).tables.values()
        pins = commit.tables
        return {pins[str(item.id)].path: item.key for item in tables if str(item.id) in pins}

    def _catalog(self, schema: str) -> Catalog:
        found = self._catalogs.get(schema)
        if found is None:
            found = Catalog.from_json(json.loads(self._manifest.schema(self._manifest.view, schema)))
            self._catalogs[schema] = found
        return found

    def _live_keys(self) -> set[str]:
        return {
            key for path, key in self._marks.keys.items() if any(path == at for at, _ in self._marks.heads)
        }

    # --- sweeping ----------------------------------------------------------------------------------------

    def _sweep_folder(self, folder: str) -> None:
        done: set[str] = set()
        try:
            for listing in self._files.tables(folder):
                done.add(listing.path)
                self._sweep_table(listing.path, listing)
        except OmnigraphError as error:
            # One table that cannot be listed hides those after it: look at each of them by itself.
            for path in sorted(self._marks.pins):
                if path.startswith(f"{folder}/") and path not in done:
                    self._sweep_table(path, None)
            if not any(tally.errors for tally in self._tallies.values()):
                self._tallies.setdefault(folder, _Tally()).errors.append(error.message)

    def _sweep_table(self, path: str, listing: TableListing | None) -> None:
        tally: _Tally | None = None
        try:
            found = self._files.table(path) if listing is None else listing
            self._look_again()
            tally = self._tally(path)
            for batch in self._doomed(found):
                tally.add(batch)
        except OmnigraphError as error:
            (tally or self._tally(path)).errors.append(error.message)

    def _look_again(self) -> None:
        """See what was published since: a branch may stand at a commit that was not retained a moment ago."""
        view = self._manifest.refresh()
        if view.version != self._marks.view.version:
            self._marks = self._mark(view)

    def _tally(self, path: str) -> _Tally:
        return self._tallies.setdefault(self._key(path), _Tally())

    def _key(self, path: str) -> str:
        """What a table is called by a retained commit, else by any commit, else by its path."""
        key = self._marks.keys.get(path)
        if key is None:
            if self._old_keys is None:
                commits = self._manifest.all_commits(self._marks.view)
                self._old_keys = {at: name for item in commits for at, name in self._names(item).items()}
            key = self._old_keys.get(path, path)
        return key

    def _doomed(self, listing: TableListing) -> Iterator[Sequence[TableFile]]:
        """What is not needed and past the grace; removed before it is given, when that is confirmed."""
        if listing.path not in self._marks.pins:
            # Nobody names this table: a type that was dropped, or the work of an initialiser that lost. While any
            # of it is young it may yet be published, and half a table serves nobody.
            if all(file.modified < self._horizon for file in listing.files):
                yield from self._files.remove_table(listing) if self._confirm else [listing.files]
            return
        old = [file for file in listing.files if file.is_removable and file.modified < self._horizon]
        if old:
            needed = self._needed_of(listing)
            files = [file for file in old if file.name not in needed]
            yield from self._files.remove(listing.path, files) if self._confirm else [files]

    def _needed_of(self, listing: TableListing) -> NeededFiles:
        pins = {EMPTY_VERSION: 0, **self._marks.pins[listing.path]}
        return NeededFiles.union(
            self._version_needs(listing, version, moment) for version, moment in pins.items()
        )

    def _version_needs(self, listing: TableListing, version: int, moment: int) -> NeededFiles:
        path = listing.path
        known = self._needed.get((path, version))
        if known is not None:
            return known
        branch = self._marks.heads.get((path, version))
        if branch is None and moment <= self._horizon and not listing.has_version(version):
            # An earlier cleanup has reclaimed it.
            return NeededFiles()
        try:
            found = self._files.needed_by(path, version)
        except NotFound as error:
            if branch is not None:
                raise StorageError(
                    f"branch '{branch}' stands at a version of {path} that is not there",
                    details={"branch": branch, "path": path, "version": str(version)},
                    hint=f"restore the files, or delete branch '{branch}'",
                ) from error
            if self._files.has_version(path, version):
                raise
            return NeededFiles()
        self._needed[path, version] = found
        return found

    def _sweep_objects(self) -> int:
        """Remove idempotency keys beyond the age limit, and what is left of bulk writes that have ended."""
        doomed: list[str] = []
        if self._policy.older_than is not None:
            limit = min(self._horizon, self._started - micros(self._policy.older_than))
            keys = self._objects.list(idempotency.PREFIX.rstrip("/"))
            doomed += [item.key for item in keys if epoch_micros(item.last_modified) < limit]
        found = list(self._objects.list(intents.PREFIX.rstrip("/")))
        living = {item.key.removesuffix(".json") for item in found if item.key.endswith(".json")}
        doomed += [
            item.key
            for item in found
            if item.key.rpartition(".")[0] not in living and epoch_micros(item.last_modified) < self._horizon
        ]
        # The horizon is before the beginning of every bulk write that is still on its way.
        doomed += [
            item.key
            for item in self._objects.list(scratch_files.PREFIX.rstrip("/"))
            if epoch_micros(item.last_modified) < self._horizon
        ]
        if self._confirm:
            # Removing a file makes its folder young.
            folders = scratch_files.old_scratch_folders(self._objects.location, self._horizon)
            for start in range(0, len(doomed), DELETE_BATCH):
                self._objects.delete_many(doomed[start : start + DELETE_BATCH])
            for folder in folders:
                scratch_files.remove_scratch_folder(folder)
        return len(doomed)


def _order(key: str) -> tuple[bool, str]:
    return not key.startswith("node:"), key
