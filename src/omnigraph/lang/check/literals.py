"""Literals: their own type, and whether they fit the type of a property."""

from __future__ import annotations

from omnigraph.lang import ir
from omnigraph.lang import query_ast as ast
from omnigraph.lang.check.scope import Context
from omnigraph.lang.temporal import parse_date, parse_datetime
from omnigraph.lang.types import (
    BOOL,
    DATE,
    DATETIME,
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
    """A literal with its natural type: an integer is I64 (U64 beyond), a float F64."""
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
                ctx.reject(literal.span, "T3", f"`{value}` is not a date", 'write `date("YYYY-MM-DD")`')
            return ir.Const(days, DATE)
        case "datetime":
            millis = parse_datetime(str(value))
            if millis is None:
                hint = 'write `datetime("YYYY-MM-DDTHH:MM:SSZ")`'
                ctx.reject(literal.span, "T3", f"`{value}` is not a datetime", hint)
            return ir.Const(millis, DATETIME)
        case "null":
            ctx.reject(literal.span, "T3", "null fits no comparison", "use `is null` or `is not null`")
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
    scalars = {item.type.scalar for item in items}
    # Numbers of several widths meet in F64, as they would in a comparison.
    scalar = scalars.pop() if len(scalars) == 1 else Scalar.F64 if scalars else Scalar.STRING
    return ir.Const(tuple(item.value for item in items), PropType(scalar, is_list=True))


def is_empty_list(const: ir.Expr) -> bool:
    """Whether it is ``[]``, which is a list of any type."""
    return isinstance(const, ir.Const) and const.value == ()


def check_enum_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> None:
    """Refuse a string outside the set of an enum property."""
    if target.enum_values is not None and literal.kind == "string" and literal.value not in target.enum_values:
        shown = ", ".join(target.enum_values)
        ctx.reject(literal.span, "T3", f"`{owner}` expects one of [{shown}], got '{literal.value}'")


def comparable_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> ir.Const:
    """A literal that is matched against a property: any number meets a number, by value."""
    const = check_literal(ctx, literal)
    if not compatible(const.type, target):
        hint = None
        if const.type.scalar is Scalar.STRING and target.scalar in (Scalar.DATE, Scalar.DATETIME):
            hint = f'write `{target.scalar.value.lower()}("{literal.value}")`'
        ctx.reject(literal.span, "T3", f"`{owner}` is {target.core}, the literal is {const.type}", hint)
    check_enum_literal(ctx, literal, owner, target)
    return const


def assigned_literal(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> ir.Const:
    """A literal that is stored in a property: it must be exactly representable."""
    if literal.kind == "null":
        if not target.nullable:
            ctx.reject(literal.span, "T3", f"`{owner}` is {target} and cannot be null")
        return ir.Const(None, target)
    const = check_literal(ctx, literal)
    if target.scalar is Scalar.BLOB:
        if const.type != STRING:
            ctx.reject(literal.span, "T3", f"`{owner}` is Blob: give a URI or a `base64:` payload as a string")
        return ir.Const(const.value, target.core)
    if target.scalar is Scalar.VECTOR:
        return _assigned_vector(ctx, literal, const, owner, target)
    if target.is_list and is_empty_list(const):
        return ir.Const((), target.core)
    if not compatible(const.type, target):
        comparable_literal(ctx, literal, owner, target)
    check_enum_literal(ctx, literal, owner, target)
    items = literal.value if literal.kind == "list" and isinstance(literal.value, tuple) else (literal,)
    for item in items:
        _check_representable(ctx, item, owner, target)
    return ir.Const(_stored(const.value, target), target.core)


def _assigned_vector(
    ctx: Context, literal: ast.Literal, const: ir.Const, owner: str, target: PropType
) -> ir.Const:
    numeric = const.type.is_list and (const.value == () or PropType(const.type.scalar).is_numeric)
    if not numeric or not isinstance(const.value, tuple):
        ctx.reject(literal.span, "T3", f"`{owner}` is {target.core}, the literal is {const.type}")
    if len(const.value) != target.dim:
        ctx.reject(literal.span, "T3", f"`{owner}` expects {target.dim} dimensions, got {len(const.value)}")
    return ir.Const(_stored(const.value, target), target.core)


def _check_representable(ctx: Context, literal: ast.Literal, owner: str, target: PropType) -> None:
    bounds = INT_RANGES.get(target.scalar)
    if bounds is None:
        return
    if literal.kind == "float":
        ctx.reject(literal.span, "T3", f"`{owner}` is {target.core}, the literal {literal.value} is no integer")
    assert isinstance(literal.value, int)
    if not bounds[0] <= literal.value <= bounds[1]:
        ctx.reject(literal.span, "T3", f"`{owner}`: value {literal.value} exceeds {target.scalar.value}")


def _stored(value: ir.Value, target: PropType) -> ir.Value:
    if isinstance(value, tuple):
        return tuple(_stored(item, target) for item in value)
    if target.scalar in FLOATS or target.scalar is Scalar.VECTOR:
        assert isinstance(value, int | float)
        return float(value)
    return value
