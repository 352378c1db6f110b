"""One split of a load, done wherever it is read: typed, checked, written as fragments, its keys set down.

A split can be done again or twice at once: what it writes counts only through the report that it gives.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import OmnigraphError
from omnigraph.graph.scratch_files import ScratchFolder
from omnigraph.load.key_checks import key_columns, key_rows
from omnigraph.load.spool import LoadLimits, Spool, stored
from omnigraph.rules.set_rules import entity_of
from omnigraph.rules.violations import Violations
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.row_batch import PLACE, InputBatch, OnReject, Reject
from omnigraph.sources.splits import Split, SplitReader
from omnigraph.sources.tabular import read_table
from omnigraph.store.lance.lance_root import LanceRoot
from omnigraph.store.manifest.records import TablePin
from omnigraph.store.sync import Durability
from omnigraph.store.tables.index_segments import build_segment
from omnigraph.store.tables.uncommitted_fragments import write_rows

# A split of a file fits; a part of somebody's table may be of any size, and goes to a local disk beyond this.
_HELD = LoadLimits(rows=1 << 62, bytes=256 << 20)
# The position of a record: the number of its split, and its place in there.
SPLIT_SHIFT = 40
# Reads rows, handing over those that are none.
Read: TypeAlias = Callable[[OnReject | None], Iterator[InputBatch]]


@dataclass(frozen=True)
class LoadJob:
    """What every split of a load needs to know. A value that can be pickled.

    With `dry` no row is written; keys are, for the checks between rows.
    """

    catalog: Catalog
    pins: dict[str, TablePin]
    scratch: ScratchFolder
    durability: Durability
    rejecting: bool = False
    dry: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a split wrote of one table: fragments as text with their rows, and the file of their keys.

    `made` says that every id was made for its record, so that no two can be equal.
    """

    rows: int
    fragments: tuple[tuple[str, int], ...] = ()
    keys: str | None = None
    made: bool = False


@dataclass(frozen=True)
class SplitReport:
    """What came of a split. With an `error` or `violations` nothing of it may be committed."""

    split: Split
    lines: int = 0
    written: dict[str, Written] = field(default_factory=dict)
    error: OmnigraphError | None = None
    violations: Violations = field(default_factory=Violations)
    rejected: int = 0
    rejects: str | None = None


@dataclass(frozen=True, slots=True)
class Indexing:
    """A column of a staged version that is to be indexed, in these of its fragments."""

    pin: TablePin
    column: str
    fragments: tuple[int, ...]


def index_column(job: LoadJob, wanted: Indexing) -> Any | None:
    """The index segment of the fragments, of which none has one yet."""
    root = LanceRoot.from_uri(job.scratch.uri, job.scratch.options, job.durability)
    return build_segment(root, wanted.pin, wanted.column, "BTREE", wanted.fragments)


def stage_split(job: LoadJob, split: Split) -> SplitReport:
    """Read a split, check its rows, write them and their keys. Places in the report count from its beginning."""
    reader = SplitReader(split, job.catalog, job.scratch.options)
    return stage_read(job, split, reader.read, lambda: reader.lines)


def stage_partition(
    job: LoadJob,
    key: str,
    source: str,
    number: int,
    batches: Iterable[pa.RecordBatch],
    mapping: TypeMapping | None = None,
) -> SplitReport:
    """The same for rows of a type that somebody else hands over."""
    split = Split(number, "rows", source, "", key)
    seen = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal seen
        for batch in batches:
            seen += batch.num_rows
            yield batch

    def read(rejecting: OnReject | None) -> Iterator[InputBatch]:
        return read_table(key, counted(), job.catalog, source=source, on_reject=rejecting, mapping=mapping)

    return stage_read(job, split, read, lambda: seen)


def stage_read(job: LoadJob, split: Split, read: Read, lines: Callable[[], int]) -> SplitReport:
    """Check the rows that are read, write them and their keys. `lines` says afterwards how many there were."""
    rejects: list[Reject] = []
    take = rejects.append if job.rejecting else None
    try:
        with Spool.of(read(take), job.catalog, limits=_HELD, rejecting=take, refusing=False) as spool:
            if spool.violations:
                return SplitReport(split, lines(), violations=spool.violations)
            written = {key: _write(job, split, job.catalog.tables[key], spool) for key in spool.counts}
    except OmnigraphError as error:
        return SplitReport(split, lines(), error=error)
    name = _set_down(job, split, rejects)
    return SplitReport(split, lines(), written, rejected=len(rejects), rejects=name)


def _write(job: LoadJob, split: Split, table: Table, spool: Spool) -> Written:
    count = spool.counts[table.key]
    if not count:
        return Written(0)
    keys, made = _write_keys(job, split, table, spool), table.key in spool.made
    if job.dry:
        return Written(count, keys=keys, made=made)
    root = LanceRoot.from_uri(job.scratch.uri, job.scratch.options, job.durability)
    rows = (stored(table, batch) for batch in spool.batches(table.key))
    fragments = write_rows(root, job.pins[table.key], rows, arrow_schema(table, physical=True))
    return Written(count, tuple(fragments), keys, made)


def _write_keys(job: LoadJob, split: Split, table: Table, spool: Spool) -> str:
    """The keys of a split's records in a file of their own, where whoever checks them finds them."""
    columns = key_columns(table, entity_of(job.catalog, table))
    # Each attempt has a name of its own: one that is still running cannot tear the file of one that is done. The
    # name also tells whoever watches how far the load has come.
    name = f"keys-{split.number:06d}-{table.id}-{spool.counts[table.key]}-{uuid.uuid4().hex}.parquet"
    position = split.number << SPLIT_SHIFT
    with job.scratch.open_write(name) as file:
        writer: pq.ParquetWriter | None = None
        for batch in spool.batches(table.key, [*columns, PLACE]):
            numbers = np.arange(position, position + batch.num_rows, dtype=np.int64)
            position += batch.num_rows
            origin: Sequence[pa.Array] = (
                batch.column(PLACE),
                pa.array(np.full(batch.num_rows, split.number, np.int32)),
                pa.array(numbers),
            )
            keys = key_rows(table, columns, batch, origin)
            if writer is None:
                # Read once, and whole: what makes a file small or easy to search in is wasted on it.
                writer = pq.ParquetWriter(
                    _Sink(file), keys.schema, compression="lz4", use_dictionary=False, write_statistics=False
                )
            writer.write_batch(keys)
        if writer is not None:
            writer.close()
    return name


def _set_down(job: LoadJob, split: Split, rejects: Sequence[Reject]) -> str | None:
    if not rejects:
        return None
    name = f"rejects-{split.number:06d}-{uuid.uuid4().hex}.ndjson"
    with job.scratch.open_write(name) as file:
        for item in rejects:
            file.write((json.dumps(item.to_state(), ensure_ascii=False, default=str) + "\n").encode())
    return name


def rows_done(names: Iterator[str]) -> int:
    """How many records tasks have written so far, as the names of the files of their keys tell."""
    found: dict[tuple[str, str], int] = {}
    for name in names:
        parts = name.split("-")
        if parts[0] == "keys":
            # Of two attempts at one split one will count.
            found[parts[1], parts[2]] = int(parts[3])
    return sum(found.values())


class _Sink:
    """What Arrow writes a file to: an object being written, which others close."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._file.write(content)
        self._written += len(content)
        return len(content)

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False
