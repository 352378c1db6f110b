"""What comes after a pattern has matched: grouping, projection, distinct, order, skip and limit, over columns.

A `Tail` is the relational rest of a query with every reference resolved to the position of a column, so that
whoever runs it, Arrow kernels, DuckDB or Spark, needs to know nothing of graphs. All give the same rows.

- Group keys compare null as one value; groups stand in first-seen order until ordered.
- Sorting puts nulls first ascending and last descending; a NaN sorts after every number; negative zero equals
  zero; strings sort by code point; false before true. `ties` follow the order, ascending, and make it total.
- ``count`` of no column counts rows, of a column its non-null values. ``sum`` and ``avg`` are float64 and null
  without a value; ``min`` and ``max`` keep their type and look at a NaN only when there is nothing else;
  ``collect`` gathers the non-null values in row order.
- Distinct keeps the first of equal rows; two NaNs are equal there and in groups, and so are the two zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from omnigraph.lang.ir import AggregateFn

# A column of the matched rows. A dictionary array stands for values that are looked up late: its indices are
# places in a whole table's column, so most of its dictionary may be unused and values in it may repeat.
TailColumn: TypeAlias = pa.Array | pa.ChunkedArray | pa.DictionaryArray


@dataclass(frozen=True, slots=True)
class Take:
    """The value of a column, by its position in the input."""

    column: int


@dataclass(frozen=True, slots=True)
class Fold:
    """An aggregate of a column over the rows of a group; without a column it counts rows."""

    fn: AggregateFn
    column: int | None = None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Projected:
    """One result column: its name, its exact Arrow type and where its values come from."""

    name: str
    type: pa.DataType
    value: Take | Fold


@dataclass(frozen=True, slots=True)
class Key:
    """One ordering item: a column of the input, or with `of_output` a result column by position."""

    column: int
    descending: bool = False
    of_output: bool = False


@dataclass(frozen=True, slots=True)
class Tail:
    """The rest of a query.

    When `grouped`, rows are grouped by the outputs that are not folds, and without any there is one group even
    over no rows. `order` of a grouped or distinct tail refers to outputs alone and has no `ties`; `ties` are
    positions of input columns.
    """

    outputs: tuple[Projected, ...]
    grouped: bool = False
    distinct: bool = False
    order: tuple[Key, ...] = ()
    ties: tuple[int, ...] = ()
    skip: int = 0
    limit: int | None = None


@dataclass(frozen=True)
class Matched:
    """The rows that a pattern matched, as columns of equal length.

    With `weights` each row stands for that many equal rows: only counts, sums and averages may depend on it, and
    a tail that is not grouped never has them. `distinct` are positions of dictionary columns that are known to hold
    no value twice and no null in their dictionary: rows are equal there exactly when their indices are.
    """

    num_rows: int
    columns: tuple[TailColumn, ...]
    weights: pa.Array | None = None
    distinct: frozenset[int] = frozenset()


def used_columns(tail: Tail) -> tuple[int, ...]:
    """The positions of the input columns that a tail looks at, ascending."""
    taken = {output.value.column for output in tail.outputs}
    ordered = {key.column for key in tail.order if not key.of_output}
    return tuple(sorted(position for position in taken | ordered | {*tail.ties} if position is not None))
