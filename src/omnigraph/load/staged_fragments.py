"""What tasks have written for a load: its keys checked, wherever that is best done, its rows taken into tables."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import INDEXED_COLUMNS
from omnigraph.engine.duckdb import Workspace
from omnigraph.graph.scratch_files import ScratchFolder
from omnigraph.graph.transaction import Transaction
from omnigraph.load.key_checks import KeyedWork, KeyTables, key_columns, no_committed, no_keys
from omnigraph.load.key_reads import CommittedKeys, KeyFiles, grouped
from omnigraph.load.split_staging import SPLIT_SHIFT, Indexing, SplitReport, Written
from omnigraph.rules import set_queries as queries
from omnigraph.rules.load_mode import LoadMode
from omnigraph.rules.set_rules import entity_of
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.uncommitted_fragments import decode_fragments

T = TypeVar("T")
# Has index segments made, one for each of what is wanted.
MakeSegments: TypeAlias = Callable[[Sequence[Indexing]], list[Any]]

_KEYS_PER_PART = 500_000
_SEGMENT_ROWS = 2_500_000
_MOST_SEGMENTS = 16


@dataclass(frozen=True)
class WrittenInput:
    """What the splits of a load came to, in input order, and the tables that the input names without rows."""

    scratch: ScratchFolder
    reports: Sequence[SplitReport]
    named: Sequence[str] = ()

    @cached_property
    def counts(self) -> dict[str, int]:
        """Records per table."""
        counts = dict.fromkeys(self.named, 0)
        for report in self.reports:
            for key, written in report.written.items():
                counts[key] = counts.get(key, 0) + written.rows
        return counts

    @cached_property
    def made(self) -> frozenset[str]:
        """The tables all of whose ids were made for their records."""
        return frozenset(key for key in self.counts if all(item.made for item in self.written(key)))

    def written(self, key: str) -> Iterator[Written]:
        """What the splits wrote of a table."""
        return (report.written[key] for report in self.reports if key in report.written)


class TaskKeys(KeyTables, Protocol):
    """Tables of keys that tasks read, such as `pipeline.key_tables.SparkKeys`."""

    def gather(
        self,
        name: str,
        schema: pa.Schema,
        parts: Sequence[T],
        read: Callable[[T], Iterable[pa.RecordBatch]],
        rows: int,
    ) -> None:
        """Add about so many rows to a table, which tasks read from parts."""
        ...


class WrittenLoad(KeyedWork, ABC):
    """A load whose rows have been written by tasks, which left their keys in files."""

    def __init__(
        self,
        transaction: Transaction,
        mode: LoadMode,
        keys: KeyTables,
        given: WrittenInput,
        index: MakeSegments,
    ) -> None:
        super().__init__(transaction, mode, keys, list(given.counts), given.made)
        self._given = given
        self._index = index
        before = lines_before(given.reports)
        self._origins = {
            report.split.number: (report.split.file, first)
            for report, first in zip(given.reports, before, strict=True)
        }
        self._gone: dict[str, np.ndarray[Any, Any]] = {}

    def _bring(self) -> None:
        """Have all keys that the rules look at in tables."""
        self._gone = {key: self._bring_new(table) for key, table in self._loaded.items()}
        self.superseded = {key: len(gone) for key, gone in self._gone.items()}
        self._bring_committed()

    def _bring_new(self, table: Table) -> np.ndarray[Any, Any]:
        """Have the keys of the records that count in a table; the positions of those that do not."""
        files = [(item.keys, item.rows) for item in self._given.written(table.key) if item.keys]
        new, given = queries.new_keys(table.id), queries.input_keys(table.id)
        if self._mode != "merge" or table.key in self._made or not files:
            self._attach(table, new, files)
            return np.empty(0, np.int64)
        self._attach(table, given, files)
        gone = self._numbers(queries.superseded_positions(table.id))
        self._keys.derive(new, queries.last_records(table.id))
        return gone

    @abstractmethod
    def _attach(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        """Have a table of the keys that are in files, each of so many rows."""

    def _no_keys(self, table: Table) -> pa.RecordBatch:
        return no_keys(table, key_columns(table, entity_of(self._catalog, table)))

    def places(self, key: str, ids: Sequence[str]) -> Mapping[str, tuple[int, str | None]]:
        """Where the last record of each of these ids is from."""
        found: dict[str, tuple[int, str | None]] = {}
        for batch in self._keys.stream(queries.origins(self._loaded[key].id, ids)):
            for row in batch.to_pylist():
                file, first = self._origins[row[queries.SOURCE]]
                found[row["id"]] = (row[queries.PLACE] + first, file)
        return found

    # --- staging -----------------------------------------------------------------------------------------

    def stage(self, *, dry: bool = False) -> dict[str, dict[str, int]]:
        """Take everything that was written into detached versions, with indexes of the ids and ends."""
        affected = {key: self._stage(table, dry=dry) for key, table in self._loaded.items()}
        if not dry:
            began = time.monotonic()
            self._stage_indexes()
            self.seconds["index"] = time.monotonic() - began
        return affected

    def _stage_indexes(self) -> None:
        """Have the ids and ends of every table with new rows indexed, all of them at the same time."""
        wanted = [
            (table.key, Indexing(self._transaction.pin(table.key), column, group))
            for table in self._loaded.values()
            if any(item.rows for item in self._given.written(table.key))
            for column in map(table.physical, INDEXED_COLUMNS[table.kind])
            for group in self._groups(table.key, column)
        ]
        made = self._index([item for _, item in wanted])
        segments: dict[str, list[Any]] = {}
        for (key, _), segment in zip(wanted, made, strict=True):
            if segment is not None:
                segments.setdefault(key, []).append(segment)
        for key, found in segments.items():
            pin = self._transaction.pin(key)
            self._transaction.write(key, self._transaction.base.tables.stage_segments(pin, found))

    def _groups(self, key: str, column: str) -> Iterator[tuple[int, ...]]:
        """The fragments that are to be indexed, those of one segment together.

        Every look-up asks every segment, so that there are few; one alone would keep one core busy for long.
        """
        found = self._transaction.base.tables.unindexed_fragments(self._transaction.pin(key), column, "BTREE")
        return grouped(found, max(_SEGMENT_ROWS, -(-sum(rows for _, rows in found) // _MOST_SEGMENTS)))

    def _stage(self, table: Table, *, dry: bool) -> dict[str, int]:
        tables, pin = self._transaction.base.tables, self._transaction.pin(table.key)
        written = list(self._given.written(table.key))
        inserted = self._given.counts[table.key] - self.superseded[table.key]
        affected, replaced = self._affected(table, inserted)
        if not dry and (inserted or (self._mode == "overwrite" and pin.rows)):
            texts = [text for item in written for text, _ in item.fragments]
            staged = tables.stage_fragments(
                pin,
                decode_fragments(texts),
                replace=self._mode == "overwrite",
                delete=replaced,
                excluded=self._dropped(table),
            )
            self._transaction.write(table.key, staged)
        return affected

    def _dropped(self, table: Table) -> dict[int, list[int]]:
        """Of each fragment that was written, by its number, the rows that a later record replaces."""
        gone = self._gone[table.key]
        found: dict[int, list[int]] = {}
        if not len(gone):
            return found
        number = 0
        for report in self._given.reports:
            written = report.written.get(table.key)
            first = report.split.number << SPLIT_SHIFT
            for _, rows in () if written is None else written.fragments:
                low, high = np.searchsorted(gone, (first, first + rows))
                if low < high:
                    found[number] = (gone[low:high] - first).tolist()
                first += rows
                number += 1
        return found


class LocallyCheckedLoad(WrittenLoad):
    """The same with all keys in a database of this process, on disk."""

    def __init__(
        self,
        transaction: Transaction,
        mode: LoadMode,
        keys: Workspace,
        given: WrittenInput,
        index: MakeSegments,
    ) -> None:
        super().__init__(transaction, mode, keys, given, index)
        self._workspace = keys
        self._bring()

    def _attach(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        """The files as they are on a disk of this machine, else a copy of them."""
        names, scratch = [file for file, _ in files], self._given.scratch
        paths = [str(path) for file in names if (path := scratch.path(file)) is not None]
        if paths:
            self._workspace.attach(name, paths)
        else:
            self._append(name, chain([self._no_keys(table)], KeyFiles(scratch)(names)))


class TaskCheckedLoad(WrittenLoad):
    """The same with keys that tasks read, the committed ones too: what comes here is the answers."""

    def __init__(
        self,
        transaction: Transaction,
        mode: LoadMode,
        keys: TaskKeys,
        given: WrittenInput,
        index: MakeSegments,
    ) -> None:
        super().__init__(transaction, mode, keys, given, index)
        self._tables = keys
        self._bring()

    def _attach(self, table: Table, name: str, files: Sequence[tuple[str, int]]) -> None:
        self._gather(name, self._no_keys(table).schema, files, KeyFiles(self._given.scratch))

    def _bring_old(self, table: Table, columns: Sequence[str]) -> None:
        pin = self._transaction.base.pin(table.key)
        parts = list_fragments(self._transaction.base.tables, pin)
        fragments = [(part.id, part.rows) for part in parts]
        read = CommittedKeys(self._given.scratch, pin, table, tuple(columns))
        self._gather(queries.committed_keys(table.id), no_committed(table, columns).schema, fragments, read)

    def _gather(
        self,
        name: str,
        schema: pa.Schema,
        items: Sequence[tuple[T, int]],
        read: Callable[[tuple[T, ...]], Iterable[pa.RecordBatch]],
    ) -> None:
        rows = sum(rows for _, rows in items)
        self._tables.gather(name, schema, list(grouped(items, _KEYS_PER_PART)), read, rows)


def lines_before(reports: Sequence[SplitReport]) -> list[int]:
    """For each split how many lines or rows of its file come before it."""
    found: list[int] = []
    lines: dict[tuple[str, str | None], int] = {}
    for report in reports:
        split = report.split
        known = (
            lines.get((split.file, split.key), 0) if split.form in ("records", "rows") else split.first_row
        )
        found.append(known)
        lines[split.file, split.key] = known + report.lines
    return found
