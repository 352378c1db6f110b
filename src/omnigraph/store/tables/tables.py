"""Tables, staged only: every change makes a detached version that nobody sees until a commit pins it.

Nothing here moves a table's HEAD. A crash at any point leaves files that no pin names, and nothing else.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from cachetools import LRUCache
from lance import LanceOperation
from lance.fragment import FragmentMetadata, write_fragments
from lance.schema import LanceSchema

from omnigraph.errors import NotFound
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.tables.appending import append_rows, write_columns
from omnigraph.store.tables.index_segments import make_segment, segment_files, uncovered_fragments
from omnigraph.store.tables.lance_io import (
    LanceRoot,
    data_files,
    fragment_of,
    quote_string,
    transaction_file,
    translate_lance_errors,
    version_file,
)

EMPTY_VERSION = 1
_CACHED_TABLES = 256

# Fragments below each size are folded together once there are this many of them; folding into the next tier
# rewrites a row once per tier, whatever the number of writes.
FOLD_AT = 32
FOLD_TIERS = (64, 2_048, 65_536)

_IDS_PER_FILTER = 2_000


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A detached version that holds a change, not visible yet. `inserted` and `deleted` count rows."""

    path: str
    base_version: int
    version: int
    rows: int
    inserted: int = 0
    deleted: int = 0


