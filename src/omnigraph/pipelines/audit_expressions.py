"""Expectations of audits: conditions over counts, in SQL, evaluated without an engine.

A query gives its number of rows as `count`, and the columns of its only row. A difference gives the functions
`inserted('Type')`, `updated('Type')`, `deleted('Type')` and `changed('Type')`; without a type they count all types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import sqlglot
import sqlglot.errors
from sqlglot import exp

from omnigraph.errors import InvalidInput

Values: TypeAlias = Mapping[str, Any]
CountOf: TypeAlias = Callable[[str, str | None], int]

_ALLOWED: tuple[type[exp.Expr], ...] = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Neg, exp.Boolean,
    exp.Between, exp.Null, exp.Is,
)  # fmt: skip
FUNCTIONS = ("inserted", "updated", "deleted", "changed")
_HINT = "write a condition such as count < 100, or deleted('Customer') < 1000"
_COMPARE: Mapping[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
    exp.Add: lambda a, b: a + b,
    exp.Sub: lambda a, b: a - b,
    exp.Mul: lambda a, b: a * b,
    exp.Div: lambda a, b: a / b,
}


def parse_expectation(text: str) -> exp.Expr:
    """Parse the condition of an audit; raise `InvalidInput` for anything but comparisons of counts."""
    try:
        parsed = sqlglot.parse_one(text, dialect="duckdb", into=exp.Condition)
    except sqlglot.errors.SqlglotError as error:
        raise InvalidInput(f"cannot parse the condition '{text}'", hint=_HINT) from error
    if not isinstance(parsed, exp.Connector | exp.Not | exp.Paren | exp.Predicate):
        raise InvalidInput(f"expected a condition, got '{text}'", hint=_HINT)
    for node in parsed.walk():
        _check(node)
    return parsed


def _check(node: exp.Expr) -> None:
    if isinstance(node, exp.Anonymous):
        if node.name.lower() not in FUNCTIONS:
            raise InvalidInput(f"unknown function '{node.name}'", hint=f"use {', '.join(FUNCTIONS)}")
        if len(node.expressions) > 1 or not all(
            isinstance(item, exp.Literal) and item.is_string for item in node.expressions
        ):
            raise InvalidInput(f"{node.name} takes the name of a type in quotes", hint=_HINT)
        return
    if not isinstance(node, (*_ALLOWED, *_COMPARE)):
        raise InvalidInput(f"`{node.sql()}` cannot be used in the condition of an audit", hint=_HINT)


def type_names(expression: exp.Expr) -> list[str]:
    """Return the types whose changes a condition counts.

    >>> type_names(parse_expectation("deleted('City') = 0 and inserted() < 5"))
    ['City']
    """
    return [item.name for call in expression.find_all(exp.Anonymous) for item in call.expressions]


def evaluate(expression: exp.Expr, values: Values, count_of: CountOf | None = None) -> Any:
    """Return the value of an expression. Null makes comparisons false.

    >>> evaluate(parse_expectation("count < 3 and kind = 'a'"), {"count": 2, "kind": "a"})
    True
    """
    match expression:
        case exp.Paren():
            return evaluate(expression.this, values, count_of)
        case exp.And():
            return _both(expression, values, count_of, lambda a, b: bool(a) and bool(b))
        case exp.Or():
            return _both(expression, values, count_of, lambda a, b: bool(a) or bool(b))
        case exp.Not():
            return not evaluate(expression.this, values, count_of)
        case exp.Neg():
            return -evaluate(expression.this, values, count_of)
        case exp.Between():
            value, low, high = (
                evaluate(expression.args[name], values, count_of) for name in ("this", "low", "high")
            )
            return None not in (value, low, high) and low <= value <= high
        case exp.Is():
            return evaluate(expression.this, values, count_of) is None
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(expression.this)
        case exp.Literal():
            return expression.to_py()
        case exp.Column():
            if expression.name not in values:
                raise InvalidInput(
                    f"the audit has no value '{expression.name}'", hint=f"it has {', '.join(sorted(values))}"
                )
            return values[expression.name]
        case exp.Anonymous():
            if count_of is None:
                raise InvalidInput(f"{expression.name} needs an audit with `diff`")
            arguments = [item.name for item in expression.expressions]
            return count_of(expression.name.lower(), arguments[0] if arguments else None)
    return _both(expression, values, count_of, _COMPARE[type(expression)])


def _both(
    expression: exp.Expr, values: Values, count_of: CountOf | None, combine: Callable[[Any, Any], Any]
) -> Any:
    left = evaluate(expression.this, values, count_of)
    right = evaluate(expression.expression, values, count_of)
    if left is None or right is None:
        return (
            None
            if isinstance(expression, exp.Binary) and not isinstance(expression, exp.Predicate)
            else False
        )
    try:
        return combine(left, right)
    except (TypeError, ZeroDivisionError) as error:
        raise InvalidInput(f"cannot evaluate `{expression.sql()}`: {error}") from error
