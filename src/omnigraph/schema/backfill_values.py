"""Backfills: the values of existing rows for a new property.

A backfill is one value for every row, in the form that a load accepts, or an expression over each row. The check
and the write compute the values in two passes, one batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import arrow_field, arrow_type
from omnigraph.engine.arrow_expressions import evaluate
from omnigraph.engine.parameters import Bindings
from omnigraph.engine.table_rows import TableRows, logical_column
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.gq.check import check_query
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.source import Source
from omnigraph.lang.types import compatible
from omnigraph.schema.expression import Expression
from omnigraph.sources.json.json_values import MISMATCH, build_array, mismatch_error, value_converter

_ROWWISE = (ir.Const, ir.Now, ir.PropertyRef, ir.EntityRef)


@dataclass(frozen=True)
class ColumnBackfill:
    """The values of one new column: a constant, or an expression over each row."""

    column: Column
    constant: pa.Array | None
    value: ir.Expr | None

    def values(self, rows: TableRows, bindings: Bindings) -> pa.Array:
        """Return the values for some rows, in the type of the column."""
        if self.constant is not None:
            return self.constant.take(pa.array(np.zeros(rows.num_rows, np.int64)))
        assert self.value is not None
        found = evaluate(self.value, rows, bindings)
        return _fitted(self.column, found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)


@dataclass(frozen=True)
class TableBackfill:
    """The backfilled columns of a table. `before` and `after` are the table before and after the change."""

    before: Table
    after: Table
    fills: tuple[ColumnBackfill, ...]
    bindings: Bindings

    @property
    def columns(self) -> list[str]:
        """The logical names of the backfilled columns."""
        return [fill.column.name for fill in self.fills]

    @property
    def schema(self) -> pa.Schema:
        """The physical schema of the backfilled columns. All are nullable; the row rules check required values."""
        return pa.schema([stored_field(fill.column) for fill in self.fills])

    @property
    def reads(self) -> list[str]:
        """The physical columns that the expressions read, and the id."""
        used = [logical_column(fill.value) for fill in self.fills if isinstance(fill.value, ir.PropertyRef)]
        return [self.before.physical(name) for name in dict.fromkeys(["id", *used])]

    def fill(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Compute the backfilled columns of some rows. `batch` has at least the columns in `reads`."""
        logical = {item.physical: item.name for item in self.before.columns}
        named = pa.Table.from_batches([batch]).rename_columns(
            [logical.get(name, name) for name in batch.schema.names]
        )
        rows = TableRows(named)
        arrays = [fill.values(rows, self.bindings) for fill in self.fills]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def stored_field(column: Column) -> pa.Field:
    """Return the field of a column that is added to a table with rows: nullable in storage, even if required."""
    return arrow_field(column, physical=True).with_nullable(True)


def read_backfills(
    before: Catalog, after: Catalog, given: Mapping[str, Any], now: int
) -> Iterator[tuple[int, TableBackfill]]:
    """Yield the backfills of each table with its identity. An invalid value or expression raises `InvalidInput`.

    `given` has values and expressions by ``Type.property``, in the names of the new schema.
    """
    old = {table.id: table for table in before.tables.values()}
    for table in after.tables.values():
        stored = old.get(table.id)
        wanted = [item for item in table.columns if f"{table.name}.{item.name}" in given]
        if stored is None or not wanted:
            continue
        fills = [_read(before, stored, item, given[f"{table.name}.{item.name}"], now) for item in wanted]
        yield table.id, TableBackfill(stored, table, tuple(fills), Bindings(now=now))


def _read(catalog: Catalog, table: Table, column: Column, given: Any, now: int) -> ColumnBackfill:
    text = _expression_text(given)
    if text is not None:
        return _compile(catalog, table, column, text, now)
    value = given
    if given is not None:
        value = value_converter(column, finite=False)(given)
        if value is MISMATCH:
            raise mismatch_error(column, given)
    return ColumnBackfill(column, build_array(column, [value]), None)


def _expression_text(given: Any) -> str | None:
    if isinstance(given, Expression):
        return given.text
    if isinstance(given, Mapping):
        if set(given) != {"expr"} or not isinstance(given["expr"], str):
            raise InvalidInput(
                "a backfill must be a value or an expression",
                hint='write an expression as {"expr": "$this.name"}',
            )
        return given["expr"]
    return None


def _compile(catalog: Catalog, table: Table, column: Column, text: str, now: int) -> ColumnBackfill:
    if table.kind == "edge":
        raise InvalidInput(
            f"'{table.name}.{column.name}' is an edge property, which an expression cannot backfill",
            hint="backfill it with a value",
        )
    source = Source(
        f"query backfill() {{ match {{ $this: {table.name} }} return {{ {text} as value }} }}", "<backfill>"
    )
    query = check_query(parse_queries(source).queries[0], catalog.schema, source)
    assert isinstance(query, ir.ReadQuery)
    value = query.outputs[0].expr
    if len(query.outputs) != 1 or not isinstance(value, _ROWWISE):
        raise InvalidInput(
            f"backfill of '{column.name}': `{text}` has no value row by row",
            hint="use a property of `$this`, a literal or now()",
        )
    if not compatible(value.type, column.type):
        raise InvalidInput(f"backfill of '{column.name}': expected {column.type}, `{text}` is {value.type}")
    if isinstance(value, ir.Const | ir.Now):
        found = pa.scalar(Bindings(now=now).value(value), arrow_type(value.type))
        return ColumnBackfill(column, _fitted(column, pa.array([found.as_py()], found.type)), None)
    return ColumnBackfill(column, None, value)


def _fitted(column: Column, found: pa.Array) -> pa.Array:
    """Return values in the type of the column. A value that does not fit raises `InvalidInput`."""
    wanted = arrow_type(column.type)
    try:
        return found if found.type == wanted else found.cast(wanted)
    except pa.ArrowException as error:
        raise InvalidInput(f"property '{column.name}' expects {column.type}: {error}") from error


def backfilled_rows(
    filling: TableBackfill, batch: pa.RecordBatch, others: Sequence[Column]
) -> pa.RecordBatch:
    """Return the rows after the backfill, by logical name: the id, the backfilled columns, and `others`.

    `batch` has the physical columns of all that is read.
    """
    made = filling.fill(batch)
    arrays = [batch.column("id"), *made.columns, *(batch.column(item.physical) for item in others)]
    names = ["id", *filling.columns, *(item.name for item in others)]
    return pa.RecordBatch.from_arrays(arrays, names)
