"""Small graph states over plain Arrow tables: what is committed, and the deltas that operations make of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Table
from omnigraph.catalog.columns import arrow_schema, arrow_type
from omnigraph.rules.delta import TableDelta
from tests.catalog.test_identity import catalog_of

Row = dict[str, Any]
Image = dict[str, dict[str, Row]]

WORKED = catalog_of("""
interface Named { name: String @key }
node Person @description("A human") implements Named {
  age: I32?
  tags: [String]?
  @range(age, 0..150)
}
node Company implements Named { kind: enum(startup, public)? }
edge Knows: Person -> Person { since: Date?  @unique(src, dst) }
edge WorksAt: Person -> Company @card(0..1)
""")


def rows_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows by logical column; what a row leaves out is null. Dates and datetimes may be integers."""
    found = list(rows)
    fields = [item.with_nullable(True) for item in arrow_schema(table)]
    arrays = []
    for column in table.columns:
        values = [row.get(column.name) for row in found]
        wanted = arrow_type(column.type)
        whole = {"date32[day]": pa.int32(), "timestamp[ms]": pa.int64()}.get(str(wanted), wanted)
        arrays.append(pa.array(values, whole).cast(wanted))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@dataclass
class ArrowRows:
    """Committed rows in memory. It remembers which tables and columns it was asked for."""

    catalog: Catalog
    tables: dict[str, pa.Table]
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def find(self, key: str, column: str, values: pa.Array, columns: list[str]) -> pa.Table:
        self.asked.append((key, column))
        rows = self._rows(key)
        return rows.filter(pc.is_in(rows[column], value_set=values)).select(columns)

    def find_tuples(self, key: str, columns: list[str], tuples: pa.Table, wanted: list[str]) -> pa.Table:
        self.asked.append((key, *columns))
        rows = self._rows(key)
        # The first column alone: more rows than agree in all of them, as the protocol allows.
        return rows.filter(pc.is_in(rows[columns[0]], value_set=tuples[columns[0]])).select(wanted)

    def _rows(self, key: str) -> pa.Table:
        found = self.tables.get(key)
        return rows_of(self.catalog.tables[key], []) if found is None else found


def committed(catalog: Catalog, image: Image) -> ArrowRows:
    """A committed state: rows by id, by table key."""
    return ArrowRows(
        catalog, {key: rows_of(catalog.tables[key], rows.values()) for key, rows in image.items()}
    )


def image_of(rows: Mapping[str, Iterable[Row]]) -> Image:
    """Rows by table key as an image."""
    return {key: {row["id"]: row for row in found} for key, found in rows.items()}


def delta(
    catalog: Catalog, image: Image, key: str, *, put: Iterable[Row] = (), delete: Iterable[str] = ()
) -> TableDelta:
    """The delta of an operation that puts rows and deletes ids over a committed image."""
    table = catalog.tables[key]
    before = image.get(key, {})
    rows = {row["id"]: row for row in put}
    deleted = [id_ for id_ in delete if id_ in before and id_ not in rows]
    shadowed = [*(id_ for id_ in rows if id_ in before), *deleted]
    vacated = list(dict.fromkeys(before[id_]["src"] for id_ in shadowed)) if table.kind == "edge" else None
    return TableDelta(
        table,
        rows_of(table, rows.values()),
        pa.array(shadowed, pa.string()),
        pa.array(deleted, pa.string()),
        None if vacated is None else pa.array(vacated, pa.string()),
    )


def deltas(
    catalog: Catalog, image: Image, put: Mapping[str, Iterable[Row]], delete: Mapping[str, Iterable[str]]
) -> dict[str, TableDelta]:
    """One delta for each table that is named."""
    return {
        key: delta(catalog, image, key, put=put.get(key, ()), delete=delete.get(key, ()))
        for key in dict.fromkeys((*put, *delete))
    }


def person(name: str, **values: Any) -> Row:
    return {"id": name, "name": name, **values}


def edge(id_: str, src: str, dst: str, **values: Any) -> Row:
    return {"id": id_, "src": src, "dst": dst, **values}
