"""The rest of a query as one SQL expression, for the engines that speak SQL.

The rows stand in the table `TABLE`: the columns ``c0``, ``c1``, … that the tail uses, the number of each row in
`ROW` and, where rows stand for several, how many in `WEIGHT`. The query gives ``o0``, ``o1``, …, one for each
output, in the order of the rows; names and exact types are for the caller to put on, because SQL has no
unsigned sums, may not repeat a name and calls the items of lists as it likes.

DuckDB and Spark agree that a NaN is one value above all numbers, that the zeros are equal and that strings
compare by bytes, so the tree is the same for both. Only the integer type wide enough for exact sums differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

import pyarrow as pa
from sqlglot import exp

from omnigraph.engine.projection.projection import Fold, Tail, Take

Dialect: TypeAlias = Literal["duckdb", "spark"]

TABLE = "matched"
ROW = "r"
WEIGHT = "w"

# Each holds any sum of 64-bit integers that can come up, exactly.
_WIDE: dict[Dialect, str] = {"duckdb": "INT128", "spark": "DECIMAL(38, 0)"}
_GROUPS = "groups"


def column_name(position: int) -> str:
    """The name of an input column in `TABLE`."""
    return f"c{position}"


def tail_query(tail: Tail, schema: pa.Schema, dialect: Dialect = "duckdb") -> exp.Select:
    """The query that gives the rows of `tail` from a table with this schema.

    >>> from omnigraph.engine.projection.projection import Key, Projected
    >>> schema = pa.schema([("c0", pa.string()), ("r", pa.int64())])
    >>> tail = Tail((Projected("name", pa.string(), Take(0)),), order=(Key(0, descending=True),), limit=3)
    >>> tail_query(tail, schema).sql("duckdb")
    'SELECT matched.c0 AS o0 FROM matched ORDER BY matched.c0 DESC, matched.r ASC NULLS FIRST LIMIT 3'
    """
    groups = tail.grouped or tail.distinct
    query = _group_rows(tail, schema, dialect) if groups else _project_rows(tail)
    if tail.limit is not None:
        query = query.limit(tail.limit)
    return query.offset(tail.skip) if tail.skip else query


def _project_rows(tail: Tail) -> exp.Select:
    columns = [output.value.column for output in tail.outputs]
    order = [
        _ordered(_input(columns[key.column] if key.of_output else key.column), descending=key.descending)
        for key in tail.order
    ]
    order += [_ordered(_input(position)) for position in tail.ties]
    outputs = [_output(_input(position), at) for at, position in enumerate(columns)]
    return exp.select(*outputs).from_(TABLE).order_by(*order, _ordered(_column(ROW)))


def _group_rows(tail: Tail, schema: pa.Schema, dialect: Dialect) -> exp.Select:
    """One row for each group, which for a distinct projection is one for each different row.

    Grouped rows differ in their keys already, so distinct adds nothing to them.
    """
    keys = [output.value.column for output in tail.outputs if isinstance(output.value, Take)]
    outputs = []
    for at, output in enumerate(tail.outputs):
        value = output.value
        found = _key(value, schema) if isinstance(value, Take) else _fold(value, schema, dialect)
        outputs.append(_output(found, at))
    first = exp.alias_(exp.Min(this=_column(ROW)), ROW)
    groups = exp.select(*outputs, first).from_(_marked_rows(tail, keys))
    groups = groups.group_by(*(_input(position) for position in dict.fromkeys(keys)))
    names = [_output_name(at) for at in range(len(tail.outputs))]
    order = [
        _ordered(_column(_output_name(key.column), _GROUPS), descending=key.descending) for key in tail.order
    ]
    return (
        exp.select(*(_column(name, _GROUPS) for name in names))
        .from_(groups.subquery(_GROUPS))
        .order_by(*order, _ordered(_column(ROW, _GROUPS)))
    )


def _marked_rows(tail: Tail, keys: Iterable[int | None]) -> exp.Expression:
    """The table, with a number for each occurrence of a value in its group where only the first is collected.

    No engine lets one aggregate be distinct and ordered by something else.
    """
    collected = {output.value.column for output in tail.outputs if _collects_distinct(output.value)}
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


def _collects_distinct(value: Take | Fold) -> bool:
    return isinstance(value, Fold) and value.fn == "collect" and value.distinct


# --- values ----------------------------------------------------------------------------------------------


def _key(take: Take, schema: pa.Schema) -> exp.Expression:
    column = _input(take.column)
    if not _has_floats(schema.field(column_name(take.column)).type):
        return column
    # Zeros of both signs are one group, and which of them an engine shows is chance: show the first.
    return exp.ArgMin(this=column, expression=_column(ROW))


def _fold(fold: Fold, schema: pa.Schema, dialect: Dialect) -> exp.Expression:
    weight = _column(WEIGHT) if WEIGHT in schema.names and not fold.distinct else None
    if fold.column is None:
        return exp.Count(this=exp.Star()) if weight is None else _total(weight)
    column, kind = _input(fold.column), schema.field(column_name(fold.column)).type
    match fold.fn:
        case "count":
            return _count(fold, column, weight)
        case "sum":
            return _sum(fold, column, kind, weight, dialect)
        case "avg":
            count = exp.Nullif(this=_count(fold, column, weight), expression=exp.Literal.number(0))
            return exp.Div(this=_sum(fold, column, kind, weight, dialect), expression=count, typed=False)
        case "min":
            return exp.Min(this=column)
        case "max":
            return _max(column, kind)
        case "collect":
            return _collect(fold, column)


def _count(fold: Fold, column: exp.Expression, weight: exp.Expression | None) -> exp.Expression:
    if weight is None:
        return exp.Count(this=_folded(fold, column))
    return _total(weight, where=_present(column))


def _total(weight: exp.Expression, where: exp.Expression | None = None) -> exp.Expression:
    total: exp.Expression = exp.Sum(this=weight)
    if where is not None:
        total = _filtered(total, where)
    return exp.cast(exp.Coalesce(this=total, expressions=[exp.Literal.number(0)]), "BIGINT")


def _sum(
    fold: Fold, column: exp.Expression, kind: pa.DataType, weight: exp.Expression | None, dialect: Dialect
) -> exp.Expression:
    exact = pa.types.is_integer(kind)
    value: exp.Expression = exp.cast(column, _WIDE[dialect] if exact else "DOUBLE", dialect=dialect)
    if weight is not None:
        value = exp.Mul(this=value, expression=weight)
    total = exp.Sum(this=_folded(fold, value))
    # DuckDB rounds twice on the straight way from a wide integer to a double; reading digits rounds once.
    return exp.cast(exp.cast(total, "VARCHAR"), "DOUBLE") if exact else total


def _max(column: exp.Expression, kind: pa.DataType) -> exp.Expression:
    if not pa.types.is_floating(kind):
        return exp.Max(this=column)
    numbers = _filtered(exp.Max(this=column), exp.Not(this=exp.IsNan(this=column)))
    return exp.Coalesce(this=numbers, expressions=[exp.Max(this=column)])


def _collect(fold: Fold, column: exp.Expression) -> exp.Expression:
    """The values with their row numbers in a list, sorted, and the numbers taken off: Spark has no other way
    to say in which order to collect, and for DuckDB it is the faster one."""
    where: exp.Expression = _present(column)
    if fold.column is not None and fold.distinct:
        occurrence = _column(_occurrence_name(fold.column))
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


def _folded(fold: Fold, value: exp.Expression) -> exp.Expression:
    return exp.Distinct(expressions=[value]) if fold.distinct else value


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
