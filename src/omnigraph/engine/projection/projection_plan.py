"""The plan of a projection: grouping, output columns, distinct, order, skip and limit.

A `ProjectionPlan` is the relational part of a query that runs after pattern matching. Every reference is resolved
to the position of a column, so the engines (Arrow, DuckDB, Spark) do not depend on the graph model. All engines
return the same rows:

- Nulls are equal as group keys. Groups are in the order of their first rows unless ordered.
- Nulls sort first ascending and last descending. A NaN sorts after every number. Negative zero equals zero.
  Strings sort by code point. False sorts before true. `ties` follow the order, ascending, and make it total.
- ``count`` without a column counts rows, with a column its non-null values. A count beyond 64 bits raises
  `InvalidInput`. ``sum`` and ``avg`` are float64, and null without a value. ``min`` and ``max`` keep the type of
  the column and return a NaN only if there is no other value. ``collect`` lists the non-null values in row order.
- Distinct keeps the first of equal rows. As in group keys, NaNs are equal to each other, and so are the two
  zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from omnigraph.engine.exact_counts import Counts
from omnigraph.lang.ir import AggregateFn

# A column of the matched rows. A dictionary column defers the lookup of its values: its indices are row positions
# in a whole table column, so most of its dictionary may be unused and values in it may repeat.
InputColumn: TypeAlias = pa.Array | pa.ChunkedArray | pa.DictionaryArray


@dataclass(frozen=True, slots=True)
class InputRef:
    """The value of an input column, by position."""

    column: int


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """An aggregate over the values of a column in a group. Without a column it counts rows."""

    fn: AggregateFn
    column: int | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A result column: its name, its Arrow type, and the source of its values."""

    name: str
    type: pa.DataType
    value: InputRef | AggregateCall


@dataclass(frozen=True, slots=True)
class SortKey:
    """A sort key: an input column, or with `of_output` a result column, by position."""

    column: int
    descending: bool = False
    of_output: bool = False


@dataclass(frozen=True, slots=True)
class ProjectionPlan:
    """A projection with all references resolved to column positions.

    If `grouped`, rows are grouped by the outputs that are not aggregates; without such an output there is one
    group, even over no rows. The `order` of a grouped or distinct projection refers to outputs only, and has no
    `ties`. `ties` are positions of input columns.
    """

    outputs: tuple[OutputColumn, ...]
    grouped: bool = False
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    ties: tuple[int, ...] = ()
    skip: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class MatchedRows:
    """The rows that a pattern matched, as columns of equal length.

    With `weights`, each row stands for that many equal rows; a weight beyond 64 bits is a Python integer. Only
    counts, sums and averages may depend on them, and only grouped projections may have them. `distinct` holds the
    positions of dictionary columns whose dictionary has neither repeated values nor nulls: rows are equal there
    exactly if their indices are equal.
    """

    num_rows: int
    columns: tuple[InputColumn, ...]
    weights: Counts | None = None
    distinct: frozenset[int] = frozenset()


def used_columns(projection: ProjectionPlan) -> tuple[int, ...]:
    """Return the positions of the input columns that a projection uses, ascending."""
    taken = {output.value.column for output in projection.outputs}
    ordered = {key.column for key in projection.order if not key.of_output}
    return tuple(
        sorted(position for position in taken | ordered | {*projection.ties} if position is not None)
    )
