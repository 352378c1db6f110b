"""Mappings of a load as people write them, in YAML, JSON or Python, checked against the schema before all else.

A mapping has an entry per type::

    Person:
      source: people.csv              # relative to the file that says so
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
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.keys import node_key
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import STRING
from omnigraph.sources.json.json_values import MISMATCH, converter, mismatch_message
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
    given: str | Path | Mapping[str, Any], catalog: Catalog, options: StorageOptions | None = None
) -> LoadMapping:
    """The mapping in a YAML or JSON file, or in a dict of the same shape.

    `InvalidInput` says what is wrong with it, where, and what may have been meant; `NotFound` when there is no such
    file, or when a type is not in the schema.

    >>> from omnigraph.catalog.catalog import accept
    >>> from omnigraph.lang.pg.schema_compiler import load_schema
    >>> text = "node Person { name: String @key }"
    >>> catalog = accept(load_schema(text), text)
    >>> read_mapping({"Person": {"columns": {"name": "full_name"}}}, catalog).types["node:Person"].columns
    {'name': 'full_name'}
    """
    if isinstance(given, Mapping):
        document, base = Document(dict(given)), None
    else:
        document, base = read_document(given, options or {})
    types: dict[str, TypeMapping] = {}
    for name, entry in document.object((), document.value).items():
        key = document.located((name,), partial(find_table, catalog, name)).key
        if key in types:
            raise document.error((name,), f"'{key}' is mapped twice")
        types[key] = _Entry(document, name, catalog, catalog.tables[key], base).read(entry)
    return LoadMapping(types, document.name)


# --- one type ---------------------------------------------------------------------------------------------


class _Entry:
    """The entry of one type, being checked."""

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
        given = self._document.object((self._name,), {} if entry is None else entry)
        for name in given:
            if name not in _FIELDS:
                raise self._refusal((name,), f"no field '{name}' of a mapping", name, _FIELDS)
        columns = {**self._read_columns(given), **self._read_key(given)}
        ends = self._read_ends(given)
        constants = self._read_constants(given, {*columns, *ends})
        casts, end_casts = self._read_casts(given, ends, constants)
        ignore, ignores_others = self._read_ignore(given, {*columns, *ends, *constants})
        return TypeMapping(
            self._table.key,
            self._read_source(given),
            self._read_format(given),
            columns,
            ends,
            constants,
            casts,
            end_casts,
            ignore,
            ignores_others,
            self._texts(given, "null_values", may_be_empty=True),
        )

    def _refusal(
        self, way: KeyPath, message: str, wanted: str | None = None, known: Iterable[str] = ()
    ) -> InvalidInput:
        names = list(known)
        hint = None if wanted is None else suggestion(wanted, names) or f"one of {', '.join(names)}"
        return self._document.error((self._name, *way), message, hint)

    def _object(self, given: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        value = given.get(field)
        return {} if value is None else self._document.object((self._name, field), value)

    def _text(self, way: KeyPath, value: Any) -> str:
        return self._document.text((self._name, *way), value)

    def _texts(self, given: Mapping[str, Any], field: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        value = given.get(field)
        items = value if isinstance(value, list | tuple) else [] if value is None else [value]
        if may_be_empty and "" in items:
            return ("", *self._document.texts((self._name, field), [item for item in items if item != ""]))
        return self._document.texts((self._name, field), items)

    def _property(self, way: KeyPath, name: str) -> Column:
        found = self._properties.get(name)
        if found is None:
            raise self._refusal(way, f"no property '{name}' of '{self._table.key}'", name, self._properties)
        return found

    # --- fields ------------------------------------------------------------------------------------------

    def _read_source(self, given: Mapping[str, Any]) -> str | None:
        if given.get("source") is None:
            return None
        source = self._text(("source",), given["source"])
        if self._base is None or "://" in source or Path(source).is_absolute():
            return source
        return f"{self._base}/{source}" if "://" in self._base else str(Path(self._base) / source)

    def _read_format(self, given: Mapping[str, Any]) -> Format | None:
        if given.get("format") is None:
            return None
        name = self._text(("format",), given["format"]).lower()
        for known in FORMATS:
            if name == known:
                return known
        raise self._refusal(("format",), f"no format '{name}'", name, FORMATS)

    def _read_columns(self, given: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        for name, path in self._object(given, "columns").items():
            self._property(("columns", name), name)
            found[name] = self._text(("columns", name), path)
        return found

    def _read_key(self, given: Mapping[str, Any]) -> dict[str, str]:
        if given.get("key") is None:
            return {}
        node = self._catalog.schema.node(self._table.name) if self._table.kind == "node" else None
        names = ("id",) if node is None or node.key is None else node.key
        found = dict(zip(names, self._paths(("key",), given["key"], names), strict=True))
        both = next((name for name in found if name in (given.get("columns") or {})), None)
        if both is not None:
            raise self._refusal(("key",), f"'{both}' is filled by `columns` too")
        return found

    def _paths(self, way: KeyPath, value: Any, names: Sequence[str]) -> tuple[str, ...]:
        """Columns for these names: one, a list in their order, or an object."""
        if isinstance(value, Mapping):
            paths = self._document.object((self._name, *way), value)
            odd = next((name for name in paths if name not in names), None)
            if odd is not None:
                raise self._refusal((*way, odd), f"'{odd}' is not in the key", odd, names)
            found = tuple(self._text((*way, name), paths[name]) for name in names if name in paths)
        else:
            found = self._document.texts((self._name, *way), value)
        if len(found) != len(names):
            listed = ", ".join(names)
            raise self._refusal(way, f"the key is ({listed}), so {len(names)} columns, got {len(found)}")
        return found

    def _read_ends(self, given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for word, stored in ENDPOINT_COLUMNS.items():
            value = given.get(word)
            if value is None:
                continue
            if self._table.kind != "edge":
                raise self._refusal((word,), f"'{self._table.key}' has no ends")
            names = self._endpoint_key(stored)
            if isinstance(value, str) or names is None:
                # A key of several columns in one is the id itself.
                found[stored] = (self._text((word,), value),)
                continue
            written = self._written_key(stored)
            paths = dict(zip(written, self._paths((word,), value, written), strict=True))
            found[stored] = tuple(paths[name] for name in names)
        return found

    def _end_type(self, stored: str) -> str:
        edge = self._catalog.schema.edge(self._table.name)
        assert edge is not None, "a table of edges has its type in the schema"
        return edge.source if stored == "src" else edge.target

    def _endpoint_key(self, stored: str) -> tuple[str, ...] | None:
        """The key of the node at an end, in the order in which ids have it."""
        key = node_key(self._catalog, self._end_type(stored))
        return None if key is None else tuple(column.name for column in key.columns)

    def _written_key(self, stored: str) -> tuple[str, ...]:
        """The key of the node at an end, as the schema writes it."""
        node = self._catalog.schema.node(self._end_type(stored))
        return () if node is None or node.key is None else tuple(node.key)

    def _read_constants(self, given: Mapping[str, Any], filled: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        ends = ENDPOINT_COLUMNS if self._table.kind == "edge" else {}
        for name, value in self._object(given, "constants").items():
            way = ("constants", name)
            stored = ends.get(name, name)
            column = self._columns[stored] if name in ends else self._property(way, name)
            if stored in filled:
                raise self._refusal(way, f"'{name}' is filled by a column too")
            self._document.located((self._name, *way), partial(_check, column, value))
            found[stored] = value
        return found

    def _read_casts(
        self, given: Mapping[str, Any], ends: Mapping[str, tuple[str, ...]], constants: Mapping[str, Any]
    ) -> tuple[dict[str, str], dict[str, tuple[str | None, ...]]]:
        casts: dict[str, str] = {}
        end_casts: dict[str, tuple[str | None, ...]] = {}
        for name, cast in self._object(given, "casts").items():
            way = ("casts", name)
            stored = ENDPOINT_COLUMNS.get(name, name) if self._table.kind == "edge" else name
            if stored in constants:
                raise self._refusal(way, f"'{name}' is a constant")
            if name in ENDPOINT_COLUMNS and self._table.kind == "edge":
                end_casts[stored] = self._end_cast(way, stored, cast, ends.get(stored))
                continue
            column = self._columns["id"] if name == "id" else self._property(way, name)
            self._check_cast(way, cast, column)
            casts[name] = cast
        return casts, end_casts

    def _end_cast(
        self, way: KeyPath, stored: str, cast: Any, paths: tuple[str, ...] | None
    ) -> tuple[str | None, ...]:
        if paths is None:
            raise self._refusal(way, f"no columns are given under `{way[-1]}`")
        key = node_key(self._catalog, self._end_type(stored))
        is_keyed = key is not None and len(key.columns) == len(paths)
        parts = key.columns if key is not None and is_keyed else (Column(stored, STRING, stored),)
        if isinstance(cast, list | tuple):
            written = self._written_key(stored) if is_keyed else (stored,)
            if len(cast) != len(parts):
                raise self._refusal(way, f"{len(parts)} casts expected, got {len(cast)}")
            by_name = dict(zip(written, cast, strict=True))
            given = tuple(by_name[part.name] for part in parts)
        elif len(parts) == 1:
            given = (cast,)
        else:
            raise self._refusal(way, "a key of several columns needs a list of casts", None)
        for part, text in zip(parts, given, strict=True):
            if text is not None:
                self._check_cast(way, text, part)
        return given

    def _check_cast(self, way: KeyPath, cast: Any, column: Column) -> None:
        self._document.located((self._name, *way), partial(read_cast, cast, column))

    def _read_ignore(self, given: Mapping[str, Any], filled: set[str]) -> tuple[tuple[str, ...], bool]:
        if isinstance(given.get("ignore"), bool):
            return (), given["ignore"]
        ignore = self._texts(given, "ignore")
        for name in ignore:
            column = self._properties.get(name)
            if column is not None and not column.type.nullable and name not in filled:
                raise self._refusal(
                    ("ignore",), f"nothing fills '{name}', which '{self._table.key}' requires"
                )
        return ignore, False


def _check(column: Column, value: Any) -> None:
    if value is None:
        raise InvalidInput(f"property '{column.name}': a constant is a value")
    if converter(column)(value) is MISMATCH:
        raise InvalidInput(mismatch_message(column, value))
    enum = column.type.enum_values
    values = value if isinstance(value, list | tuple) else [value]
    odd = next((item for item in values if enum is not None and item not in enum), None)
    if odd is not None:
        raise InvalidInput(f"property '{column.name}' is {column.type.core}, got {odd!r}")
