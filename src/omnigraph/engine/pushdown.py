"""Predicates as the SQL filter of a Lance scan.

A scan may return rows that the predicate is not true of, never leave one out that it is true of. Each predicate
is written down twice over, as the rows it is *true* of and as the rows it is *false* of: `not` then only swaps
the two and stands before nothing but single tests, so that neither a row where the truth is unknown nor a
part that could not be pushed is ever negated.

A constant is written in the exact type of the column that it meets. Lance refuses an integer column against a
literal that does not fit, rounds a literal to a float column, and elsewhere casts the column, which hides it from
its index. Floats in Lance are in total order: NaNs lie beyond both infinities, which ranges must cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NoReturn, TypeAlias

from omnigraph.engine.arrow_expressions import RowRef, matches
from omnigraph.engine.exact_numbers import FLIPPED, constant_value, exact_value, narrow_comparison
from omnigraph.engine.parameters import Bindings
from omnigraph.lang import ir
from omnigraph.lang.temporal import MAX_MILLIS, MIN_MILLIS, days_of, format_date, format_datetime
from omnigraph.lang.types import FLOATS, INT_RANGES, Scalar

ColumnName: TypeAlias = Callable[[ir.PropertyRef | ir.ColumnRef], str | None]
_Test: TypeAlias = ir.Compare | ir.InSet | ir.ListContains | ir.Substring | ir.StartsWith | ir.IsNull

_CONSTANT = (ir.Const, ir.ParamRef, ir.Now)
_COLUMN = (ir.PropertyRef, ir.ColumnRef)
_NEGATED: dict[ir.CompareOp, ir.CompareOp] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    "<=": ">",
    ">": "<=",
    ">=": "<",
}
_FIRST_DAY, _LAST_DAY = days_of(date.min), days_of(date.max)
_I64_MIN = INT_RANGES[Scalar.I64][0]
_INFINITY = {Scalar.F32: "cast('{}inf' as float)", Scalar.F64: "cast('{}inf' as double)"}
# What a bare literal is not already; only elements of lists need it, columns take their literals' type along.
_ELEMENTS = {Scalar.I32: "Int32", Scalar.U32: "UInt32", Scalar.U64: "UInt64", Scalar.F32: "Float32"}
_MILLIS = "Timestamp(Millisecond, None)"
# Lance's parser gives up on an expression nested some forty deep; a test and its literals nest a few themselves.
_MAX_DEPTH = 24
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Pushed:
    """A filter for a scan; without `sql` the scan returns every row.

    The rows it selects include all that match; when `exact` they are the ones that match.
    """

    sql: str | None
    exact: bool


_EVERY = Pushed(None, exact=True)
_NONE = Pushed("false", exact=True)
_OPEN = Pushed(None, exact=False)


def push_down(predicate: ir.Predicate, name: ColumnName, bindings: Bindings) -> Pushed:
    """The filter that selects the rows a predicate is true of, or as few more as can be said in SQL.

    `name` gives the name of a reference's column in the scanned table, or None when it is not in there.
    A parameter outside the enum it meets is `InvalidInput`.

    >>> from omnigraph.lang.types import F64, PropType
    >>> age = ir.ColumnRef("age", PropType(Scalar.I32, nullable=True))
    >>> push_down(ir.Compare("<", age, ir.Const(2.7, F64)), lambda ref: "age_7", Bindings())
    Pushed(sql='`age_7` <= 2', exact=True)
    """
    return _Writer(name, bindings).select(predicate, True)


class _NoColumns:
    """One row of nothing, for predicates over constants."""

    num_rows = 1

    def column(self, ref: RowRef) -> NoReturn:
        raise AssertionError(f"{ref} is not a constant")


@dataclass(frozen=True, slots=True)
class _Writer:
    name: ColumnName
    bindings: Bindings

    def select(self, predicate: ir.Predicate, wanted: bool, depth: int = 0) -> Pushed:
        """The rows on which the predicate has the wanted truth."""
        if depth > _MAX_DEPTH:
            return _OPEN
        match predicate:
            case ir.And():
                return (_all if wanted else _any)(
                    [self.select(item, wanted, depth + 1) for item in predicate.items]
                )
            case ir.Or():
                return (_any if wanted else _all)(
                    [self.select(item, wanted, depth + 1) for item in predicate.items]
                )
            case ir.Not():
                return self.select(predicate.item, not wanted, depth + 1)
            case ir.TextMatch():
                return _OPEN
            case _:
                return self._test(predicate, wanted)

    def _test(self, predicate: _Test, wanted: bool) -> Pushed:
        if all(isinstance(operand, _CONSTANT) for operand in _operands(predicate)):
            asked = predicate if wanted else ir.Not(predicate)
            return _EVERY if matches(asked, _NoColumns(), self.bindings)[0].as_py() else _NONE
        match predicate:
            case ir.Compare():
                return self._compare(predicate, wanted)
            case ir.InSet():
                return self._member(predicate.operand, predicate.items, wanted != predicate.negated)
            case ir.ListContains():
                return self._member(predicate.item, predicate.items, wanted)
            case ir.Substring():
                return self._substring(predicate, wanted)
            case ir.StartsWith():
                return self._starts_with(predicate, wanted)
            case ir.IsNull():
                column = self._column(predicate.operand)
                # What makes a Blob absent is not whether its struct is null alone.
                if column is None or predicate.operand.type.scalar is Scalar.BLOB:
                    return _OPEN
                return _exactly(f"{column} IS {'NULL' if wanted != predicate.negated else 'NOT NULL'}")

    def _column(self, expr: ir.Expr) -> str | None:
        name = self.name(expr) if isinstance(expr, _COLUMN) else None
        return None if name is None else "`" + name.replace("`", "``") + "`"

    def _compare(self, predicate: ir.Compare, wanted: bool) -> Pushed:
        op, left, right = predicate.op, predicate.left, predicate.right
        if isinstance(left, _CONSTANT):
            op, left, right = FLIPPED[op], right, left
        column = self._column(left)
        if column is None:
            return _OPEN
        if not isinstance(right, _CONSTANT):
            return self._compare_columns(op if wanted else _NEGATED[op], column, left, right)
        value = constant_value(right, self.bindings)
        if value is None:
            return _NONE
        assert not isinstance(value, tuple)
        found = narrow_comparison(op, value, left.type.scalar)
        if isinstance(found, bool):
            return _exactly(f"{column} IS NOT NULL") if found == wanted else _NONE
        return _exactly(_comparison(column, left.type.scalar, *found, wanted))

    def _compare_columns(self, op: ir.CompareOp, column: str, left: ir.Expr, right: ir.Expr) -> Pushed:
        other = self._column(right)
        # Lance would round wide integers to floats, and tell negative from positive zero.
        if other is None or left.type.scalar in FLOATS or right.type.scalar in FLOATS:
            return _OPEN
        return _exactly(f"{column} {op} {other}")

    def _member(self, operand: ir.Expr, items: ir.Expr, wanted: bool) -> Pushed:
        if isinstance(operand, _CONSTANT):
            return self._element(constant_value(operand, self.bindings), items, wanted)
        if not isinstance(items, _CONSTANT):
            return _OPEN
        values = constant_value(items, self.bindings)
        if values is None:
            return _NONE
        assert isinstance(values, tuple)
        if not values:
            return _NONE if wanted else _EVERY
        column = self._column(operand)
        if column is None:
            return _OPEN
        if None in values and not wanted:
            return _NONE
        scalar = operand.type.scalar
        texts = [
            _literal(fitted, scalar)
            for value in values
            if value is not None and not isinstance(value, tuple)
            for fitted in _equals(value, scalar)
        ]
        if not texts:
            return _NONE if wanted else _exactly(f"{column} IS NOT NULL")
        return _exactly(f"{column} {'IN' if wanted else 'NOT IN'} ({', '.join(dict.fromkeys(texts))})")

    def _element(self, value: ir.Value, items: ir.Expr, wanted: bool) -> Pushed:
        column = self._column(items)
        if value is None and wanted:
            return _NONE
        if column is None or value is None:
            return _OPEN
        assert not isinstance(value, tuple)
        scalar = items.type.scalar
        tests = [f"array_has({column}, {_element_literal(item, scalar)})" for item in _equals(value, scalar)]
        if wanted:
            return _any([_exactly(test) for test in tests])
        return _all([_exactly(f"NOT {test}") for test in tests] or [_exactly(f"{column} IS NOT NULL")])

    def _substring(self, predicate: ir.Substring, wanted: bool) -> Pushed:
        column, part = self._column(predicate.text), self._pattern(predicate.part)
        if part is None:
            return _NONE
        if column is None or not isinstance(part, str):
            return _OPEN
        return _exactly(f"{'' if wanted else 'NOT '}contains({column}, {_quoted(part)})")

    def _starts_with(self, predicate: ir.StartsWith, wanted: bool) -> Pushed:
        column, prefix = self._column(predicate.text), self._pattern(predicate.prefix)
        if prefix is None:
            return _NONE
        if column is None or not isinstance(prefix, str):
            return _OPEN
        if not prefix:
            return _exactly(f"{column} IS NOT NULL") if wanted else _NONE
        # A range of strings uses the index, and nothing in a prefix is special there.
        after = _after_prefix(prefix)
        if wanted:
            end = [] if after is None else [_exactly(f"{column} < {_quoted(after)}")]
            return _all([_exactly(f"{column} >= {_quoted(prefix)}"), *end])
        end = [] if after is None else [_exactly(f"{column} >= {_quoted(after)}")]
        return _any([_exactly(f"{column} < {_quoted(prefix)}"), *end])

    def _pattern(self, expr: ir.Expr) -> str | ir.Expr | None:
        """The text of a constant pattern, None when it is null, or the expression when it is no constant."""
        if not isinstance(expr, _CONSTANT):
            return expr
        value = constant_value(expr, self.bindings)
        assert value is None or isinstance(value, str)
        return value


def _operands(predicate: _Test) -> tuple[ir.Expr, ...]:
    match predicate:
        case ir.Compare():
            return predicate.left, predicate.right
        case ir.InSet():
            return predicate.operand, predicate.items
        case ir.ListContains():
            return predicate.item, predicate.items
        case ir.Substring():
            return predicate.text, predicate.part
        case ir.StartsWith():
            return predicate.text, predicate.prefix
        case ir.IsNull():
            return (predicate.operand,)


def _exactly(sql: str) -> Pushed:
    return Pushed(sql, exact=True)


def _all(parts: Sequence[Pushed]) -> Pushed:
    if _NONE in parts:
        return _NONE
    texts = [part.sql for part in parts if part.sql is not None]
    return Pushed(_joined(" AND ", texts) if texts else None, all(part.exact for part in parts))


def _any(parts: Sequence[Pushed]) -> Pushed:
    if _EVERY in parts:
        return _EVERY
    kept = [part for part in parts if part != _NONE]
    texts = [part.sql for part in kept if part.sql is not None]
    if not kept:
        return _NONE
    if len(texts) < len(kept):
        return _OPEN
    return Pushed(_joined(" OR ", texts), all(part.exact for part in kept))


def _joined(word: str, texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else word.join(f"({text})" for text in texts)


def _comparison(column: str, scalar: Scalar, op: ir.CompareOp, value: str | int | float, wanted: bool) -> str:
    test = f"{column} {op if wanted else _NEGATED[op]} {_literal(value, scalar)}"
    if scalar not in FLOATS or op in ("=", "!="):
        return test
    # NaNs of either sign lie outside the infinities: in no range, and in the opposite of every range.
    side, beyond = (">=", "<") if op in ("<", "<=") else ("<=", ">")
    end = _literal(-math.inf if op in ("<", "<=") else math.inf, scalar)
    return f"({test}) AND ({column} {side} {end})" if wanted else f"({test}) OR ({column} {beyond} {end})"


def _equals(value: str | int | float, scalar: Scalar) -> tuple[str | int | float, ...]:
    """The values of the column's type that are equal to a value: none, one, or both zeros."""
    found = exact_value(value, scalar)
    if found is None:
        return ()
    return (-0.0, 0.0) if scalar in FLOATS and found == 0 else (found,)


