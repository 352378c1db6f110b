"""The spool: the rows of a load's input, with ids and checked by the row rules, in memory or in local files.

The input may be a stream and is read once. A load that is prepared again reads the spool.
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
from omnigraph.errors import NotFound, OmnigraphError
from omnigraph.graph.progress import Progress
from omnigraph.lang.types import Scalar
from omnigraph.load.change_records import change_records
from omnigraph.load.id_generator import IdGenerator
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.spool_embeddings import SpoolEmbeddings
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.row_rules import broken_rows, row_violations
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import RowOrigins, Violation, Violations, raise_violations
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.operation_columns import operation_fields
from omnigraph.sources.rejects import OnReject, Reject
from omnigraph.sources.row_batch import PLACE, SOURCE, InputBatch
from omnigraph.sources.row_operations import OPERATION, Operation

_ORIGIN = (pa.field(PLACE, pa.int64()), pa.field(SOURCE, pa.int32()))


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The rows and bytes up to which a load runs in memory, and the memory that a larger load may use."""

    rows: int = 200_000
    bytes: int = 64 << 20
    batch_rows: int = 65_536
    memory: int = 1 << 30


@dataclass
class _Rows:
    """The rows of one table: batches in memory, and the file with the batches that were spilled."""

    schema: pa.Schema
    count: int = 0
    generated_ids: bool = True
    batches: list[pa.RecordBatch] = field(default_factory=list)
    file: Path | None = None
    writer: pa.ipc.RecordBatchFileWriter | None = None


