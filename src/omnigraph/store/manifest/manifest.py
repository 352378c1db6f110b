"""`__manifest`: the dataset whose HEAD is the state of the graph, and the compare-and-swap that publishes commits.

Every row that changes atomically is alone in a fragment: the registry, and the head of each branch. A change is
one Lance `Rewrite` of such a fragment into its successor. Of two rewrites of the same fragment, Lance rejects the
second; this is the compare-and-swap. Lance rebases rewrites of different fragments, and both succeed. Commits,
recovery records and digests of files are log rows, which are only added. The log is compacted into larger
fragments, so that the number of fragments, and with it the cost of a publish, stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import lance
from lance.fragment import FragmentMetadata

from omnigraph.errors import NotFound, OutcomeUnknown, StorageError
from omnigraph.store.boot_clock import boot_clock
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, version_file
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.branch_entries import BranchEntries
from omnigraph.store.manifest.bucket_entries import BucketEntries
from omnigraph.store.manifest.file_swap import swap_locally, swap_through_lance
from omnigraph.store.manifest.head_swaps import HeadSwaps
from omnigraph.store.manifest.manifest_change import ManifestChange, new_files
from omnigraph.store.manifest.manifest_errors import (
    damaged_file,
    has_lost_versions,
    replaced_error,
    unreadable_error,
    vanished_error,
)
from omnigraph.store.manifest.manifest_files import (
    LOG_KINDS,
    TAGS,
    UNFINISHED,
    LogKind,
    ManifestFile,
    Rows,
    balance,
    full_levels,
    log_name,
    parse_file,
)
from omnigraph.store.manifest.manifest_init import begin_init
from omnigraph.store.manifest.manifest_rows import parse_row
from omnigraph.store.manifest.manifest_view import ManifestView, make_view, read_view, require_version
from omnigraph.store.manifest.recorded_files import RecordedFiles, new_digest_records
from omnigraph.store.manifest.records import (
    MAIN_BRANCH,
    Body,
    BranchEntry,
    CommitRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    TagEntry,
)
from omnigraph.store.manifest.row_files import RowFiles, SupersededFile, file_path
from omnigraph.store.manifest.swap_errors import SwapLost, SwapOutcomeUnknown
from omnigraph.store.manifest.version_digests import record_version_digest, trim_version_digests
from omnigraph.store.manifest.version_probe import VersionProbe, find_newest_version, find_recorded_version
from omnigraph.store.manifest.version_trim import KEEP_ALWAYS, TRIM_EVERY, UNCOMMITTED, StoredVersions
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import attribute_requests_to, propagate_context

__all__ = ["LOG_COMPACT_AT", "PATH", "Manifest", "NotAGraph", "SwapLost", "SwapOutcomeUnknown"]

T = TypeVar("T")

PATH = "__manifest"
# The number of log files of one level that are compacted into one file of the next level.
LOG_COMPACT_AT = 32


class NotAGraph(Exception):
    """There is no graph at the root. `is_incomplete` is set if an `init` has begun and not finished."""

    def __init__(self, is_incomplete: bool) -> None:
        super().__init__("the initialization has not finished" if is_incomplete else "there is no graph")
        self.is_incomplete = is_incomplete


class Manifest:
    """A handle on `__manifest`. Safe to share between threads. It takes no lock in storage."""

    def __init__(self, root: LanceRoot, dataset: lance.LanceDataset) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._rows = RowFiles(root, self.refresh)
        self.branch_entries = BranchEntries(self._rows, self.registry)
        self.tags = BucketEntries(self._rows, TAGS, TagEntry.from_body)
        self._workers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnigraph-manifest")
        self._recorded = RecordedFiles()
        self._view = make_view(dataset)
        self.head_swaps = HeadSwaps(self)
        self._probe = None if root.local is None else VersionProbe.of(root.local / PATH)
        self._needs_trim = False
        self._registry: tuple[ManifestView, Registry] | None = None
        # The time of the storage system at the last removal of old versions, None before.
        self.trimmed_at: datetime | None = None

    # --- opening and creating ----------------------------------------------------------------------------

    @classmethod
    def open(cls, root: LanceRoot) -> Manifest:
        """Open the manifest of a graph; `NotAGraph` if there is none."""
        try:
            version = find_recorded_version(root.local)
            dataset = root.open(PATH, version)
            if version is not None:
                require_version(dataset, version)
            with translate_lance_errors(f"open {PATH}"):
                manifest = cls(root, dataset)
        except NotFound as error:
            if has_lost_versions(root):
                raise damaged_file(f"{PATH}/_versions", "every version is missing") from error
            raise NotAGraph(is_incomplete=False) from error
        except StorageError as error:
            raise unreadable_error(root, error) from error
        if not manifest.view.of_kind("registry"):
            if not manifest.view.of_kind(UNFINISHED) and has_lost_versions(root):
                file = f"{PATH}/{version_file(manifest.view.version)}"
                raise damaged_file(file, "it names no registry")
            raise NotAGraph(is_incomplete=True)
        return manifest

    @classmethod
    def create(
        cls, root: LanceRoot, first: ManifestChange, copied: Sequence[FragmentMetadata] = ()
    ) -> Manifest:
        """Create a graph at a root. Of several concurrent calls exactly one succeeds; the others raise `SwapLost`.

        `copied` are fragments whose files were copied from another graph. A process that dies on the way leaves a
        root that cannot be opened. The next call completes it.
        """
        begin_init(root)
        manifest = cls(root, root.open(PATH))
        unfinished = manifest.view.of_kind(UNFINISHED)
        if manifest.view.of_kind("registry") or len(unfinished) != 1:
            raise SwapLost
        root.sync_all(PATH)
        manifest._swap(manifest.view, remove=unfinished, change=first, copied=copied)
        return manifest

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def needs_log_compaction(self) -> bool:
        """Whether a level of the log has enough files to be compacted."""
        return any(True for kind in LOG_KINDS for _ in full_levels(self._view.of_kind(kind), LOG_COMPACT_AT))

    @property
    def view(self) -> ManifestView:
        """The newest version that this handle has read."""
        return self._view

    def refresh(self) -> ManifestView:
        """Return the newest version. One request detects new commits, and one thread reads the new files."""
        attribute_requests_to(self.root.request_counter)
        current = self._view
        try:
            latest = find_newest_version(current, self._probe)
            if latest == current.version:
                return current
            if latest < current.version:
                raise replaced_error(latest, current.version)
            with self._refreshing:
                if self._view.version >= latest:
                    return self._view
                view = None if self._probe is None else read_view(self.root, latest, self._view)
                if view is None:
                    with translate_lance_errors("refresh __manifest"):
                        dataset = self._view.latest_dataset.checkout_version(latest)
                        require_version(dataset, latest)
                        view = make_view(dataset, self._view)
                return self._advance(view)
        except NotFound as error:
            raise vanished_error() from error
        except StorageError as error:
            raise unreadable_error(self.root, error) from error

    def registry(self, view: ManifestView) -> Registry:
        """Return the registry."""
        found = self._registry
        if found is None or found[0] is not view:
            # A write asks several times for the registry of one view.
            record = self._rows.read_record(view, view.registry_file, Registry.from_body)
            found = self._registry = (view, record)
        return found[1]

    def branch(self, view: ManifestView, name: str) -> BranchEntry | None:
        """Return the entry of a branch, or None if there is no such branch."""
        return self.branch_entries.get(view, name)

    def branches(self, view: ManifestView) -> dict[str, BranchEntry]:
        """Return the entries of all branches by name, sorted."""
        return self.branch_entries.all(view)

    def branches_after(self, view: ManifestView, name: str | None) -> Iterator[tuple[str, BranchEntry]]:
        """Yield the entries of the branches after a name, or of all branches, in the order of names."""
        return self.branch_entries.after(view, name)

    def head(self, view: ManifestView, branch: str, incarnation: str | None = None) -> HeadRecord | None:
        """Return the head of a branch, or None if there is no such branch or it has another incarnation."""
        entry = self._entry(view, branch)
        if entry is None or incarnation not in (None, entry.incarnation):
            return None
        return self.head_of(view, branch, entry)

    def _entry(self, view: ManifestView, branch: str) -> BranchEntry | None:
        """Return the entry of a branch. That of `main` is made without reading its bucket."""
        if branch == MAIN_BRANCH:
            registry = self.registry(view)
            if registry.main is not None and view.head_file(registry.main) is not None:
                return BranchEntry(registry.main, registry.created_at)
        return self.branch_entries.get(view, branch)

    def head_of(self, view: ManifestView, branch: str, entry: BranchEntry) -> HeadRecord:
        """Return the head of a branch with a known entry."""
        if entry.commit is not None:
            commit = self.find_commit(view, entry.commit)
            if commit is None:
                raise StorageError(f"__manifest has no commit {entry.commit}, the head of branch '{branch}'")
            return HeadRecord(branch, entry.incarnation, commit.without_details())
        file = view.head_file(entry.incarnation)
        if file is None:
            raise StorageError(f"__manifest has no head of branch '{branch}'")
        return self.read_head_file(view, file)

    def read_head_file(self, view: ManifestView, file: ManifestFile) -> HeadRecord:
        """Return the record of a head file."""
        return self._rows.read_record(view, file, HeadRecord.from_body)

    def read_head_files(self, view: ManifestView, files: Sequence[ManifestFile]) -> list[HeadRecord]:
        """Return the records of head files. Several are read at the same time."""
        return list(self._workers.map(propagate_context(partial(self.read_head_file, view)), files))

    def schema(self, view: ManifestView, schema: str) -> str:
        """Return the payload of an accepted schema."""
        for file in view.of_kind("schema"):
            if file.parts[0] == schema:
                payload = self._rows.read(view, file).get(f"schema:{schema}")
                if payload is not None:
                    return payload
        raise StorageError(f"__manifest has no schema {schema}")

    def find_commit(self, view: ManifestView, id_: str) -> CommitRecord | None:
        """Return a commit by its id, or None. Only files whose range of ids covers the id are read."""
        return self._find(view, "commit", id_, CommitRecord.from_body)

    def find_recovery(self, view: ManifestView, id_: str) -> RecoveryRecord | None:
        """Return the recovery record of an operation, or None."""
        return self._find(view, "recovery", id_, RecoveryRecord.from_body)

    def recoveries(self, view: ManifestView) -> list[RecoveryRecord]:
        """Return all recovery records, oldest first."""
        records = self._all(view, "recovery", RecoveryRecord.from_body)
        return sorted(records, key=lambda item: item.id)

    def all_commits(self, view: ManifestView) -> Iterator[CommitRecord]:
        """Yield every commit of the graph in no particular order. One file is read at a time."""
        return self._all(view, "commit", CommitRecord.from_body)

    def recorded_files(self, view: ManifestView) -> Mapping[tuple[str, str], FileDigest]:
        """Return the recorded digests by table path and file name: those of all commits, and those added later.

        The first call reads the whole log; later calls read only new files of the log. A graph of format 1 has
        no digests for the files of its old commits until `record_files` adds them.
        """
        try:
            return self._recorded.of(view.files, lambda file: self._rows.read(view, file))
        except SupersededFile:
            # The digests of a view are part of every later view.
            return self.recorded_files(self._view)

    def record_files(self, files: Mapping[str, Sequence[FileDigest]], now: int) -> int:
        """Record digests of files by table path; return how many are new. Files that have a digest keep it.

        `now` is the time in microseconds since the epoch. Publishes of other processes are not disturbed. Raises
        `SwapLost`, or `SwapOutcomeUnknown` if the reply was lost; it is safe to call again.
        """
        known = self.recorded_files(self.refresh())
        new = {
            path: [file for file in items if (path, file.name) not in known] for path, items in files.items()
        }
        for record in new_digest_records(new, now):
            self._swap(self._view, remove=(), change=ManifestChange(digests=[record]))
        return sum(len(items) for items in new.values())

    def rows(self, view: ManifestView, file: ManifestFile) -> Rows:
        """Return the rows of one file as texts by key; `StorageError` if they cannot be read."""
        return self._rows.read(view, file)

    def keys(self, view: ManifestView, file: ManifestFile) -> Sequence[str]:
        """Return the keys of the rows of a log file, without their bodies."""
        return self._rows.keys(view, file)

    # --- compare-and-swap --------------------------------------------------------------------------------

    def replace_heads_if_equal(
        self,
        view: ManifestView,
        expected: Iterable[HeadRecord],
        change: ManifestChange,
        before_swap: Callable[[], None] | None = None,
    ) -> ManifestView:
        """Replace the heads of branches if they are still the expected ones, else raise `SwapLost`.

        If the change has a registry, the swap also fails if the registry was replaced since the view. `before_swap`
        is called when the new files of the manifest are written and nothing refers to them yet. If it raises, there
        is no swap.
        """
        entries: list[tuple[str, BranchEntry]] = []
        for head in expected:
            entry = self._entry(view, head.branch)
            if entry is None or self.head_of(view, head.branch, entry) != head:
                raise SwapLost
            entries.append((head.branch, entry))
        return self._replace_heads(view, entries, change, before_swap)

    def replace_unreadable_head(
        self, view: ManifestView, branch: str, entry: BranchEntry, change: ManifestChange
    ) -> ManifestView:
        """Replace the head of a branch whatever it is, for a repair; `SwapLost` if another writer replaced it."""
        return self._replace_heads(view, [(branch, entry)], change, None)

    def _replace_heads(
        self,
        view: ManifestView,
        entries: Iterable[tuple[str, BranchEntry]],
        change: ManifestChange,
        before_swap: Callable[[], None] | None,
    ) -> ManifestView:
        removed = [] if change.registry is None else [view.registry_file]
        moving: list[tuple[str, BranchEntry | None]] = []
        for branch, entry in entries:
            if entry.commit is None:
                removed += [file for file in [view.head_file(entry.incarnation)] if file is not None]
            else:
                moving.append((branch, replace(entry, commit=None)))
        if moving:
            # The first write of a branch at rest gives it a head file.
            buckets = self.branch_entries.change(view, moving)
            removed += buckets.removed
            change = replace(change, buckets=buckets.added)
        return self._swap(view, remove=removed, change=change, before_swap=before_swap)

    def replace_registry_if_equals(
        self, view: ManifestView, expected: Registry, change: ManifestChange
    ) -> ManifestView:
        """Replace the registry if it is still the expected one, else raise `SwapLost`."""
        file = view.registry_file
        if self._rows.read_record(view, file, Registry.from_body) != expected:
            raise SwapLost
        return self._swap(view, remove=[file], change=change)

    def replace_files(
        self, view: ManifestView, files: Iterable[ManifestFile], change: ManifestChange
    ) -> ManifestView:
        """Replace files whatever they hold; `SwapLost` if another writer replaced one of them."""
        return self._swap(view, remove=files, change=change)

    def replace_copied_files(
        self,
        view: ManifestView,
        registry: Registry,
        remove: Iterable[ManifestFile],
        copied: Sequence[FragmentMetadata],
    ) -> ManifestView:
        """Replace the registry, remove files and add fragments whose files were copied from another graph.

        Raises `SwapLost` if the registry was replaced since the view.
        """
        removed = [view.registry_file, *remove]
        return self._swap(view, remove=removed, change=ManifestChange(registry=registry), copied=copied)

    def _swap(
        self,
        view: ManifestView,
        remove: Iterable[ManifestFile],
        change: ManifestChange,
        copied: Sequence[FragmentMetadata] = (),
        before_swap: Callable[[], None] | None = None,
    ) -> ManifestView:
        removed = list(remove)
        started = boot_clock()
        written = self._write(change, removed, copied)
        if before_swap is not None:
            before_swap()
        result = self._commit(view, removed, [*written, *copied])
        self._rows.forget(removed)
        if boot_clock() - started < UNCOMMITTED.total_seconds() / 2:
            return result
        return self._check_after_pause(result, written, change)

    def _check_after_pause(
        self, view: ManifestView, written: Sequence[FragmentMetadata], change: ManifestChange
    ) -> ManifestView:
        """Check a swap that took so long that old versions may have been removed while it was made."""
        if not self._exists(version_file(view.version - 1)):
            # The number of the version may have been free because the version that had it was removed. The caller
            # finds out whether the commit is part of the graph.
            paused = StorageError("the process was paused during a commit", kind="transient")
            raise SwapOutcomeUnknown(paused)
        names = data_files(written)
        if all(self._exists(name) for name in names):
            return view
        # Trimming took the files for those of an abandoned swap. They are written again.
        mine = [file for file in view.files if f"data/{file.name}" in names]
        return self._swap(view, remove=mine, change=change)

    def _exists(self, name: str) -> bool:
        if self.root.local is not None:
            return (self.root.local / PATH / name).exists()
        if self.root.objects is None:
            return True
        try:
            self.root.objects.head(f"{PATH}/{name}")
        except NotFound:
            return False
        return True

    def _commit(
        self, view: ManifestView, removed: Sequence[ManifestFile], fragments: Sequence[FragmentMetadata]
    ) -> ManifestView:
        """Replace files of a view by new fragments with one swap, and make it durable."""
        swap = None
        if removed and self._probe is not None:
            swap = swap_locally(self._probe, view, removed, fragments)
        if swap is None:
            swap = swap_through_lance(self.root, view, self._view, removed, fragments)
        view = self._advance(swap.view)
        try:
            if swap.digest is None:
                self.root.sync(PATH, swap.files)
            else:
                self.root.sync_checked(PATH, swap.files)
        except StorageError as error:
            raise OutcomeUnknown(
                f"the commit is visible but not synced to disk: {error.message}",
                details={"cause": str(error)},
                hint="check the disk; the commit may be lost after a power failure",
            ) from error
        if self.root.local is not None:
            record_version_digest(self.root.local / PATH, view.version, swap.digest)
        if view.version % TRIM_EVERY == 0:
            self._needs_trim = True
        return view

    # --- compaction of the log ---------------------------------------------------------------------------

    def compact_log(self) -> bool:
        """Compact the log files of a full level; return whether any were compacted.

        It does not conflict with a publish. If two processes compact the same files, one of them has no effect.
        """
        view = self._view
        for kind in LOG_KINDS:
            for files in full_levels(view.of_kind(kind), LOG_COMPACT_AT):
                try:
                    self._compact(view, kind, files)
                except SwapLost:
                    return False
                return True
        return False

    def _compact(self, view: ManifestView, kind: LogKind, files: Sequence[ManifestFile]) -> None:
        rows = range(sum(file.rows for file in files))
        ids = [id_ for file in files for id_ in file.id_range]
        ((name, _),) = balance([(log_name(kind, files[0].level + 1, ids), rows)], files)
        new = self._rows.merge(view, name, files)
        self.root.sync(PATH, data_files([new]))
        self._commit(view, files, [new])
        self._rows.forget(files)

    def take_trim(self) -> bool:
        """Return whether this handle made the commit after which old versions are removed; True only once."""
        due, self._needs_trim = self._needs_trim, False
        return due

    def remove_old_versions(self, objects: ObjectStore) -> int:
        """Remove old versions and the files that only they name; return the number of removed files.

        Readers with an older view find the rows of the log in the newest version.
        """
        if self.root.local is None and self.root.objects is None:
            return self._remove_old_versions_in_memory()
        stored = StoredVersions.of(objects.list(PATH), PATH)
        self.trimmed_at = max(stored.versions.values(), default=None)
        kept = stored.oldest_kept()
        if kept is None:
            return 0
        newest = self.refresh()
        try:
            oldest = make_view(self.root.open(PATH, kept))
        except NotFound:
            # Another process is trimming.
            return 0
        needed = frozenset(f"data/{file.name}" for file in (*newest.files, *oldest.files))
        versions = [f"{PATH}/{name}" for name in stored.version_files_before(kept)]
        others = [f"{PATH}/{name}" for name in stored.other_files_before(kept, needed)]
        objects.delete_many(versions)
        objects.delete_many(others)
        if self.root.local is not None:
            trim_version_digests(self.root.local / PATH, kept)
        return len(versions) + len(others)

    def _remove_old_versions_in_memory(self) -> int:
        # Only Lance can list the files of a graph in memory. On tables this call is forbidden, because Lance would
        # remove detached versions.
        with translate_lance_errors("remove old versions of __manifest"):
            removed = self._view.dataset.cleanup_old_versions(
                older_than=timedelta(0), retain_versions=KEEP_ALWAYS
            )
        return int(removed.old_versions)

    # --- files and rows ----------------------------------------------------------------------------------

    def _write(
        self,
        change: ManifestChange,
        removed: Iterable[ManifestFile] = (),
        copied: Iterable[FragmentMetadata] = (),
    ) -> list[FragmentMetadata]:
        added = [parse_file(0, item.files[0].path, item.physical_rows) for item in copied]
        files = balance(list(new_files(change)), removed, added)
        # The files are independent, and each is a round trip on an object store. The present thread writes one.
        others = self._workers.map(propagate_context(self._rows.write_file), files[1:])
        first = [self._rows.write_file(file) for file in files[:1]]
        fragments = [*first, *others]
        self.root.sync_checked(PATH, data_files(fragments))
        self._rows.keep_heads(fragments, change.heads)
        return fragments

    def _find(self, view: ManifestView, kind: LogKind, id_: str, parse: Callable[[Body], T]) -> T | None:
        key = f"{kind}:{id_}"
        try:
            for file in view.of_kind(kind):
                if file.covers(id_):
                    text = self._rows.find(view, file, key)
                    if text is not None:
                        return parse_row(file_path(file), key, text, parse)
        except SupersededFile:
            # A later view has every row of the log.
            return self._find(self._view, kind, id_, parse)
        return None

    def _all(self, view: ManifestView, kind: LogKind, parse: Callable[[Body], T]) -> Iterator[T]:
        yielded: set[str] = set()
        files = view.of_kind(kind)
        while files:
            file = files.pop()
            try:
                rows = self._rows.read(view, file)
            except SupersededFile:
                # A later view has every row of the log, in other files.
                view = self._view
                files = view.of_kind(kind)
                continue
            for key, text in rows.items():
                if key not in yielded:
                    yielded.add(key)
                    yield parse_row(file_path(file), key, text, parse)

    def _advance(self, view: ManifestView) -> ManifestView:
        with self._lock:
            if view.version >= self._view.version:
                self._view = view
            return view
