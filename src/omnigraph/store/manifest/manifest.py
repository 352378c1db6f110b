"""`__manifest`: the one dataset whose HEAD means something, and the compare-and-swap that publishes commits.

Every row that must change atomically stands alone in a fragment of its own: the registry, and each branch's
head. A change is one Lance `Update` that removes such a fragment and adds its successor. Lance refuses the second
of two updates that remove one fragment, which is the compare-and-swap; updates of different fragments are rebased
by Lance and both succeed. Commits and recovery outcomes are log rows: only ever added, and folded into larger
fragments so that their number, and with it the cost of a publish, stays flat.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import lance
import pyarrow as pa
from cachetools import LRUCache
from lance import LanceOperation
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema

from omnigraph.errors import NotFound, OmnigraphError, OutcomeUnknown, StorageError
from omnigraph.store.lance.lance_errors import storage_error_from_lance, translate_lance_errors
from omnigraph.store.lance.lance_files import data_files, get_fragment, transaction_file, version_file
from omnigraph.store.lance.lance_filters import quote_string
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.freshness import DirectoryState, is_unchanged, read_directory_state
from omnigraph.store.manifest.manifest_files import (
    LOG_KINDS,
    UNFINISHED,
    LogKind,
    ManifestFile,
    head_name,
    log_name,
    parse_file,
    registry_name,
    schema_name,
    unfinished_name,
)
from omnigraph.store.manifest.manifest_writer import write_named_file
from omnigraph.store.manifest.records import (
    Body,
    CommitRecord,
    HeadRecord,
    RecoveryRecord,
    Registry,
    encode_body,
)
from omnigraph.store.objects.object_store import ObjectStore
from omnigraph.store.request_counts import attribute_requests_to, propagate_context

PATH = "__manifest"
ROW_SCHEMA = pa.schema(
    [pa.field("key", pa.string(), nullable=False), pa.field("body", pa.string(), nullable=False)]
)

# How many log files of one level are folded into one of the next.
FOLD = 32
_WHOLE_FILE = 2_048
_CACHED_ROWS = 16_384
# How long versions of `__manifest` that nothing needs any more are left for readers that are still at them.
_KEEP_VERSIONS = timedelta(hours=1)
# And how many of the newest stay whatever their age: that is told by the clocks of those who made them, and a swap
# is compared only with the versions since its view that are still there.
_KEEP_NEWEST = 256
# How far the clock of this machine may be from the store's for the age of files to mean anything.
_CLOCKS_AGREE = timedelta(minutes=5)


class NotAGraph(Exception):
    """There is no finished graph here. `half_made` tells a root that an `init` has begun from an empty place."""

    def __init__(self, half_made: bool) -> None:
        super().__init__("initialisation was not finished" if half_made else "there is no graph here")
        self.half_made = half_made


class Superseded(Exception):
    """The compare-and-swap lost: what was to be replaced has been replaced by somebody else."""


class Uncertain(Exception):
    """The compare-and-swap was sent and no answer came: it may have happened, or may still happen.

    Sending it again is safe: whatever is to be replaced can be replaced only once.
    """

    def __init__(self, error: OmnigraphError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class View:
    """`__manifest` at one version. Two views never disagree about what a file holds: files do not change."""

    dataset: lance.LanceDataset
    version: int
    files: tuple[ManifestFile, ...]

    def of_kind(self, kind: str) -> list[ManifestFile]:
        """Files of one kind."""
        return [item for item in self.files if item.kind == kind]

    def head_file(self, incarnation: str) -> ManifestFile | None:
        """The head file of a branch incarnation."""
        return next((item for item in self.of_kind("head") if item.parts[0] == incarnation), None)


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to add in one compare-and-swap. `head` or `registry` replace their predecessors."""

    registry: Registry | None = None
    heads: Sequence[HeadRecord] = ()
    commits: Sequence[CommitRecord] = ()
    schemas: dict[str, str] = field(default_factory=dict)
    recoveries: Sequence[RecoveryRecord] = ()


