"""Reader of load mappings in YAML, JSON or Python; it validates them against the schema before any data is read.

A mapping has an entry per type::

    Person:
      source: people.csv              # relative to the file of the mapping
      columns: {name: full_name, city: address.city}
      casts: {born: "%d.%m.%Y"}
    Knows:
      source: knows.parquet
      from: person_id
      to: friend_id
      ignore: true
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, ENDPOINT_NAMES
from omnigraph.catalog.keys import node_key
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import STRING
from omnigraph.sources.json.json_values import MISMATCH, display_value, mismatch_error, value_converter
from omnigraph.sources.mapping.casts import read_cast
from omnigraph.sources.mapping.document import Document, KeyPath, read_document
from omnigraph.sources.mapping.type_mapping import FORMATS, Format, LoadMapping, TypeMapping
from omnigraph.store.storage_options import StorageOptions

__all__ = ["LoadMapping", "TypeMapping", "read_mapping"]

_FIELDS = (
    "source",
    "format",
    "columns",
    "key",
    "from",
    "to",
    "constants",
    "casts",
    "ignore",
    "null_values",
)


def read_mapping(
    mapping: str | Path | Mapping[str, Any], catalog: Catalog, options: StorageOptions | None = None
) -> LoadMapping:
    """Read a mapping from a YAML or JSON file, or from a dict of the same form.

    Raises `InvalidInput` for an invalid mapping, with its location, and `NotFound` for a missing file or an unknown
    type.

    >>> from omnigraph.catalog.catalog import accept
    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> text = "node Person { name: String @key }"
    >>> catalog = accept(load_schema(text), text)
    >>> read_mapping({"Person": {"columns": {"name": "full_name"}}}, catalog).types["node:Person"].columns
    {'name': 'full_name'}
    """
    if isinstance(mapping, Mapping):
        document, base = Document(dict(mapping)), None
    else:
        document, base = read_document(mapping, options or {})
    types: dict[str, TypeMapping] = {}
    for name, entry in document.object((), document.value).items():
        key = document.located((name,), partial(find_table, catalog, name)).key
        if key in types:
            raise document.error((name,), f"duplicate mapping of '{key}'")
        types[key] = _TypeMappingReader(document, name, catalog, catalog.tables[key], base).read(entry)
    return LoadMapping(types, document.name)


# --- one type ---------------------------------------------------------------------------------------------


class _TypeMappingReader:
    """Reads and validates the entry of one type."""

    def __init__(
        self, document: Document, name: str, catalog: Catalog, table: Table, base: str | None
    ) -> None:
        self._document = document
        self._name = name
        self._catalog = catalog
        self._table = table
        self._base = base
        self._properties = {item.name: item for item in table.columns if item.property_id is not None}
        self._columns = {item.name: item for item in table.columns}

    def read(self, entry: Any) -> TypeMapping:
        fields = self._document.object((self._name,), {} if entry is None else entry)
        for name in fields:
            if name not in _FIELDS:
                raise self._error((name,), f"unknown field '{name}' of a mapping", name, _FIELDS)
        key = self._read_key(fields)
        ends = ENDPOINT_NAMES if self._table.kind == "edge" else {}
        key_ends = {name: (key.pop(name),) for name in ends if name in key}
        columns = {**self._read_columns(fields), **key}
        endpoints = {**self._read_endpoints(fields), **key_ends}
        constants = self._read_constants(fields, {*columns, *endpoints})
        casts, endpoint_casts = self._read_casts(fields, endpoints, constants)
        ignore, ignores_others = self._read_ignore(fields, {*columns, *endpoints, *constants})
        return TypeMapping(
            self._table.key,
            self._read_source(fields),
            self._read_format(fields),
            columns,
            endpoints,
            constants,
            casts,
            endpoint_casts,
            ignore,
            ignores_others,
            self._texts(fields, "null_values", may_be_empty=True),
        )

    def _error(
        self, path: KeyPath, message: str, name: str | None = None, known: Iterable[str] = ()
    ) -> InvalidInput:
        names = list(known)
        hint = None if name is None else suggestion(name, names) or f"one of {', '.join(names)}"
        return self._document.error((self._name, *path), message, hint)

    def _object(self, fields: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        value = fields.get(field)
        return {} if value is None else self._document.object((self._name, field), value)

    def _text(self, path: KeyPath, value: Any) -> str:
        return self._document.text((self._name, *path), value)

    def _texts(self, fields: Mapping[str, Any], field: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        value = fields.get(field)
        items = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if may_be_empty and "" in items:
            return ("", *self._document.texts((self._name, field), [item for item in items if item != ""]))
        return self._document.texts((self._name, field), items)

    def _property(self, path: KeyPath, name: str) -> Column:
        column = self._properties.get(name)
        if column is None:
            message = f"unknown property '{name}' of type '{self._table.name}'"
            raise self._error(path, message, name, self._properties)
        return column

    # --- fields ------------------------------------------------------------------------------------------

    def _read_source(self, fields: Mapping[str, Any]) -> str | None:
        if fields.get("source") is None:
            return None
        source = self._text(("source",), fields["source"])
        if self._base is None or "://" in source or Path(source).is_absolute():
            return source
        return f"{self._base}/{source}" if "://" in self._base else str(Path(self._base) / source)

    def _read_format(self, fields: Mapping[str, Any]) -> Format | None:
        if fields.get("format") is None:
            return None
        name = self._text(("format",), fields["format"]).lower()
        for known in FORMATS:
            if name == known:
                return known
        raise self._error(("format",), f"unknown format '{name}'", name, FORMATS)

    def _read_columns(self, fields: Mapping[str, Any]) -> dict[str, str]:
        columns = {}
        for name, path in self._object(fields, "columns").items():
            self._property(("columns", name), name)
            columns[name] = self._text(("columns", name), path)
        return columns

    def _read_key(self, fields: Mapping[str, Any]) -> dict[str, str]:
        if fields.get("key") is None:
            return {}
        schema, name = self._catalog.schema, self._table.name
        entity = schema.node(name) if self._table.kind == "node" else schema.edge(name)
        names = ("id",) if entity is None or entity.key is None else entity.key
        columns = dict(zip(names, self._key_columns(("key",), fields["key"], names), strict=True))
        both = next((name for name in columns if name in (fields.get("columns") or {})), None)
        if both is not None:
            raise self._error(("key",), f"'{both}' is also mapped by `columns`")
        ends = ENDPOINT_NAMES if self._table.kind == "edge" else {}
        both = next((name for name in columns if fields.get(ends.get(name, "")) is not None), None)
        if both is not None:
            raise self._error(("key",), f"'{both}' is also mapped by `{ends[both]}`")
        return columns

    def _key_columns(self, path: KeyPath, value: Any, names: Sequence[str]) -> tuple[str, ...]:
        """Return the input columns of key properties: a single column, a list in key order, or a mapping."""
        if isinstance(value, Mapping):
            paths = self._document.object((self._name, *path), value)
            unknown = next((name for name in paths if name not in names), None)
            if unknown is not None:
                raise self._error((*path, unknown), f"'{unknown}' is not in the key", unknown, names)
            columns = tuple(self._text((*path, name), paths[name]) for name in names if name in paths)
        else:
            columns = self._document.texts((self._name, *path), value)
        if len(columns) != len(names):
            expected = "1 column" if len(names) == 1 else f"{len(names)} columns"
            message = f"expected {expected} for the key ({', '.join(names)}), got {len(columns)}"
            raise self._error(path, message)
        return columns

    def _read_endpoints(self, fields: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        endpoints: dict[str, tuple[str, ...]] = {}
        for name, column in ENDPOINT_COLUMNS.items():
            value = fields.get(name)
            if value is None:
                continue
            if self._table.kind != "edge":
                raise self._error((name,), f"'{self._table.key}' has no endpoints")
            key = self._endpoint_key(column)
            if isinstance(value, str) or key is None:
                # A single column for a composite key contains the id itself.
                endpoints[column] = (self._text((name,), value),)
                continue
            declared = self._declared_key(column)
            paths = dict(zip(declared, self._key_columns((name,), value, declared), strict=True))
            endpoints[column] = tuple(paths[member] for member in key)
        return endpoints

    def _endpoint_type(self, column: str) -> str:
        edge = self._catalog.schema.edge(self._table.name)
        assert edge is not None, "the schema has the type of every edge table"
        return edge.source if column == "src" else edge.target

    def _endpoint_key(self, column: str) -> tuple[str, ...] | None:
        """Return the key of the node at an endpoint, in the order of ids."""
        key = node_key(self._catalog, self._endpoint_type(column))
        return None if key is None else tuple(item.name for item in key.columns)

    def _declared_key(self, column: str) -> tuple[str, ...]:
        """Return the key of the node at an endpoint, in the order of the schema."""
        node = self._catalog.schema.node(self._endpoint_type(column))
        return () if node is None or node.key is None else tuple(node.key)

    def _read_constants(self, fields: Mapping[str, Any], mapped: set[str]) -> dict[str, Any]:
        constants: dict[str, Any] = {}
        endpoints = ENDPOINT_COLUMNS if self._table.kind == "edge" else {}
        for name, value in self._object(fields, "constants").items():
            path = ("constants", name)
            target = endpoints.get(name, name)
            column = self._columns[target] if name in endpoints else self._property(path, name)
            if target in mapped:
                raise self._error(path, f"'{name}' is also mapped to a column")
            self._document.located((self._name, *path), partial(_check_constant, column, value))
            constants[target] = value
        return constants

    def _read_casts(
        self,
        fields: Mapping[str, Any],
        endpoints: Mapping[str, tuple[str, ...]],
        constants: Mapping[str, Any],
    ) -> tuple[dict[str, str], dict[str, tuple[str | None, ...]]]:
        casts: dict[str, str] = {}
        endpoint_casts: dict[str, tuple[str | None, ...]] = {}
        for name, cast in self._object(fields, "casts").items():
            path = ("casts", name)
            target = ENDPOINT_COLUMNS.get(name, name) if self._table.kind == "edge" else name
            if target in constants:
                raise self._error(path, f"'{name}' is a constant")
            if name in ENDPOINT_COLUMNS and self._table.kind == "edge":
                endpoint_casts[target] = self._endpoint_cast(path, target, cast, endpoints.get(target))
                continue
            column = self._columns["id"] if name == "id" else self._property(path, name)
            self._check_cast(path, cast, column)
            casts[name] = cast
        return casts, endpoint_casts

    def _endpoint_cast(
        self, path: KeyPath, column: str, cast: Any, paths: tuple[str, ...] | None
    ) -> tuple[str | None, ...]:
        if paths is None:
            raise self._error(path, f"a cast of `{path[-1]}` requires columns under `{path[-1]}`")
        key = node_key(self._catalog, self._endpoint_type(column))
        is_keyed = key is not None and len(key.columns) == len(paths)
        parts = key.columns if key is not None and is_keyed else (Column(column, STRING, column),)
        if isinstance(cast, list | tuple):
            declared = self._declared_key(column) if is_keyed else (column,)
            if len(cast) != len(parts):
                expected = "1 cast" if len(parts) == 1 else f"{len(parts)} casts"
                raise self._error(path, f"expected {expected}, got {len(cast)}")
            by_name = dict(zip(declared, cast, strict=True))
            casts = tuple(by_name[part.name] for part in parts)
        elif len(parts) == 1:
            casts = (cast,)
        else:
            raise self._error(path, "a composite key requires a list of casts")
        for part, text in zip(parts, casts, strict=True):
            if text is not None:
                self._check_cast(path, text, part)
        return casts

    def _check_cast(self, path: KeyPath, cast: Any, column: Column) -> None:
        self._document.located((self._name, *path), partial(read_cast, cast, column))

    def _read_ignore(self, fields: Mapping[str, Any], mapped: set[str]) -> tuple[tuple[str, ...], bool]:
        if isinstance(fields.get("ignore"), bool):
            return (), fields["ignore"]
        ignore = self._texts(fields, "ignore")
        for name in ignore:
            column = self._properties.get(name)
            if column is not None and column.is_required and name not in mapped:
                message = f"cannot ignore '{name}': '{self._table.key}' requires it and nothing else maps it"
                raise self._error(("ignore",), message)
        return ignore, False


def _check_constant(column: Column, value: Any) -> None:
    location = ErrorLocation(property=column.name)
    if value is None:
        raise InvalidInput(f"expected {column.type.core}, got null", location=location)
    if value_converter(column)(value) is MISMATCH:
        raise mismatch_error(column, value)
    allowed = column.type.enum_values
    values = value if isinstance(value, list | tuple) else [value]
    unknown = next((item for item in values if allowed is not None and item not in allowed), None)
    if unknown is not None:
        raise InvalidInput(f"expected {column.type.core}, got {display_value(unknown)}", location=location)
