"""Graph records, strictly: one object, one known type, known fields, values of the right type, no coercion.

This is the definition of what a record means. Readers that are faster than looking at one record after the other
give the same rows or leave the records to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

import pyarrow as pa

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import NodeKey, derive_id, missing_key, node_key
from omnigraph.errors import ErrorLocation, InvalidInput, OmnigraphError
from omnigraph.lang.pg.schema_properties import SYSTEM_COLUMNS, TOMBSTONE
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.json.json_values import (
    MISMATCH,
    build_array,
    check_unicode,
    converter,
    display_value,
    mismatch_message,
)
from omnigraph.sources.row_batch import InputBatch, OnReject, Reject

# What to do about objects that are laid out in another way.
ONE_A_LINE = "write one JSON object a line: `jq -c '.[]'` does that to an array, `jq -c .` to an object"
# As many rows as a batch has at most.
BATCH_ROWS = 65_536

RESERVED = SYSTEM_COLUMNS | {TOMBSTONE}
Unit: TypeAlias = Literal["line", "record", "row"]
Row: TypeAlias = dict[str, Any]

_FIELDS = {"type": frozenset({"type", "data"}), "edge": frozenset({"edge", "from", "to", "data"})}


@dataclass(frozen=True, slots=True)
class Places:
    """How an input names its records in errors, and where those go that are left out."""

    unit: Unit
    source: str | None
    on_reject: OnReject | None

    def refuse(self, place: int, error: OmnigraphError, record: Any = None) -> None:
        """Hand a record over as rejected; without anyone to take it, raise its error."""
        located = error.located(ErrorLocation.at(self.unit, place))
        if self.on_reject is not None:
            self.on_reject(Reject(place, error.reason, record, self.source, located.location))
            return
        raise located.located(ErrorLocation(source=self.source)) from error


@dataclass(frozen=True)
class Sheet:
    """A table as records fill it."""

    table: Table
    key: NodeKey | None
    columns: Mapping[str, Column]
    converters: Mapping[str, Callable[[Any], Any]]
    required: frozenset[str]

    @classmethod
    def of(cls, catalog: Catalog, table: Table) -> Sheet:
        """The sheet of a table."""
        properties = {column.name: column for column in table.columns if column.property_id is not None}
        return cls(
            table,
            node_key(catalog, table.name) if table.kind == "node" else None,
            properties,
            {name: converter(column) for name, column in properties.items()},
            frozenset(name for name, column in properties.items() if not column.type.nullable),
        )

    def row(self, data: Mapping[str, Any]) -> Row:
        """The converted values of a record's ``data``, its ``id`` included; nulls are left out."""
        row: Row = {}
        for name, value in data.items():
            convert = self.converters.get(name)
            if convert is None:
                self._other(name, value, row)
            elif value is not None:
                found = convert(value)
                if found is MISMATCH:
                    raise InvalidInput(mismatch_message(self.columns[name], value))
                row[name] = found
        self.check_complete(row)
        return row

    def _other(self, name: str, value: Any, row: Row) -> None:
        if name == "id":
            row["id"] = self.explicit_id(value)
            return
        if name in RESERVED:
            raise InvalidInput(f"input field {_quoted(name)} is reserved physical state")
        if self.table.kind == "edge" and name in ENDPOINT_COLUMNS.values():
            raise InvalidInput(
                f"edge data field '{name}' is reserved structural state",
                hint="the ends of an edge are the top-level fields 'from' and 'to'",
            )
        raise InvalidInput(
            f"unknown input field {_quoted(name)} for '{self.table.key}'",
            hint=suggestion(name, self.columns),
        )

    def explicit_id(self, value: Any) -> str:
        """Return the ``id`` of a record; raise `InvalidInput` when it is not a string."""
        if not isinstance(value, str):
            subject = f"input entity of type '{self.table.name}' field 'id'"
            raise InvalidInput(f"{subject} must be a string, got {display_value(value)}")
        check_unicode("id", value)
        return value

    def check_complete(self, row: Mapping[str, Any]) -> None:
        """Refuse a row without a key value or a required property."""
        if self.required <= row.keys():
            return
        if self.key is not None and any(column.name not in row for column in self.key.columns):
            raise InvalidInput(missing_key(self.key))
        absent = next(name for name in self.columns if name in self.required and name not in row)
        raise InvalidInput(f"non-nullable property '{absent}' has null or invalid values")

    def check_id(self, row: Mapping[str, Any]) -> None:
        """Refuse an explicit id of a keyed node that is not the one its key gives."""
        if self.key is None or "id" not in row:
            return
        derived = derive_id(self.key, row)
        if row["id"] != derived:
            raise wrong_id(self.table.name, row["id"], derived)

    def rows(self, rows: Sequence[Row]) -> pa.Table:
        """Checked rows as logical columns, ids of keyed nodes derived."""
        arrays = {
            column.name: build_array(column, [row.get(column.name) for row in rows])
            for column in self.table.columns
        }
        if self.key is not None:
            arrays["id"] = derive_ids(self.key, arrays)
        return pa.Table.from_arrays(list(arrays.values()), schema=logical_schema(self.table))


