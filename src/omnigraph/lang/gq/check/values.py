"""Checks of parameters and `now()` as values of a property, in inline matches and assignments."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from omnigraph.lang import ir
from omnigraph.lang.gq.check.scope import Context
from omnigraph.lang.source import Span
from omnigraph.lang.types import DATETIME, PropType, Scalar, compatible

_Expr = TypeVar("_Expr", bound=ir.Expr)


def check_param_value(
    ctx: Context, param: ir.ParamRef, owner: str, expected: PropType, span: Span
) -> ir.ParamRef:
    """Check a parameter as the value of a property. The range of its value is checked when the query runs."""
    if not compatible(param.type, expected):
        message = f"{owner} expects {expected.core}, got {param.type.core} parameter `${param.name}`"
        ctx.reject(span, "T7", message, f"declare it as `${param.name}: {parameter_type(expected)}`")
    return with_enum_values(param, expected)


def parameter_type(prop_type: PropType) -> PropType:
    """Return the type to declare for a parameter of a property; enum values are passed as strings."""
    return replace(prop_type, enum_values=None, nullable=False)


def with_enum_values(expr: _Expr, prop_type: PropType) -> _Expr:
    """Add the values of an enum property to the type of a parameter, so that its value is checked on use."""
    if prop_type.enum_values is not None and isinstance(expr, ir.ParamRef):
        return replace(expr, type=replace(expr.type, enum_values=prop_type.enum_values))
    return expr


def check_now_value(ctx: Context, owner: str, expected: PropType, span: Span) -> ir.Now:
    """Check ``now()`` as the value of a property, which must be DateTime."""
    if expected.scalar is not Scalar.DATETIME or expected.is_list:
        ctx.reject(span, "T3", f"{owner} expects {expected.core}, got {DATETIME} from `now()`")
    return ir.Now()