class Tables:
    """All tables of a graph. Safe to share between threads; handles are cached by path and version."""

    def __init__(self, root: LanceRoot) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._open: LRUCache[tuple[str, int], lance.LanceDataset] = LRUCache(_CACHED_TABLES)
        self._side = ThreadPoolExecutor(max_workers=4, thread_name_prefix="omnigraph-stage")

    def __reduce__(self) -> tuple[Any, ...]:
        # To where they are: a snapshot that is sent to another process opens them there.
        return type(self), (self.root,)

    # --- reading -----------------------------------------------------------------------------------------

    def create(self, path: str, schema: pa.Schema) -> int:
        """Make the empty table of a new type; its path must be fresh. Gives the version that pins it."""
        with translate_lance_errors(f"create {path}"):
            dataset = self.root.create(path, schema.empty_table())
        self.root.sync_all(path)
        self._keep(path, dataset)
        return int(dataset.version)

    def open(self, path: str, version: int) -> lance.LanceDataset:
        """The table at exactly that version."""
        with self._lock:
            found = self._open.get((path, version))
        if found is not None:
            return found
        dataset = self.root.open(path, version)
        self._keep(path, dataset)
        return dataset

    def exists(self, pin: TablePin) -> bool:
        """Whether a pinned version is still in storage, whatever handles this process holds."""
        try:
            self.root.open(pin.path, pin.version)
        except NotFound:
            return False
        return True

    def schema(self, pin: TablePin) -> pa.Schema:
        """The columns that a pinned version has in storage, also those that no property has any more."""
        return self.open(pin.path, pin.version).schema

    def forget(self, path: str) -> None:
        """Let go of the handles on a table, so that its versions are looked for in storage again."""
        with self._lock:
            for known in [item for item in self._open if item[0] == path]:
                del self._open[known]

    def scan(
        self,
        pin: TablePin,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows of a pinned table with filter, projection and limit pushed into Lance."""
        with translate_lance_errors(f"read {pin.path}"):
            return self._scanner(pin, columns, where, limit).to_table()

    def scan_batches(
        self, pin: TablePin, columns: Sequence[str] | None = None, where: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The same rows as a stream of batches."""
        with translate_lance_errors(f"read {pin.path}"):
            yield from self._scanner(pin, columns, where, None).to_batches()

    def _scanner(
        self, pin: TablePin, columns: Sequence[str] | None, where: str | None, limit: int | None
    ) -> lance.LanceScanner:
        dataset = self.open(pin.path, pin.version)
        return dataset.scanner(
            columns=None if columns is None else list(columns), filter=where, limit=limit, scan_in_order=False
        )

    # --- staging -----------------------------------------------------------------------------------------

    def stage(
        self,
        pin: TablePin,
        *,
        delete_ids: Iterable[str] = (),
        delete_addresses: Sequence[int] = (),
        insert: pa.Table | None = None,
    ) -> StagedTable:
        """Delete rows by id, or by their address in the pinned version, and insert rows, as one operation.

        An upsert is both with the same ids. Ids that are not there are ignored. Small fragments left by earlier
        writes are folded on the way, so that a table stays flat however often it is written.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"stage rows of {pin.path}"):
            ids = list(delete_ids)
            if ids or delete_addresses:
                # Neither depends on the other, and on a store each is a round trip.
                writing = self._side.submit(_write, dataset, insert)
                changed, removed, deleted = self._delete(dataset, ids, delete_addresses)
                new = writing.result()
            else:
                changed, removed, deleted = [], set(), 0
                new = _write(dataset, insert)
            folded = self._fold(dataset, changed, removed)
            operation = LanceOperation.Update(
                removed_fragment_ids=sorted(removed | folded.removed),
                updated_fragments=[item for item in changed if item.id not in folded.removed],
                new_fragments=[*folded.added, *new],
            )
            files = [*data_files([*folded.added, *new]), *_deletion_files(changed)]
            inserted = 0 if insert is None else insert.num_rows
            rows = pin.rows - deleted + inserted
            return self._commit(pin, dataset, operation, files, rows, inserted, deleted)

    def stage_rows(
        self,
        pin: TablePin,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        delete: np.ndarray[Any, Any] | None = None,
    ) -> StagedTable:
        """Delete rows by address and append a stream of batches, as one operation.

        Addresses are those of the column ``_rowaddr`` of the pinned version. Memory grows with neither the rows
        nor the table, but for eight bytes an address.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"stage rows of {pin.path}"):
            changed, removed = self._delete_addresses(dataset, delete)
            new = append_rows(dataset, batches, schema)
            folded = self._fold(dataset, changed, removed)
            operation = LanceOperation.Update(
                removed_fragment_ids=sorted(removed | folded.removed),
                updated_fragments=changed,
                new_fragments=[*folded.added, *new],
            )
            files = [*data_files([*folded.added, *new]), *_deletion_files(changed)]
            inserted = sum(item.physical_rows for item in new)
            deleted = 0 if delete is None else len(delete)
            rows = pin.rows - deleted + inserted
            return self._commit(pin, dataset, operation, files, rows, inserted, deleted)

    def stage_overwrite(
        self, pin: TablePin, batches: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> StagedTable:
        """Replace every row; with no batches the table becomes empty."""
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"overwrite {pin.path}"):
            fragments = append_rows(dataset, batches, schema)
            operation = LanceOperation.Update(
                removed_fragment_ids=[item.fragment_id for item in dataset.get_fragments()],
                new_fragments=fragments,
            )
            rows = sum(item.physical_rows for item in fragments)
            return self._commit(pin, dataset, operation, data_files(fragments), rows, rows, pin.rows)

    def stage_written(
        self,
        pin: TablePin,
        fragments: Sequence[FragmentMetadata],
        *,
        replace: bool = False,
        delete: np.ndarray[Any, Any] | None = None,
        dropped: Mapping[int, Sequence[int]] | None = None,
    ) -> StagedTable:
        """Take in fragments that others have written and synced, as one operation.

        With `replace` they are all that there is. `delete` are addresses of rows of the pinned version that go,
        `dropped` rows of the new fragments, by the fragment's number, that are not to count.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"take rows into {pin.path}"):
            gone = [item.fragment_id for item in dataset.get_fragments()] if replace else []
            operation = LanceOperation.Update(removed_fragment_ids=gone, new_fragments=list(fragments))
            written = sum(item.physical_rows for item in fragments)
            lost = sum(len(rows) for rows in (dropped or {}).values())
            deleted = pin.rows if replace else 0 if delete is None else len(delete)
            rows = pin.rows - deleted + written
            staged = self._commit(pin, dataset, operation, [], rows, written, deleted)
            if not lost and (delete is None or not len(delete)):
                return staged
            return self._strike(pin, staged, delete, dropped or {}, len(fragments), lost)

    def _strike(
        self,
        pin: TablePin,
        staged: StagedTable,
        delete: np.ndarray[Any, Any] | None,
        dropped: Mapping[int, Sequence[int]],
        added: int,
        lost: int,
    ) -> StagedTable:
        """Delete rows of a version that was just staged, old ones by address and new ones by fragment."""
        dataset = self.open(pin.path, staged.version)
        changed, removed = self._delete_addresses(dataset, delete)
        new = [item.fragment_id for item in dataset.get_fragments()][-added:]
        for number, rows in dropped.items():
            after = fragment_of(dataset, new[number]).delete_rows(list(rows))
            if after is None:
                removed.add(new[number])
            else:
                changed.append(after)
        operation = LanceOperation.Update(removed_fragment_ids=sorted(removed), updated_fragments=changed)
        between = TablePin(pin.path, staged.version, staged.rows, pin.content)
        done = self._commit(between, dataset, operation, _deletion_files(changed), staged.rows - lost, 0, 0)
        return dataclasses.replace(
            done, base_version=pin.version, inserted=staged.inserted - lost, deleted=staged.deleted
        )

    def stage_columns(self, pin: TablePin, schema: pa.Schema) -> StagedTable:
        """Add nullable columns; metadata only, existing rows read null.

        `schema` is the whole new schema and must begin with the table's present columns.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"add columns to {pin.path}"):
            fragments = [item.metadata for item in dataset.get_fragments()]
            operation = LanceOperation.Merge(fragments, LanceSchema.from_pyarrow(schema))
            return self._commit(pin, dataset, operation, [], pin.rows, 0, 0)

    def stage_filled(
        self,
        pin: TablePin,
        reads: Sequence[str],
        schema: pa.Schema,
        fill: Callable[[pa.RecordBatch], pa.RecordBatch],
    ) -> StagedTable:
        """Add the columns of a schema with a value for every row, which `fill` makes of the columns that it reads.

        They are written beside the others, which stay as they are, a batch at a time.
        """
        dataset = self.open(pin.path, pin.version)
        if not pin.rows:
            return self.stage_columns(pin, pa.schema([*dataset.schema, *schema]))
        with translate_lance_errors(f"fill columns of {pin.path}"):
            known = set(data_files(item.metadata for item in dataset.get_fragments()))
            fragments, wider = write_columns(dataset, reads, schema, fill)
            files = [name for name in data_files(fragments) if name not in known]
            return self._commit(pin, dataset, LanceOperation.Merge(fragments, wider), files, pin.rows, 0, 0)

    def stage_rewrite(self, pin: TablePin) -> StagedTable:
        """Rewrite every fragment that has deletions or is small into full ones; rows stay the same.

        When there is nothing to win nothing is staged, and the version is the pin's own.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"rewrite {pin.path}"):
            worn = [item for item in dataset.get_fragments() if _is_worn(item.metadata)]
            if not any(item.metadata.deletion_file for item in worn) and len(worn) < 2:
                return _unchanged(pin)
            folded = self._rewrite(dataset, worn)
            operation = LanceOperation.Update(
                removed_fragment_ids=sorted(folded.removed), new_fragments=folded.added
            )
            return self._commit(pin, dataset, operation, data_files(folded.added), pin.rows, 0, 0)

    def stage_rewritten(
        self, pin: TablePin, rewritten: Sequence[tuple[Sequence[int], FragmentMetadata]]
    ) -> StagedTable:
        """Put fragments that others have written and synced in the place of those that they were made from.

        The version's rows stay the same. No index covers the new fragments; old segments lose what is gone.
        """
        if not rewritten:
            return _unchanged(pin)
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"rewrite {pin.path}"):
            groups = [
                LanceOperation.RewriteGroup([fragment_of(dataset, id_).metadata for id_ in old], [new])
                for old, new in rewritten
            ]
            return self._commit(pin, dataset, LanceOperation.Rewrite(groups, []), [], pin.rows, 0, 0)

    def stage_index(self, pin: TablePin, column: str, kind: str, **parameters: Any) -> StagedTable:
        """Build an index segment over the fragments that no segment of the column's index covers yet.

        When all are covered nothing is staged, and the version is the pin's own. `parameters` are Lance's own for
        the kind, such as `metric` and `num_partitions` of a vector index.
        """
        dataset = self.open(pin.path, pin.version)
        with translate_lance_errors(f"index {pin.path}.{column}"):
            segment = make_segment(dataset, column, kind, **parameters)
            if segment is None:
                return _unchanged(pin)
            return self._index(pin, dataset, [segment], segment_files(segment))

    def unindexed(self, pin: TablePin, column: str, kind: str) -> list[tuple[int, int]]:
        """The fragments of a version that the column's index does not cover, each with its rows."""
        with translate_lance_errors(f"read {pin.path}"):
            return uncovered_fragments(self.open(pin.path, pin.version), column, kind)

    def stage_segments(
        self, pin: TablePin, segments: Sequence[Any], removed: Sequence[Any] = ()
    ) -> StagedTable:
        """Take in index segments that others have built over this version and synced, and let go of some."""
        if not segments and not removed:
            return _unchanged(pin)
        with translate_lance_errors(f"index {pin.path}"):
            return self._index(pin, self.open(pin.path, pin.version), segments, [], removed)

    def _index(
        self,
        pin: TablePin,
        dataset: lance.LanceDataset,
        segments: Sequence[Any],
        files: Sequence[str],
        removed: Sequence[Any] = (),
    ) -> StagedTable:
        operation = LanceOperation.CreateIndex(list(segments), list(removed))
        return self._commit(pin, dataset, operation, files, pin.rows, 0, 0)

    # --- parts -------------------------------------------------------------------------------------------

    def _delete(
        self, dataset: lance.LanceDataset, ids: list[str], addresses: Sequence[int]
    ) -> tuple[list[FragmentMetadata], set[int], int]:
        """New deletion vectors for rows: changed fragments, emptied fragments, row count."""
        parts = [np.array(addresses, np.uint64)]
        for part in _chunks(ids, _IDS_PER_FILTER):
            where = "id IN (" + ", ".join(quote_string(item) for item in part) + ")"
            found = dataset.scanner(columns=[], filter=where, with_row_address=True).to_table()
            parts.append(found["_rowaddr"].to_numpy())
        doomed = np.concatenate(parts)
        return *self._delete_addresses(dataset, doomed), len(doomed)

    def _delete_addresses(
        self, dataset: lance.LanceDataset, addresses: np.ndarray[Any, Any] | None
    ) -> tuple[list[FragmentMetadata], set[int]]:
        changed: list[FragmentMetadata] = []
        removed: set[int] = set()
        if addresses is None or not len(addresses):
            return changed, removed
        addresses = np.sort(addresses)
        fragments, starts = np.unique(addresses >> np.uint64(32), return_index=True)
        for fragment_id, part in zip(fragments.tolist(), np.split(addresses, starts[1:]), strict=True):
            # A predicate over as many addresses takes some thirty times as long.
            after = fragment_of(dataset, fragment_id).delete_rows((part & np.uint64(0xFFFFFFFF)).tolist())
            if after is None:
                removed.add(fragment_id)
            else:
                changed.append(after)
        return changed, removed

    def _fold(
        self, dataset: lance.LanceDataset, changed: Sequence[FragmentMetadata], removed: set[int]
    ) -> _Folded:
        """Fold the smallest full tier of fragments that this operation does not touch anyway."""
        touched = {item.id for item in changed} | removed
        tiers: dict[int, list[lance.LanceFragment]] = {}
        for fragment in dataset.get_fragments():
            if fragment.fragment_id not in touched:
                tier = _tier(fragment.physical_rows)
                if tier is not None:
                    tiers.setdefault(tier, []).append(fragment)
        for tier in sorted(tiers):
            if len(tiers[tier]) >= FOLD_AT:
                return self._rewrite(dataset, tiers[tier])
        return _Folded(set(), [])

    def _rewrite(self, dataset: lance.LanceDataset, fragments: Sequence[lance.LanceFragment]) -> _Folded:
        if not fragments:
            return _Folded(set(), [])
        scanner = dataset.scanner(fragments=list(fragments), scan_in_order=True)
        added = write_fragments(scanner.to_reader(), dataset, mode="append")
        return _Folded({item.fragment_id for item in fragments}, list(added))

    def _commit(
        self,
        pin: TablePin,
        dataset: lance.LanceDataset,
        operation: LanceOperation.BaseOperation,
        files: Iterable[str],
        rows: int,
        inserted: int,
        deleted: int,
    ) -> StagedTable:
        transaction = lance.Transaction(dataset.version, operation)
        committed = lance.LanceDataset.commit(dataset, transaction, detached=True)
        # Nothing refers to the version before a commit does, so all that it consists of is synced at once.
        self.root.sync(pin.path, [*files, transaction_file(transaction), version_file(committed.version)])
        self._keep(pin.path, committed)
        return StagedTable(pin.path, pin.version, int(committed.version), rows, inserted, deleted)

    def _keep(self, path: str, dataset: lance.LanceDataset) -> None:
        with self._lock:
            self._open[(path, int(dataset.version))] = dataset


@dataclass(frozen=True, slots=True)
class _Folded:
    removed: set[int]
    added: list[FragmentMetadata]


def _unchanged(pin: TablePin) -> StagedTable:
    return StagedTable(pin.path, pin.version, pin.version, pin.rows)


def _tier(rows: int) -> int | None:
    return next((tier for tier, bound in enumerate(FOLD_TIERS) if rows < bound), None)


def _is_worn(fragment: FragmentMetadata) -> bool:
    return fragment.deletion_file is not None or _tier(fragment.physical_rows) is not None


def _write(dataset: lance.LanceDataset, rows: pa.Table | None) -> list[FragmentMetadata]:
    if rows is None or rows.num_rows == 0:
        return []
    return append_rows(dataset, rows.to_batches(), rows.schema)


def _deletion_files(fragments: Iterable[FragmentMetadata]) -> list[str]:
    found: list[str] = []
    for fragment in fragments:
        file: Any = fragment.deletion_file
        if file is not None:
            found.append(file.path(fragment.id))
    return found


def _chunks(items: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