class Manifest:
    """A handle on `__manifest`. Safe to share between threads; holds no lock in storage."""

    def __init__(self, root: LanceRoot, dataset: lance.LanceDataset) -> None:
        self.root = root
        self._files = root.file_session(PATH)
        self._lock = threading.Lock()
        self._rows: LRUCache[str, dict[str, str]] = LRUCache(_CACHED_ROWS, getsizeof=len)
        self._writers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnigraph-manifest")
        self._view = self._make_view(dataset, None)
        self._versions = None if root.local is None else root.local / PATH / "_versions"
        # What was seen of that folder, and the newest version that was there then.
        self._sight: tuple[DirectoryState | None, int] = (None, 0)

    # --- opening and creating ----------------------------------------------------------------------------

    @classmethod
    def open(cls, root: LanceRoot) -> Manifest:
        """Open the manifest of a finished graph, or raise `NotAGraph`."""
        try:
            manifest = cls(root, root.open(PATH))
        except NotFound as error:
            raise NotAGraph(half_made=False) from error
        if not manifest.view.of_kind("registry"):
            raise NotAGraph(half_made=True)
        return manifest

    @classmethod
    def create(cls, root: LanceRoot, first: Change) -> Manifest:
        """Make a root into a graph. Of several creators exactly one succeeds; the others get `Superseded`.

        A creator that dies on the way leaves a root that cannot be opened and that the next creator finishes.
        """
        begin_manifest(root)
        manifest = cls(root, root.open(PATH))
        begun = manifest.view.of_kind(UNFINISHED)
        if manifest.view.of_kind("registry") or len(begun) != 1:
            raise Superseded
        root.sync_all(PATH)
        manifest._swap(manifest.view, remove=begun, change=first)
        return manifest

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether a level of the log has grown enough to be folded."""
        return any(True for kind in LOG_KINDS for _ in _full_levels(self._view.of_kind(kind)))

    @property
    def view(self) -> View:
        """The newest version this handle has seen."""
        return self._view

    def refresh(self) -> View:
        """See what is newest: one probe, and only what is new is read."""
        attribute_requests_to(self.root.request_counter)
        current = self._view
        folder = self._versions
        if folder is not None:
            seen, version = self._sight
            if version == current.version and is_unchanged(folder, seen):
                return current
        sight = None if folder is None else read_directory_state(folder)
        with translate_lance_errors("look at __manifest"):
            latest = current.dataset.latest_version
            self._sight = (sight, latest)
            if latest == current.version:
                return current
            dataset = current.dataset.checkout_version(latest)
        return self._advance(dataset)

    def registry(self, view: View) -> Registry:
        """The registry row."""
        return Registry.from_body(self._single(view, self._registry_file(view)))

    def head(self, view: View, incarnation: str) -> HeadRecord | None:
        """Where a branch incarnation stands, or None when it is gone."""
        file = view.head_file(incarnation)
        return None if file is None else HeadRecord.from_body(self._single(view, file))

    def schema(self, view: View, schema: str) -> str:
        """The payload of an accepted schema."""
        for file in view.of_kind("schema"):
            if file.parts[0] == schema:
                return self._read(view, file)[f"schema:{schema}"]
        raise StorageError(f"schema {schema} is missing from __manifest")

    def find_commit(self, view: View, id_: str) -> CommitRecord | None:
        """A commit by its id; only files whose range covers the id are read."""
        body = self._find(view, "commit", id_)
        return None if body is None else CommitRecord.from_body(body)

    def find_recovery(self, view: View, id_: str) -> RecoveryRecord | None:
        """A recovery outcome by the id of its operation."""
        body = self._find(view, "recovery", id_)
        return None if body is None else RecoveryRecord.from_body(body)

    def recoveries(self, view: View) -> list[RecoveryRecord]:
        """Every recovery outcome, oldest first."""
        found = [body for file in view.of_kind("recovery") for body in self._read(view, file).values()]
        return sorted(
            (RecoveryRecord.from_body(json.loads(body)) for body in found), key=lambda item: item.id
        )

    def all_commits(self, view: View) -> Iterator[CommitRecord]:
        """Every commit of the graph, in no promised order, one file at a time."""
        for file in view.of_kind("commit"):
            for body in self._read(view, file).values():
                yield CommitRecord.from_body(json.loads(body))

    # --- compare-and-swap --------------------------------------------------------------------------------

    def replace_head_if_equals(self, view: View, expected: HeadRecord, change: Change) -> View:
        """Move a branch: succeeds only while its head is still the expected one, else `Superseded`.

        With a registry in the change nobody may have replaced that either since the view.
        """
        file = view.head_file(expected.incarnation)
        if file is None or HeadRecord.from_body(self._single(view, file)) != expected:
            raise Superseded
        removed = [file] if change.registry is None else [file, self._registry_file(view)]
        return self._swap(view, remove=removed, change=change)

    def replace_registry_if_equals(
        self, view: View, expected: Registry, change: Change, remove_head: str | None = None
    ) -> View:
        """Replace the registry, and drop a branch's head with it, while nobody else replaced either."""
        file = self._registry_file(view)
        if Registry.from_body(self._single(view, file)) != expected:
            raise Superseded
        removed = [file]
        if remove_head is not None:
            head = view.head_file(remove_head)
            if head is None:
                raise Superseded
            removed.append(head)
        return self._swap(view, remove=removed, change=change)

    def _swap(self, view: View, remove: Iterable[ManifestFile], change: Change) -> View:
        fragments = self._write(change)
        operation = LanceOperation.Update(
            removed_fragment_ids=[item.fragment for item in remove], new_fragments=fragments
        )
        return self._commit(view, operation)

    def _commit(self, view: View, operation: LanceOperation.BaseOperation) -> View:
        transaction = lance.Transaction(view.version, operation)
        try:
            with translate_lance_errors("commit to __manifest"):
                dataset = lance.LanceDataset.commit(view.dataset, transaction)
        except CommitConflictError as error:
            raise Superseded from error
        except OmnigraphError as error:
            raise Uncertain(error) from error
        view = self._advance(dataset)
        try:
            self.root.sync(
                PATH, [transaction_file(transaction, view.version - 1), version_file(view.version)]
            )
        except StorageError as error:
            raise OutcomeUnknown(
                "the commit is visible but could not be made durable", details={"cause": str(error)}
            ) from error
        return view

    # --- keeping the log flat ----------------------------------------------------------------------------

    def fold_log(self, objects: ObjectStore | None = None) -> bool:
        """Fold log files of a level that has grown full; whether any was folded.

        Commutes with every publish. When another process folds the same files, one of the two has no effect.
        Now and then old versions are trimmed as well, given the graph's `objects`, which know the store's time.
        """
        view = self._view
        for kind in LOG_KINDS:
            for files in _full_levels(view.of_kind(kind)):
                try:
                    self._fold(view, kind, files)
                except Superseded:
                    return False
                if files[0].level and objects is not None:
                    self.trim(objects)
                return True
        return False

    def _fold(self, view: View, kind: LogKind, files: Sequence[ManifestFile]) -> None:
        rows: dict[str, str] = {}
        for file in files:
            rows.update(self._read(view, file))
        ids = [key.split(":", 1)[1] for key in rows]
        name = log_name(kind, files[0].level + 1, ids)
        new = self._write_rows(name, rows)
        self.root.sync(PATH, data_files([new]))
        old = [get_fragment(view.dataset, file.fragment).metadata for file in files]
        self._commit(view, LanceOperation.Rewrite([LanceOperation.RewriteGroup(old, [new])], []))

    def trim(self, objects: ObjectStore) -> bool:
        """Remove versions that nothing needs any more; False when the clock here is too far from the store's.

        To be called right after a commit of this handle. Lance takes a file that no version names for garbage when
        it is a week old by the clock of this machine: if that is ahead, also what others are about to publish.
        """
        if not self._clock_agrees(objects):
            return False
        # Commit rows are complete, so old versions of this dataset serve nobody; on tables this call is forbidden.
        with translate_lance_errors("trim __manifest"):
            self._view.dataset.cleanup_old_versions(older_than=_KEEP_VERSIONS, retain_versions=_KEEP_NEWEST)
        return True

    def _clock_agrees(self, objects: ObjectStore) -> bool:
        if objects.location.scheme == "memory":
            # Within one process there is one clock, and Lance keeps the files to itself.
            return True
        written = objects.head(f"{PATH}/{version_file(self._view.version)}").last_modified
        return abs(datetime.now(UTC) - written) < _CLOCKS_AGREE

    # --- files and rows ----------------------------------------------------------------------------------

    def _write(self, change: Change) -> list[FragmentMetadata]:
        # None depends on another, and on a store every file is a round trip.
        fragments = list(self._writers.map(propagate_context(self._write_file), _files_of(change)))
        self.root.sync(PATH, data_files(fragments))
        return fragments

    def _write_file(self, file: tuple[str, dict[str, str]]) -> FragmentMetadata:
        return self._write_rows(*file)

    def _write_rows(self, name: str, rows: dict[str, str]) -> FragmentMetadata:
        table = pa.table({"key": list(rows), "body": list(rows.values())}, schema=ROW_SCHEMA)
        fragment = write_named_file(self.root, PATH, self._files, name, table)
        self._remember(name, rows)
        return fragment

    def _registry_file(self, view: View) -> ManifestFile:
        files = view.of_kind("registry")
        if len(files) != 1:
            raise StorageError(f"__manifest has {len(files)} registry fragments instead of one")
        return files[0]

    def _single(self, view: View, file: ManifestFile) -> Body:
        """The one row of a file that must hold exactly one."""
        rows = self._read(view, file)
        if len(rows) != 1:
            raise StorageError(f"{file.name} holds {len(rows)} rows instead of one")
        body: Body = json.loads(next(iter(rows.values())))
        return body

    def _find(self, view: View, kind: LogKind, id_: str) -> Body | None:
        for file in view.of_kind(kind):
            if file.covers(id_):
                text = self._row(view, file, f"{kind}:{id_}")
                if text is not None:
                    body: Body = json.loads(text)
                    return body
        return None

    def _row(self, view: View, file: ManifestFile, key: str) -> str | None:
        """One row of a file; a large file is searched by Lance rather than taken into memory."""
        if file.rows <= _WHOLE_FILE:
            return self._read(view, file).get(key)
        with translate_lance_errors(f"search {PATH}/data/{file.name}"):
            fragment = get_fragment(view.dataset, file.fragment)
            table = fragment.to_table(columns=["body"], filter=f"key = {quote_string(key)}")
        found = table["body"].to_pylist()
        return found[0] if found else None

    def _read(self, view: View, file: ManifestFile) -> dict[str, str]:
        with self._lock:
            rows = self._rows.get(file.name)
        if rows is not None:
            return rows
        with translate_lance_errors(f"read {PATH}/data/{file.name}"):
            table = get_fragment(view.dataset, file.fragment).to_table()
        rows = dict(zip(table["key"].to_pylist(), table["body"].to_pylist(), strict=True))
        self._remember(file.name, rows)
        return rows

    def _remember(self, name: str, rows: dict[str, str]) -> None:
        # A larger file would evict all others, and lookups in it do not read it whole.
        if len(rows) <= _CACHED_ROWS:
            with self._lock:
                self._rows[name] = rows

    def _advance(self, dataset: lance.LanceDataset) -> View:
        with self._lock:
            view = self._make_view(dataset, self._view)
            if view.version >= self._view.version:
                self._view = view
            return view

    @staticmethod
    def _make_view(dataset: lance.LanceDataset, before: View | None) -> View:
        known = {item.fragment: item for item in before.files} if before else {}
        files = []
        for fragment in dataset.get_fragments():
            found = known.get(fragment.fragment_id)
            if found is None:
                meta = fragment.metadata
                found = parse_file(meta.id, meta.files[0].path, meta.physical_rows)
            files.append(found)
        return View(dataset, dataset.version, tuple(files))


