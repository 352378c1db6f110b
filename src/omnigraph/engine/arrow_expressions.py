"""Evaluate expressions and predicates over Arrow columns, with SQL's three-valued logic.

- A comparison with null is unknown, including ``!=``. ``and``, ``or`` and ``not`` follow Kleene's logic. Unknown
  becomes false only at the end, in `matches`.
- Numbers compare by value, whatever their types. NaN follows IEEE 754: ``!=`` is true for a NaN and any number,
  every other comparison is false. Negative and positive zero are equal.
- Membership, written ``in`` or ``contains``, is an ``or`` over equalities with each item. A null operand or item
  leaves it unknown unless another item decides. A null list is unknown. An empty list has no members, not even
  for a null operand, as in SQL for an empty subquery.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.arrow_arrays import single_array
from omnigraph.engine.exact_numbers import FLIPPED, constant_value, exact_value, narrow_comparison
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.types import Scalar

RowRef: TypeAlias = ir.PropertyRef | ir.ColumnRef | ir.EntityRef
_Column: TypeAlias = pa.Array | pa.ChunkedArray
# The truth of every row, or one truth for all rows.
_Truth: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar

_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)
_UNKNOWN = pa.scalar(None, pa.bool_())
_KERNELS: dict[ir.CompareOp, Callable[..., Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
OPERATORS: dict[ir.CompareOp, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ColumnSource(Protocol):
    """The rows that an expression is evaluated over."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    def column(self, ref: RowRef) -> pa.ChunkedArray | pa.Array:
        """Return the values of a reference, one per row, in the Arrow type of its property."""


@runtime_checkable
class SearchableSource(ColumnSource, Protocol):
    """Rows that support text search."""

    def search(self, match: ir.TextMatch) -> pa.Array:
        """Return which rows match a text search, null where there is no text."""


def evaluate(
    expr: ir.Expr, source: ColumnSource, bindings: Bindings
) -> pa.Array | pa.ChunkedArray | pa.Scalar:
    """Return the value of an expression: a column if it depends on the row, otherwise a scalar.

    Raises `InvalidInput` for searches on rows without text search, rankings and aggregates.
    """
    match expr:
        case ir.Const() | ir.ParamRef() | ir.Now():
            return pa.scalar(bindings.value(expr), arrow_type(expr.type))
        case ir.PropertyRef() | ir.ColumnRef() | ir.EntityRef():
            return source.column(expr)
        case ir.TextMatch():
            return _search(expr, source)
        case ir.Nearest() | ir.Bm25() | ir.Rrf():
            raise _no_value(f"`{type(expr).__name__.lower()}` ranks rows")
        case ir.Aggregate():
            raise _no_value(f"`{expr.fn}` aggregates a group of rows")
        case ir.OutputRef():
            raise _no_value(f"`{expr.name}` is a result column")
        case ir.Snippet():
            raise _no_value("`snippet` is a column of the result")
        case ir.EmbedText():
            raise _no_value("a text to embed is only allowed in a ranking")


def _no_value(reason: str) -> InvalidInput:
    return InvalidInput(f"{reason} and has no value row by row")


def matches(predicate: ir.Predicate, source: ColumnSource, bindings: Bindings) -> pa.BooleanArray:
    """Return which rows satisfy the predicate: one boolean per row, never null."""
    truth = _truth(predicate, source, bindings)
    if isinstance(truth, pa.Scalar):
        return pa.array(np.full(source.num_rows, truth.as_py() is True))
    known = pc.fill_null(truth, False)
    return known.combine_chunks() if isinstance(known, pa.ChunkedArray) else known


def truth_values(predicate: ir.Predicate, source: ColumnSource, bindings: Bindings) -> pa.BooleanArray:
    """Return the truth of the predicate for each row: true, false, or null for unknown."""
    truth = _truth(predicate, source, bindings)
    if isinstance(truth, pa.Scalar):
        return pa.array([truth.as_py()] * source.num_rows, pa.bool_())
    return single_array(truth)


class _ConstantSource:
    """A source of one row without columns."""

    num_rows = 1

    def column(self, ref: RowRef) -> NoReturn:
        raise AssertionError(f"{ref} is not a constant")


def constant_truth(predicate: ir.Predicate, bindings: Bindings) -> bool | None:
    """Return the truth of a predicate over constants. None is unknown."""
    truth: bool | None = truth_values(predicate, _ConstantSource(), bindings)[0].as_py()
    return truth


