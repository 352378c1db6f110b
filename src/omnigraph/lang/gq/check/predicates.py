"""Checks of predicates: which operand types each operator accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.expressions import check_text_call, display_type, is_string
from omnigraph.lang.gq.check.literals import check_enum_literal, is_empty_list
from omnigraph.lang.gq.check.scope import Context, Scope
from omnigraph.lang.gq.check.values import with_enum_values
from omnigraph.lang.source import Span
from omnigraph.lang.types import Scalar, compatible

# Resolution of an operand: a read uses its scope, a mutation the columns of its target type.
Resolve: TypeAlias = Callable[[ast.Expr], ir.Expr]


def check_predicate(ctx: Context, scope: Scope, predicate: ast.Predicate, resolve: Resolve) -> ir.Predicate:
    """Check a predicate; `resolve` checks its operands."""
    match predicate:
        case ast.And():
            return ir.And(_check_items(ctx, scope, predicate.items, resolve))
        case ast.Or():
            return ir.Or(_check_items(ctx, scope, predicate.items, resolve))
        case ast.Not():
            return ir.Not(check_predicate(ctx, scope, predicate.item, resolve))
        case ast.TextCall():
            return check_text_call(ctx, scope, predicate)
        case ast.IsNull():
            return ir.IsNull(resolve(predicate.operand), predicate.negated)
        case ast.InList():
            return _check_in(ctx, predicate, resolve)
        case ast.Compare():
            return _check_compare(ctx, predicate, resolve)


def _check_items(
    ctx: Context, scope: Scope, items: tuple[ast.Predicate, ...], resolve: Resolve
) -> tuple[ir.Predicate, ...]:
    # All items are checked before a rejection propagates, so that one run reports the errors of all.
    checked = []
    for item in items:
        with ctx.recovering():
            checked.append(check_predicate(ctx, scope, item, resolve))
    if len(checked) < len(items):
        ctx.abandon()
    return tuple(checked)


def _resolve_both(ctx: Context, left: ast.Expr, right: ast.Expr, resolve: Resolve) -> tuple[ir.Expr, ir.Expr]:
    """Resolve both operands; when one is rejected the other is still checked."""
    resolved: list[ir.Expr] = []
    for side in (left, right):
        with ctx.recovering():
            resolved.append(resolve(side))
    if len(resolved) < 2:
        ctx.abandon()
    return resolved[0], resolved[1]


def _check_compare(ctx: Context, node: ast.Compare, resolve: Resolve) -> ir.Predicate:
    left, right = _resolve_both(ctx, node.left, node.right, resolve)
    _reject_incomparable(ctx, left, node.left.span)
    _reject_incomparable(ctx, right, node.right.span)
    if node.op == "contains":
        return _check_contains(ctx, node, left, right)
    if node.op == "starts_with":
        if not (_is_text(left) and _is_text(right)):
            message = f"`starts_with` requires String on both sides, got {_pair(left, right)}"
            ctx.reject(node.span, "T7", message)
        return ir.StartsWith(left, right)
    if isinstance(left, ir.EntityRef) or isinstance(right, ir.EntityRef):
        return _check_identity(ctx, node, left, right)
    code = _mismatch_code(left, right)
    for side, span in ((left, node.left.span), (right, node.right.span)):
        if side.type.is_list:
            ctx.reject(span, code, "lists cannot be compared", "use `contains` or `in`")
    if not compatible(left.type, right.type):
        ctx.reject(node.span, code, f"cannot compare {_pair(left, right)}", _date_hint(left, right))
    if node.op in ("=", "!="):
        left, right = _check_enum(ctx, node.left, left, right), _check_enum(ctx, node.right, right, left)
    return ir.Compare(node.op, left, right)


def _mismatch_code(left: ir.Expr, right: ir.Expr) -> str:
    # A `where` compares a property as a binding does: a literal of the wrong type is T3, a parameter T7.
    return "T3" if isinstance(left, ir.ColumnRef) and isinstance(right, ir.Const | ir.Now) else "T7"


def _check_contains(ctx: Context, node: ast.Compare, left: ir.Expr, right: ir.Expr) -> ir.Predicate:
    if _is_text(left) and _is_text(right):
        return ir.Substring(left, right)
    if left.type.is_list and not isinstance(right, ir.EntityRef) and compatible(left.type.item, right.type):
        return ir.ListContains(left, right)
    rule = "`contains` requires a list or String on the left and a matching scalar on the right"
    ctx.reject(node.span, "T7", f"{rule}, got {_pair(left, right)}", _date_hint(left, right))


def _check_identity(ctx: Context, node: ast.Compare, left: ir.Expr, right: ir.Expr) -> ir.Predicate:
    if isinstance(left, ir.EntityRef) and isinstance(right, ir.EntityRef):
        if node.op not in ("=", "!="):
            message = f"nodes cannot be compared with `{node.op}`"
            ctx.reject(node.span, "T7", message, "use `=` or `!=`, or compare one of their properties")
        if left.type_name != right.type_name:
            ctx.reject(node.span, "T7", f"cannot compare {_pair(left, right)}")
        assert node.op in ("=", "!=")
        return ir.Compare(node.op, left, right)
    hint = "compare one of its properties, or bind it by its key: `$v: Type { key: value }`"
    ctx.reject(node.span, "T7", f"cannot compare {_pair(left, right)}", hint)


def _check_in(ctx: Context, node: ast.InList, resolve: Resolve) -> ir.Predicate:
    operand, items = _resolve_both(ctx, node.operand, node.items, resolve)
    _reject_incomparable(ctx, operand, node.operand.span)
    if isinstance(operand, ir.EntityRef) or operand.type.is_list:
        ctx.reject(
            node.operand.span, "T7", f"`in` requires a scalar on the left, got {display_type(operand)}"
        )
    if not items.type.is_list:
        ctx.reject(node.items.span, "T7", f"`in` requires a list on the right, got {display_type(items)}")
    if not is_empty_list(items) and not compatible(operand.type.core, items.type.item):
        message = f"cannot compare {operand.type.core} and elements of {items.type.core}"
        ctx.reject(node.span, "T7", message, _date_hint(operand, items))
    if isinstance(node.items, ast.Literal) and isinstance(node.items.value, tuple):
        for item in node.items.value:
            _check_enum_member(ctx, item, operand)
    return ir.InSet(operand, with_enum_values(items, operand.type), node.negated)


def _check_enum(ctx: Context, operand: ast.Expr, side: ir.Expr, other: ir.Expr) -> ir.Expr:
    """Check an operand against the enum values of the other one; a parameter is checked when the query runs."""
    if isinstance(operand, ast.Literal):
        _check_enum_member(ctx, operand, other)
    return with_enum_values(side, other.type)


def _check_enum_member(ctx: Context, literal: ast.Literal, other: ir.Expr) -> None:
    if isinstance(other, ir.PropertyRef):
        check_enum_literal(ctx, literal, f"`{other.property}`", other.type)
    elif isinstance(other, ir.ColumnRef):
        check_enum_literal(ctx, literal, f"`{other.name}`", other.type)


def _reject_incomparable(ctx: Context, expr: ir.Expr, span: Span) -> None:
    if expr.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        ctx.reject(span, "T7", f"{expr.type.core} values cannot be compared")


def _is_text(expr: ir.Expr) -> bool:
    return not isinstance(expr, ir.EntityRef) and is_string(expr.type)


def _date_hint(left: ir.Expr, right: ir.Expr) -> str | None:
    for text, moment in ((left, right), (right, left)):
        if isinstance(text, ir.Const) and text.type.scalar is Scalar.STRING:
            name = {Scalar.DATE: "date", Scalar.DATETIME: "datetime"}.get(moment.type.scalar)
            if name:
                return f'write a {name} as `{name}("…")`'
    return None


def _pair(left: ir.Expr, right: ir.Expr) -> str:
    return f"{display_type(left)} and {display_type(right)}"
