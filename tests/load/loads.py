"""Loads over repositories, small enough to look through: run one, and read what it left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.graph.pipeline_runs import PipelineRun
from omnigraph.graph.repository import Repository
from omnigraph.graph.write_request import WriteRequest
from omnigraph.load.load import LoadResult, prepare_load
from omnigraph.load.quarantine import Quarantine
from omnigraph.load.reject_limit import RejectLimit
from omnigraph.load.reject_log import RejectLog
from omnigraph.load.spool import LoadLimits, Spool
from omnigraph.rules.load_mode import WriteMode
from omnigraph.sources.row_batch import InputBatch
from tests.rules.states import Row, rows_of

# Nothing fits: whatever has rows is done in bulk, two of them at a time.
BULK = LoadLimits(rows=0, batch_rows=2)
SMALL = LoadLimits()


def input_of(
    catalog: Catalog, records: Mapping[str, Iterable[Row]], source: str | None = None
) -> list[InputBatch]:
    """One batch per table, the places counting on from one to the next."""
    found, first = [], 1
    for key, rows in records.items():
        table = rows_of(catalog.tables[key], rows)
        places = pa.array(range(first, first + table.num_rows), pa.int64())
        found.append(InputBatch(key, table, places, source))
        first += table.num_rows
    return found


def load(
    graph: Repository,
    records: Mapping[str, Iterable[Row]],
    mode: WriteMode,
    *,
    limits: LoadLimits = SMALL,
    branch: str = "main",
    rejects: list[Any] | None = None,
    limit: RejectLimit | None = None,
    source: str | None = None,
    run: PipelineRun | None = None,
    index_later: bool = False,
) -> LoadResult:
    """Load records as the API does."""
    catalog = graph.snapshot(branch).catalog
    batches = input_of(catalog, records, source)
    with (
        RejectLog() as log,
        Spool.from_batches(
            iter(batches), catalog, limits=limits, on_reject=None if rejects is None else log.add
        ) as spool,
    ):
        request = WriteRequest("load", bulk=spool.is_bulk, alone=run is not None, run=run)
        quarantine = None if rejects is None else Quarantine(log, limit)
        prepare = partial(
            prepare_load, spool=spool, mode=mode, quarantine=quarantine, index_later=index_later
        )
        try:
            receipt, result = graph.write(branch, request, prepare)
        finally:
            if rejects is not None:
                rejects += log.lines()
    assert result is not None
    assert (receipt is None) == (result.unchanged and run is None)
    return result


def rows(graph: Repository, key: str, branch: str = "main") -> list[dict[str, Any]]:
    """Rows by logical column, by id."""
    snapshot = graph.snapshot(branch)
    table = snapshot.table(key)
    found = snapshot.scan(key, [column.physical for column in table.columns])
    plain = found.rename_columns([column.name for column in table.columns]).to_pylist()
    return sorted(plain, key=lambda row: str(row["id"]))


def image(graph: Repository, branch: str = "main") -> dict[str, list[dict[str, Any]]]:
    """Every row of every table."""
    return {key: rows(graph, key, branch) for key in graph.snapshot(branch).catalog.tables}
