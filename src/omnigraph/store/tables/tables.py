"""Tables of a graph. Every change creates a detached version, which is invisible until a commit pins it.

No function here moves the HEAD of a table. A crash at any point leaves only files that no pin refers to.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from omnigraph.errors import NotFound
from omnigraph.store.file_digests import FileDigest
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import (
    data_file_sizes,
    data_files,
    deletion_files,
    get_fragment,
    transaction_file,
    version_file,
)
from omnigraph.store.lance.lance_filters import string_in
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.lance.version_manifest import StoredFragment
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.sync import SyncBatch
from omnigraph.store.tables.damaged_indexes import DamagedIndexes
from omnigraph.store.tables.fragment_writer import append_rows, write_columns
from omnigraph.store.tables.index_segments import (
    BuiltSegment,
    make_segment,
    segment_file_sizes,
    uncovered_fragments,
)
from omnigraph.store.tables.local_appends import LocalAppends
from omnigraph.store.tables.read_checks import ReadChecks
from omnigraph.store.tables.row_addresses import ROW_ADDRESS, Addresses, fragments_of, offsets_of
from omnigraph.store.tables.staged_table import StagedTable
from omnigraph.store.tables.stored_versions import StoredVersions
from omnigraph.store.tables.uncommitted_fragments import WrittenFragment
from omnigraph.store.tables.version_uploads import VersionUploads

EMPTY_VERSION = 1
_CACHED_TABLES = 256
_DESCRIBED_TABLES = 8

# Size-tiered compaction on write: this many fragments below one of these row counts are rewritten as one. A row is
# rewritten once per tier, whatever the number of writes.
COMPACT_AT = 32
COMPACTION_TIERS = (64, 2_048, 65_536)

_IDS_PER_FILTER = 2_000


class Tables:
    """All tables of a graph. Safe to share between threads; open datasets are cached by path and version."""

    def __init__(self, root: LanceRoot, checks: ReadChecks | None = None) -> None:
        self.root = root
        self._checks = ReadChecks(root) if checks is None else checks
        self.indexes = DamagedIndexes()
        self._lock = threading.Lock()
        self._open: LRUCache[tuple[str, int], lance.LanceDataset] = LRUCache(_CACHED_TABLES)
        # The fragments of the versions that were opened last: they are checked, and then listed by readers.
        self._described: LRUCache[tuple[str, int], list[FragmentMetadata]] = LRUCache(_DESCRIBED_TABLES)
        self._stored = StoredVersions(root)
        self._writers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnigraph-stage")
        self._uploads = None if root.objects is None else VersionUploads(root.objects)
        self._appends = LocalAppends(root, self._stored)

    def __reduce__(self) -> tuple[Any, ...]:
        # A snapshot that is sent to another process opens its tables there.
        return type(self), (self.root,)

    # --- reading -----------------------------------------------------------------------------------------

    def create(self, path: str, schema: pa.Schema) -> StagedTable:
        """Create an empty table at an unused path and return the version to pin."""
        with translate_lance_errors(f"create {path}"):
            dataset = self.root.create(path, schema.empty_table())
            version = int(dataset.version)
            transaction = dataset.read_transaction(version)
        assert transaction is not None, "Lance records the transaction of every version"
        files = self.root.seal_version(path, {}, transaction_file(transaction), version_file(version))
        self._cache(path, dataset)
        return StagedTable(path, version, version, 0, files=files)

    def open(self, path: str, version: int) -> lance.LanceDataset:
        """Return the table at one version; `NotFound` when the version does not exist.

        Files that were not opened before are checked, as `ReadChecks` describes; `StorageError` for a damaged one.
        """
        with self._lock:
            cached = self._open.get((path, version))
        if cached is not None:
            return cached
        # The files of a version that was built here have been read back.
        is_built = self._uploads is not None and self._uploads.wait(path, version)
        dataset = self.root.open(path, version)
        stored = self.stored_fragments(path, version)
        if stored is not None:
            self._checks.check_sizes(path, stored)
        elif not is_built:
            problem = self._checks.check(path, dataset, lambda: self._describe(path, dataset))
            if problem is not None:
                self.indexes.add(path, version, problem)
        self._cache(path, dataset)
        return dataset

    def stored_fragments(self, path: str, version: int) -> tuple[StoredFragment, ...] | None:
        """Return the fragments of one version from its file; None if it must be opened. See `StoredVersions`."""
        return self._stored.fragments(path, version) if self._checks.are_complete else None

    def fragments(self, path: str, version: int) -> Sequence[FragmentMetadata]:
        """Return the fragments of one version. Its rows may not be readable."""
        dataset = self.open_metadata(path, version)
        with self._lock:
            known = self._described.get((path, version))
        return self._describe(path, dataset) if known is None else known

    def _describe(self, path: str, dataset: lance.LanceDataset) -> Sequence[FragmentMetadata]:
        with translate_lance_errors(f"open {path}"):
            found = [item.metadata for item in dataset.get_fragments()]
        with self._lock:
            self._described[path, int(dataset.version)] = found
        return found

    def open_metadata(self, path: str, version: int) -> lance.LanceDataset:
        """Return the table at one version for its fragments and schema. Its rows may not be readable."""
        found = None if self._uploads is None else self._uploads.find(path, version)
        return self.open(path, version) if found is None else found

    def require_stored(self, pin: TablePin) -> None:
        """Raise `NotFound` unless a pinned version is in storage now.

        A version that this handle has opened or read may have been removed since. Any other is opened.
        """
        with self._lock:
            is_open = (pin.path, pin.version) in self._open
        if not is_open and self.stored_fragments(pin.path, pin.version) is None:
            self.open(pin.path, pin.version)
        elif not self.exists(pin):
            self.evict(pin.path)
            raise NotFound(f"could not open {pin.path}: not found", details={"dataset": pin.path})

    def exists(self, pin: TablePin) -> bool:
        """Return whether a pinned version is still in storage, without regard to cached datasets."""
        file = f"{pin.path}/{version_file(pin.version)}"
        if self.root.local is not None:
            return (self.root.local / file).exists()
        try:
            if self.root.objects is None:
                self.root.open(pin.path, pin.version)
            else:
                self.root.objects.head(file)
        except NotFound:
            return False
        return True

    def schema(self, pin: TablePin) -> pa.Schema:
        """Return the stored columns of a pinned version, including those of dropped properties."""
        return self._stored.schema(pin.path, pin.version, lambda: self.open(pin.path, pin.version).schema)

    def evict(self, path: str) -> None:
        """Remove all versions of a table from the cache, so that they are opened from storage again."""
        self._stored.forget(path)
        with self._lock:
            for key in [item for item in self._open if item[0] == path]:
                del self._open[key]

    def scan(
        self,
        pin: TablePin,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows of a pinned table; filter, projection and limit are pushed down to Lance."""
        options = _scan_options(columns, where, limit)
        dataset = self.open(pin.path, pin.version)
        return self.indexes.read_table(pin.path, dataset, **options)

    def scan_batches(
        self, pin: TablePin, columns: Sequence[str] | None = None, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `scan` in batches."""
        options = _scan_options(columns, where, None)
        dataset = self.open(pin.path, pin.version)
        yield from self.indexes.read_batches(pin.path, dataset, **options)

    # --- staging of rows ---------------------------------------------------------------------------------

    def stage(
        self,
        pin: TablePin,
        *,
        delete_ids: Iterable[str] = (),
        delete_addresses: Sequence[int] = (),
        insert: pa.Table | None = None,
    ) -> StagedTable:
        """Delete rows by id, or by address in the pinned version, and insert rows, as one operation.

        An upsert deletes and inserts the same ids. Ids that do not exist are ignored. Small fragments of earlier
        writes are compacted as well, which bounds the number of fragments however often the table is written.
        """
        ids = list(delete_ids)
        if insert is not None and not ids and not len(delete_addresses):
            staged = self._build_locally(pin, insert.to_batches(), insert.schema, insert.num_rows)
            if staged is not None:
                return staged
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"stage rows of {pin.path}"):
            if ids or delete_addresses:
                # The insert and the delete are independent, and each is a round trip on an object store.
                writing = self._writers.submit(_write, dataset, insert)
                changed, removed, deleted = self._delete(pin.path, dataset, ids, delete_addresses)
                new = writing.result()
            else:
                changed, removed, deleted = [], set(), 0
                new = _write(dataset, insert)
            inserted = 0 if insert is None else insert.num_rows
            return self._commit_rows(pin, dataset, changed, removed, new, inserted, deleted)

    def stage_rows(
        self,
        pin: TablePin,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        delete: Addresses | None = None,
    ) -> StagedTable:
        """Delete rows by address in the pinned version and append a stream of batches, as one operation.

        Memory use does not depend on the number of rows, except for eight bytes per address.
        """
        if isinstance(batches, Sequence) and (delete is None or not len(delete)):
            rows = sum(item.num_rows for item in batches)
            staged = self._build_locally(pin, batches, schema, rows)
            if staged is not None:
                return staged
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"stage rows of {pin.path}"):
            changed, removed = self._delete_addresses(dataset, delete)
            new = append_rows(dataset, batches, schema)
            inserted = sum(item.physical_rows for item in new)
            deleted = 0 if delete is None else len(delete)
            return self._commit_rows(pin, dataset, changed, removed, new, inserted, deleted)

    def _build_locally(
        self, pin: TablePin, batches: Sequence[pa.RecordBatch], schema: pa.Schema, rows: int
    ) -> StagedTable | None:
        """Append rows in a group of writes to a version that is made here; None if Lance must stage it in storage.

        On an object store it is uploaded in the background. Lance stages single writes, and compacts fragments.
        """
        batch = SyncBatch.current()
        if batch is None or not batch.defers_uploads or not rows:
            return None
        path, base_version = pin.path, pin.version
        with translate_lance_errors(f"stage rows of {path}"):
            built = None
            if self._uploads is not None:
                base = self._uploads.base(path, base_version)
                if _full_tier(base, set()) is None:
                    built = self._uploads.append(path, base, batches, schema, batch)
            else:
                stored = self._appends.base(path, base_version)
                if stored is not None and not _has_full_tier(item.physical_rows for item in stored.fragments):
                    built = self._appends.append(
                        path, stored, batches, schema, lambda: self.open(path, base_version)
                    )
        if built is None:
            return None
        version, files = built
        self.indexes.inherit(path, base_version, version)
        return StagedTable(path, base_version, version, pin.rows + rows, rows, 0, files)

    def stage_overwrite(
        self, pin: TablePin, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> StagedTable:
        """Replace all rows; without batches the table becomes empty."""
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"overwrite {pin.path}"):
            fragments = append_rows(dataset, batches, schema)
            operation = LanceOperation.Update(
                removed_fragment_ids=[item.fragment_id for item in dataset.get_fragments()],
                new_fragments=fragments,
            )
            rows = sum(item.physical_rows for item in fragments)
            return self._commit(pin, dataset, operation, data_file_sizes(fragments), rows, rows, pin.rows)

    def stage_fragments(
        self,
        pin: TablePin,
        fragments: Sequence[WrittenFragment],
        *,
        replace: bool = False,
        delete: Addresses | None = None,
        excluded: Mapping[int, Sequence[int]] | None = None,
    ) -> StagedTable:
        """Add uncommitted fragments that other processes wrote and synced, as one operation.

        With `replace` they replace all rows. `delete` has the addresses of rows to delete in the pinned version.
        `excluded` has offsets of rows to leave out of the new fragments, by the index of the fragment.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"add rows to {pin.path}"):
            replaced = [item.fragment_id for item in dataset.get_fragments()] if replace else []
            new = [item.decode() for item in fragments]
            operation = LanceOperation.Update(removed_fragment_ids=replaced, new_fragments=new)
            written = sum(item.rows for item in fragments)
            deleted = pin.rows if replace else 0 if delete is None else len(delete)
            rows = pin.rows - deleted + written
            staged = self._commit(pin, dataset, operation, {}, rows, written, deleted)
            staged = _with_files(staged, (file for item in fragments for file in item.files))
            excluded = {} if excluded is None else excluded
            if not any(excluded.values()) and (delete is None or not len(delete)):
                return staged
            return self._delete_from_staged(pin, staged, delete, excluded, len(fragments))

    def _delete_from_staged(
        self,
        pin: TablePin,
        staged: StagedTable,
        delete: Addresses | None,
        excluded: Mapping[int, Sequence[int]],
        added: int,
    ) -> StagedTable:
        """Delete rows of a version that was just staged: old rows by address, rows of new fragments by offset."""
        dataset = self.open(pin.path, staged.version)
        changed, removed = self._delete_addresses(dataset, delete)
        new_ids = [item.fragment_id for item in dataset.get_fragments()][-added:]
        for index, offsets in excluded.items():
            after = get_fragment(dataset, new_ids[index]).delete_rows(list(offsets))
            if after is None:
                removed.add(new_ids[index])
            else:
                changed.append(after)
        operation = LanceOperation.Update(removed_fragment_ids=sorted(removed), updated_fragments=changed)
        lost = sum(len(offsets) for offsets in excluded.values())
        files = dict.fromkeys(deletion_files(changed))
        rows = staged.rows - lost
        done = self._commit(staged.pin(pin.content), dataset, operation, files, rows, -lost, 0)
        return staged.followed_by(done)

    # --- staging of columns, compaction and indexes ------------------------------------------------------

    def stage_columns(self, pin: TablePin, schema: pa.Schema) -> StagedTable:
        """Add nullable columns. Only metadata is written; existing rows read null.

        `schema` is the whole new schema and must begin with the present columns of the table.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"add columns to {pin.path}"):
            fragments = [item.metadata for item in dataset.get_fragments()]
            operation = LanceOperation.Merge(fragments, LanceSchema.from_pyarrow(schema))
            return self._commit(pin, dataset, operation, {}, pin.rows, 0, 0)

    def stage_computed_columns(
        self,
        pin: TablePin,
        reads: Sequence[str],
        schema: pa.Schema,
        compute: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> StagedTable:
        """Add the columns of a schema with the values that `compute` returns for a batch of the columns `reads`.

        The new columns are written to files of their own; existing files stay as they are.
        """
        dataset = self.open(pin.path, pin.version)
        if not pin.rows:
            return self.stage_columns(pin, pa.schema([*dataset.schema, *schema]))
        with translate_lance_errors(f"fill columns of {pin.path}"):
            existing = set(data_files(item.metadata for item in dataset.get_fragments()))
            fragments, wider = write_columns(dataset, reads, schema, compute)
            sizes = data_file_sizes(fragments)
            files = {name: size for name, size in sizes.items() if name not in existing}
            return self._commit(pin, dataset, LanceOperation.Merge(fragments, wider), files, pin.rows, 0, 0)

    def stage_compaction(
        self, pin: TablePin, rewritten: Sequence[tuple[Sequence[int], WrittenFragment]]
    ) -> StagedTable:
        """Replace fragments, given by their ids, with fragments that other processes rewrote and synced.

        The rows stay the same. No index covers the new fragments, and segments lose the fragments that are
        replaced.
        """
        if not rewritten:
            return StagedTable.unchanged(pin)
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"rewrite {pin.path}"):
            groups = [
                LanceOperation.RewriteGroup(
                    [get_fragment(dataset, id_).metadata for id_ in old], [new.decode()]
                )
                for old, new in rewritten
            ]
            staged = self._commit(pin, dataset, LanceOperation.Rewrite(groups, []), {}, pin.rows, 0, 0)
            return _with_files(staged, (file for _, new in rewritten for file in new.files))

    def stage_index(self, pin: TablePin, column: str, kind: str, **parameters: Any) -> StagedTable:
        """Build an index segment over the fragments that the index of a column does not cover yet.

        When all are covered, nothing is staged and the version is that of the pin. `parameters` go to Lance,
        such as `metric` and `num_partitions` of a vector index.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"index {pin.path}.{column}"):
            segment = make_segment(dataset, column, kind, **parameters)
            if segment is None:
                return StagedTable.unchanged(pin)
            return self._commit_index(pin, dataset, [segment], segment_file_sizes(segment))

    def unindexed_fragments(self, pin: TablePin, column: str, kind: str) -> list[tuple[int, int]]:
        """Return the ids of the fragments that the index of a column does not cover, each with its rows."""
        with translate_lance_errors(f"read {pin.path}"):
            return uncovered_fragments(self.open(pin.path, pin.version), column, kind)

    def stage_segments(
        self, pin: TablePin, segments: Sequence[BuiltSegment], removed: Sequence[Any] = ()
    ) -> StagedTable:
        """Add index segments that other processes built over this version and synced, and remove others."""
        if not segments and not removed:
            return StagedTable.unchanged(pin)
        with translate_lance_errors(f"index {pin.path}"):
            handles = [item.segment for item in segments]
            staged = self._commit_index(pin, self.open(pin.path, pin.version), handles, {}, removed)
            return _with_files(staged, (file for item in segments for file in item.files))

    def _commit_index(
        self,
        pin: TablePin,
        dataset: lance.LanceDataset,
        segments: Sequence[Any],
        files: Mapping[str, int | None],
        removed: Sequence[Any] = (),
    ) -> StagedTable:
        operation = LanceOperation.CreateIndex(list(segments), list(removed))
        return self._commit(pin, dataset, operation, files, pin.rows, 0, 0)

    # --- deletion, compaction, commit --------------------------------------------------------------------

    def _delete(
        self, path: str, dataset: lance.LanceDataset, ids: list[str], addresses: Sequence[int]
    ) -> tuple[list[FragmentMetadata], set[int], int]:
        """Write deletion files for rows; return the changed fragments, the ids of emptied ones, the row count."""
        parts = [np.array(addresses, np.uint64)]
        for start in range(0, len(ids), _IDS_PER_FILTER):
            where = string_in("id", ids[start : start + _IDS_PER_FILTER])
            rows = self.indexes.read_table(path, dataset, columns=[], filter=where, with_row_address=True)
            parts.append(rows[ROW_ADDRESS].to_numpy())
        deleted = np.concatenate(parts)
        return *self._delete_addresses(dataset, deleted), len(deleted)

    def _delete_addresses(
        self, dataset: lance.LanceDataset, addresses: Addresses | None
    ) -> tuple[list[FragmentMetadata], set[int]]:
        changed: list[FragmentMetadata] = []
        removed: set[int] = set()
        if addresses is None or not len(addresses):
            return changed, removed
        addresses = np.sort(addresses)
        fragments, starts = np.unique(fragments_of(addresses), return_index=True)
        for fragment_id, part in zip(fragments.tolist(), np.split(addresses, starts[1:]), strict=True):
            # Deleting by a predicate over as many addresses takes about thirty times as long.
            after = get_fragment(dataset, fragment_id).delete_rows(offsets_of(part).tolist())
            if after is None:
                removed.add(fragment_id)
            else:
                changed.append(after)
        return changed, removed

    def _commit_rows(
        self,
        pin: TablePin,
        dataset: lance.LanceDataset,
        changed: Sequence[FragmentMetadata],
        removed: set[int],
        new: Sequence[FragmentMetadata],
        inserted: int,
        deleted: int,
    ) -> StagedTable:
        """Commit deletions and new fragments, together with the compaction of small fragments."""
        compacted, rewritten = self._compact(dataset, {item.id for item in changed} | removed)
        operation = LanceOperation.Update(
            removed_fragment_ids=sorted(removed | compacted),
            updated_fragments=list(changed),
            new_fragments=[*rewritten, *new],
        )
        files = {**data_file_sizes([*rewritten, *new]), **dict.fromkeys(deletion_files(changed))}
        rows = pin.rows - deleted + inserted
        return self._commit(pin, dataset, operation, files, rows, inserted, deleted)

    def _compact(
        self, dataset: lance.LanceDataset, excluded: set[int]
    ) -> tuple[set[int], list[FragmentMetadata]]:
        """Rewrite the smallest full tier of fragments; return the ids of the old ones and the new ones.

        `excluded` are the ids of fragments that the same operation changes or removes.
        """
        full = _full_tier(dataset, excluded)
        if full is None:
            return set(), []
        scanner = dataset.scanner(fragments=full, scan_in_order=True)
        rewritten = write_fragments(scanner.to_reader(), dataset, mode="append")
        return {item.fragment_id for item in full}, list(rewritten)

    def _commit(
        self,
        pin: TablePin,
        dataset: lance.LanceDataset,
        operation: LanceOperation.BaseOperation,
        files: Mapping[str, int | None],
        rows: int,
        inserted: int,
        deleted: int,
    ) -> StagedTable:
        transaction = lance.Transaction(dataset.version, operation)
        committed = lance.LanceDataset.commit(dataset, transaction, detached=True)
        # No commit pins the version yet, so the order among its files does not matter: sync all of them at once.
        digests = self.root.seal_version(
            pin.path, files, transaction_file(transaction), version_file(committed.version)
        )
        self._cache(pin.path, committed)
        if not isinstance(operation, LanceOperation.CreateIndex):
            self.indexes.inherit(pin.path, pin.version, int(committed.version))
        return StagedTable(pin.path, pin.version, int(committed.version), rows, inserted, deleted, digests)

    def _cache(self, path: str, dataset: lance.LanceDataset) -> None:
        with self._lock:
            self._open[(path, int(dataset.version))] = dataset


