"""Compile expressions and predicates to Spark columns, with the semantics of `engine.arrow_expressions`.

Differences of Spark are corrected here:

- In Spark a NaN equals itself and is greater than all numbers. In the query language it equals nothing and has no
  order.
- Spark converts two numeric types to a common one by rounding. Constants are converted to the type of the column
  instead, which is exact. Columns without a common exact type are compared by a Python UDF.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from omnigraph.catalog.columns import spark_type
from omnigraph.engine.arrow_expressions import OPERATORS, constant_truth
from omnigraph.engine.exact_numbers import FLIPPED, constant_value, exact_value, narrow_comparison
from omnigraph.engine.parameters import Bindings
from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.temporal import format_datetime
from omnigraph.lang.types import FLOATS, NUMERIC, PropType, Scalar
from omnigraph.search.text_search import max_edits
from omnigraph.spark.engine.binding_frames import PropertyKey, property_key, row_references
from omnigraph.spark.engine.udfs import call_batches, predicate_udf, snippet_udf

if TYPE_CHECKING:
    from pyspark.sql import Column

_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)
_WIDE_INTEGERS = frozenset({Scalar.I64, Scalar.U64})


@dataclass(frozen=True)
class ColumnCompiler:
    """Compiles expressions over the columns of a DataFrame and the parameters."""

    columns: Mapping[PropertyKey, str]
    bindings: Bindings

    def truth(self, predicate: ir.Predicate) -> Column:
        """Return the truth of a predicate, null where it is unknown."""
        if not row_references(predicate):
            return _lit(constant_truth(predicate, self.bindings)).cast("boolean")
        match predicate:
            case ir.And() | ir.Or():
                return self._combine(predicate)
            case ir.Not():
                return ~self.truth(predicate.item)
            case ir.IsNull():
                found = self.value(predicate.operand).isNull()
                return ~found if predicate.negated else found
            case ir.Compare():
                return self._compare(predicate)
            case ir.InSet():
                found = self._member(predicate.operand, predicate.items)
                return ~found if predicate.negated else found
            case ir.ListContains():
                return self._member(predicate.item, predicate.items)
            case ir.Substring():
                return self.value(predicate.text).contains(self.value(predicate.part))
            case ir.StartsWith():
                return self.value(predicate.text).startswith(self.value(predicate.prefix))
            case ir.TextMatch():
                return self._search(predicate)

    def value(self, expr: ir.Expr) -> Column:
        """Return the value of an expression in the Spark type of its type."""
        from pyspark.sql import functions as F  # noqa: N812 - the conventional name

        match expr:
            case ir.Const() | ir.ParamRef() | ir.Now():
                return literal(self.bindings.value(expr), expr.type)
            case ir.PropertyRef() | ir.EntityRef():
                return F.col(self.columns[property_key(expr)])
            case ir.TextMatch():
                return self._search(expr)
            case ir.Snippet():
                query = self.bindings.value(expr.query) if isinstance(expr.query, _CONSTANT) else None
                cut = snippet_udf(expr, None if query is None else str(query))
                return call_batches(cut, "string", [self.value(expr.field)])
            case _:
                raise InvalidInput(f"`{type(expr).__name__.lower()}` has no value row by row")

    def _combine(self, predicate: ir.And | ir.Or) -> Column:
        combine = operator.and_ if isinstance(predicate, ir.And) else operator.or_
        found = _lit(isinstance(predicate, ir.And))
        for item in predicate.items:
            found = combine(found, self.truth(item))
        return found

    def _search(self, match: ir.TextMatch) -> Column:
        # Check the number of edits here, so that the error is not raised by a worker.
        max_edits(match, self.bindings)
        return self._evaluate(match)

    def _evaluate(self, predicate: ir.Predicate) -> Column:
        """Evaluate a predicate with the evaluator for Arrow columns."""
        refs = row_references(predicate)
        return call_batches(
            predicate_udf(predicate, refs, self.bindings), "boolean", [self.value(ref) for ref in refs]
        )

    # --- comparisons -------------------------------------------------------------------------------------

    def _compare(self, predicate: ir.Compare) -> Column:
        op, left, right = predicate.op, predicate.left, predicate.right
        if isinstance(left, _CONSTANT):
            op, left, right = FLIPPED[op], right, left
        if isinstance(right, _CONSTANT):
            return self._against_value(
                op, self.value(left), left.type.scalar, constant_value(right, self.bindings)
            )
        kinds = {left.type.scalar, right.type.scalar}
        if not kinds & FLOATS:
            found: Column = OPERATORS[op](self.value(left), self.value(right))
            return found
        if kinds & _WIDE_INTEGERS or not kinds <= NUMERIC:
            return self._evaluate(predicate)
        return _compare_floats(op, self.value(left).cast("double"), self.value(right).cast("double"))

    def _against_value(self, op: ir.CompareOp, column: Column, scalar: Scalar, value: ir.Value) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        if value is None:
            return _unknown()
        assert not isinstance(value, tuple)
        found = narrow_comparison(op, value, scalar)
        if isinstance(found, bool):
            return F.when(column.isNotNull(), _lit(found))
        compared: Column = OPERATORS[found[0]](column, literal(found[1], PropType(scalar)))
        if scalar in FLOATS and found[0] in (">", ">="):
            return compared & ~F.isnan(column)
        return compared

    # --- membership --------------------------------------------------------------------------------------

    def _member(self, operand: ir.Expr, items: ir.Expr) -> Column:
        if isinstance(items, _CONSTANT):
            return self._member_of_values(operand, constant_value(items, self.bindings))
        if isinstance(operand, _CONSTANT):
            return self._has_value(items, constant_value(operand, self.bindings))
        return self._evaluate(ir.InSet(operand, items))

    def _member_of_values(self, operand: ir.Expr, values: ir.Value) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        if values is None:
            return _unknown()
        assert isinstance(values, tuple)
        if not values:
            return _lit(False)
        column, scalar = self.value(operand), operand.type.scalar
        given = [value for value in values if value is not None and not isinstance(value, tuple)]
        fitted = [item for item in (exact_value(value, scalar) for value in given) if item is not None]
        found = column.isin([literal(item, PropType(scalar)) for item in fitted]) if fitted else _lit(False)
        if len(given) < len(values):
            return F.when(found, _lit(True))
        return F.when(column.isNotNull(), found)

    def _has_value(self, items: ir.Expr, value: ir.Value) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        lists = self.value(items)
        if value is None:
            return F.when(F.size(lists) == 0, _lit(False))
        assert not isinstance(value, tuple)
        fitted = exact_value(value, items.type.scalar)
        if fitted is None:
            return F.when(lists.isNotNull(), _lit(False))
        return F.array_contains(lists, literal(fitted, items.type.item))


def literal(value: ir.Value, kind: PropType) -> Column:
    """Return a value as a column of the Spark type of its type."""
    from pyspark.sql import functions as F  # noqa: N812

    if value is None:
        return _lit(None).cast(spark_type(kind))
    if isinstance(value, tuple):
        scalar = PropType(Scalar.F32) if kind.scalar is Scalar.VECTOR else kind.item
        return F.array(*(literal(item, scalar) for item in value)).cast(spark_type(kind))
    match kind.scalar:
        case Scalar.DATE:
            return F.date_from_unix_date(_lit(value))
        case Scalar.DATETIME:
            assert isinstance(value, int)
            return _lit(format_datetime(value).rstrip("Z")).cast("timestamp_ntz")
        case Scalar.I64 | Scalar.U32 | Scalar.U64:
            assert isinstance(value, int)
            return _lit(Decimal(value)).cast(spark_type(kind))
        case _:
            return _lit(value).cast(spark_type(kind))


def _lit(value: Any) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.lit(value)


def _unknown() -> Column:
    return _lit(None).cast("boolean")


def _compare_floats(op: ir.CompareOp, left: Column, right: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    unknown = left.isNull() | right.isNull()
    unordered = F.isnan(left) | F.isnan(right)
    compared = F.when(unordered, _lit(op == "!=")).otherwise(OPERATORS[op](left, right))
    return F.when(~unknown, compared)
