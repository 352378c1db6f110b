"""Export a snapshot as many files, each with the rows of some fragments of one table. Tasks may write them
anywhere.

The name of a file depends only on its rows, and a file appears complete. A part can therefore be written again,
or twice at once, with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.engine.arrow_file import ArrowFile
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.graph.damage import CommitState, reading
from omnigraph.graph.snapshot import Snapshot
from omnigraph.read.export.record_export import choose_tables
from omnigraph.read.export.record_lines import encode_records
from omnigraph.store.lance.lance_errors import translate_lance_errors
from omnigraph.store.lance.lance_files import get_fragment
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import CommitRecord, TablePin
from omnigraph.store.objects.object_store import ObjectStore, Writable
from omnigraph.store.storage_options import StorageOptions
from omnigraph.store.tables.table_fragments import list_fragments
from omnigraph.store.tables.tables import Tables

ExportFormat: TypeAlias = Literal["ndjson", "parquet"]
ROWS_PER_PART: Final = 1_000_000

_BATCH_ROWS = 16_384
_BATCH_BYTES = 8 << 20
# Lance would otherwise read up to two gigabytes ahead of the encoder.
_READ_AHEAD = 32 << 20
# Parquet readers process one row group at a time, and Spark loads the row groups of a file in parallel.
_GROUP_ROWS = 131_072
_GROUP_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ExportPart:
    """Some fragments of a table, and the name of the file for their rows."""

    name: str
    table: Table
    pin: TablePin
    fragments: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class ExportJob:
    """What every part of an export needs: the graph, the commit and the folder. Can be pickled."""

    graph: str
    commit: CommitRecord
    folder: str
    prefix: str
    format: ExportFormat
    options: StorageOptions = field(repr=False)


@dataclass(frozen=True)
class PartReport:
    """The result of writing a part. If `error` is set, the file was not written."""

    rows: int = 0
    error: OmnigraphError | None = None


def plan_parts(
    snapshot: Snapshot, types: Sequence[str] | None, form: ExportFormat, rows_per_part: int = ROWS_PER_PART
) -> list[ExportPart]:
    """Plan the parts of the given types: consecutive fragments, up to `rows_per_part` rows. An empty type has one
    part.
    """
    parts = []
    for table in choose_tables(snapshot.catalog, types):
        pin = snapshot.pin(table.key)
        for number, (fragments, rows) in enumerate(_groups(snapshot, pin, rows_per_part)):
            parts.append(ExportPart(_file_name(table, number, form), table, pin, fragments, rows))
    return parts


def write_part(
    job: ExportJob,
    part: ExportPart,
    tables: Tables | None = None,
    progress: Callable[[int], None] | None = None,
) -> PartReport:
    """Write the file of a part, completely or not at all. Errors are returned in the report.

    Without `tables`, opens the tables of the graph by address, without reading the manifest.
    """
    try:
        if tables is None:
            tables = Tables(LanceRoot.from_uri(job.graph, job.options, "os"))
        store = ObjectStore.open(job.folder, job.options)
        with store.open_write(job.prefix + part.name) as file:
            batches = _batches(job, part, tables, progress)
            if job.format == "parquet":
                _write_parquet(file, part.table, batches)
            else:
                for batch in batches:
                    file.write(encode_records(part.table, batch))
    except OmnigraphError as error:
        return PartReport(error=error)
    return PartReport(part.rows)


def _groups(snapshot: Snapshot, pin: TablePin, most: int) -> list[tuple[tuple[int, ...], int]]:
    with snapshot.reading():
        parts = list_fragments(snapshot.tables, pin)
    groups: list[tuple[tuple[int, ...], int]] = []
    for part in parts:
        if groups and groups[-1][1] + part.rows <= most:
            fragments, rows = groups[-1]
            groups[-1] = (*fragments, part.id), rows + part.rows
        else:
            groups.append(((part.id,), part.rows))
    return groups or [((), 0)]


def _file_name(table: Table, number: int, form: ExportFormat) -> str:
    if form == "parquet":
        return f"{table.kind}s/{table.name}/part-{number:05d}.parquet"
    return f"{table.kind}-{table.name}-{number:05d}.ndjson"


def _batches(
    job: ExportJob, part: ExportPart, tables: Tables, progress: Callable[[int], None] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of a part in order, with physical columns."""
    if not part.fragments:
        return
    count = 0
    state = CommitState(tables, replace(job.commit, tables={str(part.table.id): part.pin}), [part.table])
    with reading(state), translate_lance_errors(f"read {part.pin.path}"):
        dataset = tables.open(part.pin.path, part.pin.version)
        scanner = dataset.scanner(
            columns=[column.physical for column in part.table.columns],
            fragments=[get_fragment(dataset, id_) for id_ in part.fragments],
            batch_size=_BATCH_ROWS,
            batch_size_bytes=_BATCH_BYTES,
            io_buffer_size=_READ_AHEAD,
            fragment_readahead=1,
            scan_in_order=True,
        )
        for batch in scanner.to_batches():
            yield batch
            count += batch.num_rows
            if progress is not None:
                progress(batch.num_rows)
    if count != part.rows:
        raise StorageError(f"{part.pin.path} is corrupt: expected {part.rows:,} rows, got {count:,}")


# --- Parquet ----------------------------------------------------------------------------------------------


def _write_parquet(file: Writable, table: Table, batches: Iterable[pa.RecordBatch]) -> None:
    schema = arrow_schema(table)
    with pq.ParquetWriter(ArrowFile(file), schema, compression="zstd") as writer:
        for group in _row_groups(table, schema, batches):
            writer.write_table(group, row_group_size=group.num_rows)


def _row_groups(table: Table, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield batches with logical column names, combined into row groups."""
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        arrays = [
            batch.column(column.physical).cast(item.type)
            for column, item in zip(table.columns, schema, strict=True)
        ]
        gathered.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        rows, size = sum(item.num_rows for item in gathered), sum(item.nbytes for item in gathered)
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(gathered, schema)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered, schema)
