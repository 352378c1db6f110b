"""Translate predicates to the SQL filter of a Lance scan.

A scan may return rows that do not satisfy the predicate, but must return all rows that do. Each predicate is
therefore translated in two forms: the rows for which it is *true* and the rows for which it is *false*. `not`
only swaps the two forms and is otherwise applied to single tests only. A row with an unknown truth, or a part
that cannot be pushed down, is thus never negated.

A constant is written in the exact type of the column it is compared with. Lance rejects a literal that does not
fit an integer column, rounds a literal for a float column, and otherwise casts the column, which disables its
index. Lance orders floats totally: NaNs are beyond both infinities, and ranges must exclude them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

from omnigraph.engine.arrow_expressions import constant_truth
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
# The types that a bare literal does not have. Only list elements need them; columns determine the type of
# literals.
_ELEMENTS = {Scalar.I32: "Int32", Scalar.U32: "UInt32", Scalar.U64: "UInt64", Scalar.F32: "Float32"}
_MILLIS = "Timestamp(Millisecond, None)"
# Lance's parser rejects expressions nested about 40 levels deep. A test and its literals take a few levels.
_MAX_DEPTH = 24
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """A filter for a scan. Without `sql` the scan returns every row.

    The filter selects all matching rows; if `exact`, only these.
    """

    sql: str | None
    exact: bool


_ALL_ROWS = PushedFilter(None, exact=True)
_NO_ROWS = PushedFilter("false", exact=True)
_NOT_PUSHED = PushedFilter(None, exact=False)


def push_down(predicate: ir.Predicate, name: ColumnName, bindings: Bindings) -> PushedFilter:
    """Return the filter that selects the rows for which a predicate is true, or as few more rows as SQL can
    express.

    `name` returns the name of a reference's column in the scanned table, or None if the table does not have it.
    Raises `InvalidInput` for a parameter outside the enum it is used for.

    >>> from omnigraph.lang.types import F64, PropType
    >>> age = ir.ColumnRef("age", PropType(Scalar.I32, nullable=True))
    >>> push_down(ir.Compare("<", age, ir.Const(2.7, F64)), lambda ref: "age_7", Bindings())
    PushedFilter(sql='`age_7` <= 2', exact=True)
    """
    return _FilterWriter(name, bindings).select(predicate, True)


@dataclass(frozen=True, slots=True)
class _FilterWriter:
    name: ColumnName
    bindings: Bindings

    def select(self, predicate: ir.Predicate, truth: bool, depth: int = 0) -> PushedFilter:
        """Return the filter for the rows on which the predicate has the given truth."""
        if depth > _MAX_DEPTH:
            return _NOT_PUSHED
        match predicate:
            case ir.And():
                return (_all if truth else _any)(
                    [self.select(item, truth, depth + 1) for item in predicate.items]
                )
            case ir.Or():
                return (_any if truth else _all)(
                    [self.select(item, truth, depth + 1) for item in predicate.items]
                )
            case ir.Not():
                return self.select(predicate.item, not truth, depth + 1)
            case ir.TextMatch():
                return _NOT_PUSHED
            case _:
                return self._test(predicate, truth)

    def _test(self, predicate: _Test, truth: bool) -> PushedFilter:
        if all(isinstance(operand, _CONSTANT) for operand in _operands(predicate)):
            return _ALL_ROWS if constant_truth(predicate, self.bindings) is truth else _NO_ROWS
        match predicate:
            case ir.Compare():
                return self._compare(predicate, truth)
            case ir.InSet():
                return self._member(predicate.operand, predicate.items, truth != predicate.negated)
            case ir.ListContains():
                return self._member(predicate.item, predicate.items, truth)
            case ir.Substring():
                return self._substring(predicate, truth)
            case ir.StartsWith():
                return self._starts_with(predicate, truth)
            case ir.IsNull():
                column = self._column(predicate.operand)
                # Whether a Blob is null does not depend on the struct alone.
                if column is None or predicate.operand.type.scalar is Scalar.BLOB:
                    return _NOT_PUSHED
                return _exactly(f"{column} IS {'NULL' if truth != predicate.negated else 'NOT NULL'}")

    def _column(self, expr: ir.Expr) -> str | None:
        name = self.name(expr) if isinstance(expr, _COLUMN) else None
        return None if name is None else "`" + name.replace("`", "``") + "`"

    def _compare(self, predicate: ir.Compare, truth: bool) -> PushedFilter:
        op, left, right = predicate.op, predicate.left, predicate.right
        if isinstance(left, _CONSTANT):
            op, left, right = FLIPPED[op], right, left
        column = self._column(left)
        if column is None:
            return _NOT_PUSHED
        if not isinstance(right, _CONSTANT):
            return self._compare_columns(op if truth else _NEGATED[op], column, left, right)
        value = constant_value(right, self.bindings)
        if value is None:
            return _NO_ROWS
        assert not isinstance(value, tuple)
        found = narrow_comparison(op, value, left.type.scalar)
        if isinstance(found, bool):
            return _exactly(f"{column} IS NOT NULL") if found == truth else _NO_ROWS
        return _exactly(_comparison(column, left.type.scalar, *found, truth))

    def _compare_columns(self, op: ir.CompareOp, column: str, left: ir.Expr, right: ir.Expr) -> PushedFilter:
        other = self._column(right)
        # Lance would round wide integers to floats, and distinguish negative from positive zero.
        if other is None or left.type.scalar in FLOATS or right.type.scalar in FLOATS:
            return _NOT_PUSHED
        return _exactly(f"{column} {op} {other}")

    def _member(self, operand: ir.Expr, items: ir.Expr, truth: bool) -> PushedFilter:
        if isinstance(operand, _CONSTANT):
            return self._element(constant_value(operand, self.bindings), items, truth)
        if not isinstance(items, _CONSTANT):
            return _NOT_PUSHED
        values = constant_value(items, self.bindings)
        if values is None:
            return _NO_ROWS
        assert isinstance(values, tuple)
        if not values:
            return _NO_ROWS if truth else _ALL_ROWS
        column = self._column(operand)
        if column is None:
            return _NOT_PUSHED
        if None in values and not truth:
            return _NO_ROWS
        scalar = operand.type.scalar
        texts = [
            _literal(fitted, scalar)
            for value in values
            if value is not None and not isinstance(value, tuple)
            for fitted in _equals(value, scalar)
        ]
        if not texts:
            return _NO_ROWS if truth else _exactly(f"{column} IS NOT NULL")
        return _exactly(f"{column} {'IN' if truth else 'NOT IN'} ({', '.join(dict.fromkeys(texts))})")

    def _element(self, value: ir.Value, items: ir.Expr, truth: bool) -> PushedFilter:
        column = self._column(items)
        if value is None and truth:
            return _NO_ROWS
        if column is None or value is None:
            return _NOT_PUSHED
        assert not isinstance(value, tuple)
        scalar = items.type.scalar
        tests = [f"array_has({column}, {_element_literal(item, scalar)})" for item in _equals(value, scalar)]
        if truth:
            return _any([_exactly(test) for test in tests])
        return _all([_exactly(f"NOT {test}") for test in tests] or [_exactly(f"{column} IS NOT NULL")])

    def _substring(self, predicate: ir.Substring, truth: bool) -> PushedFilter:
        column, part = self._column(predicate.text), self._pattern(predicate.part)
        if part is None:
            return _NO_ROWS
        if column is None or not isinstance(part, str):
            return _NOT_PUSHED
        return _exactly(f"{'' if truth else 'NOT '}contains({column}, {_quoted(part)})")

    def _starts_with(self, predicate: ir.StartsWith, truth: bool) -> PushedFilter:
        column, prefix = self._column(predicate.text), self._pattern(predicate.prefix)
        if prefix is None:
            return _NO_ROWS
        if column is None or not isinstance(prefix, str):
            return _NOT_PUSHED
        if not prefix:
            return _exactly(f"{column} IS NOT NULL") if truth else _NO_ROWS
        # A range of strings can use an index and needs no escaping.
        after = _after_prefix(prefix)
        if truth:
            end = [] if after is None else [_exactly(f"{column} < {_quoted(after)}")]
            return _all([_exactly(f"{column} >= {_quoted(prefix)}"), *end])
        end = [] if after is None else [_exactly(f"{column} >= {_quoted(after)}")]
        return _any([_exactly(f"{column} < {_quoted(prefix)}"), *end])

    def _pattern(self, expr: ir.Expr) -> str | ir.Expr | None:
        """Return the text of a constant pattern, None if it is null, or the expression itself if it is not
        constant.
        """
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


def _exactly(sql: str) -> PushedFilter:
    return PushedFilter(sql, exact=True)


def _all(parts: Sequence[PushedFilter]) -> PushedFilter:
    if _NO_ROWS in parts:
        return _NO_ROWS
    texts = [part.sql for part in parts if part.sql is not None]
    return PushedFilter(_join(" AND ", texts) if texts else None, all(part.exact for part in parts))


def _any(parts: Sequence[PushedFilter]) -> PushedFilter:
    if _ALL_ROWS in parts:
        return _ALL_ROWS
    kept = [part for part in parts if part != _NO_ROWS]
    texts = [part.sql for part in kept if part.sql is not None]
    if not kept:
        return _NO_ROWS
    if len(texts) < len(kept):
        return _NOT_PUSHED
    return PushedFilter(_join(" OR ", texts), all(part.exact for part in kept))


def _join(word: str, texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else word.join(f"({text})" for text in texts)


def _comparison(column: str, scalar: Scalar, op: ir.CompareOp, value: str | int | float, truth: bool) -> str:
    test = f"{column} {op if truth else _NEGATED[op]} {_literal(value, scalar)}"
    if scalar not in FLOATS or op in ("=", "!="):
        return test
    # NaNs are outside the infinities: excluded from every range, and included in the negation of every range.
    side, beyond = (">=", "<") if op in ("<", "<=") else ("<=", ">")
    end = _literal(-math.inf if op in ("<", "<=") else math.inf, scalar)
    return f"({test}) AND ({column} {side} {end})" if truth else f"({test}) OR ({column} {beyond} {end})"


def _equals(value: str | int | float, scalar: Scalar) -> tuple[str | int | float, ...]:
    """Return the values of the column's type that equal a value: none, one, or both zeros."""
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
    # The parser negates a positive literal, and the absolute value of the lowest integer does not fit.
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
    """Return the first string, by code point, after all that start with the prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code < 0x110000:
            return prefix[: end - 1] + chr(code)
    return None
