"""What an inline match and an assignment share: a parameter or `now()` given for a property."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from omnigraph.lang import ir
from omnigraph.lang.gq.check.scope import Context
from omnigraph.lang.source import Span
from omnigraph.lang.types import DATETIME, PropType, Scalar, compatible

_Expr = TypeVar("_Expr", bound=ir.Expr)


def fit_parameter(ctx: Context, param: ir.ParamRef, owner: str, wanted: PropType, span: Span) -> ir.ParamRef:
    """A parameter given for a property; whether its value fits a narrower type shows when it has one."""
    if not compatible(param.type, wanted):
        message = f"{owner} is {wanted.core}, parameter `${param.name}` is {param.type.core}"
        ctx.reject(span, "T7", message, f"declare it as `${param.name}: {declared(wanted)}`")
    return carry_enum(param, wanted)


def declared(wanted: PropType) -> PropType:
    """How a parameter for such a property is declared: an enum's values come in as strings."""
    return replace(wanted, enum_values=None, nullable=False)


def carry_enum(expr: _Expr, wanted: PropType) -> _Expr:
    """What meets an enum property: a parameter takes the enum along, so that its value is checked on use."""
    if wanted.enum_values is not None and isinstance(expr, ir.ParamRef):
        return replace(expr, type=replace(expr.type, enum_values=wanted.enum_values))
    return expr


def fit_now(ctx: Context, owner: str, wanted: PropType, span: Span) -> ir.Now:
    """``now()`` given for a property: it only fits a DateTime."""
    if wanted.scalar is not Scalar.DATETIME or wanted.is_list:
        ctx.reject(span, "T3", f"{owner} is {wanted.core}, now() is {DATETIME}")
    return ir.Now()
