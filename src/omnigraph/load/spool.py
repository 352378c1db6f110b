"""The input of a load, read once: rows with ids that keep every rule of their own, in memory or in local files.

What is prepared again on a branch that moved starts from here and not from the input, which may be a stream.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES, arrow_schema, logical_schema
from omnigraph.catalog.row_json import json_values
from omnigraph.errors import NotFound
from omnigraph.graph.progress import Progress
from omnigraph.lang.schema import NodeType
from omnigraph.load.fresh_ids import FreshIds
from omnigraph.rules.row_rules import broken_rows, row_violations
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import RowOrigins, Violations, raise_violations
from omnigraph.sources.row_batch import PLACE, SOURCE, InputBatch, OnReject, Reject

_ORIGIN = (pa.field(PLACE, pa.int64()), pa.field(SOURCE, pa.int32()))


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Up to how many rows and bytes a load is done in memory, and how much of it a larger one may take."""

    rows: int = 200_000
    bytes: int = 64 << 20
    batch_rows: int = 65_536
    memory: int = 1 << 30


@dataclass
class _Rows:
    """The rows of one table: those that are held, and the file that the others are in."""

    schema: pa.Schema
    count: int = 0
    made: bool = True
    held: list[pa.RecordBatch] = field(default_factory=list)
    file: Path | None = None
    writer: pa.ipc.RecordBatchFileWriter | None = None


