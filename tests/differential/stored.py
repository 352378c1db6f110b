"""The same graph stored in different ways: every one must answer every read alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from omnigraph.catalog.catalog import Table
from omnigraph.catalog.columns import arrow_schema
from omnigraph.graph.repository import Repository
from omnigraph.graph.transaction import Transaction
from omnigraph.graph.write_plan import Prepared
from omnigraph.graph.write_request import WriteRequest
from omnigraph.lang.ir import Value
from omnigraph.lang.types import Scalar
from omnigraph.sources.arrow_values import column_array
from tests.differential.naive_graph import NaiveGraph
from tests.support.rows import compact

# A row by logical column, with `id` and for edges `src` and `dst`.
StoredRow: TypeAlias = Mapping[str, Value]

_DOOMED: Final = "doomed-"
_FRAGMENT_ROWS: Final = 2


@dataclass(frozen=True, slots=True)
class _Layout:
    """How tables come to be: in one piece or with a history, and what maintenance did to them."""

    has_history: bool = False
    index_at_half: bool = False
    index_at_end: bool = False
    rewrite: bool = False


LAYOUTS: Final[Mapping[str, _Layout]] = {
    "one fragment": _Layout(),
    "many fragments": _Layout(has_history=True),
    "indexed": _Layout(index_at_end=True),
    "half indexed": _Layout(has_history=True, index_at_half=True),
    "compacted": _Layout(has_history=True, index_at_half=True, rewrite=True),
}


def stored_graph(graph: NaiveGraph, uri: str, layout: str = "one fragment") -> Repository:
    """Make the graph at an address with nothing at it, in one of the `LAYOUTS`."""
    chosen = LAYOUTS[layout]
    repository = Repository.init(uri, graph.catalog, durability="os")
    writes = list(_history(graph) if chosen.has_history else _at_once(graph))
    half = len(writes) // 2
    for write in writes[:half]:
        _write(repository, write)
    if chosen.index_at_half:
        _write(repository, _index_everything)
    for write in writes[half:]:
        _write(repository, write)
    if chosen.rewrite:
        _write(repository, _rewrite_everything)
    if chosen.index_at_end:
        _write(repository, _index_everything)
    return repository


def rows_of(graph: NaiveGraph, table: Table) -> list[StoredRow]:
    """The rows of one type."""
    if table.kind == "node":
        return [{"id": node.id, **node.properties} for node in graph.nodes[table.name].values()]
    return [
        {"id": edge.id, "src": edge.src, "dst": edge.dst, **edge.properties}
        for edge in graph.edges[table.name]
    ]


def arrow_rows(table: Table, rows: Sequence[StoredRow]) -> pa.Table:
    """Rows as they are stored."""
    columns = [column_array(column, [row[column.name] for row in rows]) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=arrow_schema(table, physical=True))


# --- writes ----------------------------------------------------------------------------------------------

_Write: TypeAlias = Callable[[Transaction], Prepared[None]]


def _write(repository: Repository, write: _Write) -> None:
    repository.write("main", WriteRequest("load"), write)


def _staging(table: Table, insert: Sequence[StoredRow], delete: Sequence[str] = ()) -> _Write:
    def write(transaction: Transaction) -> Prepared[None]:
        rows = arrow_rows(table, insert) if insert else None
        transaction.stage(table.key, delete_ids=delete, insert=rows)
        return Prepared("insert", None)

    return write


def _at_once(graph: NaiveGraph) -> Iterator[_Write]:
    def write(transaction: Transaction) -> Prepared[None]:
        for table in graph.catalog.tables.values():
            _staging(table, rows_of(graph, table))(transaction)
        return Prepared("insert", None)

    yield write


def _history(graph: NaiveGraph) -> Iterator[_Write]:
    """Small fragments of rows that are replaced, deleted and brought back before they are what they shall be."""
    for table in graph.catalog.tables.values():
        yield _many(table, rows_of(graph, table), stale=True)
    for table in graph.catalog.tables.values():
        yield _many(table, rows_of(graph, table), stale=False)


def _many(table: Table, rows: Sequence[StoredRow], *, stale: bool) -> _Write:
    ids = [str(row["id"]) for row in rows]

    def write(transaction: Transaction) -> Prepared[None]:
        for start in range(0, len(rows), _FRAGMENT_ROWS):
            part = rows[start : start + _FRAGMENT_ROWS]
            if stale:
                # Every row first looks like another one, and has a double that must not survive.
                others = [rows[-1 - place] for place in range(start, start + len(part))]
                begun = [{**other, "id": row["id"]} for row, other in zip(part, others, strict=True)]
                doomed = [{**row, "id": f"{_DOOMED}{row['id']}"} for row in part]
                _staging(table, [*begun, *doomed])(transaction)
            else:
                wanted = [str(row["id"]) for row in part]
                _staging(table, part, [*wanted, *(f"{_DOOMED}{id_}" for id_ in wanted)])(transaction)
        if stale and ids:
            _staging(table, (), ids[:1])(transaction)
        return Prepared("strict", None)

    return write


def _index_everything(transaction: Transaction) -> Prepared[None]:
    for key, table in transaction.base.catalog.tables.items():
        for column in table.columns:
            if not column.type.is_list and column.type.scalar not in (Scalar.VECTOR, Scalar.BLOB):
                pin = transaction.pin(key)
                transaction.write(key, transaction.base.tables.stage_index(pin, column.physical, "BTREE"))
    return Prepared("maintenance", None)


def _rewrite_everything(transaction: Transaction) -> Prepared[None]:
    for key in transaction.base.catalog.tables:
        transaction.write(key, compact(transaction.base.tables, transaction.pin(key)))
    return Prepared("maintenance", None)