def _truth(predicate: ir.Predicate, source: ColumnSource, bindings: Bindings) -> _Truth:
    match predicate:
        case ir.And():
            return _combine(pc.and_kleene, True, predicate.items, source, bindings)
        case ir.Or():
            return _combine(pc.or_kleene, False, predicate.items, source, bindings)
        case ir.Not():
            return pc.invert(_truth(predicate.item, source, bindings))
        case ir.IsNull():
            found = _is_null(evaluate(predicate.operand, source, bindings))
            return pc.invert(found) if predicate.negated else found
        case ir.Compare():
            return _compare(predicate, source, bindings)
        case ir.InSet():
            found = _member(predicate.operand, predicate.items, source, bindings)
            return pc.invert(found) if predicate.negated else found
        case ir.ListContains():
            return _member(predicate.item, predicate.items, source, bindings)
        case ir.Substring():
            return _match_text(
                pc.match_substring, str.__contains__, predicate.text, predicate.part, source, bindings
            )
        case ir.StartsWith():
            return _match_text(
                pc.starts_with, str.startswith, predicate.text, predicate.prefix, source, bindings
            )
        case ir.TextMatch():
            return _search(predicate, source)


def _search(match: ir.TextMatch, source: ColumnSource) -> pa.Array:
    if not isinstance(source, SearchableSource):
        raise _no_value(f"`{match.fn}` is a text search")
    return source.search(match)


def _combine(
    kernel: Callable[..., Any],
    start: bool,
    items: tuple[ir.Predicate, ...],
    source: ColumnSource,
    bindings: Bindings,
) -> _Truth:
    found = pa.scalar(start)
    for item in items:
        found = kernel(found, _truth(item, source, bindings))
    return found


def _is_null(value: pa.Array | pa.ChunkedArray | pa.Scalar) -> _Truth:
    found = pc.is_null(value)
    if not pa.types.is_struct(value.type):
        return found
    # A Blob is a struct with two alternative fields; a Blob with neither is null as well.
    empty: _Truth = pa.scalar(True)
    for index in range(value.type.num_fields):
        empty = pc.and_(empty, pc.is_null(pc.struct_field(value, index)))
    return pc.or_(found, empty)


# --- comparisons ----------------------------------------------------------------------------------------------


def _compare(predicate: ir.Compare, source: ColumnSource, bindings: Bindings) -> _Truth:
    op, left, right = predicate.op, predicate.left, predicate.right
    if isinstance(left, _CONSTANT):
        if isinstance(right, _CONSTANT):
            return _compare_values(op, constant_value(left, bindings), constant_value(right, bindings))
        op, left, right = FLIPPED[op], right, left
    column = evaluate(left, source, bindings)
    if isinstance(right, _CONSTANT):
        return _against_value(op, column, left.type.scalar, constant_value(right, bindings))
    return _compare_columns(op, column, evaluate(right, source, bindings))


def _compare_values(op: ir.CompareOp, left: ir.Value, right: ir.Value) -> pa.Scalar:
    # Python compares integers with floats by value and strings by code point, as the language does.
    if left is None or right is None:
        return _UNKNOWN
    return pa.scalar(bool(OPERATORS[op](left, right)))


def _against_value(op: ir.CompareOp, column: _Column, scalar: Scalar, value: ir.Value) -> _Truth:
    if value is None:
        return _UNKNOWN
    assert not isinstance(value, tuple)
    found = narrow_comparison(op, value, scalar)
    if isinstance(found, bool):
        return pc.if_else(pc.is_valid(column), found, _UNKNOWN)
    return _KERNELS[found[0]](column, pa.scalar(found[1], column.type))


def _compare_columns(op: ir.CompareOp, left: _Column, right: _Column) -> _Column:
    common = _common_type(left.type, right.type)
    if common is not None:
        return _KERNELS[op](left.cast(common), right.cast(common))
    unknown = _array(pc.or_(pc.is_null(left), pc.is_null(right)))
    first, second = _array(pc.fill_null(left, 0)), _array(pc.fill_null(right, 0))
    if pa.types.is_floating(right.type):
        found = _compare_mixed(op, first, second)
    elif pa.types.is_floating(left.type):
        found = _compare_mixed(FLIPPED[op], second, first)
    else:
        # NumPy compares signed with unsigned integers by value.
        found = OPERATORS[op](first, second)
    return pa.array(found, mask=unknown)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return a type that holds every value of both sides, or None for two numeric types without one."""
    kinds = (left, right)
    if left == right or not all(_is_number(kind) for kind in kinds):
        return left
    if any(pa.types.is_floating(kind) for kind in kinds):
        wide = any(pa.types.is_integer(kind) and kind.bit_width == 64 for kind in kinds)
        return None if wide else pa.float64()
    if all(pa.types.is_unsigned_integer(kind) for kind in kinds):
        return pa.uint64()
    return None if pa.uint64() in kinds else pa.int64()


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _compare_mixed(
    op: ir.CompareOp, integers: npt.NDArray[Any], floats: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Compare 64-bit integers with floats by value.

    The integral part of a float inside the range of the integers is exactly an integer, so the integers are
    compared with it, and the fraction breaks ties. The bounds of the range are powers of two, which floats hold
    exactly.
    """
    floats = floats.astype(np.float64)
    low, high = (0.0, 2.0**64) if integers.dtype == np.uint64 else (-(2.0**63), 2.0**63)
    inside = (floats >= low) & (floats < high)
    bounded = np.where(inside, floats, low)
    whole = np.floor(bounded)
    part = whole.astype(integers.dtype)
    order = (integers > part).astype(np.int8) - (integers < part).astype(np.int8)
    order[(order == 0) & (bounded > whole)] = -1
    order[floats >= high] = -1
    order[floats < low] = 1
    found: npt.NDArray[Any] = OPERATORS[op](order, 0)
    found[np.isnan(floats)] = op == "!="
    return found


