"""Strict conversion of graph records: known types, known fields, values of the declared types, no coercion.

This module defines the meaning of a record. Faster readers return the same rows, or pass the records on to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey, derive_id, missing_key, table_id_key
from omnigraph.errors import ErrorLocation, InvalidInput, OmnigraphError
from omnigraph.lang.pg.schema_properties import SYSTEM_COLUMNS, TOMBSTONE
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.json.json_values import (
    MISMATCH,
    build_array,
    check_unicode,
    display_value,
    mismatch_error,
    value_converter,
)
from omnigraph.sources.operation_columns import OperationColumns, change_schema
from omnigraph.sources.order_keys import order_key, order_keys
from omnigraph.sources.row_batch import BATCH_ROWS, InputBatch
from omnigraph.sources.row_operations import (
    GIVEN,
    OPERATION,
    ORDER,
    Operation,
    RowOperations,
    needs_complete_row,
)
from omnigraph.sources.table_values import cast_hint

ONE_OBJECT_PER_LINE = (
    "write one JSON object per line: `jq -c '.[]'` converts an array, `jq -c .` a formatted object"
)

RESERVED = SYSTEM_COLUMNS | {TOMBSTONE}
Row: TypeAlias = dict[str, Any]

_BASELINE_FIELDS = frozenset({"snapshot_commit_id", "resume_cursor"})
RECORD_FIELDS = {"type": frozenset({"type", "data"}), "edge": frozenset({"edge", "from", "to", "data"})}


@dataclass(frozen=True)
class RecordConverter:
    """Converts the records of one type to rows of its table."""

    table: Table
    key: TypeKey | None
    columns: Mapping[str, Column]
    converters: Mapping[str, Callable[[Any], Any]]
    required: frozenset[str]
    operations: RowOperations | None = None

    @classmethod
    def of(cls, catalog: Catalog, table: Table, operations: RowOperations | None = None) -> RecordConverter:
        """Return the converter of a table."""
        properties = {column.name: column for column in table.columns if column.property_id is not None}
        return cls(
            table,
            table_id_key(catalog, table),
            properties,
            {name: value_converter(column) for name, column in properties.items()},
            frozenset(name for name, column in properties.items() if column.is_required),
            operations,
        )

    def row(self, data: Mapping[str, Any], *, is_partial: bool = False) -> Row:
        """Return the converted values of the ``data`` of a record, including its ``id``, without nulls.

        Unless it `is_partial`, all required values must be there.
        """
        row: Row = {}
        try:
            for name, value in data.items():
                convert = self.converters.get(name)
                if convert is None:
                    self._add_other_field(name, value, row)
                elif value is not None:
                    converted = convert(value)
                    if converted is MISMATCH:
                        raise mismatch_error(self.columns[name], value, cast_hint(self.columns[name], value))
                    row[name] = converted
            if not is_partial:
                self.check_complete(row)
        except InvalidInput as error:
            raise self._with_type(error) from error
        return row

    def _with_type(self, error: InvalidInput) -> InvalidInput:
        """Return the error of a value with the type, in the message if it has a location, else in the details."""
        if error.location is not None:
            return error.located(ErrorLocation(type=self.table.name))
        details = {**error.details, "type": self.table.name}
        return InvalidInput(error.reason, details=details, hint=error.hint)

    def _add_other_field(self, name: str, value: Any, row: Row) -> None:
        if name == "id":
            row["id"] = self.explicit_id(value)
            return
        if name in RESERVED:
            raise InvalidInput(
                f"input field {_quoted(name)} is reserved physical state", details={"property": name}
            )
        if self.table.kind == "edge" and name in ENDPOINT_COLUMNS.values():
            raise InvalidInput(
                f"edge data field '{name}' is reserved structural state",
                hint="use the top-level fields 'from' and 'to' for the endpoints of an edge",
                details={"property": name},
            )
        raise InvalidInput(
            f"unknown input field {_quoted(name)} for '{self.table.key}'",
            hint=suggestion(name, self.columns),
            details={"property": name},
        )

    def explicit_id(self, value: Any) -> str:
        """Return the ``id`` of a record; raise `InvalidInput` when it is not a string."""
        if not isinstance(value, str):
            subject = f"input entity of type '{self.table.name}' field 'id'"
            raise InvalidInput(f"{subject} must be a string, got {display_value(value)}")
        check_unicode("id", value)
        return value

    def check_complete(self, row: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` for a row without a key value or a required property."""
        if self.required <= row.keys():
            return
        # The endpoints of an edge are not in its data.
        properties = () if self.key is None else (item.name for item in self.key.columns if item.property_id)
        if self.key is not None and any(name not in row for name in properties):
            raise InvalidInput(missing_key(self.key))
        absent = next(name for name in self.columns if name in self.required and name not in row)
        raise InvalidInput(
            f"non-nullable property '{absent}' has null or invalid values", details={"property": absent}
        )

    def check_id(self, row: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` when the explicit id of a keyed row differs from the derived id.

        The row of an edge has its endpoints.
        """
        if self.key is None or "id" not in row:
            return
        derived = derive_id(self.key, row)
        if row["id"] != derived:
            raise wrong_id(self.key, row["id"], derived)

    def id_of(self, data: Any) -> str | None:
        """Return the id of an invalid record with this data, or None if it cannot be told."""
        if not isinstance(data, Mapping):
            return None
        if self.key is None:
            id_ = data.get("id")
            return id_ if isinstance(id_, str) else None
        try:
            return derive_id(self.key, data)
        except OmnigraphError:
            return None

    def build_table(self, rows: Sequence[Row]) -> pa.Table:
        """Build the logical columns of converted rows, with the derived ids of a keyed type."""
        arrays = {
            column.name: build_array(column, [row.get(column.name) for row in rows])
            for column in self.table.columns
        }
        if self.operations is not None:
            return self._build_changes(arrays, rows)
        if self.key is not None:
            arrays["id"] = derive_ids(self.key, arrays)
        return pa.Table.from_arrays(list(arrays.values()), schema=logical_schema(self.table))

    def _build_changes(self, arrays: Mapping[str, pa.Array], rows: Sequence[Row]) -> pa.Table:
        """Build the columns of rows with operations; their ids are derived already."""
        names = [column.name for column in self.table.columns]
        codes = np.array([row[OPERATION] for row in rows], np.int8)
        given = np.array([[name in row[GIVEN] for name in names] for row in rows], bool)
        given = given.reshape(len(rows), len(names))
        given[codes <= Operation.REPLACE] = True
        order = pa.array([row[ORDER] for row in rows], pa.string())
        columns = OperationColumns(codes, given, order, {})
        return pa.Table.from_arrays([*arrays.values(), *columns.arrays()], schema=change_schema(self.table))


def wrong_id(key: TypeKey, explicit: str, derived: str) -> InvalidInput:
    """Return the error for an explicit id that differs from the id derived from the key."""
    return InvalidInput(
        f"{key.kind} {key.type_name} has id {display_value(explicit)}, but its @key gives {display_value(derived)}",
        hint=f"omit `id`; the id of a keyed {key.kind} is derived from its key",
    )


def _quoted(name: Any) -> str:
    """Return a name in quotes, with unprintable characters escaped."""
    return "'" + str(name).encode("utf-8", "backslashreplace").decode() + "'"


class RecordConverters:
    """The record converters of a catalog, by the type names in records.

    With `operations` each record has an operation: a field of the record, or of its ``data``.
    """

    def __init__(self, catalog: Catalog, operations: RowOperations | None = None) -> None:
        self.catalog = catalog
        self.operations = operations
        self._by_key: dict[str, RecordConverter] = {}
        self._by_name: dict[tuple[str, str], RecordConverter] = {}

    def of(self, table: Table) -> RecordConverter:
        """Return the converter of a table."""
        known = self._by_key.get(table.key)
        if known is None:
            known = self._by_key[table.key] = RecordConverter.of(self.catalog, table, self.operations)
        return known

    def find(self, tag: str, name: str) -> RecordConverter | None:
        """Return the converter of the type in the field ``type`` or ``edge``; edge names are case-insensitive."""
        known = self._by_name.get((tag, name))
        if known is None:
            schema = self.catalog.schema
            entity = schema.node(name) if tag == "type" else schema.edge(name)
            if entity is None:
                return None
            known = self._by_name[tag, name] = self.of(self.catalog.table(entity.kind, entity.name))
        return known

    def unknown_type(self, tag: str, name: str) -> InvalidInput:
        """Return the error for an unknown type."""
        kind = "node" if tag == "type" else "edge"
        known = self.catalog.schema.nodes if tag == "type" else self.catalog.schema.edges
        return InvalidInput(
            f"unknown {kind} type {_quoted(name)}", hint=suggestion(name, [item.name for item in known])
        )

    def entity_of(self, record: Any) -> tuple[str | None, str | None]:
        """Return the type and the id of an invalid record, as far as they can be told."""
        if isinstance(record, Mapping):
            for tag in ("type", "edge"):
                name = record.get(tag)
                converter = self.find(tag, name) if isinstance(name, str) else None
                if converter is not None:
                    return converter.table.name, converter.id_of(record.get("data"))
        return None, None

    def convert(self, record: Any) -> tuple[RecordConverter, Row]:
        """Return the converter and the row of a record; raise `InvalidInput` for an invalid record."""
        if not isinstance(record, dict):
            hint = ONE_OBJECT_PER_LINE if isinstance(record, list) else None
            raise InvalidInput("graph batch record must be one JSON object", hint=hint)
        tag = "type" if "type" in record else "edge"
        if tag not in record or ("edge" in record and tag == "type"):
            raise InvalidInput("graph batch record must contain exactly one of 'type' or 'edge'")
        fields = RECORD_FIELDS[tag]
        fields = fields if self.operations is None else fields.union(self.operations.names)
        if not record.keys() <= fields:
            _reject_field(next(name for name in record if name not in fields), tag)
        name = _text(record, tag)
        found = self.find(tag, name)
        if found is None:
            raise self.unknown_type(tag, name)
        data = record.get("data", {})
        if not isinstance(data, dict):
            raise InvalidInput(f"graph batch field 'data' must be an object, got {display_value(data)}")
        if self.operations is not None:
            return found, _change(self.operations, found, record, data)
        endpoints = {}
        if tag == "edge":
            endpoints = {column: _text(record, end) for end, column in ENDPOINT_COLUMNS.items()}
        row = found.row(data)
        row.update(endpoints)
        found.check_id(row)
        return found, row


def _change(
    operations: RowOperations, converter: RecordConverter, record: Mapping[str, Any], data: Mapping[str, Any]
) -> Row:
    """Return the row of a record with its operation, the columns that it gives, and its order."""
    known = {name: record[name] if name in record else data.get(name) for name in operations.names}
    operation = (
        operations.default if operations.column is None else operations.parse(known[operations.column])
    )
    is_partial = not needs_complete_row(operation)
    own = {name: value for name, value in data.items() if name not in known or name in converter.columns}
    ends: Row = {}
    if converter.table.kind == "edge":
        given = {end: column for end, column in ENDPOINT_COLUMNS.items() if end in record or not is_partial}
        ends = {column: _text(record, end) for end, column in given.items()}
    row = {**converter.row(own, is_partial=is_partial), **ends}
    _identify(converter, row, operation)
    order = operations.order_by
    key = None
    if order is not None:
        typed = order in converter.columns and order not in record
        key = (
            _typed_order(converter.columns[order], row.get(order))
            if typed
            else order_key(order, known[order])
        )
    # A row that is identified by its id does not change its key.
    keys = () if converter.key is None else (column.name for column in converter.key.columns)
    names = {*own, *ends, "id"}.difference(name for name in keys if name not in row)
    return {**row, OPERATION: operation, GIVEN: names, ORDER: key}


def _typed_order(column: Column, value: Any) -> str:
    keys, errors = order_keys(column.name, build_array(column, [value]))
    for error in errors.values():
        raise error
    key: str = keys[0].as_py()
    return key


def _identify(converter: RecordConverter, row: Row, operation: Operation) -> None:
    """Derive the id of a row with a key. A patch or a delete may have its id instead of its key."""
    key = converter.key
    if key is None:
        if operation is Operation.DELETE and "id" not in row:
            raise InvalidInput(f"a delete of {converter.table.kind} '{converter.table.name}' needs its id")
        return
    if all(column.name in row for column in key.columns):
        converter.check_id(row)
        row["id"] = derive_id(key, row)
    elif "id" not in row or any(column.name in row for column in key.columns):
        raise InvalidInput(missing_key(key))


def is_baseline(record: Any) -> bool:
    """Return whether a record is the last one of a change baseline, which has a cursor and no data.

    >>> is_baseline({"baseline": {"snapshot_commit_id": "01M7", "resume_cursor": "LOUF"}})
    True
    """
    if not isinstance(record, dict) or record.keys() != {"baseline"}:
        return False
    content = record["baseline"]
    return isinstance(content, dict) and content.keys() == _BASELINE_FIELDS


def _text(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise InvalidInput(f"graph batch record requires field '{field}'")
    value = record[field]
    if not isinstance(value, str):
        raise InvalidInput(f"graph batch field '{field}' must be a string, got {display_value(value)}")
    check_unicode(field, value)
    return value


def _reject_field(name: str, tag: str) -> NoReturn:
    if name in RESERVED:
        raise InvalidInput(f"top-level field {_quoted(name)} is reserved physical state")
    known = f"the fields of a record with '{tag}' are " + ", ".join(sorted(RECORD_FIELDS[tag]))
    raise InvalidInput(f"unknown top-level graph batch field {_quoted(name)}", hint=known)


class BatchBuilder:
    """Collects rows per table, in input order, and builds batches of them."""

    def __init__(self, source: str | None, max_rows: int = BATCH_ROWS) -> None:
        self._source = source
        self._max_rows = max_rows
        self._pending: dict[str, tuple[RecordConverter, list[Row], list[int]]] = {}

    def add(self, converter: RecordConverter, row: Row, place: int) -> Iterator[InputBatch]:
        """Add a row; yield a batch when its table has reached the maximum number of rows."""
        pending = self._pending.get(converter.table.key)
        if pending is None:
            pending = self._pending[converter.table.key] = (converter, [], [])
        pending[1].append(row)
        pending[2].append(place)
        if len(pending[1]) >= self._max_rows:
            del self._pending[converter.table.key]
            yield self._batch(*pending)

    def flush(self) -> Iterator[InputBatch]:
        """Yield batches of all remaining rows."""
        remaining, self._pending = self._pending, {}
        for pending in remaining.values():
            yield self._batch(*pending)

    def _batch(self, converter: RecordConverter, rows: list[Row], places: list[int]) -> InputBatch:
        table = converter.build_table(rows)
        return InputBatch(converter.table.key, table, pa.array(places, pa.int64()), self._source)
