"""A projection as one SQL query, for the SQL engines.

The rows are in the table `TABLE`: the columns ``c0``, ``c1``, … that the projection uses, the row number in `ROW`
and, for weighted rows, the weight in `WEIGHT`. The query returns ``o0``, ``o1``, …, one column per output, in row
order. The caller applies names and exact types, because SQL has no unsigned sums, does not allow repeated column
names, and chooses the names of list items itself.

DuckDB and Spark agree that a NaN is one value greater than all numbers, that the zeros are equal, and that
strings compare by bytes. Both therefore use the same query; only the integer type for exact sums differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import pyarrow as pa
from sqlglot import exp

from omnigraph.engine.projection.projection_plan import AggregateCall, InputRef, ProjectionPlan

Dialect: TypeAlias = Literal["duckdb", "spark"]

TABLE = "matched"
ROW = "r"
WEIGHT = "w"

# Types that hold any sum of 64-bit integers exactly.
_WIDE: dict[Dialect, str] = {"duckdb": "INT128", "spark": "DECIMAL(38, 0)"}
_GROUPS = "groups"


def column_name(position: int) -> str:
    """Return the name of an input column in `TABLE`."""
    return f"c{position}"


def projection_query(
    projection: ProjectionPlan, schema: pa.Schema, dialect: Dialect = "duckdb"
) -> exp.Select:
    """Build the query that computes a projection over a table with this schema.

    >>> from omnigraph.engine.projection.projection_plan import OutputColumn, SortKey
    >>> schema = pa.schema([("c0", pa.string()), ("r", pa.int64())])
    >>> name = OutputColumn("name", pa.string(), InputRef(0))
    >>> projection = ProjectionPlan((name,), order=(SortKey(0, descending=True),), limit=3)
    >>> projection_query(projection, schema).sql("duckdb")
    'SELECT matched.c0 AS o0 FROM matched ORDER BY matched.c0 DESC, matched.r ASC NULLS FIRST LIMIT 3'
    """
    groups = projection.grouped or projection.distinct
    query = _group_rows(projection, schema, dialect) if groups else _project_rows(projection)
    if projection.limit is not None:
        query = query.limit(projection.limit)
    return query.offset(projection.skip) if projection.skip else query


def _project_rows(projection: ProjectionPlan) -> exp.Select:
    columns = [output.value.column for output in projection.outputs]
    order = [
        _ordered(_input(columns[key.column] if key.of_output else key.column), descending=key.descending)
        for key in projection.order
    ]
    order += [_ordered(_input(position)) for position in projection.ties]
    outputs = [_output(_input(position), at) for at, position in enumerate(columns)]
    return exp.select(*outputs).from_(TABLE).order_by(*order, _ordered(_column(ROW)))


def _group_rows(projection: ProjectionPlan, schema: pa.Schema, dialect: Dialect) -> exp.Select:
    """Select one row per group; for a distinct projection, one row per distinct row.

    Grouped rows already differ in their keys, so distinct has no effect on them.
    """
    keys = [output.value.column for output in projection.outputs if isinstance(output.value, InputRef)]
    outputs = []
    for at, output in enumerate(projection.outputs):
        value = output.value
        found = _key(value, schema) if isinstance(value, InputRef) else _aggregate(value, schema, dialect)
        outputs.append(_output(found, at))
    first = exp.alias_(exp.Min(this=_column(ROW)), ROW)
    groups = exp.select(*outputs, first).from_(_marked_rows(projection, keys))
    groups = groups.group_by(*(_input(position) for position in dict.fromkeys(keys)))
    names = [_output_name(at) for at in range(len(projection.outputs))]
    order = [
        _ordered(_column(_output_name(key.column), _GROUPS), descending=key.descending)
        for key in projection.order
    ]
    return (
        exp.select(*(_column(name, _GROUPS) for name in names))
        .from_(groups.subquery(_GROUPS))
        .order_by(*order, _ordered(_column(ROW, _GROUPS)))
    )


def _marked_rows(projection: ProjectionPlan, keys: Iterable[int | None]) -> exp.Expression:
    """Select the table with the number of each value's occurrence in its group, for columns that are collected
    distinct.

    SQL does not allow an aggregate that is distinct and ordered by another column.
    """
    collected = {output.value.column for output in projection.outputs if _collects_distinct(output.value)}
    if not collected:
        return exp.to_table(TABLE)
    occurrences = [
        exp.alias_(
            exp.Window(
                this=exp.RowNumber(),
                partition_by=[_input(key) for key in dict.fromkeys([*keys, position])],
                order=exp.Order(expressions=[_ordered(_column(ROW))]),
            ),
            _occurrence_name(position),
        )
        for position in sorted(position for position in collected if position is not None)
    ]
    return exp.select(exp.Star(), *occurrences).from_(TABLE).subquery(TABLE)


def _collects_distinct(value: InputRef | AggregateCall) -> bool:
    return isinstance(value, AggregateCall) and value.fn == "collect" and value.distinct


# --- values ----------------------------------------------------------------------------------------------


def _key(take: InputRef, schema: pa.Schema) -> exp.Expression:
    column = _input(take.column)
    if not _has_floats(schema.field(column_name(take.column)).type):
        return column
    # Zeros of both signs form one group, and engines return either of them: return the zero of the first row.
    return exp.ArgMin(this=column, expression=_column(ROW))


def _aggregate(call: AggregateCall, schema: pa.Schema, dialect: Dialect) -> exp.Expression:
    weight = _column(WEIGHT) if WEIGHT in schema.names and not call.distinct else None
    if call.column is None:
        return exp.Count(this=exp.Star()) if weight is None else _total(weight)
    column, kind = _input(call.column), schema.field(column_name(call.column)).type
    match call.fn:
        case "count":
            return _count(call, column, weight)
        case "sum":
            return _sum(call, column, kind, weight, dialect)
        case "avg":
            count = exp.Nullif(this=_count(call, column, weight), expression=exp.Literal.number(0))
            return exp.Div(this=_sum(call, column, kind, weight, dialect), expression=count, typed=False)
        case "min":
            return exp.Min(this=column)
        case "max":
            return _max(column, kind)
        case "collect":
            return _collect(call, column)


def _count(call: AggregateCall, column: exp.Expression, weight: exp.Expression | None) -> exp.Expression:
    if weight is None:
        return exp.Count(this=_argument(call, column))
    return _total(weight, where=_present(column))


def _total(weight: exp.Expression, where: exp.Expression | None = None) -> exp.Expression:
    total: exp.Expression = exp.Sum(this=weight)
    if where is not None:
        total = _filtered(total, where)
    return exp.cast(exp.Coalesce(this=total, expressions=[exp.Literal.number(0)]), "BIGINT")


def _sum(
    call: AggregateCall,
    column: exp.Expression,
    kind: pa.DataType,
    weight: exp.Expression | None,
    dialect: Dialect,
) -> exp.Expression:
    exact = pa.types.is_integer(kind)
    value: exp.Expression = exp.cast(column, _WIDE[dialect] if exact else "DOUBLE", dialect=dialect)
    if weight is not None:
        value = exp.Mul(this=value, expression=weight)
    total = exp.Sum(this=_argument(call, value))
    # DuckDB rounds twice when it casts a wide integer to a double. A cast by way of text rounds once.
    return exp.cast(exp.cast(total, "VARCHAR"), "DOUBLE") if exact else total


def _max(column: exp.Expression, kind: pa.DataType) -> exp.Expression:
    if not pa.types.is_floating(kind):
        return exp.Max(this=column)
    numbers = _filtered(exp.Max(this=column), exp.Not(this=exp.IsNan(this=column)))
    return exp.Coalesce(this=numbers, expressions=[exp.Max(this=column)])


def _collect(call: AggregateCall, column: exp.Expression) -> exp.Expression:
    """Collect the values with their row numbers in a list, sort it, and remove the numbers.

    Spark has no other way to order collected values, and DuckDB runs this faster than an ordered aggregate.
    """
    where: exp.Expression = _present(column)
    if call.column is not None and call.distinct:
        occurrence = _column(_occurrence_name(call.column))
        first = exp.EQ(this=occurrence, expression=exp.Literal.number(1))
        where = exp.And(this=where, expression=first)
    pair = exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier("at"), expression=_column(ROW)),
            exp.PropertyEQ(this=exp.to_identifier("value"), expression=column),
        ]
    )
    pairs = exp.ArraySort(this=_filtered(exp.ArrayAgg(this=pair), where))
    item = exp.to_identifier("pair")
    value = exp.Lambda(
        this=exp.Dot(this=item, expression=exp.to_identifier("value")), expressions=[item.copy()]
    )
    values = exp.Transform(this=pairs, expression=value)
    return exp.Coalesce(this=values, expressions=[exp.Array(expressions=[])])


def _argument(call: AggregateCall, value: exp.Expression) -> exp.Expression:
    return exp.Distinct(expressions=[value]) if call.distinct else value


def _filtered(aggregate: exp.Expression, where: exp.Expression) -> exp.Expression:
    return exp.Filter(this=aggregate, expression=exp.Where(this=where))


def _present(column: exp.Expression) -> exp.Expression:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(at).type) for at in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


# --- names -----------------------------------------------------------------------------------------------


def _column(name: str, table: str = TABLE) -> exp.Column:
    return exp.column(name, table)


def _input(position: int | None) -> exp.Column:
    if position is None:
        raise ValueError("only a count has no column")
    return _column(column_name(position))


def _output_name(at: int) -> str:
    return f"o{at}"


def _occurrence_name(position: int) -> str:
    return f"n{position}"


def _output(value: exp.Expression, at: int) -> exp.Expression:
    return exp.Alias(this=value, alias=exp.to_identifier(_output_name(at)))


def _ordered(value: exp.Expression, *, descending: bool = False) -> exp.Ordered:
    return exp.Ordered(this=value, desc=descending, nulls_first=not descending)