def _literal(value: str | int | float, scalar: Scalar) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if scalar in FLOATS:
        return _INFINITY[scalar].format("-" if value < 0 else "") if math.isinf(value) else repr(float(value))
    assert isinstance(value, int)
    # The parser negates a positive literal, and there is none for the lowest integer.
    whole = f"cast('{value}' as bigint)" if value == _I64_MIN else str(value)
    if scalar is Scalar.DATE:
        readable = _FIRST_DAY <= value <= _LAST_DAY
        return f"date '{format_date(value)}'" if readable else f"cast({whole} as date)"
    if scalar is Scalar.DATETIME:
        readable = MIN_MILLIS <= value <= MAX_MILLIS
        return (
            f"timestamp '{format_datetime(value).rstrip('Z')}'"
            if readable
            else f"arrow_cast({whole}, '{_MILLIS}')"
        )
    return whole


def _element_literal(value: str | int | float, scalar: Scalar) -> str:
    text = _literal(value, scalar)
    if scalar is Scalar.DATETIME:
        return f"arrow_cast({text}, '{_MILLIS}')"
    return f"arrow_cast({text}, '{_ELEMENTS[scalar]}')" if scalar in _ELEMENTS else text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _after_prefix(prefix: str) -> str | None:
    """The first string after all that begin with the prefix, by code point, or None when there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code < 0x110000:
            return prefix[: end - 1] + chr(code)
    return None
