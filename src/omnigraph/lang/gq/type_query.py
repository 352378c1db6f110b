"""The query that reads one node or edge type, built of a condition and property names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import date, datetime
from typing import Any, TypeAlias

from omnigraph.errors import InvalidInput
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.query_parser import parse_queries
from omnigraph.lang.gq.query_printer import print_expr, print_predicate
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.source import Source
from omnigraph.lang.temporal import EPOCH_TIME, format_datetime

Where: TypeAlias = "str | Mapping[str, Any] | None"
ENTITY = "entity"
_VARIABLE = "n"
# The columns that are not properties. An edge has an id only as a part of the whole edge.
_KEYS = {"node": {"id": "$n"}, "edge": {"from": "$a", "to": "$b"}}


def type_query(
    kind: TypeKind,
    type_name: str,
    where: Where = None,
    params: Mapping[str, Any] | None = None,
    columns: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    limit: int | None = None,
) -> str:
    """Return the text of a query that reads a type: the columns, or whole entities in the column `ENTITY`.

    Ids of edges are a part of whole edges only, so `columns` with the ``id`` of an edge are as none.
    `where` is a condition on properties in the syntax of `delete … where`, or a mapping from properties to a value
    or a list of values. Its variables are replaced by the values of `params`. `order_by` has property names, each
    optionally with ``desc``.

    >>> print(type_query("node", "Person", "age > $low and x is null", {"low": 3}, order_by=["x desc"], limit=9))
    query read() { match { $n: Person $n.age > 3 and $n.x is null } return { $n.* as entity }\
 order { $n.x desc } limit 9 }
    >>> print(type_query("edge", "Knows", {"kind": ["a", "b"]}, columns=["from", "kind"]))
    query read() { match { $a $n:knows $b $n.kind in ["a", "b"] } return { $a as from, $n.kind as kind } }
    """
    edge = type_name[:1].lower() + type_name[1:]
    parts = [f"${_VARIABLE}: {type_name}" if kind == "node" else f"$a ${_VARIABLE}:{edge} $b"]
    condition = _condition(type_name, where, params or {})
    if condition is not None:
        parts.append(print_predicate(condition))
    keys = [print_expr(_property(name)) + way for name, way in map(_sort_key, order_by)]
    order = f" order {{ {', '.join(keys)} }}" if keys else ""
    page = "" if limit is None else f" limit {limit}"
    found = ", ".join(_projections(kind, columns))
    return f"query read() {{ match {{ {' '.join(parts)} }} return {{ {found} }}{order}{page} }}"


def is_entity_read(kind: TypeKind, columns: Sequence[str] | None) -> bool:
    """Return whether `type_query` returns whole entities."""
    return columns is None or (kind == "edge" and "id" in columns)


def _projections(kind: TypeKind, columns: Sequence[str] | None) -> Iterator[str]:
    if columns is None or is_entity_read(kind, columns):
        yield f"${_VARIABLE}.* as {ENTITY}"
        return
    if not columns:
        raise InvalidInput("expected at least one column in `columns`", hint="omit `columns` for all of them")
    for name in columns:
        yield f"{_KEYS[kind].get(name) or print_expr(_property(name))} as {name}"


def literal(value: Any) -> ast.Literal:
    """Return a Python value as a literal. Raises `InvalidInput` for a value that has no literal.

    >>> literal(date(2024, 1, 31)).value, literal([1, 2.5]).kind
    ('2024-01-31', 'list')
    """
    match value:
        case None:
            return ast.Literal("null", None)
        case bool():
            return ast.Literal("bool", value)
        case int():
            return ast.Literal("integer", value)
        case float() if math.isfinite(value):
            return ast.Literal("float", value)
        case str():
            return ast.Literal("string", value)
        case datetime():
            return ast.Literal("datetime", _datetime_text(value))
        case date():
            return ast.Literal("date", value.isoformat())
        case list() | tuple() | set() | frozenset():
            return ast.Literal("list", tuple(literal(item) for item in value))
    raise InvalidInput(
        f"expected a text, number, boolean, date, datetime, list or None in a condition, got {value!r}",
        hint="write a query and pass the value as a parameter",
    )


def _datetime_text(value: datetime) -> str:
    if value.tzinfo is None:
        raise InvalidInput(f"the datetime {value} has no time zone", hint="pass a datetime with a `tzinfo`")
    return format_datetime(int((value - EPOCH_TIME).total_seconds() * 1000))


def _condition(type_name: str, where: Where, params: Mapping[str, Any]) -> ast.Predicate | None:
    if isinstance(where, str):
        source = Source(f"query where() {{ delete {type_name} where {where} }}", "where")
        body = parse_queries(source).queries[0].body
        assert isinstance(body, ast.MutationBody)
        statement, *others = body.statements
        if others or not isinstance(statement, ast.Delete):
            raise InvalidInput(f"expected one condition in `where`, got {where!r}")
        found: ast.Predicate = _resolve(statement.where, params)
        return found
    if not where:
        return None
    tests = tuple(_test(name, value) for name, value in where.items())
    return tests[0] if len(tests) == 1 else ast.And(tests)


def _test(name: str, value: Any) -> ast.Predicate:
    if value is None:
        return ast.IsNull(_property(name))
    if isinstance(value, list | tuple | set | frozenset):
        return ast.InList(_property(name), literal(value))
    return ast.Compare(_property(name), "=", literal(value))


def _resolve(item: Any, params: Mapping[str, Any]) -> Any:
    """Return a condition with properties of the variable in place of columns, and values in place of parameters."""
    match item:
        case ast.ColumnName():
            return _property(item.name)
        case ast.Variable():
            if item.name not in params:
                raise InvalidInput(f"parameter '{item.name}' not provided", hint="pass it in `params`")
            return literal(params[item.name])
        case tuple():
            return tuple(_resolve(part, params) for part in item)
    if not is_dataclass(item) or isinstance(item, type):
        return item
    parts = {field.name: _resolve(getattr(item, field.name), params) for field in fields(item) if field.init}
    return replace(item, **parts)


def _sort_key(text: str) -> tuple[str, str]:
    name, _, way = text.strip().partition(" ")
    if way.strip() not in ("", "asc", "desc"):
        raise InvalidInput(f"expected a property name, optionally with `desc`, in `order_by`, got {text!r}")
    return name, " desc" if way.strip() == "desc" else ""


def _property(name: str) -> ast.PropertyAccess:
    if not name.isidentifier():
        raise InvalidInput(f"expected a property name, got {name!r}")
    return ast.PropertyAccess(_VARIABLE, name)