class Spool:
    """Typed, checked rows per table in input order. Leaves nothing behind when it is closed.

    A table that the input names is there, be it without rows.
    """

    def __init__(self, catalog: Catalog, limits: LoadLimits) -> None:
        self.catalog = catalog
        self.limits = limits
        self.violations = Violations()
        self.rejected = 0
        self.seconds = 0.0
        self.sources: list[str | None] = []
        self._tables: dict[str, _Rows] = {}
        self._rows = 0
        self._bytes = 0
        self._directory: TemporaryDirectory[str] | None = None
        self._spilled = False

    @classmethod
    def of(
        cls,
        batches: Iterable[InputBatch],
        catalog: Catalog,
        *,
        limits: LoadLimits | None = None,
        rejecting: OnReject | None = None,
        progress: Progress | None = None,
        refusing: bool = True,
    ) -> Spool:
        """Consume an input: give ids where there are none and apply every rule that a row keeps on its own.

        A row that breaks one is handed to `rejecting` and left out. Without it the input is read to its end, and
        `ConstraintViolation` then tells what is wrong with it, or when not `refusing` the spool's `violations` do.
        Whatever is raised, no file stays behind.
        """
        spool = cls(catalog, limits or LoadLimits())
        began = time.monotonic()
        try:
            spool._read(batches, rejecting, progress)
            if refusing:
                raise_violations(spool.violations)
        except BaseException:
            spool.close()
            raise
        spool.seconds = time.monotonic() - began
        return spool

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what is on disk. Safe to call again."""
        for rows in self._tables.values():
            if rows.writer is not None:
                rows.writer.close()
                rows.writer = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    # --- what is there -----------------------------------------------------------------------------------

    @property
    def is_bulk(self) -> bool:
        """Whether there is so much that it is checked and written in bounded memory, and worth an intent."""
        return self._spilled

    @property
    def counts(self) -> dict[str, int]:
        """Rows per table that the input names, nodes before edges, each by name."""
        return {key: self._tables[key].count for key in self.catalog.tables if key in self._tables}

    @property
    def made(self) -> frozenset[str]:
        """The tables whose every row was given an id here: no two rows can have the same."""
        return frozenset(key for key, rows in self._tables.items() if rows.made)

    def table(self, key: str) -> pa.Table:
        """All rows of a table, with where they are from."""
        return pa.Table.from_batches(self.batches(key), self._tables[key].schema)

    def batches(self, key: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a table as a stream, in input order; all columns, or some of them in their own order."""
        rows = self._tables[key]
        names = rows.schema.names if columns is None else list(columns)
        if rows.file is None:
            yield from (batch.select(names) for batch in rows.held)
            return
        chosen = sorted(rows.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        with pa.memory_map(str(rows.file)) as source, pa.ipc.open_file(source, options=options) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(names)

    def digest(self) -> str:
        """A name for what was given, whatever ids were made for it: equal inputs have equal names."""
        found = hashlib.blake2b(digest_size=16)
        for key in self.counts:
            table = self.catalog.tables[key]
            given = [item.name for item in table.columns if item.name != "id"]
            found.update(key.encode())
            for batch in self.batches(key, given):
                found.update(batch.serialize())
        return found.hexdigest()

    def directory(self) -> Path:
        """A place on disk that goes with the spool."""
        if self._directory is None:
            self._directory = TemporaryDirectory(prefix="omnigraph-load-")
        return Path(self._directory.name)

    # --- reading the input -------------------------------------------------------------------------------

    def _read(
        self, batches: Iterable[InputBatch], rejecting: OnReject | None, progress: Progress | None
    ) -> None:
        fresh = FreshIds()
        broken = Violations()
        for given in batches:
            table = self._open(given.key)
            source = self._source(given.source)
            for offset in range(0, given.rows.num_rows, self.limits.batch_rows):
                part = given.rows.slice(offset, self.limits.batch_rows).combine_chunks()
                origin = RowOrigins(given.places.slice(offset, part.num_rows), given.source)
                self._tables[given.key].made &= part["id"].null_count == part.num_rows
                rows = _with_ids(part, fresh).to_batches()[0]
                if rejecting is None:
                    found = row_violations(
                        table, entity_of(self.catalog, table), pa.Table.from_batches([rows]), origin
                    )
                    broken = Violations.merge([broken, found])
                else:
                    rows, origin = self._sift(table, part, rows, origin, rejecting)
                if not broken and rows.num_rows:
                    self._add(given.key, _typed(table, rows, origin, source))
                if progress is not None:
                    progress("read", self._rows)
        self.violations = broken
        for kept in self._tables.values():
            if kept.writer is not None:
                kept.writer.close()
                kept.writer = None

    def _open(self, key: str) -> Table:
        table = self.catalog.tables.get(key)
        if table is None:
            raise NotFound(f"unknown type '{key}'", details={"table_key": key})
        if key not in self._tables:
            self._tables[key] = _Rows(pa.schema([*logical_schema(table), *_ORIGIN]))
        return table

    def _source(self, name: str | None) -> int:
        if name not in self.sources:
            self.sources.append(name)
        return self.sources.index(name)

    def _sift(
        self, table: Table, given: pa.Table, rows: pa.RecordBatch, origin: RowOrigins, rejecting: OnReject
    ) -> tuple[pa.RecordBatch, RowOrigins]:
        """The rows that break no rule of their own; the others are handed over."""
        entity = entity_of(self.catalog, table)
        broken = broken_rows(table, entity, rows)
        if not broken:
            return rows, origin
        positions = np.fromiter(broken, np.int64, len(broken))
        # A derived or fresh id is not part of the record.
        derived = isinstance(entity, NodeType) and entity.key is not None
        records = _records(table, given.take(pa.array(positions)), derived)
        places = origin.places.take(pa.array(positions)).to_pylist()
        for place, messages, record in zip(places, broken.values(), records, strict=True):
            rejecting(Reject(place, "; ".join(messages), record, origin.source))
        self.rejected += len(broken)
        kept = np.ones(rows.num_rows, bool)
        kept[positions] = False
        mask = pa.array(kept)
        return rows.filter(mask), RowOrigins(origin.places.filter(mask), origin.source)

    # --- keeping it --------------------------------------------------------------------------------------

    def _add(self, key: str, batch: pa.RecordBatch) -> None:
        rows = self._tables[key]
        rows.count += batch.num_rows
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        rows.held.append(batch)
        if self._spilled:
            self._spill(key)
        elif self._rows > self.limits.rows or self._bytes > self.limits.bytes:
            self._spilled = True
            for each in self._tables:
                self._spill(each)

    def _spill(self, key: str) -> None:
        """Move what is held of a table to its file."""
        rows = self._tables[key]
        if not rows.held:
            return
        if rows.writer is None:
            rows.file = self.directory() / f"{self.catalog.tables[key].id}.arrow"
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            rows.writer = pa.ipc.new_file(str(rows.file), rows.schema, options=options)
        for batch in rows.held:
            rows.writer.write_batch(batch)
        rows.held = []


def stored(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a spool as the table stores them."""
    schema = arrow_schema(table, physical=True)
    return rows.select([item.name for item in table.columns]).rename_columns(schema.names).cast(schema)


def _with_ids(rows: pa.Table, fresh: FreshIds) -> pa.Table:
    position = rows.column_names.index("id")
    ids = rows["id"].combine_chunks() if rows["id"].num_chunks != 1 else rows["id"].chunk(0)
    return rows.set_column(position, "id", fresh.fill(ids))


def _typed(table: Table, rows: pa.RecordBatch, origin: RowOrigins, source: int) -> pa.RecordBatch:
    """The rows in the schema of the spool. They passed the rules, so that every value fits its type."""
    schema = logical_schema(table)
    rows = rows.select(schema.names)
    rows = rows if rows.schema.equals(schema) else rows.cast(schema)
    places = origin.places.cast(pa.int64())
    sources = pa.array(np.full(rows.num_rows, source, np.int32))
    return pa.RecordBatch.from_arrays([*rows.columns, places, sources], schema=pa.schema([*schema, *_ORIGIN]))


def _records(table: Table, rows: pa.Table, derived: bool) -> list[dict[str, Any]]:
    """Rows as the records that a load reads; what is null is left out."""
    ends = ENDPOINT_NAMES if table.kind == "edge" else {}
    chosen = [item for item in table.columns if not (derived and item.name == "id")]
    columns = {item.name: json_values(rows[item.name], item.type) for item in chosen}
    found = []
    for values in zip(*columns.values(), strict=True):
        row = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        data = {name: value for name, value in row.items() if name not in ends}
        outer = {name: row.get(stored) for stored, name in ends.items()}
        found.append({"type" if table.kind == "node" else "edge": table.name, **outer, "data": data})
    return found
