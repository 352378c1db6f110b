"""Predicates that specify one node or edge by its key, so that a lookup by id replaces a scan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.keys import TypeKey, derive_id
from omnigraph.engine.exact_numbers import constant_value, exact_value
from omnigraph.engine.parameters import Bindings
from omnigraph.lang import ir
from omnigraph.lang.types import FLOATS

_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)


def specified_values(
    key: TypeKey | None, where: Iterable[ir.Predicate], bindings: Bindings
) -> dict[str, ir.Value] | None:
    """Return the key values that equality predicates specify; None unless they specify all of them.

    The predicates hold together.
    """
    # Different floats may compare equal, and some floats are not allowed in keys.
    if key is None or any(column.type.scalar in FLOATS for column in key.columns):
        return None
    names = {column.name for column in key.columns}
    values: dict[str, ir.Value] = {}
    for item in where:
        if isinstance(item, ir.Compare) and item.op == "=":
            left, right = item.left, item.right
            if isinstance(left, _CONSTANT):
                left, right = right, left
            name = _column_name(key, left)
            if name in names and isinstance(right, _CONSTANT):
                values.setdefault(name, constant_value(right, bindings))
    return values if len(values) == len(names) else None


def specified_id(key: TypeKey, values: Mapping[str, ir.Value]) -> str | None:
    """Return the id of the node or edge with these key values; None if none can have them."""
    exact: dict[str, ir.Value] = {}
    for column in key.columns:
        value = values[column.name]
        assert not isinstance(value, tuple)
        converted = None if value is None else exact_value(value, column.type.scalar)
        if converted is None:
            return None
        exact[column.name] = converted
    return derive_id(key, exact)


def _column_name(key: TypeKey, expr: ir.Expr) -> str:
    match expr:
        case ir.PropertyRef():
            return expr.property
        case ir.ColumnRef():
            return ENDPOINT_COLUMNS.get(expr.name, expr.name) if key.kind == "edge" else expr.name
    return ""
