"""The columns of a target: which column fills which property, and how its values are converted.

A text column is parsed as the type of its property, as in a CSV file. Other values become text for a `String`. A
value that cannot be converted is an error of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.table_lookup import find_table
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import Scalar
from omnigraph.pipelines.definition import EdgeTarget, NodeTarget

_ENDS: Final = ("src", "dst")
_TEXT: Final = "string"


def map_columns(
    catalog: Catalog, table: Table, target: NodeTarget, columns: Mapping[str, str]
) -> dict[str, Any]:
    """Return the mapping of a load for a target whose rows have some columns, by name with their Spark type.

    Raises `InvalidInput` for a column that no property takes, and for a missing required property.
    """
    properties = {column.name: column for column in table.columns if column.name not in ("id", *_ENDS)}
    used: set[str] = set()
    mapping: dict[str, Any] = {"ignore": True}
    if isinstance(target, EdgeTarget):
        ends = _map_ends(catalog, table, target, columns)
        mapping |= ends
        used |= {name for end in ("from", "to") for name in _names(ends[end])}
    casts: dict[str, Any] = dict(mapping.pop("casts", {}))
    named: dict[str, str] = {}
    for name, column in properties.items():
        source = _column_of(columns, target.columns.get(name, name), required=name in target.columns)
        if source is None:
            continue
        used.add(source)
        if source != name:
            named[name] = source
        cast = _cast(column, columns[source])
        if cast is not None:
            casts[name] = cast
    unknown = [name for name in target.columns if name not in properties]
    if unknown:
        raise InvalidInput(
            f"{table.kind} type '{table.name}' has no property '{unknown[0]}'"
            f"{did_you_mean(unknown[0], sorted(properties))}"
        )
    _check_unused(table, target, columns, used, properties)
    if named:
        mapping["columns"] = named
    if casts:
        mapping["casts"] = casts
    return mapping


def key_columns(catalog: Catalog, table: Table, target: NodeTarget) -> list[str]:
    """Return the columns with the key of a target's rows. Raises `InvalidInput` for a type without a key."""
    if isinstance(target, EdgeTarget):
        edge = catalog.schema.edge(table.name)
        key = None if edge is None else edge.key
    else:
        node = catalog.schema.node(table.name)
        key = None if node is None else node.key
    if key is None:
        raise InvalidInput(
            f"{table.kind} type '{table.name}' has no key to order rows by", hint="use `dedup` with `keys`"
        )
    ends = {"src": target.src, "dst": target.dst} if isinstance(target, EdgeTarget) else {}
    names = [_names(ends[name]) if name in ends else [target.columns.get(name, name)] for name in key]
    return [column for group in names for column in group]


def _map_ends(
    catalog: Catalog, table: Table, target: EdgeTarget, columns: Mapping[str, str]
) -> dict[str, Any]:
    edge = catalog.schema.edge(table.name)
    assert edge is not None, "the table is that of an edge type"
    mapping: dict[str, Any] = {}
    casts: dict[str, Any] = {}
    for end, given, type_name in (("from", target.src, edge.source), ("to", target.dst, edge.target)):
        names = [_column_of(columns, name, required=True) or name for name in _names(given)]
        mapping[end] = names[0] if len(names) == 1 else names
        if len(names) == 1 and columns[names[0]] != _TEXT:
            casts[end] = _key_cast(catalog, type_name, columns[names[0]])
    casts = {end: cast for end, cast in casts.items() if cast is not None}
    return {**mapping, "casts": casts} if casts else mapping


def _key_cast(catalog: Catalog, type_name: str, kind: str) -> str | None:
    """Return the cast of a single key column of an end point."""
    table = find_table(catalog, f"node:{type_name}")
    node = catalog.schema.node(type_name)
    key = None if node is None else node.key
    if key is None or len(key) != 1:
        return Scalar.STRING.value
    column = next(column for column in table.columns if column.name == key[0])
    return _cast(column, kind)


def _cast(column: Column, kind: str) -> str | None:
    kind_of_property = column.type
    if kind_of_property.is_list or kind_of_property.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return "json" if kind == _TEXT and kind_of_property.scalar is not Scalar.BLOB else None
    is_text = kind_of_property.scalar is Scalar.STRING
    if is_text == (kind == _TEXT):
        return None
    return str(kind_of_property.scalar.value)


def _names(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _column_of(columns: Mapping[str, str], name: str, *, required: bool) -> str | None:
    if name in columns:
        return name
    folded = {item.lower(): item for item in columns}
    if name.lower() in folded:
        return folded[name.lower()]
    if required:
        raise InvalidInput(f"the rows have no column '{name}'{did_you_mean(name, sorted(columns))}")
    return None


def _check_unused(
    table: Table,
    target: NodeTarget,
    columns: Mapping[str, str],
    used: set[str],
    properties: Mapping[str, Column],
) -> None:
    missing = [
        name
        for name, column in properties.items()
        if column.is_required and _column_of(columns, target.columns.get(name, name), required=False) is None
    ]
    if missing and target.mode in ("append", "merge", "overwrite"):
        raise InvalidInput(
            f"the rows have no column for the required property '{missing[0]}'; they have {', '.join(columns)}",
            hint=f"name the column: `columns: {{{missing[0]}: ...}}`, or rename it in a view",
        )
    if target.ignore is True:
        return
    ignored = set() if target.ignore is False else set(target.ignore)
    # Columns with an underscore describe the row, such as the file that it comes from.
    unused = [
        name
        for name in columns
        if name not in used and name not in ignored and name != "id" and name[:1] != "_"
    ]
    if unused:
        raise InvalidInput(
            f"{table.kind} type '{table.name}' has no property for the column '{unused[0]}'"
            f"{did_you_mean(unused[0], sorted(properties))}",
            hint="select columns in a view, map it with `columns`, or list it in `ignore`",
        )