def _with_files(staged: StagedTable, files: Iterable[FileDigest]) -> StagedTable:
    return dataclasses.replace(staged, files=(*files, *staged.files))


def _full_tier(dataset: lance.LanceDataset, excluded: set[int]) -> list[lance.LanceFragment] | None:
    """Return the fragments of the smallest tier that has enough of them to be compacted."""
    if len(dataset.fragment_ids()) < COMPACT_AT:
        return None
    tiers: dict[int, list[lance.LanceFragment]] = {}
    for fragment in dataset.get_fragments():
        tier = _tier(fragment.physical_rows)
        if tier is not None and fragment.fragment_id not in excluded:
            tiers.setdefault(tier, []).append(fragment)
    return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) >= COMPACT_AT), None)


def _has_full_tier(rows: Iterable[int]) -> bool:
    """Return whether fragments with these numbers of rows must be compacted."""
    tiers = Counter(map(_tier, rows))
    return any(count >= COMPACT_AT for tier, count in tiers.items() if tier is not None)


def _tier(rows: int) -> int | None:
    return next((tier for tier, bound in enumerate(COMPACTION_TIERS) if rows < bound), None)


def _scan_options(columns: Sequence[str] | None, where: str | None, limit: int | None) -> dict[str, Any]:
    names = None if columns is None else list(columns)
    return {"columns": names, "filter": where, "limit": limit, "scan_in_order": False}


def _write(dataset: lance.LanceDataset, rows: pa.Table | None) -> list[FragmentMetadata]:
    if rows is None or rows.num_rows == 0:
        return []
    return append_rows(dataset, rows.to_batches(), rows.schema)
