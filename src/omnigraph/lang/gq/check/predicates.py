"""Predicates: which operands may meet under which operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.expressions import check_text_call, is_string, shown
from omnigraph.lang.gq.check.literals import check_enum_literal, is_empty_list
from omnigraph.lang.gq.check.scope import Context, Scope
from omnigraph.lang.gq.check.values import carry_enum
from omnigraph.lang.source import Span
from omnigraph.lang.types import Scalar, compatible

# How an operand is resolved differs: a read looks in its scope, a mutation at the columns of its type.
Resolve: TypeAlias = Callable[[ast.Expr], ir.Expr]


def check_predicate(ctx: Context, scope: Scope, predicate: ast.Predicate, resolve: Resolve) -> ir.Predicate:
    """A predicate whose operands `resolve` gives the types of."""
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
    # Every item is looked at before a rejection leaves, so that one run reports them all.
    checked = []
    for item in items:
        with ctx.recovering():
            checked.append(check_predicate(ctx, scope, item, resolve))
    if len(checked) < len(items):
        ctx.give_up()
    return tuple(checked)


def _resolve_both(ctx: Context, left: ast.Expr, right: ast.Expr, resolve: Resolve) -> tuple[ir.Expr, ir.Expr]:
    """Both operands; when one is wrong the other is still looked at."""
    found: list[ir.Expr] = []
    for side in (left, right):
        with ctx.recovering():
            found.append(resolve(side))
    if len(found) < 2:
        ctx.give_up()
    return found[0], found[1]


def _check_compare(ctx: Context, node: ast.Compare, resolve: Resolve) -> ir.Predicate:
    left, right = _resolve_both(ctx, node.left, node.right, resolve)
    _refuse_incomparable(ctx, left, node.left.span)
    _refuse_incomparable(ctx, right, node.right.span)
    if node.op == "contains":
        return _check_contains(ctx, node, left, right)
    if node.op == "starts_with":
        if not (_is_text(left) and _is_text(right)):
            ctx.reject(node.span, "T7", f"`starts_with` needs String on both sides, got {_pair(left, right)}")
        return ir.StartsWith(left, right)
    if isinstance(left, ir.EntityRef) or isinstance(right, ir.EntityRef):
        return _check_identity(ctx, node, left, right)
    code = _misfit_code(left, right)
    for side, span in ((left, node.left.span), (right, node.right.span)):
        if side.type.is_list:
            ctx.reject(span, code, "a list cannot be compared", "use `contains` or `in`")
    if not compatible(left.type, right.type):
        ctx.reject(node.span, code, f"cannot compare {_pair(left, right)}", _date_hint(left, right))
    if node.op in ("=", "!="):
        left, right = _meet_enum(ctx, node.left, left, right), _meet_enum(ctx, node.right, right, left)
    return ir.Compare(node.op, left, right)


def _misfit_code(left: ir.Expr, right: ir.Expr) -> str:
    # A `where` matches a property as a binding does: a literal that does not fit is T3, a parameter T7.
    return "T3" if isinstance(left, ir.ColumnRef) and isinstance(right, ir.Const | ir.Now) else "T7"


def _check_contains(ctx: Context, node: ast.Compare, left: ir.Expr, right: ir.Expr) -> ir.Predicate:
    if _is_text(left) and _is_text(right):
        return ir.Substring(left, right)
    if left.type.is_list and not isinstance(right, ir.EntityRef) and compatible(left.type.item, right.type):
        return ir.ListContains(left, right)
    needs = "`contains` needs a list or String on the left and a matching scalar on the right"
    ctx.reject(node.span, "T7", f"{needs}, got {_pair(left, right)}", _date_hint(left, right))


def _check_identity(ctx: Context, node: ast.Compare, left: ir.Expr, right: ir.Expr) -> ir.Predicate:
    if isinstance(left, ir.EntityRef) and isinstance(right, ir.EntityRef):
        if node.op not in ("=", "!="):
            ctx.reject(node.span, "T7", f"nodes have no order: `{node.op}` cannot compare them")
        if left.type_name != right.type_name:
            ctx.reject(node.span, "T7", f"cannot compare {_pair(left, right)}")
        assert node.op in ("=", "!=")
        return ir.Compare(node.op, left, right)
    hint = "compare one of its properties, or bind the key: `$v: Type { key: value }`"
    ctx.reject(node.span, "T7", f"cannot compare {_pair(left, right)}", hint)


def _check_in(ctx: Context, node: ast.InList, resolve: Resolve) -> ir.Predicate:
    operand, items = _resolve_both(ctx, node.operand, node.items, resolve)
    _refuse_incomparable(ctx, operand, node.operand.span)
    if isinstance(operand, ir.EntityRef) or operand.type.is_list:
        ctx.reject(node.operand.span, "T7", f"`in` needs a scalar on the left, got {shown(operand)}")
    if not items.type.is_list:
        ctx.reject(node.items.span, "T7", f"`in` needs a list on the right, got {shown(items)}")
    if not is_empty_list(items) and not compatible(operand.type.core, items.type.item):
        hint = _date_hint(operand, items)
        ctx.reject(node.span, "T7", f"cannot look for {operand.type.core} in {items.type.core}", hint)
    if isinstance(node.items, ast.Literal) and isinstance(node.items.value, tuple):
        for item in node.items.value:
            _check_enum_member(ctx, item, operand)
    return ir.InSet(operand, carry_enum(items, operand.type), node.negated)


def _meet_enum(ctx: Context, written: ast.Expr, side: ir.Expr, other: ir.Expr) -> ir.Expr:
    """What meets an enum property: a literal must be in the set, a parameter takes the set along."""
    if isinstance(written, ast.Literal):
        _check_enum_member(ctx, written, other)
    return carry_enum(side, other.type)


def _check_enum_member(ctx: Context, literal: ast.Literal, other: ir.Expr) -> None:
    if isinstance(other, ir.PropertyRef):
        check_enum_literal(ctx, literal, f"`{other.property}`", other.type)
    elif isinstance(other, ir.ColumnRef):
        check_enum_literal(ctx, literal, f"`{other.name}`", other.type)


def _refuse_incomparable(ctx: Context, expr: ir.Expr, span: Span) -> None:
    if expr.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        ctx.reject(span, "T7", f"a {expr.type.core} cannot be compared")


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
    return f"{shown(left)} and {shown(right)}"
