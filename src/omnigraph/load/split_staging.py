"""Staging of one split of a load: read it, check its rows, write them as fragments and their keys as a file.

A split can be staged several times, also concurrently: only the files in the report that is used count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.arrow_file import ArrowFile
from omnigraph.errors import OmnigraphError
from omnigraph.graph.recovery.scratch_files import ScratchFolder
from omnigraph.load.change_files import ChangeFile, write_changes
from omnigraph.load.keys import key_columns, key_rows
from omnigraph.load.operation_rules import OperationRules
from omnigraph.load.reject_log import reject_line
from omnigraph.load.spool import LoadLimits, Spool, to_physical
from omnigraph.rules.blob_ingress import BlobIngress
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import Violations
from omnigraph.search.embeddings.vector_computation import VectorComputation
from omnigraph.sources.invalid_records import InvalidRecordCollector, InvalidRecords
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.rejects import OnReject, Reject
from omnigraph.sources.routed_tables import read_routed_table
from omnigraph.sources.row_batch import PLACE, SOURCE, InputBatch
from omnigraph.sources.splits import Split, SplitReader
from omnigraph.sources.tabular import read_table
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.sync import Durability
from omnigraph.store.tables.index_segments import BuiltSegment, build_segment
from omnigraph.store.tables.uncommitted_fragments import WrittenFragment, write_rows

# A split of a file fits in memory. A partition of a DataFrame can have any size, and spills beyond this.
_SPLIT_LIMITS = LoadLimits(rows=1 << 62, bytes=256 << 20)
# The position of a record has the number of its split above this bit, and its position in the split below.
SPLIT_SHIFT = 40
# Reads rows, and passes rejected records to the argument.
Read: TypeAlias = Callable[[OnReject | None], Iterator[InputBatch]]


@dataclass(frozen=True)
class LoadJob:
    """The parameters of a load that all its splits share. Instances can be pickled.

    A dry run writes the keys, for the checks between rows. It writes the rows only if they may be rejected, because
    the rejected records are read from them. With `rules` the rows have operations: splits write them to files, and
    `operation_staging` writes the final rows.
    """

    catalog: Catalog
    pins: dict[str, TablePin]
    scratch: ScratchFolder
    durability: Durability
    keep_rejects: bool = False
    dry_run: bool = False
    ingress: BlobIngress = field(default_factory=BlobIngress)
    rules: OperationRules | None = None
    # Each task has its own copy, and with it one client of a provider.
    vectors: VectorComputation | None = None


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """What a split wrote of one table: its fragments and the key file.

    `generated_ids` says that every id was generated, so that no two can be equal. A split of rows with operations
    writes `changes` instead.
    """

    rows: int
    fragments: tuple[WrittenFragment, ...] = ()
    keys: str | None = None
    generated_ids: bool = False
    changes: ChangeFile | None = None


@dataclass(frozen=True)
class SplitReport:
    """The result of staging a split.

    A load with `invalid` records, an `error` or `violations` in a report is not committed. The error ended the
    split after the invalid records.
    """

    split: Split
    lines: int = 0
    written: dict[str, WrittenTable] = field(default_factory=dict)
    error: OmnigraphError | None = None
    violations: Violations = field(default_factory=Violations)
    rejected: int = 0
    rejects: str | None = None
    invalid: InvalidRecords = field(default_factory=InvalidRecords)


@dataclass(frozen=True, slots=True)
class IndexTask:
    """A column of a staged version to index, in these fragments."""

    pin: TablePin
    column: str
    fragments: tuple[int, ...]


def build_index_segment(job: LoadJob, task: IndexTask) -> BuiltSegment | None:
    """Build the index segment of fragments without an index."""
    root = LanceRoot.from_uri(job.scratch.uri, job.scratch.options, job.durability)
    return build_segment(root, task.pin, task.column, "BTREE", task.fragments)


def stage_split(job: LoadJob, split: Split) -> SplitReport:
    """Stage a split of a file. Places in the report count from the beginning of the split."""
    reader = SplitReader(split, job.catalog, job.scratch.options)
    return stage_read(job, split, reader.read, lambda: reader.lines)


def stage_partition(
    job: LoadJob,
    key: str,
    source: str,
    number: int,
    batches: Iterable[pa.RecordBatch],
    mapping: TypeMapping | None = None,
    *,
    type_column: str | None = None,
) -> SplitReport:
    """Stage a partition of rows of one type, or of the types that `type_column` names; the key is empty then."""
    split = Split(number, "rows", source, "", key or None)
    count = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal count
        for batch in batches:
            count += batch.num_rows
            yield batch

    def read(on_reject: OnReject | None) -> Iterator[InputBatch]:
        if type_column is not None:
            return read_routed_table(
                type_column,
                counted(),
                job.catalog,
                source=source,
                on_reject=on_reject,
                operations=None if mapping is None else mapping.operations,
            )
        return read_table(key, counted(), job.catalog, source=source, on_reject=on_reject, mapping=mapping)

    return stage_read(job, split, read, lambda: count)


def stage_read(job: LoadJob, split: Split, read: Read, lines: Callable[[], int]) -> SplitReport:
    """Check the rows that `read` yields, write them and their keys. `lines` returns how many there were."""
    rejects: list[Reject] = []
    invalid = InvalidRecordCollector()
    take = rejects.append if job.keep_rejects else None
    try:
        with Spool.from_batches(
            invalid.until_invalid(read(take or invalid.add)),
            job.catalog,
            limits=_SPLIT_LIMITS,
            on_reject=take,
            collect_violations=True,
            ingress=job.ingress,
            rules=job.rules,
            vectors=job.vectors,
        ) as spool:
            if invalid.total:
                return SplitReport(split, lines(), invalid=invalid.collected())
            if spool.violations:
                return SplitReport(split, lines(), violations=spool.violations)
            written = {key: _write(job, split, job.catalog.tables[key], spool) for key in spool.counts}
    except OmnigraphError as error:
        return SplitReport(split, lines(), error=error, invalid=invalid.collected())
    name = _write_rejects(job, split, rejects)
    return SplitReport(split, lines(), written, rejected=len(rejects), rejects=name)


def _write(job: LoadJob, split: Split, table: Table, spool: Spool) -> WrittenTable:
    count = spool.counts[table.key]
    if not count:
        return WrittenTable(0)
    if job.rules is not None:
        first = split.number << SPLIT_SHIFT
        batches = (_with_source(batch, split.number) for batch in spool.batches(table.key))
        changes = write_changes(job.scratch, table, split.number, first, batches)
        return WrittenTable(count, changes=changes)
    return write_table(job, split.number, table, spool)


def _with_source(batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
    at = batch.schema.get_field_index(SOURCE)
    sources = pa.array(np.full(batch.num_rows, number, np.int32))
    return batch.set_column(at, batch.schema.field(at), sources)


def write_table(
    job: LoadJob, number: int, table: Table, spool: Spool, *, has_sources: bool = False
) -> WrittenTable:
    """Write the rows and the keys of a table. `number` is that of the split, unless the rows have sources."""
    count = spool.counts[table.key]
    keys = _write_keys(job, number, table, spool, has_sources=has_sources)
    generated = table.key in spool.generated_ids and not has_sources
    if job.dry_run and not job.keep_rejects:
        return WrittenTable(count, keys=keys, generated_ids=generated)
    root = LanceRoot.from_uri(job.scratch.uri, job.scratch.options, job.durability)
    rows = (to_physical(table, batch) for batch in spool.batches(table.key))
    fragments = write_rows(root, job.pins[table.key], rows, arrow_schema(table, physical=True))
    return WrittenTable(count, tuple(fragments), keys, generated)


def _write_keys(job: LoadJob, split: int, table: Table, spool: Spool, *, has_sources: bool) -> str:
    """Write the keys of a split to a file in the scratch folder; return its name."""
    columns = key_columns(table, entity_of(job.catalog, table))
    # Each attempt has its own file, so a second attempt cannot overwrite a complete file. The number of rows in the
    # name is for progress reports.
    name = f"keys-{split:06d}-{table.id}-{spool.counts[table.key]}-{uuid.uuid4().hex}.parquet"
    position = split << SPLIT_SHIFT
    with job.scratch.open_write(name) as file:
        writer: pq.ParquetWriter | None = None
        for batch in spool.batches(table.key, [*columns, PLACE, SOURCE]):
            numbers = np.arange(position, position + batch.num_rows, dtype=np.int64)
            position += batch.num_rows
            origin: Sequence[pa.Array] = (
                batch.column(PLACE),
                batch.column(SOURCE) if has_sources else pa.array(np.full(batch.num_rows, split, np.int32)),
                pa.array(numbers),
            )
            keys = key_rows(table, columns, batch, origin)
            if writer is None:
                # The file is read once and completely, so dictionaries and statistics would be wasted.
                writer = pq.ParquetWriter(
                    ArrowFile(file),
                    keys.schema,
                    compression="lz4",
                    use_dictionary=False,
                    write_statistics=False,
                )
            writer.write_batch(keys)
        if writer is not None:
            writer.close()
    return name


def _write_rejects(job: LoadJob, split: Split, rejects: Sequence[Reject]) -> str | None:
    if not rejects:
        return None
    name = f"rejects-{split.number:06d}-{uuid.uuid4().hex}.ndjson"
    with job.scratch.open_write(name) as file:
        for item in rejects:
            file.write(reject_line(item.to_state()))
    return name


def count_staged_rows(names: Iterator[str]) -> int:
    """Return the number of rows that tasks have staged so far, from the names of their key files."""
    rows: dict[tuple[str, str], int] = {}
    for name in names:
        parts = name.split("-")
        if parts[0] == "keys":
            # Two attempts at one split count once.
            rows[parts[1], parts[2]] = int(parts[3])
    return sum(rows.values())
