"""The rules that a row keeps or breaks on its own, each a function over whole columns.

Nothing here knows a graph: a type, its table and rows are enough, and all of them can be sent to a task.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Column, Table
from omnigraph.catalog.columns import BLOB_DATA, BLOB_URI, arrow_type
from omnigraph.catalog.row_json import json_float, json_values
from omnigraph.errors import InvalidInput
from omnigraph.lang.schema import Check, EdgeType, NodeType, Range
from omnigraph.lang.types import INT_RANGES, Scalar
from omnigraph.rules.delta import Violation
from omnigraph.rules.violations import REPORTED, Findings, Origin, report, text_of

Positions: TypeAlias = np.ndarray[Any, Any]


def row_violations(
    table: Table, entity: NodeType | EdgeType, rows: pa.Table, origin: Origin | None = None
) -> Findings:
    """Required values, enums, vectors, list elements, ``@range`` and ``@check`` over rows by logical column.

    A column that the rows do not have counts as null in each of them. One whose values do not fit the type is
    `InvalidInput`: such rows are not the graph's to judge. With `origin` violations tell where their row is from.
    """

    def found() -> Iterator[Findings]:
        first = 0
        for batch in rows.to_batches():
            at = None if origin is None else origin.slice(first, batch.num_rows)
            yield from _batch(table, entity, batch, at)
            first += batch.num_rows

    return Findings.merge(found())


def broken_rows(table: Table, entity: NodeType | EdgeType, batch: pa.RecordBatch) -> dict[int, list[str]]:
    """Every row of a batch that breaks a rule, by position and in order, with all that is wrong with it."""
    origin = Origin(pa.array(np.arange(batch.num_rows)))
    found: dict[int, list[str]] = {}
    for part in _batch(table, entity, batch, origin, batch.num_rows):
        for item in part:
            found.setdefault(item.details["line"], []).append(item.message)
    return {position: sorted(found[position]) for position in sorted(found)}


def _batch(
    table: Table,
    entity: NodeType | EdgeType,
    batch: pa.RecordBatch,
    origin: Origin | None,
    limit: int = REPORTED,
) -> Iterator[Findings]:
    columns = {column.name: _column_rows(table, column, batch, origin, limit) for column in table.columns}
    for rows in columns.values():
        if not rows.column.type.nullable:
            yield required(rows)
        if rows.column.type.is_enum:
            yield enum(rows)
        if rows.column.type.scalar is Scalar.VECTOR:
            yield from vector(rows)
        if rows.column.type.is_list:
            yield list_elements(rows)
    for constraint in entity.effective_constraints:
        match constraint:
            case Range():
                yield from value_range(columns[constraint.property], constraint)
            case Check():
                yield check(columns[constraint.property], constraint)


@dataclass(frozen=True)
class ColumnRows:
    """One column of some rows: their ids and its values, in the type of the column where that is a scalar."""

    table: Table
    column: Column
    ids: pa.Array
    values: pa.Array
    origin: Origin | None = None
    limit: int = REPORTED

    @property
    def place(self) -> str:
        """How messages name the property."""
        return f"{self.table.name}.{self.column.name}"

    def where(self, mask: pa.Array, rule: str, say: Callable[[Any], str]) -> Findings:
        """One violation for each row of a mask; null in the mask is no violation."""

        def values(chosen: Positions) -> list[Any]:
            return json_values(self.values.take(pa.array(chosen)), self.column.type)

        return self.at(_positions(mask.fill_null(False)), rule, values, say)

    def at(
        self,
        positions: Positions,
        rule: str,
        values: Callable[[Positions], list[Any]],
        say: Callable[[Any], str],
    ) -> Findings:
        """One violation for each position; `values` reads the values of those that are reported."""

        def describe(chosen: Positions, ids: list[str | None]) -> Iterator[Violation]:
            origins = [{}] * len(chosen) if self.origin is None else self.origin.details(chosen)
            for id_, value, origin in zip(ids, values(chosen), origins, strict=True):
                yield Violation(rule, self.table.key, say(value), id_, self.column.name, value, origin)

        return report(self.ids, positions, describe, self.limit)

    def absent(self, positions: Positions, rule: str, message: str) -> Findings:
        """One violation for each position where the fault is that there is nothing."""
        return self.at(positions, rule, lambda chosen: [None] * len(chosen), lambda _: message)


def _column_rows(
    table: Table, column: Column, batch: pa.RecordBatch, origin: Origin | None, limit: int
) -> ColumnRows:
    wanted = arrow_type(column.type)
    if column.name not in batch.schema.names:
        values = pa.nulls(batch.num_rows, wanted)
    else:
        values = batch.column(column.name)
    # A vector of another length would not cast: which one it is is a rule of its own. A blob is not looked into.
    keep = column.type.scalar is Scalar.BLOB or (
        column.type.scalar is Scalar.VECTOR and _is_list(values.type)
    )
    if values.type != wanted and not keep:
        try:
            values = values.cast(wanted)
        except pa.ArrowException as error:
            raise InvalidInput(f"property '{column.name}' expects {column.type}: {error}") from error
    return ColumnRows(table, column, batch.column("id"), values, origin, limit)


def _is_list(found: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    )


def _positions(mask: pa.Array) -> Positions:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def required(rows: ColumnRows) -> Findings:
    """A value that is not nullable is there. A blob of neither bytes nor address is absent too."""
    absent = rows.values.is_null()
    if rows.column.type.scalar is Scalar.BLOB:
        parts = [pc.struct_field(rows.values, name).is_null() for name in (BLOB_DATA, BLOB_URI)]
        absent = pc.and_(*parts)
    message = f"non-nullable property '{rows.column.name}' has null or invalid values"
    return rows.absent(_positions(absent), "required", message)


def enum(rows: ColumnRows) -> Findings:
    """An enum value is one of the declared ones."""
    allowed = rows.column.type.enum_values or ()
    outside = pc.and_(
        rows.values.is_valid(),
        pc.invert(pc.is_in(rows.values, value_set=pa.array(allowed, rows.values.type))),
    )
    expected = ", ".join(allowed)
    return rows.where(
        outside, "enum", lambda value: f"invalid enum value '{value}' for {rows.place} (expected: {expected})"
    )


def check(rows: ColumnRows, rule: Check) -> Findings:
    """A String contains a match of the pattern, as RE2 reads it: there ``$`` is the very end of the text."""
    unmatched = pc.invert(pc.match_substring_regex(rows.values, rule.pattern))
    return rows.where(
        unmatched,
        "check",
        lambda value: (
            f"@check violation on {rows.place}: value '{value}' does not match pattern '{rule.pattern}'"
        ),
    )


def value_range(rows: ColumnRows, rule: Range) -> Iterator[Findings]:
    """A number lies within the bounds, compared by value across widths; NaN lies within none."""
    values = rows.values
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        message = f"@range violation on {rows.place}: value is NaN"
        yield rows.where(pc.is_nan(values), "range", lambda _: message)
    scalar = rows.column.type.scalar
    if rule.min is not None:
        yield _outside(rows, _below(values, scalar, rule.min), "< min", rule.min)
    if rule.max is not None:
        yield _outside(rows, _above(values, scalar, rule.max), "> max", rule.max)


def _outside(rows: ColumnRows, mask: pa.Array, side: str, bound: int | float) -> Findings:
    def say(value: Any) -> str:
        text = text_of(value)
        if text == str(bound):
            # Only an F32 can be beyond a bound and print like it; then its exact value explains why.
            text = repr(float(np.float32(value)))
        return f"@range violation on {rows.place}: value {text} {side} {bound}"

    return rows.where(mask, "range", say)


def _below(values: pa.Array, scalar: Scalar, bound: int | float) -> pa.Array:
    if scalar not in INT_RANGES:
        return pc.less(values, _float_at_least(bound))
    least, greatest = INT_RANGES[scalar]
    if bound <= least:
        return pa.repeat(False, len(values))
    if bound > greatest:
        return values.is_valid()
    return pc.less(values, pa.scalar(math.ceil(bound), values.type))


def _above(values: pa.Array, scalar: Scalar, bound: int | float) -> pa.Array:
    if scalar not in INT_RANGES:
        return pc.greater(values, -_float_at_least(-bound))
    least, greatest = INT_RANGES[scalar]
    if bound >= greatest:
        return pa.repeat(False, len(values))
    if bound < least:
        return values.is_valid()
    return pc.greater(values, pa.scalar(math.floor(bound), values.type))


def _float_at_least(bound: int | float) -> float:
    """The smallest float that is not below a bound: floats are below either or below neither."""
    try:
        found = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -sys.float_info.max
    return math.nextafter(found, math.inf) if found < bound else found


def vector(rows: ColumnRows) -> Iterator[Findings]:
    """A vector has its declared dimension, and its elements are finite numbers."""
    name, dim = rows.column.name, rows.column.type.dim
    owners, lengths, elements = _flatten(rows.values)
    elements = _as_float32(rows, elements)
    yield rows.at(
        owners[lengths != dim],
        "vector",
        lambda chosen: lengths[np.searchsorted(owners, chosen)].tolist(),
        lambda length: f"vector property '{name}' expects {dim} dimensions, got {length}",
    )
    of_element = np.repeat(owners, lengths)
    yield rows.absent(
        np.unique(of_element[_positions(elements.is_null())]),
        "vector",
        f"vector property '{name}' elements must be numeric, got null",
    )
    numbers = elements.fill_null(0).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~np.isfinite(numbers))
    bad_rows, first = np.unique(of_element[bad], return_index=True)
    offending = numbers[bad[first]]
    yield rows.at(
        bad_rows,
        "vector",
        lambda chosen: list(map(json_float, offending[np.searchsorted(bad_rows, chosen)].tolist())),
        lambda _: f"vector property '{name}' elements must be finite",
    )


def _as_float32(rows: ColumnRows, elements: pa.Array) -> pa.Array:
    try:
        # Safe for floats too: a double beyond the width becomes infinite, which is what is looked for.
        return elements.cast(pa.float32())
    except pa.ArrowException as error:
        raise InvalidInput(f"property '{rows.column.name}' expects {rows.column.type}: {error}") from error


def list_elements(rows: ColumnRows) -> Findings:
    """No element of a list is null."""
    owners, lengths, elements = _flatten(rows.values)
    if not elements.null_count:
        return Findings()
    positions = np.unique(np.repeat(owners, lengths)[_positions(elements.is_null())])
    return rows.absent(positions, "list", f"list property '{rows.column.name}' elements must not be null")


def _flatten(values: pa.Array) -> tuple[Positions, Positions, pa.Array]:
    """The positions of the lists that are there, their lengths, and all their elements in a row."""
    owners = _positions(values.is_valid())
    present = values.drop_null()
    lengths = pc.list_value_length(present).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return owners, lengths, pc.list_flatten(present)