# --- membership -----------------------------------------------------------------------------------------------


def _member(operand: ir.Expr, items: ir.Expr, source: ColumnSource, bindings: Bindings) -> _Truth:
    if not isinstance(items, _CONSTANT):
        return _member_of_lists(operand, items, source, bindings)
    values = constant_value(items, bindings)
    if values is None:
        return _UNKNOWN
    assert isinstance(values, tuple)
    if not values:
        return pa.scalar(False)
    if isinstance(operand, _CONSTANT):
        value = constant_value(operand, bindings)
        found = pa.scalar(False)
        for item in values:
            found = pc.or_kleene(found, _compare_values("=", value, item))
        return found
    column = evaluate(operand, source, bindings)
    return _member_of_values(column, operand.type.scalar, values)


def _member_of_values(column: _Column, scalar: Scalar, values: tuple[ir.Value, ...]) -> _Column:
    given = [value for value in values if value is not None and not isinstance(value, tuple)]
    fitted = [item for item in (exact_value(value, scalar) for value in given) if item is not None]
    known = pc.is_valid(column)
    if pa.types.is_floating(column.type):
        # `is_in` compares floats by their bits; adding zero turns negative zero into positive zero.
        column = pc.add(column, pa.scalar(0.0, column.type))
        fitted = [float(item) + 0.0 for item in fitted]
    found = pc.is_in(column, value_set=pa.array(fitted, column.type))
    if len(given) < len(values):
        known = pc.and_(known, found)
    return pc.if_else(known, found, _UNKNOWN)


def _member_of_lists(operand: ir.Expr, items: ir.Expr, source: ColumnSource, bindings: Bindings) -> _Column:
    lists = evaluate(items, source, bindings)
    lengths = _array(pc.fill_null(pc.list_value_length(lists), 0))
    owners = np.repeat(np.arange(source.num_rows), lengths)
    elements = pc.list_flatten(lists)
    if isinstance(operand, _CONSTANT):
        value = constant_value(operand, bindings)
        equal = _against_value("=", elements, items.type.scalar, value)
    else:
        equal = _compare_columns("=", elements, evaluate(operand, source, bindings).take(pa.array(owners)))
    if isinstance(equal, pa.Scalar):
        equal = pa.nulls(len(owners), pa.bool_())
    hit = _array(pc.fill_null(equal, False))
    found = np.bincount(owners[hit], minlength=source.num_rows) > 0
    undecided = np.bincount(owners[_array(pc.is_null(equal))], minlength=source.num_rows) > 0
    return pa.array(found, mask=(undecided & ~found) | _array(pc.is_null(lists)))


# --- texts ----------------------------------------------------------------------------------------------------


def _match_text(
    kernel: Callable[..., Any],
    test: Callable[[str, str], bool],
    text: ir.Expr,
    part: ir.Expr,
    source: ColumnSource,
    bindings: Bindings,
) -> _Truth:
    texts, parts = evaluate(text, source, bindings), evaluate(part, source, bindings)
    if isinstance(parts, pa.Scalar):
        pattern = parts.as_py()
        return _UNKNOWN if pattern is None else kernel(texts, pattern)
    # No Arrow kernel takes one pattern per row, and NumPy drops a trailing NUL of a pattern.
    pairs = zip(_strings(texts, source), _strings(parts, source), strict=True)
    found = [None if one is None or other is None else test(one, other) for one, other in pairs]
    return pa.array(found, pa.bool_())


def _strings(value: pa.Array | pa.ChunkedArray | pa.Scalar, source: ColumnSource) -> list[str | None]:
    found: list[str | None]
    found = [value.as_py()] * source.num_rows if isinstance(value, pa.Scalar) else value.to_pylist()
    return found


def _array(column: _Column) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
