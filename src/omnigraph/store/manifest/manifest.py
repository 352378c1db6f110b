"""`__manifest`: the dataset whose HEAD is the state of the graph, and the compare-and-swap that publishes commits.

Every row that changes atomically is alone in a fragment: the registry, and the head of each branch. A change is
one Lance `Update` that removes such a fragment and adds its successor. Of two updates that remove the same
fragment, Lance rejects the second; this is the compare-and-swap. Lance rebases updates of different fragments,
and both succeed. Commits, recovery records and digests of files are log rows, which are only added. The log is
compacted into larger fragments, so that the number of fragments, and with it the cost of a publish, stays bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import lance
import pyarrow as pa
from cachetools import LRUCache
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema

from omnigraph.errors import NotFound, OmnigraphError, OutcomeUnknown, StorageError
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import storage_error_from_lance, translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, get_fragment, transaction_file, version_file
from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.freshness import DirectoryState, is_unchanged, read_directory_state
from omnigraph.store.manifest.manifest_errors import (
    damaged_file,
    has_lost_versions,
    reading_file,
    replaced_error,
    unreadable_error,
    vanished_error,
)
from omnigraph.store.manifest.manifest_files import (
    LOG_KINDS,
    UNFINISHED,
    LogKind,
    ManifestFile,
    balance,
    head_name,
    log_name,
    parse_file,
    registry_name,
    schema_name,
    unfinished_name,
)
from omnigraph.store.manifest.manifest_rows import decode_row, encode_row, parse_row
from omnigraph.store.manifest.manifest_view import ManifestView, make_view, require_version
from omnigraph.store.manifest.manifest_writer import write_named_file
from omnigraph.store.manifest.recorded_files import RecordedFiles, new_digest_records
from omnigraph.store.manifest.records import (
    Body,
    CommitRecord,
    DigestRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    encode_body,
)
from omnigraph.store.manifest.version_digests import record_version_digest, trim_version_digests
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import attribute_requests_to, propagate_context

T = TypeVar("T")

PATH = "__manifest"
ROW_SCHEMA = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("body", pa.string(), nullable=False)]
)

# The number of log files of one level that are compacted into one file of the next level.
LOG_COMPACT_AT = 32
_MAX_ROWS_TO_CACHE_FILE = 2_048
_CACHED_ROWS = 16_384
# Old versions of `__manifest` are kept this long for readers that still use them.
_KEEP_VERSIONS = timedelta(hours=1)
# The newest versions are kept whatever their age. The age depends on the clocks of the writers, and a swap is
# compared only with those versions since its view that still exist.
_KEEP_NEWEST = 256
# The largest difference between the local clock and that of the store at which the age of files is meaningful.
_MAX_CLOCK_SKEW = timedelta(minutes=5)


class NotAGraph(Exception):
    """There is no graph at the root. `is_incomplete` is set if an `init` has begun and not finished."""

    def __init__(self, is_incomplete: bool) -> None:
        super().__init__("the initialization has not finished" if is_incomplete else "there is no graph")
        self.is_incomplete = is_incomplete


class SwapLost(Exception):
    """The compare-and-swap failed, because another writer replaced a row first."""


class SwapOutcomeUnknown(Exception):
    """The compare-and-swap was sent and the reply was lost. It may have happened, or may still happen.

    It is safe to repeat, because each row can be replaced only once.
    """

    def __init__(self, error: OmnigraphError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True, slots=True)
class ManifestChange:
    """The rows to add in one compare-and-swap. `heads` and `registry` replace their predecessors."""

    registry: Registry | None = None
    heads: Sequence[HeadRecord] = ()
    commits: Sequence[CommitRecord] = ()
    schemas: dict[str, str] = field(default_factory=dict)
    recoveries: Sequence[RecoveryRecord] = ()
    digests: Sequence[DigestRecord] = ()


class Manifest:
    """A handle on `__manifest`. Safe to share between threads. It takes no lock in storage."""

    def __init__(self, root: LanceRoot, dataset: lance.LanceDataset) -> None:
        self.root = root
        self._files = root.file_session(PATH)
        self._lock = threading.Lock()
        self._rows: LRUCache[str, dict[str, str]] = LRUCache(_CACHED_ROWS, getsizeof=len)
        self._writers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnigraph-manifest")
        self._recorded = RecordedFiles()
        self._view = make_view(dataset)
        self._versions = None if root.local is None else root.local / PATH / "_versions"
        # The last known state of that directory, and the newest version in it at that time.
        self._last_probe: tuple[DirectoryState | None, int] = (None, 0)

    # --- opening and creating ----------------------------------------------------------------------------

    @classmethod
    def open(cls, root: LanceRoot) -> Manifest:
        """Open the manifest of a graph; `NotAGraph` if there is none."""
        try:
            dataset = root.open(PATH)
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
        return any(True for kind in LOG_KINDS for _ in _full_levels(self._view.of_kind(kind)))

    @property
    def view(self) -> ManifestView:
        """The newest version that this handle has read."""
        return self._view

    def refresh(self) -> ManifestView:
        """Return the newest version. One request detects new commits, and only new files are read."""
        attribute_requests_to(self.root.request_counter)
        current = self._view
        folder = self._versions
        if folder is not None:
            state, version = self._last_probe
            if version == current.version and is_unchanged(folder, state):
                return current
        state = None if folder is None else read_directory_state(folder)
        try:
            with translate_lance_errors("refresh __manifest"):
                latest = current.dataset.latest_version
                self._last_probe = (state, latest)
                if latest == current.version:
                    return current
                if latest < current.version:
                    raise replaced_error(latest, current.version)
                dataset = current.dataset.checkout_version(latest)
                require_version(dataset, latest)
                return self._advance(dataset)
        except NotFound as error:
            raise vanished_error() from error
        except StorageError as error:
            raise unreadable_error(self.root, error) from error

    def registry(self, view: ManifestView) -> Registry:
        """Return the registry."""
        return self._single(view, self._registry_file(view), Registry.from_body)

    def head(self, view: ManifestView, incarnation: str) -> HeadRecord | None:
        """Return the head of a branch incarnation, or None if the branch was deleted."""
        file = view.head_file(incarnation)
        return None if file is None else self._single(view, file, HeadRecord.from_body)

    def schema(self, view: ManifestView, schema: str) -> str:
        """Return the payload of an accepted schema."""
        for file in view.of_kind("schema"):
            if file.parts[0] == schema:
                payload = self._read(view, file).get(f"schema:{schema}")
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
        return self._recorded.of(view.files, lambda file: self._read(view, file))

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

    def rows(self, view: ManifestView, file: ManifestFile) -> dict[str, str]:
        """Return the rows of one file as texts by key; `StorageError` if they cannot be read."""
        return self._read(view, file)

    # --- compare-and-swap --------------------------------------------------------------------------------

    def replace_head_if_equals(
        self, view: ManifestView, expected: HeadRecord, change: ManifestChange
    ) -> ManifestView:
        """Replace the head of a branch if it is still the expected one, else raise `SwapLost`.

        If the change has a registry, the swap also fails if the registry was replaced since the view.
        """
        file = view.head_file(expected.incarnation)
        if file is None or self._single(view, file, HeadRecord.from_body) != expected:
            raise SwapLost
        removed = [file] if change.registry is None else [file, self._registry_file(view)]
        return self._swap(view, remove=removed, change=change)

    def replace_registry_if_equals(
        self, view: ManifestView, expected: Registry, change: ManifestChange, remove_head: str | None = None
    ) -> ManifestView:
        """Replace the registry if it is still the expected one, else raise `SwapLost`.

        `remove_head` is the incarnation of a branch whose head is removed in the same swap.
        """
        file = self._registry_file(view)
        if self._single(view, file, Registry.from_body) != expected:
            raise SwapLost
        removed = [file]
        if remove_head is not None:
            head = view.head_file(remove_head)
            if head is None:
                raise SwapLost
            removed.append(head)
        return self._swap(view, remove=removed, change=change)

    def replace_files(
        self, view: ManifestView, files: Iterable[ManifestFile], change: ManifestChange
    ) -> ManifestView:
        """Replace files whatever they hold, for a repair; `SwapLost` if another writer replaced one of them."""
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
        removed = [self._registry_file(view), *remove]
        return self._swap(view, remove=removed, change=ManifestChange(registry=registry), copied=copied)

    def _swap(
        self,
        view: ManifestView,
        remove: Iterable[ManifestFile],
        change: ManifestChange,
        copied: Sequence[FragmentMetadata] = (),
    ) -> ManifestView:
        removed = list(remove)
        fragments = [*self._write(change, removed, copied), *copied]
        operation = LanceOperation.Update(
            removed_fragment_ids=[item.fragment for item in removed], new_fragments=fragments
        )
        return self._commit(view, operation)

    def _commit(self, view: ManifestView, operation: LanceOperation.BaseOperation) -> ManifestView:
        transaction = lance.Transaction(view.version, operation)
        try:
            with translate_lance_errors("commit to __manifest"):
                dataset = lance.LanceDataset.commit(view.dataset, transaction)
            view = self._advance(dataset)
        except CommitConflictError as error:
            raise SwapLost from error
        except OmnigraphError as error:
            raise SwapOutcomeUnknown(error) from error
        try:
            self.root.sync(PATH, [*self._transaction_files(transaction, view), version_file(view.version)])
        except StorageError as error:
            raise OutcomeUnknown(
                f"the commit is visible but not synced to disk: {error.message}",
                details={"cause": str(error)},
                hint="check the disk; the commit may be lost after a power failure",
            ) from error
        if self.root.local is not None:
            record_version_digest(self.root.local / PATH, view.version)
        return view

    def _transaction_files(self, transaction: lance.Transaction, view: ManifestView) -> list[str]:
        """The transaction file of the commit that made a view, on a local disk.

        Lance names it after the version that the commit follows. A rewrite that lost a race keeps the name of the
        version that it was prepared on.
        """
        names = {transaction_file(transaction, view.version - 1), transaction_file(transaction)}
        local = self.root.local
        return [] if local is None else [name for name in names if (local / PATH / name).exists()]

    # --- compaction of the log ---------------------------------------------------------------------------

    def compact_log(self, objects: ObjectStore | None = None) -> bool:
        """Compact the log files of a full level; return whether any were compacted.

        It does not conflict with a publish. If two processes compact the same files, one of them has no effect.
        With `objects`, which provide the time of the store, old versions are removed after some compactions.
        """
        view = self._view
        for kind in LOG_KINDS:
            for files in _full_levels(view.of_kind(kind)):
                try:
                    self._compact(view, kind, files)
                except SwapLost:
                    return False
                if files[0].level and objects is not None:
                    self.remove_old_versions(objects)
                return True
        return False

    def _compact(self, view: ManifestView, kind: LogKind, files: Sequence[ManifestFile]) -> None:
        rows: dict[str, str] = {}
        for file in files:
            rows.update(self._read(view, file))
        ids = [key.split(":", 1)[1] for key in rows]
        ((name, _),) = balance([(log_name(kind, files[0].level + 1, ids), rows)], files)
        new = self._write_rows(name, rows)
        self.root.sync(PATH, data_files([new]))
        old = [get_fragment(view.dataset, file.fragment).metadata for file in files]
        self._commit(view, LanceOperation.Rewrite([LanceOperation.RewriteGroup(old, [new])], []))

    def remove_old_versions(self, objects: ObjectStore) -> bool:
        """Remove old versions; return False if the local clock differs too much from that of the store.

        Call it directly after a commit of this handle. Lance also removes files that no version refers to and that
        are a week old by the local clock. If that clock is ahead, these could be files that are about to be
        published.
        """
        if not self._clock_agrees(objects):
            return False
        # Commit rows are complete, so readers do not need old versions of this dataset. On tables this call is
        # forbidden, because Lance would remove detached versions.
        with translate_lance_errors("remove old versions of __manifest"):
            self._view.dataset.cleanup_old_versions(older_than=_KEEP_VERSIONS, retain_versions=_KEEP_NEWEST)
        if self.root.local is not None:
            trim_version_digests(self.root.local / PATH, self._view.version - _KEEP_NEWEST)
        return True

    def _clock_agrees(self, objects: ObjectStore) -> bool:
        if objects.location.scheme == "memory":
            # There is only one clock within a process, and Lance does not list the files.
            return True
        written = objects.head(f"{PATH}/{version_file(self._view.version)}").last_modified
        return abs(datetime.now(UTC) - written) < _MAX_CLOCK_SKEW

    # --- files and rows ----------------------------------------------------------------------------------

    def _write(
        self,
        change: ManifestChange,
        removed: Iterable[ManifestFile] = (),
        copied: Iterable[FragmentMetadata] = (),
    ) -> list[FragmentMetadata]:
        added = [parse_file(0, item.files[0].path, item.physical_rows) for item in copied]
        files = balance(list(_new_files(change)), removed, added)
        # The files are independent, and each is a round trip on an object store.
        fragments = list(self._writers.map(propagate_context(self._write_file), files))
        self.root.sync(PATH, data_files(fragments))
        return fragments

    def _write_file(self, file: tuple[str, dict[str, str]]) -> FragmentMetadata:
        return self._write_rows(*file)

    def _write_rows(self, name: str, rows: dict[str, str]) -> FragmentMetadata:
        bodies = [encode_row(key, text) for key, text in rows.items()]
        table = pa.table({"key": list(rows), "body": bodies}, schema=ROW_SCHEMA)
        fragment = write_named_file(self.root, PATH, self._files, name, table, with_digest=True)
        self._cache(fragment.files[0].path, rows)
        return fragment

    def _registry_file(self, view: ManifestView) -> ManifestFile:
        files = view.of_kind("registry")
        if len(files) != 1:
            raise StorageError(f"__manifest: expected 1 registry file, got {len(files)}")
        return files[0]

    def _single(self, view: ManifestView, file: ManifestFile, parse: Callable[[Body], T]) -> T:
        """Return the record of a file that must hold exactly one."""
        rows = self._read(view, file)
        if len(rows) != 1:
            raise StorageError(f"{_path(file)}: expected 1 row, got {len(rows)}")
        ((key, text),) = rows.items()
        return parse_row(_path(file), key, text, parse)

    def _find(self, view: ManifestView, kind: LogKind, id_: str, parse: Callable[[Body], T]) -> T | None:
        for file in view.of_kind(kind):
            if file.covers(id_):
                key = f"{kind}:{id_}"
                text = self._row(view, file, key)
                if text is not None:
                    return parse_row(_path(file), key, text, parse)
        return None

    def _all(self, view: ManifestView, kind: LogKind, parse: Callable[[Body], T]) -> Iterator[T]:
        for file in view.of_kind(kind):
            for key, text in self._read(view, file).items():
                yield parse_row(_path(file), key, text, parse)

    def _row(self, view: ManifestView, file: ManifestFile, key: str) -> str | None:
        """Return one row of a file. Lance searches a large file, which is not cached."""
        if file.rows <= _MAX_ROWS_TO_CACHE_FILE:
            return self._read(view, file).get(key)
        with reading_file("search", _path(file)):
            fragment = get_fragment(view.dataset, file.fragment)
            table = fragment.to_table(columns=["body"], filter=f"key = {quote_string(key)}")
            bodies = table["body"].to_pylist()
        return decode_row(_path(file), key, bodies[0]) if bodies else None

    def _read(self, view: ManifestView, file: ManifestFile) -> dict[str, str]:
        with self._lock:
            rows = self._rows.get(file.name)
        if rows is not None:
            return rows
        with reading_file("read", _path(file)):
            table = get_fragment(view.dataset, file.fragment).to_table()
            stored = zip(table["key"].to_pylist(), table["body"].to_pylist(), strict=True)
            rows = {key: decode_row(_path(file), key, body) for key, body in stored}
        self._cache(file.name, rows)
        return rows

    def _cache(self, name: str, rows: dict[str, str]) -> None:
        # A larger file would evict all others, and lookups in it do not read it whole.
        if len(rows) <= _CACHED_ROWS:
            with self._lock:
                self._rows[name] = rows

    def _advance(self, dataset: lance.LanceDataset) -> ManifestView:
        with self._lock:
            view = make_view(dataset, self._view)
            if view.version >= self._view.version:
                self._view = view
            return view


def _path(file: ManifestFile) -> str:
    return f"{PATH}/data/{file.name}"


def _new_files(change: ManifestChange) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the rows of each file of a change."""
    if change.registry is not None:
        yield registry_name(), {"registry": encode_body(change.registry.to_body())}
    for head in change.heads:
        yield head_name(head.incarnation), {f"head:{head.branch}": encode_body(head.to_body())}
    for id_, payload in change.schemas.items():
        yield schema_name(id_), {f"schema:{id_}": payload}
    logs: list[tuple[LogKind, Sequence[CommitRecord | RecoveryRecord | DigestRecord]]] = [
        ("commit", change.commits),
        ("recovery", change.recoveries),
        ("digests", change.digests),
    ]
    for kind, records in logs:
        if records:
            rows = {f"{kind}:{item.id}": encode_body(item.to_body()) for item in records}
            yield log_name(kind, 0, [item.id for item in records]), rows


