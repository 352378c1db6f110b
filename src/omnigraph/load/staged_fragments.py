"""Loads whose rows tasks have written as fragments: their keys are checked, then the fragments join the tables."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import INDEXED_COLUMNS, logical_schema
from omnigraph.engine.committed_rows import CommittedRows, physical_columns
from omnigraph.engine.duckdb import Workspace
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.graph.transaction import Transaction
from omnigraph.load.key_checks import KeyCheckedLoad, KeyTables
from omnigraph.load.key_lookups import find_committed_keys, looked_up_tables
from omnigraph.load.key_readers import CommittedKeyReader, KeyFileReader, group_by_rows
from omnigraph.load.keys import (
    committed_key_rows,
    empty_committed_keys,
    empty_keys,
    key_columns,
    without_ids,
)
from omnigraph.load.load_strategy import Positions, RecordOrigin
from omnigraph.load.split_staging import SPLIT_SHIFT, IndexTask, SplitReport, WrittenTable
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import WriteMode
from omnigraph.rules.set_rules import entity_of
from omnigraph.store.tables.index_segments import BuiltSegment
from omnigraph.store.tables.row_addresses import make_addresses
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.version_diff import take_addresses

T = TypeVar("T")
# Builds one index segment for each task.
BuildSegments: TypeAlias = Callable[[Sequence[IndexTask]], list[BuiltSegment | None]]

_KEYS_PER_PART = 500_000
_SEGMENT_ROWS = 2_500_000
_MAX_SEGMENTS = 16
_TAKEN_ROWS = 8_192


@dataclass(frozen=True)
class WrittenInput:
    """The reports of all splits in input order, and the tables that the input names, also those without rows.

    `removed` are committed rows to delete, if the operations of the load have been resolved to them. `origins` has
    the file of each split and the number of lines before it; by default it is computed from the reports.
    """

    scratch: ScratchFolder
    reports: Sequence[SplitReport]
    named: Sequence[str] = ()
    removed: Mapping[str, pa.Table] | None = None
    origins: Mapping[int, tuple[str | None, int]] | None = None

    @cached_property
    def counts(self) -> dict[str, int]:
        """The number of records of each table."""
        counts = dict.fromkeys(self.named, 0)
        for report in self.reports:
            for key, written in report.written.items():
                counts[key] = counts.get(key, 0) + written.rows
        return counts

    @cached_property
    def generated_ids(self) -> frozenset[str]:
        """The tables whose ids were all generated."""
        return frozenset(key for key in self.counts if all(item.generated_ids for item in self.written(key)))

    def written(self, key: str) -> Iterator[WrittenTable]:
        """Yield what each split wrote of a table."""
        return (report.written[key] for report in self.reports if key in report.written)


class TaskKeys(KeyTables, Protocol):
    """Key tables that tasks fill, such as `spark.engine.key_tables.SparkKeys`."""

    def gather(
        self,
        name: str,
        schema: pa.Schema,
        parts: Sequence[T],
        read: Callable[[T], Iterable[pa.RecordBatch]],
        rows: int,
    ) -> None:
        """Add rows to a table; tasks read them from parts. `rows` is an estimate of their number."""
        ...


class FragmentLoad(KeyCheckedLoad):
    """A load whose rows are in uncommitted fragments and whose keys are in files."""

    def __init__(
        self,
        transaction: Transaction,
        mode: WriteMode,
        keys: KeyTables,
        written: WrittenInput,
        build_segments: BuildSegments | None,
    ) -> None:
        super().__init__(
            transaction, mode, keys, list(written.counts), written.generated_ids, written.removed
        )
        self._written = written
        self._build_segments = build_segments
        self._splits = split_origins(written.reports) if written.origins is None else written.origins

    def _fill_keys(self) -> None:
        """Fill all key tables that the rules read."""
        self._superseded = {key: self._fill_new_keys(table) for key, table in self._loaded.items()}
        self.superseded = {key: len(positions) for key, positions in self._superseded.items()}
        self._fill_committed_keys()

    def _fill_new_keys(self, table: Table) -> Positions:
        """Fill a table with the keys of the last record of each id; return the positions of the other records."""
        files = [(item.keys, item.rows) for item in self._written.written(table.key) if item.keys]
        if not self._supersedes(table) or not files:
            self._fill_from_files(table, queries.new_keys(table.id), files)
            return np.empty(0, np.int64)
        self._fill_from_files(table, queries.input_keys(table.id), files)
        superseded = self._query_column(queries.superseded_positions(table.id))
        self._keys.derive(queries.new_keys(table.id), queries.last_records(table.id))
        return superseded

    def _leave_out_keys(self, table: Table, offenders: Sequence[str]) -> None:
        """Remove offenders from the keys of a table, and find the superseded records anew."""
        if self._supersedes(table):
            self._remove_keys(queries.input_keys(table.id), offenders)
            found = self._query_column(queries.superseded_positions(table.id))
            self._superseded[table.key], self.superseded[table.key] = found, len(found)
            self._keys.replace(queries.new_keys(table.id), queries.last_records(table.id))
        else:
            self._remove_keys(queries.new_keys(table.id), offenders)

    def rows_at(self, key: str, positions: Positions) -> Iterator[pa.Table]:
        """Yield the rows of records at these positions, in order.

        A fragment has no row addresses before a version contains it. The rows are read from a detached version that
        only this method uses.
        """
        table, tables = self._loaded[key], self._transaction.base.tables
        names = [item.name for item in table.columns]
        fragments = [fragment for item in self._written.written(key) for fragment in item.fragments]
        pin = tables.stage_fragments(self._transaction.pin(key), fragments).pin(self._transaction.commit_id)
        added = [item.id for item in list_fragments(tables, pin)][-len(fragments) :]
        for number, offsets in self._offsets(key, positions).items():
            for first in range(0, len(offsets), _TAKEN_ROWS):
                addresses = make_addresses(
                    added[number], offsets[first : first + _TAKEN_ROWS].astype(np.uint32)
                )
                rows = take_addresses(tables, pin, addresses, physical_columns(table, names))
                yield rows.rename_columns(names).cast(logical_schema(table))

    @abstractmethod
    def _fill_from_files(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        """Fill the key table `name` from key files, each given with its number of rows."""

    def _empty_keys(self, table: Table) -> pa.RecordBatch:
        return empty_keys(table, key_columns(table, entity_of(self._catalog, table)))

    def _origin(self, source: int, place: int) -> RecordOrigin:
        file, first = self._splits[source]
        return place + first, file

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, *, dry_run: bool = False) -> dict[str, dict[str, int]]:
        """Commit the fragments as detached versions, with indexes on ids and endpoints."""
        affected = {key: self._stage_table(table, dry_run=dry_run) for key, table in self._loaded.items()}
        self.unchanged = not dry_run and self._changes_nothing(affected)
        if not dry_run and not self.unchanged:
            began = time.monotonic()
            self._stage_indexes()
            self.seconds["index"] = time.monotonic() - began
        return affected

    def _stage_indexes(self) -> None:
        """Index the ids and endpoints of every table with new rows, all of them in parallel."""
        if self._build_segments is None:
            return
        tasks = [
            (table.key, IndexTask(self._transaction.pin(table.key), column, group))
            for table in self._loaded.values()
            if self._written.counts[table.key] > len(self._excluded(table.key))
            for column in map(table.physical, INDEXED_COLUMNS[table.kind])
            for group in self._segment_fragments(table.key, column)
        ]
        built = self._build_segments([task for _, task in tasks])
        segments: dict[str, list[BuiltSegment]] = {}
        for (key, _), segment in zip(tasks, built, strict=True):
            if segment is not None:
                segments.setdefault(key, []).append(segment)
        for key, of_table in segments.items():
            pin = self._transaction.pin(key)
            self._transaction.write(key, self._transaction.base.tables.stage_segments(pin, of_table))

    def _segment_fragments(self, key: str, column: str) -> Iterator[tuple[int, ...]]:
        """Yield the fragments of each index segment to build.

        A lookup reads every segment, so there are few of them. A single segment would be built by one core.
        """
        fragments = self._transaction.base.tables.unindexed_fragments(
            self._transaction.pin(key), column, "BTREE"
        )
        rows = sum(count for _, count in fragments)
        return group_by_rows(fragments, max(_SEGMENT_ROWS, -(-rows // _MAX_SEGMENTS)))

    def _stage_table(self, table: Table, *, dry_run: bool) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        written = list(self._written.written(table.key))
        excluded = self._excluded(table.key)
        inserted = self._written.counts[table.key] - len(excluded)
        affected, replaced = self._affected(table, inserted)
        if not dry_run and (inserted or len(replaced) or (self._mode == "overwrite" and pin.rows)):
            staged = tables.stage_fragments(
                pin,
                [fragment for item in written for fragment in item.fragments],
                replace=self._mode == "overwrite",
                delete=replaced,
                excluded={
                    number: offsets.tolist() for number, offsets in self._offsets(table.key, excluded).items()
                },
            )
            self._transaction.write(table.key, staged)
        return affected

    def _offsets(self, key: str, positions: Positions) -> dict[int, Positions]:
        """Return the offsets of records in each written fragment, by the number of the fragment."""
        offsets: dict[int, Positions] = {}
        if not len(positions):
            return offsets
        number = 0
        for report in self._written.reports:
            written = report.written.get(key)
            first = report.split.number << SPLIT_SHIFT
            for fragment in () if written is None else written.fragments:
                low, high = np.searchsorted(positions, (first, first + fragment.rows))
                if low < high:
                    offsets[number] = positions[low:high] - first
                first += fragment.rows
                number += 1
        return offsets


class LocallyCheckedLoad(FragmentLoad):
    """A fragment load with its key tables in a DuckDB database of this process."""

    def __init__(
        self,
        transaction: Transaction,
        mode: WriteMode,
        keys: Workspace,
        written: WrittenInput,
        build_segments: BuildSegments | None,
    ) -> None:
        super().__init__(transaction, mode, keys, written, build_segments)
        self._workspace = keys
        pin = transaction.base.pin
        self._looked_up = looked_up_tables(
            self._catalog, mode, written.counts, self._generated_ids, lambda key: pin(key).rows
        )
        self._fill_keys()

    def _fill_committed_table(self, table: Table, columns: Sequence[str]) -> None:
        if table.key not in self._looked_up:
            super()._fill_committed_table(table, columns)
            return
        vacated = self._vacated_sources(table) if table.key in (self._removed or {}) else None
        rows = find_committed_keys(
            self._catalog,
            CommittedRows(self._transaction.base, self._transaction.read),
            table.key,
            list(columns),
            self._input_values,
            self._loaded,
            None if vacated is None else vacated.column("src"),
        )
        removed = self._removed_ids(table)
        keys = (
            without_ids(committed_key_rows(table, columns, batch), removed) for batch in rows.to_batches()
        )
        self._keys.append(
            queries.committed_keys(table.id), chain([empty_committed_keys(table, columns)], keys)
        )

    def _input_values(self, key: str, name: str) -> pa.Array:
        """Return the values of a column of all records of a table, also of superseded ones."""
        table = self._loaded[key]
        has_input = self._supersedes(table) and any(item.keys for item in self._written.written(key))
        keys = queries.input_keys(table.id) if has_input else queries.new_keys(table.id)
        found = self._query_column(queries.distinct_values(keys, name))
        return pa.array(found.astype(object), pa.string())

    def _fill_from_files(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        # Local files are read in place, others are copied into the database.
        names, scratch = [file for file, _ in files], self._written.scratch
        paths = [str(path) for file in names if (path := scratch.path(file)) is not None]
        if paths:
            self._workspace.attach(name, paths)
        else:
            self._keys.append(name, chain([self._empty_keys(table)], KeyFileReader(scratch)(names)))


class TaskCheckedLoad(FragmentLoad):
    """A fragment load whose key tables tasks fill and query; only results reach this process."""

    def __init__(
        self,
        transaction: Transaction,
        mode: WriteMode,
        keys: TaskKeys,
        written: WrittenInput,
        build_segments: BuildSegments | None,
    ) -> None:
        super().__init__(transaction, mode, keys, written, build_segments)
        self._task_keys = keys
        self._fill_keys()

    def _fill_from_files(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        self._gather(name, self._empty_keys(table).schema, files, KeyFileReader(self._written.scratch))

    def _fill_committed_table(self, table: Table, columns: Sequence[str]) -> None:
        pin = self._transaction.base.pin(table.key)
        fragments = [(item.id, item.rows) for item in list_fragments(self._transaction.base.tables, pin)]
        removed = self._removed_ids(table)
        read = CommittedKeyReader(self._written.scratch, pin, table, tuple(columns), removed)
        schema = empty_committed_keys(table, columns).schema
        self._gather(queries.committed_keys(table.id), schema, fragments, read)

    def _gather(
        self,
        name: str,
        schema: pa.Schema,
        items: Sequence[tuple[T, int]],
        read: Callable[[tuple[T, ...]], Iterable[pa.RecordBatch]],
    ) -> None:
        rows = sum(count for _, count in items)
        self._task_keys.gather(name, schema, list(group_by_rows(items, _KEYS_PER_PART)), read, rows)


def split_origins(reports: Sequence[SplitReport]) -> dict[int, tuple[str | None, int]]:
    """Return the file of each split, and the number of lines or rows of the file that precede it."""
    preceding = preceding_lines(reports)
    return {
        report.split.number: (report.split.file, first)
        for report, first in zip(reports, preceding, strict=True)
    }


def preceding_lines(reports: Sequence[SplitReport]) -> list[int]:
    """Return for each split the number of lines or rows of its file that precede it."""
    preceding: list[int] = []
    lines: dict[tuple[str, str | None], int] = {}
    for report in reports:
        split = report.split
        known = (
            lines.get((split.file, split.key), 0) if split.form in ("records", "rows") else split.first_row
        )
        preceding.append(known)
        lines[split.file, split.key] = known + report.lines
    return preceding
