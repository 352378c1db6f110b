"""Readers of tables with rows of one type, a row per node or edge.

Columns have the names of properties, unless a mapping names others. The endpoints of an edge are in the columns
``from`` and ``to`` or ``src`` and ``dst``. A table may have a column ``id``. Rows are counted from 1, without
the header of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog
from omnigraph.errors import InvalidInput
from omnigraph.sources.input_rows import ArrowRows, DictRows
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.mapping.column_mapper import ColumnMapper
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.rejects import OnReject
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.table_reader import TableReader
from omnigraph.sources.table_values import RowErrors, convert_column, convert_json_column

ArrowTable: TypeAlias = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]

# Texts of rows that are held as Python objects at a time.
_PART_BYTES = 32 << 20


def read_table(
    key: str,
    table: ArrowTable,
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
) -> Iterator[InputBatch]:
    """Read an Arrow table as rows of the type `key`, such as ``node:Person``.

    Columns have the names of properties, or those of `mapping`. Casts are lossless: a value that cannot be
    represented exactly is an error with its row, column and value. Unknown columns and missing required columns
    are errors of the whole table.
    """
    reader = TableReader(
        catalog, key, "row", convert_column, source=source, on_reject=on_reject, mapping=mapping
    )
    names = _column_names(table)
    if names is not None:
        reader.check_names(names)
    first = 1
    for batch in _batches(table):
        reader.check_names(batch.schema.names)
        yield from reader.read(ArrowRows(batch), np.arange(first, first + batch.num_rows))
        first += batch.num_rows


def read_dict_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
    is_typed: bool = False,
) -> Iterator[InputBatch]:
    """Read rows that are dicts; errors count rows from 1.

    Values are converted with the rules of strict records, or with `is_typed` as values of Arrow types.
    """
    convert = convert_column if is_typed else convert_json_column
    reader = TableReader(catalog, key, "row", convert, source=source, on_reject=on_reject, mapping=mapping)
    first = 1
    for part in _bounded_parts(rows):
        invalid = invalid_rows(reader.mapper, part)
        converted = DictRows(as_objects(part), is_typed=is_typed, records=part)
        yield from reader.read(converted, np.arange(first, first + len(part)), invalid)
        first += len(part)


def _bounded_parts(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield rows in lists of at most `BATCH_ROWS` rows and about `_PART_BYTES` of texts."""
    part: list[Any] = []
    size = 0
    for row in rows:
        part.append(row)
        values = row.values() if isinstance(row, Mapping) else ()
        size += sum(len(value) for value in values if isinstance(value, str | bytes | list))
        if len(part) >= BATCH_ROWS or size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def read_typed_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
) -> Iterator[InputBatch]:
    """Read the rows of a table one by one; all have the same columns, as in `read_table`."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return
    reader = TableReader(catalog, key, "row", convert_column, on_reject=on_reject, mapping=mapping)
    reader.check_names(list(first))
    rest = chain([first], iterator)
    yield from read_dict_rows(key, rest, catalog, on_reject=on_reject, mapping=mapping, is_typed=True)


def as_objects(rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the rows, with an empty dict for each value that is not an object."""
    return [row if isinstance(row, Mapping) else {} for row in rows]


def invalid_rows(mapper: ColumnMapper, rows: Sequence[Any]) -> RowErrors:
    """Return the errors of rows that are not objects or have unknown fields."""
    errors: RowErrors = {}
    known = None if mapper.mapping.ignores_others else frozenset(mapper.known)
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            errors[position] = InvalidInput(f"expected an object, got {display_value(row)}")
        elif known is not None and not row.keys() <= known:
            errors[position] = mapper.unknown_columns_error(mapper.unknown(row))
    return errors


def _column_names(table: ArrowTable) -> Sequence[str] | None:
    schema = getattr(table, "schema", None)
    return None if schema is None else list(schema.names)


def _batches(table: ArrowTable) -> Iterator[pa.RecordBatch]:
    batches: Iterable[pa.RecordBatch]
    batches = table.to_batches(max_chunksize=BATCH_ROWS) if isinstance(table, pa.Table) else table
    for batch in batches:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidInput(f"expected record batches, got {type(batch).__name__}")
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)
