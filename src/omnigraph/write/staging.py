"""One split of a load, done wherever it is read: typed, checked, written as fragments, its keys set down.

A split can be done again or twice at once: what it writes counts only through the report that it gives.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.errors import OmnigraphError
from omnigraph.store.fragments import open_root, write_rows
from omnigraph.store.options import StorageOptions
from omnigraph.store.records import TablePin
from omnigraph.store.segments import build_segment
from omnigraph.store.sync import Durability
from omnigraph.write.findings import Findings
from omnigraph.write.input import Reject
from omnigraph.write.keyed import key_columns, key_rows
from omnigraph.write.set_rules import entity_of
from omnigraph.write.splits import Split, SplitReader
from omnigraph.write.spool import PLACE, LoadLimits, Spool, stored

_IN_MEMORY = LoadLimits(rows=1 << 62, bytes=1 << 62)
# The position of a record: the number of its split, and its place in there.
SPLIT_SHIFT = 40


@dataclass(frozen=True)
class LoadJob:
    """What every split of a load needs to know. A value that can be pickled."""

    uri: str
    options: StorageOptions
    durability: Durability
    catalog: Catalog
    pins: dict[str, TablePin]
    scratch: str
    rejecting: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """What a split wrote of one table: fragments as text with their rows, and the file of their keys."""

    rows: int
    fragments: tuple[tuple[str, int], ...] = ()
    keys: str | None = None


@dataclass(frozen=True)
class SplitReport:
    """What came of a split. With an `error` or `findings` nothing of it may be committed."""

    split: Split
    lines: int = 0
    written: dict[str, Written] = field(default_factory=dict)
    error: OmnigraphError | None = None
    findings: Findings = field(default_factory=Findings)
    rejected: int = 0
    rejects: str | None = None


@dataclass(frozen=True, slots=True)
class Indexing:
    """A column of a staged version that is to be indexed."""

    pin: TablePin
    column: str


def index_column(job: LoadJob, wanted: Indexing) -> Any | None:
    """The index segment of the rows that have none yet."""
    root = open_root(job.uri, job.options, job.durability)
    return build_segment(root, wanted.pin, wanted.column, "BTREE")


def stage_split(job: LoadJob, split: Split) -> SplitReport:
    """Read a split, check its rows, write them and their keys. Places in the report count from its beginning."""
    reader = SplitReader(split, job.catalog, job.options)
    rejects: list[Reject] = []
    take = rejects.append if job.rejecting else None
    try:
        with Spool.of(
            reader.read(take), job.catalog, limits=_IN_MEMORY, rejecting=take, refusing=False
        ) as spool:
            if spool.findings:
                return SplitReport(split, reader.lines, findings=spool.findings)
            written = {key: _write(job, split, job.catalog.tables[key], spool) for key in spool.counts}
    except OmnigraphError as error:
        return SplitReport(split, reader.lines, error=error)
    name = _set_down(job, split, rejects)
    return SplitReport(split, reader.lines, written, rejected=len(rejects), rejects=name)


def _write(job: LoadJob, split: Split, table: Table, spool: Spool) -> Written:
    count = spool.counts[table.key]
    if not count:
        return Written(0)
    root = open_root(job.uri, job.options, job.durability)
    rows = (stored(table, batch) for batch in spool.batches(table.key))
    fragments = write_rows(root, job.pins[table.key], rows, arrow_schema(table, physical=True))
    return Written(count, tuple(fragments), _write_keys(job, split, table, spool))


def _write_keys(job: LoadJob, split: Split, table: Table, spool: Spool) -> str:
    """The keys of a split's records in a file of their own, where whoever checks them finds them."""
    columns = key_columns(table, entity_of(job.catalog, table))
    # Each attempt has a name of its own: one that is still running cannot tear the file of one that is done.
    name = f"{job.scratch}/{table.id}-{split.number:06d}-{uuid.uuid4().hex}.parquet"
    position = split.number << SPLIT_SHIFT
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
            writer = pq.ParquetWriter(name, keys.schema, compression="lz4", use_dictionary=False)
        writer.write_batch(keys)
    if writer is not None:
        writer.close()
    return name


def _set_down(job: LoadJob, split: Split, rejects: Sequence[Reject]) -> str | None:
    if not rejects:
        return None
    name = f"{job.scratch}/rejects-{split.number:06d}-{uuid.uuid4().hex}.ndjson"
    with Path(name).open("w", encoding="utf-8", newline="\n") as file:
        for item in rejects:
            file.write(json.dumps(item.to_json(), ensure_ascii=False, default=str) + "\n")
    return name