class Spool:
    """Typed and checked rows of each table in input order. Closing deletes its files.

    Every table that the input names is present, also without rows.
    """

    def __init__(
        self,
        catalog: Catalog,
        limits: LoadLimits,
        ingress: BlobIngress,
        *,
        rules: OperationRules | None = None,
        vectors: VectorComputation | None = None,
    ) -> None:
        self.catalog = catalog
        self.limits = limits
        self.rules = rules
        self._ingress = ingress
        self.violations = Violations()
        self.rejected = 0
        self.seconds = 0.0
        self.sources: list[str | None] = []
        self._tables: dict[str, _Rows] = {}
        self._rows = 0
        self._bytes = 0
        self._directory: TemporaryDirectory[str] | None = None
        self._spilled = False
        self._embeddings = SpoolEmbeddings(catalog, vectors)

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[InputBatch],
        catalog: Catalog,
        *,
        limits: LoadLimits | None = None,
        on_reject: OnReject | None = None,
        progress: Progress | None = None,
        collect_violations: bool = False,
        ingress: BlobIngress | None = None,
        rules: OperationRules | None = None,
        vectors: VectorComputation | None = None,
    ) -> Spool:
        """Read an input, generate missing ids, and check the row rules and the external URIs of Blob values.

        `vectors` computes the embeddings that rows lack; without it a provider that needs a configuration is
        missing.

        A row that breaks a rule is passed to `on_reject` and left out. Without `on_reject` the input is read to
        its end and `ConstraintViolation` is raised; with `collect_violations` they are in `violations` instead.
        With `rules` the rows have the columns of `operation_columns`; patches may lack required values,
        and deletes are not checked. After an error no file remains.
        """
        spool = cls(catalog, limits or LoadLimits(), ingress or BlobIngress(), rules=rules, vectors=vectors)
        began = time.monotonic()
        try:
            spool._read(batches, on_reject, progress)
            if not collect_violations:
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
        """Delete the files. Idempotent."""
        self.finish()
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    # --- reading the rows --------------------------------------------------------------------------------

    @property
    def has_operations(self) -> bool:
        """Whether the rows have operations."""
        return self.rules is not None

    @property
    def is_bulk(self) -> bool:
        """Whether the rows exceed the limits, so that the load spills to disk and is written with an intent."""
        return self._spilled

    @property
    def counts(self) -> dict[str, int]:
        """The number of rows of each table that the input names, in the order of the catalog."""
        return {key: self._tables[key].count for key in self.catalog.tables if key in self._tables}

    @property
    def generated_ids(self) -> frozenset[str]:
        """The tables whose ids were all generated here, so that no two can be equal."""
        return frozenset(key for key, rows in self._tables.items() if rows.generated_ids)

    def schema(self, key: str) -> pa.Schema:
        """Return the columns of the rows of a table."""
        return self._tables[key].schema

    def table(self, key: str) -> pa.Table:
        """Return all rows of a table, with the columns of their origin."""
        return pa.Table.from_batches(self.batches(key), self._tables[key].schema)

    def batches(self, key: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table in input order, with all columns or with these."""
        rows = self._tables[key]
        names = rows.schema.names if columns is None else list(columns)
        if rows.file is None:
            yield from (batch.select(names) for batch in rows.batches)
            return
        chosen = sorted(rows.schema.get_field_index(name) for name in names)
        options = pa.ipc.IpcReadOptions(included_fields=chosen)
        with pa.memory_map(str(rows.file)) as source, pa.ipc.open_file(source, options=options) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(names)

    def digest(self) -> str:
        """Return a hash of the rows without their ids: equal inputs have equal hashes."""
        digest = hashlib.blake2b(digest_size=16)
        for key in self.counts:
            table = self.catalog.tables[key]
            given = self._embeddings.digest(key)
            if given is not None:
                # Computed vectors are not part of the input: a provider may return others for the same text.
                digest.update(key.encode())
                digest.update(given)
                continue
            columns = [item.name for item in table.columns if item.name != "id"]
            columns += [item.name for item in self._operation_fields(table)]
            digest.update(key.encode())
            for batch in self.batches(key, columns):
                digest.update(batch.serialize())
        return digest.hexdigest()

    def directory(self) -> Path:
        """Return a temporary directory that is deleted with the spool."""
        if self._directory is None:
            self._directory = TemporaryDirectory(prefix="omnigraph-load-")
        return Path(self._directory.name)

    # --- reading the input -------------------------------------------------------------------------------

    def _read(
        self, batches: Iterable[InputBatch], on_reject: OnReject | None, progress: Progress | None
    ) -> None:
        ids = IdGenerator()
        violations = Violations()
        for batch in batches:
            table = self._open(batch.key)
            source = self._source_number(batch.source)
            batch_rows = min(self.limits.batch_rows, self._embeddings.batch_rows(table))
            for offset in range(0, batch.rows.num_rows, batch_rows):
                part = batch.rows.slice(offset, batch_rows).combine_chunks()
                origins = RowOrigins(batch.places.slice(offset, part.num_rows), batch.source)
                if self._embeddings.applies(table) and not violations:
                    part, origins = self._embed(table, part, origins, on_reject)
                self._tables[batch.key].generated_ids &= part["id"].null_count == part.num_rows
                rows = _with_ids(part, ids).to_batches()[0]
                if on_reject is None:
                    violations = Violations.merge([violations, *self._violations(table, rows, origins)])
                else:
                    rows, origins = self._reject_rows(table, part, rows, origins, on_reject)
                if not violations and rows.num_rows:
                    self._ingress.probe_rows(table, rows)
                    schema = self._tables[batch.key].schema
                    self.add(batch.key, _typed(schema, rows, origins, source))
                if progress is not None:
                    progress("read", self._rows)
        self.violations = violations
        self.finish()

    def finish(self) -> None:
        """End the writing of rows, which can be read then."""
        for table_rows in self._tables.values():
            if table_rows.writer is not None:
                table_rows.writer.close()
                table_rows.writer = None

    def _open(self, key: str) -> Table:
        table = self.catalog.tables.get(key)
        if table is None:
            raise NotFound(f"unknown type '{key}'", details={"table_key": key})
        if key not in self._tables:
            fields = [*logical_schema(table), *self._operation_fields(table), *_ORIGIN]
            self._tables[key] = _Rows(pa.schema(fields))
        return table

    def _operation_fields(self, table: Table) -> list[pa.Field]:
        return operation_fields(table) if self.has_operations else []

    def _violations(self, table: Table, rows: pa.RecordBatch, origins: RowOrigins) -> Iterator[Violations]:
        """Yield the violations of the row rules."""
        entity = entity_of(self.catalog, table)
        for positions, is_partial in self._checked_rows(rows):
            part, places = rows, origins
            if positions is not None:
                part = rows.take(pa.array(positions))
                places = RowOrigins(origins.places.take(pa.array(positions)), origins.source)
            yield row_violations(
                table,
                entity,
                pa.Table.from_batches([part]),
                places,
                self._ingress.policy,
                is_partial=is_partial,
            )

    def _broken_rows(self, table: Table, rows: pa.RecordBatch) -> dict[int, list[Violation]]:
        """Return the violations of every row that breaks a rule, by position in the batch."""
        entity = entity_of(self.catalog, table)
        broken: dict[int, list[Violation]] = {}
        for positions, is_partial in self._checked_rows(rows):
            part = rows if positions is None else rows.take(pa.array(positions))
            found = broken_rows(table, entity, part, self._ingress.policy, is_partial=is_partial)
            for position, violations in found.items():
                broken[position if positions is None else int(positions[position])] = violations
        return dict(sorted(broken.items()))

    def _checked_rows(self, rows: pa.RecordBatch) -> Iterator[tuple[np.ndarray[Any, Any] | None, bool]]:
        """Yield the positions of the rows to check, None for all, and whether they may lack required values."""
        if not self.has_operations:
            yield None, False
            return
        codes = rows.column(OPERATION).to_numpy()
        for chosen, is_partial in ((codes <= Operation.REPLACE, False), (codes == Operation.PATCH, True)):
            if chosen.all():
                yield None, is_partial
            elif chosen.any():
                yield np.flatnonzero(chosen), is_partial

    def _source_number(self, name: str | None) -> int:
        if name not in self.sources:
            self.sources.append(name)
        return self.sources.index(name)

    def _reject_rows(
        self, table: Table, read: pa.Table, rows: pa.RecordBatch, origins: RowOrigins, on_reject: OnReject
    ) -> tuple[pa.RecordBatch, RowOrigins]:
        """Pass the rows that break a row rule to `on_reject`; return the others.

        `read` has the rows as they were read, without generated ids.
        """
        broken = self._broken_rows(table, rows)
        if not broken:
            return rows, origins
        positions = np.fromiter(broken, np.int64, len(broken))
        left_out = self._records_of(table, read.take(pa.array(positions)))
        places = origins.places.take(pa.array(positions)).to_pylist()
        for place, violations, (record, id_) in zip(places, broken.values(), left_out, strict=True):
            reason = "; ".join(item.message for item in violations)
            rule = violations[0].rule
            on_reject(Reject(place, reason, record, origins.source, rule=rule, type=table.name, id=id_))
        self.rejected += len(broken)
        kept = np.ones(rows.num_rows, bool)
        kept[positions] = False
        mask = pa.array(kept)
        return rows.filter(mask), RowOrigins(origins.places.filter(mask), origins.source)

    def _records_of(self, table: Table, rows: pa.Table) -> Iterator[tuple[dict[str, Any], str | None]]:
        """Yield rows as they were read, as the records of a load, with their ids."""
        entity = entity_of(self.catalog, table)
        if self.rules is None:
            # A derived or generated id is not part of the record.
            records = reject_records(table, rows, with_ids=entity.key is None)
        else:
            records = change_records(entity, table, rows, self.rules)
        return zip(records, rows["id"].to_pylist(), strict=True)

    def _embed(
        self, table: Table, rows: pa.Table, origins: RowOrigins, on_reject: OnReject | None
    ) -> tuple[pa.Table, RowOrigins]:
        """Return rows with computed vectors. Rows whose text the provider refuses are passed to `on_reject`."""
        refused: dict[int, OmnigraphError] = {}
        found = self._embeddings.embed(
            table,
            rows,
            None if on_reject is None else lambda position, error: refused.setdefault(position, error),
        )
        if on_reject is None or not refused:
            return found, origins
        positions = np.fromiter(sorted(refused), np.int64, len(refused))
        records = self._records_of(table, rows.take(pa.array(positions)))
        places = origins.places.take(pa.array(positions)).to_pylist()
        for position, place, (record, id_) in zip(positions.tolist(), places, records, strict=True):
            reason = refused[position].message
            on_reject(Reject(place, reason, record, origins.source, rule="embed", type=table.name, id=id_))
        self.rejected += len(refused)
        kept = np.ones(rows.num_rows, bool)
        kept[positions] = False
        return found.filter(pa.array(kept)), RowOrigins(origins.places.filter(pa.array(kept)), origins.source)

    # --- storing the rows --------------------------------------------------------------------------------

    def name_table(self, key: str) -> None:
        """Add a table that may get no rows."""
        self._open(key)

    def add(self, key: str, batch: pa.RecordBatch) -> None:
        """Add rows to a table in its schema, without checks."""
        rows = self._tables[key]
        rows.count += batch.num_rows
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        rows.batches.append(batch)
        if self._spilled:
            self._spill(key)
        elif self._rows > self.limits.rows or self._bytes > self.limits.bytes:
            self._spilled = True
            for each in self._tables:
                self._spill(each)

    def _spill(self, key: str) -> None:
        """Move the batches of a table from memory to its file."""
        rows = self._tables[key]
        if not rows.batches:
            return
        if rows.writer is None:
            rows.file = self.directory() / f"{self.catalog.tables[key].id}.arrow"
            table = self.catalog.tables[key]
            has_blobs = any(column.type.scalar is Scalar.BLOB for column in table.columns)
            # Large values seldom compress, and uncompressed ones are read from the mapped file without a copy.
            options = pa.ipc.IpcWriteOptions(compression=None if has_blobs else "lz4")
            rows.writer = pa.ipc.new_file(str(rows.file), rows.schema, options=options)
        for batch in rows.batches:
            rows.writer.write_batch(batch)
        rows.batches = []


def to_physical(table: Table, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a spool in the physical schema of their table."""
    schema = arrow_schema(table, physical=True)
    return rows.select([item.name for item in table.columns]).rename_columns(schema.names).cast(schema)


def _with_ids(rows: pa.Table, generator: IdGenerator) -> pa.Table:
    position = rows.column_names.index("id")
    ids = rows["id"].combine_chunks() if rows["id"].num_chunks != 1 else rows["id"].chunk(0)
    return rows.set_column(position, "id", generator.fill_nulls(ids))


def _typed(schema: pa.Schema, rows: pa.RecordBatch, origins: RowOrigins, source: int) -> pa.RecordBatch:
    """Return rows in the schema of the spool. The row rules have checked that every value fits its type."""
    own = pa.schema(list(schema)[: -len(_ORIGIN)])
    rows = rows.select(own.names)
    rows = rows if rows.schema.equals(own) else rows.cast(own)
    places = origins.places.cast(pa.int64())
    sources = pa.array(np.full(rows.num_rows, source, np.int32))
    return pa.RecordBatch.from_arrays([*rows.columns, places, sources], schema=schema)


def reject_records(table: Table, rows: pa.Table, *, with_ids: bool) -> list[dict[str, Any]]:
    """Return rows as the JSON records that a load reads, without null values."""
    ends = ENDPOINT_NAMES if table.kind == "edge" else {}
    chosen = [item for item in table.columns if with_ids or item.name != "id"]
    columns = {item.name: json_values(rows[item.name], item.type) for item in chosen}
    records = []
    for values in zip(*columns.values(), strict=True):
        row = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
        data = {name: value for name, value in row.items() if name not in ends}
        outer = {name: row.get(stored) for stored, name in ends.items()}
        records.append({"type" if table.kind == "node" else "edge": table.name, **outer, "data": data})
    return records
