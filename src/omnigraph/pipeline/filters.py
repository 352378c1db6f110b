"""Filters that Spark would like a source to apply, as predicates of our own that are true of the same rows.

The two languages agree on three-valued logic, on the order of strings and on zeros. They differ on NaN, which
Spark takes for equal to itself and for greater than every number: a filter with a NaN constant stays with Spark,
and ``a > b`` becomes *not* ``a <= b``, which is true of a NaN in both.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.catalog import Table
from omnigraph.lang import ir
from omnigraph.lang.temporal import days_of, millis_of
from omnigraph.lang.types import F64, FLOATS, INT_RANGES, PropType, Scalar

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


def predicate_of(found: Filter, table: Table) -> ir.Predicate | None:
    """The predicate that is true of exactly the rows of the filter, or None when there is none."""
    from pyspark.sql import datasource as spark

    if isinstance(found, spark.Not):
        item = predicate_of(found.child, table)
        return None if item is None else ir.Not(item)
    column = _column(getattr(found, "attribute", ()), table)
    if column is None:
        return None
    match found:
        case spark.IsNull():
            return ir.IsNull(column)
        case spark.IsNotNull():
            return ir.IsNull(column, negated=True)
        case spark.In(value=values):
            items = [_constant(value, column.type) for value in values]
            known = tuple(item.value for item in items if item is not None)
            kind = F64 if column.type.scalar in FLOATS else PropType(column.type.scalar)
            return ir.InSet(column, ir.Const(known, kind)) if len(known) == len(items) else None
    constant = _constant(getattr(found, "value", None), column.type)
    return None if constant is None else _test(found, column, constant)


def _test(found: Filter, column: ir.ColumnRef, constant: ir.Const) -> ir.Predicate | None:
    from pyspark.sql import datasource as spark

    match found:
        case spark.EqualTo():
            return ir.Compare("=", column, constant)
        case spark.EqualNullSafe():
            if constant.value is None:
                return ir.IsNull(column)
            # Never unknown: its negation is true of nulls.
            return ir.And((ir.Compare("=", column, constant), ir.IsNull(column, negated=True)))
        case spark.LessThan():
            return ir.Compare("<", column, constant)
        case spark.LessThanOrEqual():
            return ir.Compare("<=", column, constant)
        case spark.GreaterThan():
            return ir.Not(ir.Compare("<=", column, constant))
        case spark.GreaterThanOrEqual():
            return ir.Not(ir.Compare("<", column, constant))
        case spark.StringStartsWith():
            return ir.StartsWith(column, constant)
        case spark.StringContains():
            return ir.Substring(column, constant)
    return None


def _column(path: tuple[str, ...], table: Table) -> ir.ColumnRef | None:
    if len(path) != 1:
        return None
    found = next((column for column in table.columns if column.name == path[0]), None)
    return None if found is None else ir.ColumnRef(found.name, found.type)


def _constant(value: Any, kind: PropType) -> ir.Const | None:
    """A value as Python got it from Spark, in the form of the column's type; None when it has none there."""
    if kind.is_list or kind.scalar in (Scalar.BLOB, Scalar.VECTOR):
        return None
    # A float is not given the column's precision, to which the constant would be rounded.
    plain = F64 if kind.scalar in FLOATS else PropType(kind.scalar)
    if value is None:
        return ir.Const(None, plain)
    match kind.scalar, value:
        case (Scalar.STRING, str()) | (Scalar.BOOL, bool()):
            return ir.Const(value, plain)
        case scalar, int() if scalar in INT_RANGES and not isinstance(value, bool):
            return ir.Const(value, plain)
        case scalar, Decimal() if scalar in INT_RANGES and value == int(value):
            return ir.Const(int(value), plain)
        case scalar, float() if scalar in FLOATS and value == value:
            return ir.Const(value, plain)
        case Scalar.DATETIME, datetime() if value.tzinfo is None and value.microsecond % 1000 == 0:
            return ir.Const(millis_of(value), plain)
        case Scalar.DATE, date() if not isinstance(value, datetime):
            return ir.Const(days_of(value), plain)
    return None