def begin_init(root: LanceRoot) -> None:
    """Create the dataset with the row that marks an unfinished initialization, if it does not exist.

    `write_dataset` is not safe here: of two concurrent creators, one overwrites the dataset of the other. This
    commit is based on version 0, which never exists. One creator makes version 1, and the others fail.
    """
    row = pa.table({"key": [UNFINISHED], "body": ["{}"]}, schema=ROW_SCHEMA)
    first = write_named_file(root, PATH, root.file_session(PATH), unfinished_name(), row, with_digest=True)
    root.sync(PATH, data_files([first]))
    try:
        lance.LanceDataset.commit(
            root.dataset_uri(PATH),
            LanceOperation.Overwrite(LanceSchema.from_pyarrow(ROW_SCHEMA), [first]),
            read_version=0,
            storage_options=dict(root.options) or None,
            enable_v2_manifest_paths=True,
            max_retries=0,
        )
    except (OSError, ValueError) as error:
        try:
            root.open(PATH)
        except NotFound:
            raise storage_error_from_lance(error, f"create {PATH}") from error


def _full_levels(files: Sequence[ManifestFile]) -> Iterator[list[ManifestFile]]:
    levels: dict[int, list[ManifestFile]] = {}
    for file in files:
        levels.setdefault(file.level, []).append(file)
    for level in sorted(levels):
        if len(levels[level]) >= LOG_COMPACT_AT:
            yield sorted(levels[level], key=lambda item: item.parts[1])
