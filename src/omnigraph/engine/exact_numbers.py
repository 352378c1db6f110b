"""Compare numbers of different types by value, without rounding either side.

A constant that is compared with a column is converted to the type of the column once, instead of casting the
column for every row: ``age < 2.7`` on integers is ``age <= 2``, and ``age = 2.7`` is never true. The evaluator
and the filters for storage both use this module, so a comparison has the same meaning in both.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from omnigraph.engine.parameters import Bindings
from omnigraph.lang import ir
from omnigraph.lang.types import FLOATS, INT_RANGES, PropType, Scalar

Constant: TypeAlias = ir.Const | ir.ParamRef | ir.Now

FLIPPED: dict[ir.CompareOp, ir.CompareOp] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def constant_value(expr: Constant, bindings: Bindings) -> ir.Value:
    """Return the value of a constant expression, in the precision of its type.

    An F32 parameter is a single-precision number, even if it was given with more digits.
    """
    return _in_precision(bindings.value(expr), expr.type)


def _in_precision(value: ir.Value, kind: PropType) -> ir.Value:
    if isinstance(value, tuple):
        return tuple(_in_precision(item, kind) for item in value)
    if kind.scalar in (Scalar.F32, Scalar.VECTOR) and isinstance(value, int | float):
        return _single(value)
    return value


def narrow_comparison(
    op: ir.CompareOp, value: str | int | float, scalar: Scalar
) -> tuple[ir.CompareOp, str | int | float] | bool:
    """Rewrite ``column op value`` as a comparison with a value of the column's own type.

    If no comparison is needed, returns the truth for every row whose column is not null. A NaN equals nothing,
    not even itself, and has no order.

    >>> [narrow_comparison(op, value, Scalar.I32) for op, value in (("<", 2.7), ("=", 2.7), ("<", 2**40))]
    [('<=', 2), False, True]
    >>> narrow_comparison(">", 2**53 + 1, Scalar.F64)
    ('>=', 9007199254740994.0)
    """
    if isinstance(value, str):
        return op, value
    if value != value:
        return op == "!="
    if scalar in INT_RANGES:
        return _narrow_to_integer(op, value, INT_RANGES[scalar])
    if scalar in FLOATS:
        return _narrow_to_float(op, value, scalar)
    return op, value


def exact_value(value: str | int | float, scalar: Scalar) -> str | int | float | None:
    """Return the value of a column's type that equals `value`, or None if there is none."""
    found = narrow_comparison("=", value, scalar)
    return None if isinstance(found, bool) else found[1]


def _narrow_to_integer(
    op: ir.CompareOp, value: int | float, bounds: tuple[int, int]
) -> tuple[ir.CompareOp, int] | bool:
    if math.isinf(value):
        return op in (("<", "<=", "!=") if value > 0 else (">", ">=", "!="))
    whole = math.floor(value)
    if whole != value:
        if op in ("=", "!="):
            return op == "!="
        below: ir.CompareOp = "<=" if op in ("<", "<=") else ">"
        return _narrow_to_integer(below, whole, bounds)
    if whole > bounds[1]:
        return op in ("<", "<=", "!=")
    if whole < bounds[0]:
        return op in (">", ">=", "!=")
    return op, whole


def _narrow_to_float(
    op: ir.CompareOp, value: int | float, scalar: Scalar
) -> tuple[ir.CompareOp, float] | bool:
    near = _single(value) if scalar is Scalar.F32 else _double(value)
    # Python compares an integer with a float by value, so this detects rounding.
    if near == value:
        return op, near
    if op in ("=", "!="):
        return op == "!="
    if op in ("<", "<="):
        return "<=", near if near < value else _neighbour(near, -math.inf, scalar)
    return ">=", near if near > value else _neighbour(near, math.inf, scalar)


def _single(value: int | float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(_double(value)))


def _double(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def _neighbour(value: float, towards: float, scalar: Scalar) -> float:
    if scalar is Scalar.F32:
        return float(np.nextafter(np.float32(value), np.float32(towards)))
    return math.nextafter(value, towards)
