"""Plan the read of a table from the options of the data source."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.table_lookup import find_table
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.pushdown import push_down
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.source import Source
from omnigraph.lang.temporal import parse_moment
from omnigraph.spark.datasource.source_options import (
    READ_OPTIONS,
    graph_location,
    known_options,
    positive,
    required,
    storage_options,
)
from omnigraph.spark.engine.table_read import ROWS_PER_PARTITION, TableRead, select_columns

if TYPE_CHECKING:
    from omnigraph.graph.repository import Repository
    from omnigraph.graph.snapshot import Snapshot


def plan_table_read(options: Mapping[str, str]) -> TableRead:
    """Plan the read that options describe, pinned to the commit that they resolve to now."""
    from omnigraph.graph.repository import Repository

    values = known_options(options, READ_OPTIONS)
    storage = storage_options(values)
    location = graph_location(values)
    name = required(values, "type")
    rows = positive(values, "rowsPerPartition", ROWS_PER_PARTITION)
    repository = Repository.open(location.uri, mode="r", options=storage)
    try:
        snapshot = _find_snapshot(repository, values)
    finally:
        repository.close()
    table = find_table(snapshot.catalog, name)
    columns = values.get("columns")
    return TableRead(
        uri=location.uri,
        commit=snapshot.commit,
        table=table,
        pin=snapshot.pin(table.key),
        columns=table.columns
        if columns is None
        else select_columns(table, [item.strip() for item in columns.split(",")]),
        rows_per_partition=rows,
        storage=storage,
        where=None if "where" not in values else _parse_filter(values["where"], snapshot.catalog, table),
    )


def _find_snapshot(repository: Repository, values: Mapping[str, str]) -> Snapshot:
    chosen = [name for name in ("commit", "snapshot", "timestamp") if name in values]
    if "branch" in values and chosen != ["timestamp"]:
        chosen.insert(0, "branch")
    if len(chosen) > 1:
        raise InvalidInput(f"the options {' and '.join(chosen)} each select a state; use only one of them")
    branch = values.get("branch", "main")
    if "timestamp" not in values:
        return repository.snapshot(branch, values.get("commit", values.get("snapshot")))
    moment = parse_moment(values["timestamp"])
    if moment is None:
        raise InvalidInput(
            f"option 'timestamp': expected an ISO 8601 timestamp, got '{values['timestamp']}'",
            hint="for example 2026-05-04T12:00:00Z",
        )
    return repository.snapshot(branch, moment)


def _parse_filter(text: str, catalog: Catalog, table: Table) -> str:
    """Return the scan filter for a condition in the syntax of a mutation's `where`."""
    from omnigraph.lang.gq.check import check_query
    from omnigraph.lang.gq.query_parser import parse_queries

    source = Source(f"query read() {{ delete {table.name} where\n{text}\n}}", "where")
    queries = parse_queries(source).queries
    checked = check_query(queries[0], catalog.schema, source)
    statements = checked.statements if isinstance(checked, ir.MutationQuery) and len(queries) == 1 else ()
    kind = ir.DeleteNode if table.kind == "node" else ir.DeleteEdge
    if len(statements) != 1 or not isinstance(statements[0], kind):
        raise InvalidInput(
            f"option 'where': expected one condition on {table.kind} type '{table.name}', got '{text}'"
        )
    pushed = _exact_filter(statements[0].where, table)
    if pushed is None:
        raise InvalidInput(
            f"option 'where': a scan cannot evaluate the condition '{text}'",
            hint="filter the DataFrame instead",
        )
    return pushed


def _exact_filter(predicate: ir.Predicate, table: Table) -> str | None:
    """Return the scan filter that selects exactly the rows of a predicate, or None if there is none."""
    now = time.time_ns() // 1_000_000
    pushed = push_down(predicate, lambda ref: _physical_column(ref, table), Bindings(now=now))
    if not pushed.exact:
        return None
    return "true" if pushed.sql is None else pushed.sql


def _physical_column(ref: ir.PropertyRef | ir.ColumnRef, table: Table) -> str:
    name = ref.name if isinstance(ref, ir.ColumnRef) else ref.property
    return table.physical(ENDPOINT_COLUMNS.get(name, name) if table.kind == "edge" else name)