def wrong_id(type_name: str, given: str, derived: str) -> InvalidInput:
    """The refusal of an id that is not the one the key gives."""
    return InvalidInput(
        f"node {type_name} has id {display_value(given)} but its @key gives {display_value(derived)}",
        hint="leave `id` out: the id of a keyed node follows from its key",
    )


def _quoted(name: Any) -> str:
    """A name in quotes, printable whatever it holds."""
    return "'" + str(name).encode("utf-8", "backslashreplace").decode() + "'"


class Sheets:
    """The sheets of a catalog, found by the names that records use."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._sheets: dict[str, Sheet] = {}
        self._named: dict[tuple[str, str], Sheet] = {}

    def of(self, table: Table) -> Sheet:
        """The sheet of a table."""
        found = self._sheets.get(table.key)
        if found is None:
            found = self._sheets[table.key] = Sheet.of(self.catalog, table)
        return found

    def find(self, tag: str, name: str) -> Sheet | None:
        """The sheet of the type that a record names under ``type`` or ``edge``; edges in any case."""
        found = self._named.get((tag, name))
        if found is None:
            schema = self.catalog.schema
            entity = schema.node(name) if tag == "type" else schema.edge(name)
            if entity is None:
                return None
            found = self._named[tag, name] = self.of(self.catalog.table(entity.kind, entity.name))
        return found

    def unknown(self, tag: str, name: str) -> InvalidInput:
        """The refusal of a type that the schema does not have."""
        kind = "node" if tag == "type" else "edge"
        known = self.catalog.schema.nodes if tag == "type" else self.catalog.schema.edges
        return InvalidInput(
            f"unknown {kind} type {_quoted(name)}", hint=suggestion(name, [item.name for item in known])
        )

    def read(self, record: Any) -> tuple[Sheet, Row]:
        """The table and the row of a record; anything that is not as it must be is `InvalidInput`."""
        if not isinstance(record, dict):
            hint = ONE_A_LINE if isinstance(record, list) else None
            raise InvalidInput("graph batch record must be one JSON object", hint=hint)
        tag = "type" if "type" in record else "edge"
        if tag not in record or ("edge" in record and tag == "type"):
            raise InvalidInput("graph batch record must contain exactly one of 'type' or 'edge'")
        if not record.keys() <= _FIELDS[tag]:
            _refuse_field(next(name for name in record if name not in _FIELDS[tag]), tag)
        name = _text(record, tag)
        sheet = self.find(tag, name)
        if sheet is None:
            raise self.unknown(tag, name)
        data = record.get("data", {})
        if not isinstance(data, dict):
            raise InvalidInput(f"graph batch field 'data' must be an object, got {display_value(data)}")
        ends = (
            {ENDPOINT_COLUMNS[end]: _text(record, end) for end in ENDPOINT_COLUMNS} if tag == "edge" else {}
        )
        row = sheet.row(data)
        sheet.check_id(row)
        row.update(ends)
        return sheet, row


def _text(record: Mapping[str, Any], field: str) -> str:
    if field not in record:
        raise InvalidInput(f"graph batch record requires field '{field}'")
    value = record[field]
    if not isinstance(value, str):
        raise InvalidInput(f"graph batch field '{field}' must be a string, got {display_value(value)}")
    check_unicode(field, value)
    return value


def _refuse_field(name: str, tag: str) -> NoReturn:
    if name in RESERVED:
        raise InvalidInput(f"top-level field {_quoted(name)} is reserved physical state")
    known = f"a record with '{tag}' has the fields " + ", ".join(sorted(_FIELDS[tag]))
    raise InvalidInput(f"unknown top-level graph batch field {_quoted(name)}", hint=known)


class Pending:
    """Rows that wait to become batches: per table, in input order."""

    def __init__(self, source: str | None, most: int = BATCH_ROWS) -> None:
        self._source = source
        self._most = most
        self._rows: dict[str, tuple[Sheet, list[Row], list[int]]] = {}

    def add(self, sheet: Sheet, row: Row, place: int) -> Iterator[InputBatch]:
        """Take a row; gives a batch when its table has enough of them."""
        found = self._rows.get(sheet.table.key)
        if found is None:
            found = self._rows[sheet.table.key] = (sheet, [], [])
        found[1].append(row)
        found[2].append(place)
        if len(found[1]) >= self._most:
            del self._rows[sheet.table.key]
            yield self._batch(*found)

    def flush(self) -> Iterator[InputBatch]:
        """Whatever is left."""
        waiting, self._rows = self._rows, {}
        for found in waiting.values():
            yield self._batch(*found)

    def _batch(self, sheet: Sheet, rows: list[Row], places: list[int]) -> InputBatch:
        return InputBatch(sheet.table.key, sheet.rows(rows), pa.array(places, pa.int64()), self._source)
