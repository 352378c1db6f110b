"""Row rules: the constraints that can be checked in each row alone, each a function over whole columns.

They need a type, its table and rows, and no graph, so tasks can run them.
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
from omnigraph.errors import ErrorLocation, InvalidInput
from omnigraph.lang.schema import Check, EdgeType, NodeType, Range
from omnigraph.lang.types import INT_RANGES, Scalar
from omnigraph.rules.blob_ingress import external_uris
from omnigraph.rules.external_blobs import ExternalBlobPolicy
from omnigraph.rules.violations import (
    MAX_REPORTED,
    RowOrigins,
    Violation,
    Violations,
    value_text,
    violations_at,
)

Positions: TypeAlias = np.ndarray[Any, Any]


def row_violations(
    table: Table,
    entity: NodeType | EdgeType,
    rows: pa.Table,
    origins: RowOrigins | None = None,
    external_blobs: ExternalBlobPolicy | None = None,
    *,
    is_partial: bool = False,
) -> Violations:
    """Check required values, enums, vectors, list elements, ``@range`` and ``@check``.

    `rows` are by logical column; a missing column is null in every row. With `origins` the violations name the
    place of their row. `external_blobs` is the policy for the external URIs of new rows; rows that the graph
    already has are not checked against it. A column whose values cannot be converted to its type raises
    `InvalidInput`. Rows that are `is_partial` may lack required values.
    """

    def of_batches() -> Iterator[Violations]:
        first = 0
        for batch in rows.to_batches():
            places = None if origins is None else origins.slice(first, batch.num_rows)
            yield from _batch_violations(
                table, entity, batch, places, external_blobs=external_blobs, is_partial=is_partial
            )
            first += batch.num_rows

    return Violations.merge(of_batches())


def broken_rows(
    table: Table,
    entity: NodeType | EdgeType,
    batch: pa.RecordBatch,
    external_blobs: ExternalBlobPolicy | None = None,
    *,
    is_partial: bool = False,
) -> dict[int, list[Violation]]:
    """Return the violations of every row that breaks a rule, by position in the batch."""
    positions = RowOrigins(pa.array(np.arange(batch.num_rows)))
    found: dict[int, list[Violation]] = {}
    parts = _batch_violations(
        table, entity, batch, positions, batch.num_rows, external_blobs, is_partial=is_partial
    )
    for violations in parts:
        for item in violations:
            found.setdefault(item.details["line"], []).append(item)
    return {position: sorted(found[position], key=lambda item: item.message) for position in sorted(found)}


def _batch_violations(
    table: Table,
    entity: NodeType | EdgeType,
    batch: pa.RecordBatch,
    origins: RowOrigins | None,
    limit: int = MAX_REPORTED,
    external_blobs: ExternalBlobPolicy | None = None,
    *,
    is_partial: bool = False,
) -> Iterator[Violations]:
    stored = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = {
        column.name: _column_rows(table, column, batch, stored.get(column.name), origins, limit)
        for column in table.columns
    }
    for rows in columns.values():
        if not rows.column.type.nullable and not is_partial:
            yield required(rows)
        if rows.column.type.is_enum:
            yield enum(rows)
        if rows.column.type.scalar is Scalar.VECTOR:
            yield from vector(rows)
        if rows.column.type.is_list:
            yield list_elements(rows)
        if rows.column.type.scalar is Scalar.BLOB and external_blobs is not None:
            yield external_uri(rows, external_blobs)
    for constraint in entity.effective_constraints:
        match constraint:
            case Range():
                yield from value_range(columns[constraint.property], constraint)
            case Check():
                yield check(columns[constraint.property], constraint)


@dataclass(frozen=True)
class ColumnRows:
    """One column of some rows: the ids of the rows, and the values in the column's type if it is a scalar type."""

    table: Table
    column: Column
    ids: pa.Array
    values: pa.Array
    origins: RowOrigins | None = None
    limit: int = MAX_REPORTED

    @property
    def property_name(self) -> str:
        """The property as messages name it, such as `Person.age`."""
        return f"{self.table.name}.{self.column.name}"

    def where(self, mask: pa.Array, rule: str, message: Callable[[Any], str]) -> Violations:
        """Return one violation for each row where the mask is true. `message` gets the value of the row."""

        def values(chosen: Positions) -> list[Any]:
            return json_values(self.values.take(pa.array(chosen)), self.column.type)

        return self.at(_positions(mask.fill_null(False)), rule, values, message)

    def at(
        self,
        positions: Positions,
        rule: str,
        values: Callable[[Positions], list[Any]],
        message: Callable[[Any], str],
    ) -> Violations:
        """Return one violation for each position. `values` returns the values at the positions to report."""

        def describe(chosen: Positions, ids: list[str | None]) -> Iterator[Violation]:
            details = [{}] * len(chosen) if self.origins is None else self.origins.details(chosen)
            for id_, value, place in zip(ids, values(chosen), details, strict=True):
                yield Violation(rule, self.table.key, message(value), id_, self.column.name, value, place)

        return violations_at(self.ids, positions, describe, self.limit)

    def missing_at(self, positions: Positions, rule: str, message: str) -> Violations:
        """Return one violation for each position, where a value is missing."""
        return self.at(positions, rule, lambda chosen: [None] * len(chosen), lambda _: message)