def _files_of(change: Change) -> Iterator[tuple[str, dict[str, str]]]:
    """The files that a change consists of, by name, with their rows."""
    if change.registry is not None:
        yield registry_name(), {"registry": encode_body(change.registry.to_body())}
    for head in change.heads:
        yield head_name(head.incarnation), {f"head:{head.branch}": encode_body(head.to_body())}
    for id_, payload in change.schemas.items():
        yield schema_name(id_), {f"schema:{id_}": payload}
    logs: list[tuple[LogKind, Sequence[CommitRecord | RecoveryRecord]]] = [
        ("commit", change.commits),
        ("recovery", change.recoveries),
    ]
    for kind, records in logs:
        if records:
            rows = {f"{kind}:{item.id}": encode_body(item.to_body()) for item in records}
            yield log_name(kind, 0, [item.id for item in records]), rows


def begin_manifest(root: LanceRoot) -> None:
    """Make the unfinished row, unless somebody has begun, or finished, already.

    `write_dataset` would not do: a creator who looked before another one committed overwrites his dataset. This
    commit is based on version 0, which never exists: of all creators one makes version 1, the others fail.
    """
    row = pa.table({"key": [UNFINISHED], "body": ["{}"]}, schema=ROW_SCHEMA)
    first = write_named_file(root, PATH, root.file_session(PATH), unfinished_name(), row)
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
        if len(levels[level]) >= FOLD:
            yield sorted(levels[level], key=lambda item: item.parts[1])
