"""Checks of literals: their own type, and whether they match the type of a property."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.errors import InvalidInput
from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.scope import Context
from omnigraph.lang.literal_syntax import quote, shorten
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import (
    BOOL,
    DATE,
    DATETIME,
    F32_MAX,
    F64,
    FLOATS,
    I64,
    INT_RANGES,
    STRING,
    U64,
    PropType,
    Scalar,
    compatible,
)

_I64_MAX = INT_RANGES[Scalar.I64][1]


def check_literal(ctx: Context, literal: ast.Literal) -> ir.Const:
    """Return a literal with its own type; an integer is I64, or U64 beyond its range, and a float F64."""
    value = literal.value
    match literal.kind:
        case "string":
            return ir.Const(str(value), STRING)
        case "bool":
            return ir.Const(bool(value), BOOL)
        case "float":
            assert isinstance(value, float)
            return ir.Const(value, F64)
        case "integer":
            assert isinstance(value, int)
            return ir.Const(value, I64 if value <= _I64_MAX else U64)
        case "date":
            days = parse_date(str(value))
            if days is None:
                hint = 'write `date("YYYY-MM-DD")`'
                ctx.reject(literal.span, "T3", f"invalid date {quote(shorten(str(value)))}", hint)
            return ir.Const(days, DATE)
        case "datetime":
            try:
                millis = parse_datetime(str(value))
            except InvalidInput as error:
                ctx.reject(literal.span, "T3", error.reason)
            if millis is None:
                hint = 'write `datetime("YYYY-MM-DDTHH:MM:SSZ")`'
                ctx.reject(literal.span, "T3", f"invalid datetime {quote(shorten(str(value)))}", hint)
            return ir.Const(millis, DATETIME)
        case "null":
            ctx.reject(literal.span, "T3", "`null` cannot be compared", "use `is null` or `is not null`")
        case "list":
            return _check_list(ctx, literal)


def _check_list(ctx: Context, literal: ast.Literal) -> ir.Const:
    assert isinstance(literal.value, tuple)
    items = []
    for item in literal.value:
        if item.kind == "list":
            ctx.reject(item.span, None, "list literals cannot be nested")
        items.append(check_literal(ctx, item))
    kinds = {"number" if item.type.is_numeric else item.type.scalar.value for item in items}
    if len(kinds) > 1:
        ctx.reject(literal.span, None, "list literals cannot mix types: " + ", ".join(sorted(kinds)))
    scalar = _common_scalar(items)
    return ir.Const(_stored(tuple(item.value for item in items), scalar), PropType(scalar, is_list=True))


def _common_scalar(items: list[ir.Const]) -> Scalar:
    """Return the scalar of a list of one kind; for numbers the narrowest type that holds all of them."""
    scalars = {item.type.scalar for item in items}
    if not scalars:
        return Scalar.STRING
    if len(scalars) == 1:
        return scalars.pop()
    if Scalar.F64 in scalars or any(isinstance(item.value, int) and item.value < 0 for item in items):
        return Scalar.F64
    return Scalar.U64


def is_empty_list(const: ir.Expr) -> bool:
    """Return whether the expression is ``[]``, which matches every list type."""
    return isinstance(const, ir.Const) and const.value == ()


def check_enum_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> None:
    """Reject a string that is not a value of an enum property."""
    allowed = target.enum_values
    if allowed is not None and literal.kind == "string" and literal.value not in allowed:
        message = f"{owner} expects one of [{', '.join(allowed)}], got '{literal.value}'"
        ctx.reject(literal.span, "T3", message)


def comparable_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> ir.Const:
    """Check a literal that is compared with a property; numbers of all widths are comparable.

    `owner` is the name of the property in messages.
    """
    const = check_literal(ctx, literal)
    if not compatible(const.type, target):
        _reject_mismatch(ctx, literal, const, owner, target)
    check_enum_literal(ctx, literal, owner, target)
    return const


def assigned_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> ir.Const:
    """Check a literal that is assigned to a property; the type of the property must represent it exactly.

    `owner` is the name of the property in messages.
    """
    if literal.kind == "null":
        if not target.nullable:
            ctx.reject(literal.span, "T3", f"{owner} expects {target}, got null")
        return ir.Const(None, target)
    const = check_literal(ctx, literal)
    if target.scalar is Scalar.BLOB:
        if const.type != STRING:
            hint = "use a string with a URI or a `base64:` payload"
            ctx.reject(literal.span, "T3", f"{owner} expects Blob, got {const.type}", hint)
        return ir.Const(const.value, target.core)
    if target.scalar is Scalar.VECTOR:
        _check_vector(ctx, literal, const, owner, target)
    elif not (target.is_list and is_empty_list(const)):
        if not compatible(const.type, target):
            _reject_mismatch(ctx, literal, const, owner, target)
        check_enum_literal(ctx, literal, owner, target)
    for item in literal.value if isinstance(literal.value, tuple) else (literal,):
        _check_representable(ctx, item, owner, target)
    return ir.Const(_stored(const.value, target.scalar), target.core)


def _reject_mismatch(
    ctx: Context, literal: ast.Literal, const: ir.Const, owner: str, target: PropType
) -> NoReturn:
    hint = None
    if literal.kind == "string" and target.scalar in (Scalar.DATE, Scalar.DATETIME) and not target.is_list:
        hint = f'write `{target.scalar.value.lower()}("{literal.value}")`'
    elif target.is_list and not const.type.is_list and compatible(const.type, target.item):
        hint = "write a list: `[…]`"
    ctx.reject(literal.span, "T3", f"{owner} expects {target.core}, got {const.type}", hint)


def _check_vector(ctx: Context, literal: ast.Literal, const: ir.Const, owner: str, target: PropType) -> None:
    numeric = const.type.is_list and (const.value == () or const.type.item.is_numeric)
    if not numeric or not isinstance(const.value, tuple):
        ctx.reject(literal.span, "T3", f"{owner} expects {target.core}, got {const.type}")
    if len(const.value) != target.dim:
        ctx.reject(literal.span, "T3", f"{owner} expects {target.dim} dimensions, got {len(const.value)}")


def _check_representable(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> None:
    value = literal.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if target.scalar in (Scalar.F32, Scalar.VECTOR):
        if abs(value) > F32_MAX:
            ctx.reject(literal.span, "T3", f"{owner}: value {value} exceeds F32")
        return
    bounds = INT_RANGES.get(target.scalar)
    if bounds is None:
        return
    if isinstance(value, float):
        ctx.reject(literal.span, "T3", f"{owner} expects {target.core}, got {value}")
    if not bounds[0] <= value <= bounds[1]:
        ctx.reject(literal.span, "T3", f"{owner}: value {value} exceeds {target.scalar.value}")


def _stored(value: ir.Value, scalar: Scalar) -> ir.Value:
    if isinstance(value, tuple):
        return tuple(_stored(item, scalar) for item in value)
    if scalar in FLOATS or scalar is Scalar.VECTOR:
        assert isinstance(value, int | float)
        return float(value)
    return value