def _column_rows(
    table: Table,
    column: Column,
    batch: pa.RecordBatch,
    values: pa.Array | None,
    origins: RowOrigins | None,
    limit: int,
) -> ColumnRows:
    expected = arrow_type(column.type)
    if values is None:
        values = pa.nulls(batch.num_rows, expected)
    # A vector of another length cannot be cast; the vector rule reports it. The content of a blob is not checked.
    keep = column.type.scalar is Scalar.BLOB or (
        column.type.scalar is Scalar.VECTOR and _is_list(values.type)
    )
    if values.type != expected and not keep:
        try:
            values = values.cast(expected)
        except pa.ArrowException as error:
            raise _wrong_type(table, column, error) from error
    return ColumnRows(table, column, batch.column("id"), values, origins, limit)


def _wrong_type(table: Table, column: Column, error: Exception) -> InvalidInput:
    location = ErrorLocation(type=table.name, property=column.name)
    return InvalidInput(f"expected {column.type}: {error}", location=location)


def _is_list(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    )


def _positions(mask: pa.Array) -> Positions:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def required(rows: ColumnRows) -> Violations:
    """Report missing values of a required property. A blob without data and without URI is missing."""
    if rows.column.type.scalar is Scalar.BLOB:
        parts = [pc.struct_field(rows.values, name).is_null() for name in (BLOB_DATA, BLOB_URI)]
        missing = pc.and_(*parts)
    elif rows.values.null_count:
        missing = rows.values.is_null()
    else:
        return Violations()
    message = f"non-nullable property '{rows.column.name}' has null or invalid values"
    return rows.missing_at(_positions(missing), "required", message)


def external_uri(rows: ColumnRows, policy: ExternalBlobPolicy) -> Violations:
    """Report Blob values that are URIs which the policy does not allow. Bytes are always allowed."""
    uris = external_uris(rows.values)
    given = uris.unique().drop_null().to_pylist()
    refused = pa.array([uri for uri in given if policy.refusal(uri) is not None], uris.type)
    return rows.where(
        pc.is_in(uris, value_set=refused),
        "external_blob",
        lambda uri: f"{rows.property_name}: {policy.refusal(uri)}; {policy.hint}",
    )


def enum(rows: ColumnRows) -> Violations:
    """Report values that are not in the declared set."""
    allowed = rows.column.type.enum_values or ()
    outside = pc.and_(
        rows.values.is_valid(),
        pc.invert(pc.is_in(rows.values, value_set=pa.array(allowed, rows.values.type))),
    )
    expected = ", ".join(allowed)
    return rows.where(
        outside,
        "enum",
        lambda value: f"invalid enum value '{value}' for {rows.property_name} (expected: {expected})",
    )


def check(rows: ColumnRows, rule: Check) -> Violations:
    """Report Strings that contain no match of the pattern. In RE2 ``$`` matches only at the end of the text."""
    unmatched = pc.invert(pc.match_substring_regex(rows.values, rule.pattern))
    return rows.where(
        unmatched,
        "check",
        lambda value: (
            f"@check violation on {rows.property_name}: value '{value}' does not match pattern '{rule.pattern}'"
        ),
    )


def value_range(rows: ColumnRows, rule: Range) -> Iterator[Violations]:
    """Report numbers outside the bounds, compared by value whatever the types. NaN is outside every range."""
    values = rows.values
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        message = f"@range violation on {rows.property_name}: value is NaN"
        yield rows.where(pc.is_nan(values), "range", lambda _: message)
    scalar = rows.column.type.scalar
    if rule.min is not None:
        yield _outside(rows, _below(values, scalar, rule.min), "< min", rule.min)
    if rule.max is not None:
        yield _outside(rows, _above(values, scalar, rule.max), "> max", rule.max)


def _outside(rows: ColumnRows, mask: pa.Array, side: str, bound: int | float) -> Violations:
    def message(value: Any) -> str:
        text = value_text(value)
        if text == str(bound):
            # An F32 can be outside a bound and print like it. Its exact value then shows the difference.
            text = repr(float(np.float32(value)))
        return f"@range violation on {rows.property_name}: value {text} {side} {bound}"

    return rows.where(mask, "range", message)


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
    """Return the smallest float that is not less than a bound: no float is between the two."""
    try:
        nearest = float(bound)
    except OverflowError:
        return math.inf if bound > 0 else -sys.float_info.max
    return math.nextafter(nearest, math.inf) if nearest < bound else nearest


def vector(rows: ColumnRows) -> Iterator[Violations]:
    """Report vectors of another dimension than declared, and elements that are not finite numbers."""
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
    yield rows.missing_at(
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
        # A double beyond the range of F32 becomes infinite, which the caller reports.
        return elements.cast(pa.float32())
    except pa.ArrowException as error:
        raise _wrong_type(rows.table, rows.column, error) from error


def list_elements(rows: ColumnRows) -> Violations:
    """Report lists with a null element."""
    owners, lengths, elements = _flatten(rows.values)
    if not elements.null_count:
        return Violations()
    positions = np.unique(np.repeat(owners, lengths)[_positions(elements.is_null())])
    return rows.missing_at(positions, "list", f"list property '{rows.column.name}' elements must not be null")


def _flatten(values: pa.Array) -> tuple[Positions, Positions, pa.Array]:
    """Return the positions of the lists that are not null, their lengths, and the elements of all of them."""
    owners = _positions(values.is_valid())
    present = values.drop_null()
    lengths = pc.list_value_length(present).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return owners, lengths, pc.list_flatten(present)
