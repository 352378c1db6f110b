"""Checks of patterns: bindings, traversals, filters, negations and optional parts, in source order."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.expressions import check_expr, check_param
from omnigraph.lang.gq.check.literals import comparable_literal
from omnigraph.lang.gq.check.predicates import check_predicate
from omnigraph.lang.gq.check.scope import Context, Scope, VariableType, as_nullable
from omnigraph.lang.gq.check.values import check_now_value, check_param_value
from omnigraph.lang.schema import EdgeType, Property
from omnigraph.lang.types import PropType, Scalar

_FLIPPED: dict[ir.Direction, ir.Direction] = {"out": "in", "in": "out", "both": "both"}


def check_pattern(ctx: Context, scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[ir.Step, ...]:
    """Return the steps of a pattern, without rejected clauses."""
    steps: list[ir.Step] = []
    for clause in clauses:
        with ctx.recovering():
            match clause:
                case ast.Binding():
                    steps.append(_check_binding(ctx, scope, clause))
                case ast.Traversal():
                    steps.extend(_check_traversal(ctx, scope, clause))
                case ast.Filter():
                    predicate = check_predicate(
                        ctx, scope, clause.predicate, lambda expr: _check_operand(ctx, scope, expr)
                    )
                    steps.append(ir.Filter(predicate))
                case ast.Negation():
                    steps.append(_check_negation(ctx, scope, clause))
                case ast.Optional():
                    steps.append(_check_optional(ctx, scope, clause))
    return tuple(steps)


def _check_operand(ctx: Context, scope: Scope, expr: ast.Expr) -> ir.Expr:
    operand = check_expr(ctx, scope, expr)
    if isinstance(operand, ir.Rank):
        # A ranking is computed over the rows that match the pattern, so that it cannot be part of the pattern.
        name = type(operand).__name__.lower()
        hint = "use it in `order` with `limit`, or return it as a column"
        ctx.reject(expr.span, "T7", f"ranking function `{name}` cannot be used in a filter", hint)
    return operand


def _check_negation(ctx: Context, scope: Scope, clause: ast.Negation) -> ir.AntiJoin:
    inner = Scope(scope)
    before = len(ctx.diagnostics.recorded)
    steps = check_pattern(ctx, inner, clause.clauses)
    if not inner.used_outer and len(ctx.diagnostics.recorded) == before:
        hint = "without such a variable the block has the same result for every row"
        ctx.reject(clause.span, "T9", "`not { }` must use a variable bound outside", hint)
    return ir.AntiJoin(steps)


def _check_optional(ctx: Context, scope: Scope, clause: ast.Optional) -> ir.OptionalMatch:
    inner = Scope(scope)
    steps = check_pattern(ctx, inner, clause.clauses)
    scope.own.update({name: as_nullable(bound) for name, bound in inner.own.items()})
    scope.poisoned |= inner.poisoned
    return ir.OptionalMatch(steps, tuple(inner.own))


def _check_binding(ctx: Context, scope: Scope, clause: ast.Binding) -> ir.NodeScan:
    name = clause.variable.name
    poison = name != ast.ANONYMOUS and name not in scope.names()
    if poison:
        # Poisoned until the binding is checked, so that uses of the variable cause no further errors.
        scope.poisoned.add(name)
    node = ctx.node_type(clause.type_name, clause.type_span)
    if poison:
        scope.poisoned.discard(name)
    ctx.record_read("node", node.name)
    was_bound = False
    if name == ast.ANONYMOUS:
        name = ctx.fresh_variable()
    else:
        was_bound = _bind(ctx, scope, clause.variable, node.name)
    where = []
    for item in clause.matches:
        with ctx.recovering():
            prop = ctx.property_of(VariableType("node", node.name), item.name, item.span, "T2")
            where.append(_check_inline(ctx, scope, name, prop, item))
    return ir.NodeScan(name, node.name, tuple(where), bound=was_bound)


def _bind(ctx: Context, scope: Scope, variable: ast.Variable, type_name: str) -> bool:
    """Bind a variable to a node type; return whether it is already bound to that type."""
    bound = scope.find(variable.name)
    if bound is None:
        scope.own[variable.name] = VariableType("node", type_name)
        return False
    if bound.kind == "edge":
        ctx.reject(variable.span, "T23", f"edge binding `${variable.name}` cannot be rebound as a node")
    if bound.type_name != type_name:
        message = (
            f"variable `${variable.name}` already bound to type `{bound.type_name}`,"
            f" cannot rebind to `{type_name}`"
        )
        ctx.reject(variable.span, None, message)
    return True


def _check_inline(
    ctx: Context, scope: Scope, variable: str, prop: Property, item: ast.InlineMatch
) -> ir.Predicate:
    target = prop.type
    ref = ir.PropertyRef(variable, prop.name, target)
    if target.scalar is Scalar.BLOB:
        ctx.reject(item.span, "T3", f"Blob property `{prop.name}` cannot be used in a match pattern")
    if target.scalar is Scalar.VECTOR:
        hint = "order by `nearest` instead"
        ctx.reject(item.span, "T3", f"vector property `{prop.name}` cannot be used in a match pattern", hint)
    if target.is_list:
        # An inline match on a list property tests membership.
        owner = f"element of `{prop.name}`"
        return ir.ListContains(ref, _inline_value(ctx, scope, owner, target.item, item))
    return ir.Compare("=", ref, _inline_value(ctx, scope, f"`{prop.name}`", target, item))


def _inline_value(
    ctx: Context, scope: Scope, owner: str, expected: PropType, item: ast.InlineMatch
) -> ir.Expr:
    match item.value:
        case ast.Literal() as literal:
            if literal.kind == "list":
                hint = "use a filter: `in` for one of several values, `contains` for an element of a list"
                ctx.reject(literal.span, "T3", f"{owner} cannot be compared with a list", hint)
            return comparable_literal(ctx, literal, owner, expected)
        case ast.Now() as now:
            return check_now_value(ctx, owner, expected, now.span)
        case ast.Variable() as variable:
            if variable.name not in ctx.params and scope.find(variable.name) is not None:
                message = f"{owner} expects {expected.core}, got variable `${variable.name}`"
                ctx.reject(variable.span, "T7", message, "compare two properties in a filter")
            param = check_param(ctx, scope, variable)
            return check_param_value(ctx, param, owner, expected, variable.span)


def _check_traversal(ctx: Context, scope: Scope, clause: ast.Traversal) -> list[ir.Step]:
    left, right = clause.source, clause.target
    fresh = _poison_fresh(scope, clause)
    left_bound, right_bound = _endpoint(ctx, scope, left, fresh), _endpoint(ctx, scope, right, fresh)
    edge = ctx.edge_type(clause.edge, clause.edge_span)
    low, high = _check_bounds(ctx, clause)
    if clause.undirected and not edge.is_loop:
        message = f"`<{clause.edge}>` requires endpoints of the same type, but {_endpoints(edge)}"
        hint = f"write `{clause.edge}`; the direction follows from the types"
        ctx.reject(clause.edge_span, "T22", message, hint)
    direction = _direction(ctx, clause, edge, left_bound, right_bound)
    left_type, right_type = (edge.target, edge.source) if direction == "in" else (edge.source, edge.target)
    same = right.name == left.name and right.name != ast.ANONYMOUS
    if same and left_bound is None and left_type != right_type:
        message = f"variable `${left.name}` cannot be both endpoints, because {_endpoints(edge)}"
        ctx.reject(right.span, "T5", message)
    for variable, bound, expected in ((left, left_bound, left_type), (right, right_bound, right_type)):
        if bound is not None and bound.type_name != expected:
            _reject_endpoint(ctx, variable, bound, edge)
    ctx.record_read("edge", edge.name)
    ctx.record_read("node", left_type)
    ctx.record_read("node", right_type)

    left_name = _bind_endpoint(ctx, scope, left, left_type)
    right_name = left_name if same else _bind_endpoint(ctx, scope, right, right_type)
    edge_variable = _check_edge_variable(ctx, scope, clause, edge)
    scope.poisoned.difference_update(fresh)
    steps: list[ir.Step] = []
    if left_bound is None and right_bound is not None:
        left_name, right_name, right_type = right_name, left_name, left_type
        direction = _FLIPPED[direction]
        target_bound = False
    else:
        if left_bound is None:
            steps.append(ir.NodeScan(left_name, left_type, implicit=True))
        target_bound = right_bound is not None or same
    steps.append(
        ir.Expand(
            left_name,
            edge.name,
            direction,
            right_name,
            right_type,
            low,
            high,
            edge_variable=edge_variable,
            target_bound=target_bound,
        )
    )
    return steps


def _poison_fresh(scope: Scope, clause: ast.Traversal) -> set[str]:
    """Poison the variables that the clause binds until it is checked; return their names."""
    used = {item.name for item in (clause.source, clause.target, clause.edge_variable) if item is not None}
    known = {ast.ANONYMOUS, *scope.names()}
    fresh = {name for name in used - known if not scope.is_poisoned(name)}
    scope.poisoned |= fresh
    return fresh


def _check_bounds(ctx: Context, clause: ast.Traversal) -> tuple[int, int]:
    if clause.min is None:
        return 1, 1
    if clause.max is None:
        message = "unbounded traversal is disabled; use bounded traversal {min,max}"
        ctx.reject(clause.span, "T15", message)
    if clause.min < 1:
        message = f"minimum hops must be at least 1, got {{{clause.min},{clause.max}}}"
        ctx.reject(clause.span, "T15", message)
    if clause.max < clause.min:
        message = f"maximum hops must be at least the minimum, got {{{clause.min},{clause.max}}}"
        ctx.reject(clause.span, "T15", message)
    return clause.min, clause.max


def _endpoint(ctx: Context, scope: Scope, variable: ast.Variable, fresh: set[str]) -> VariableType | None:
    if variable.name == ast.ANONYMOUS or variable.name in fresh:
        return None
    bound = scope.find(variable.name)
    if bound is None:
        # The variable is poisoned: an error in its binding is already reported.
        ctx.abandon()
    if bound.kind == "edge":
        message = f"edge binding `${variable.name}` cannot be used as a traversal endpoint"
        ctx.reject(variable.span, "T23", message)
    return bound


def _direction(
    ctx: Context, clause: ast.Traversal, edge: EdgeType, left: VariableType | None, right: VariableType | None
) -> ir.Direction:
    """Return the direction from the left endpoint: as written for a same-type edge, else from the bound types."""
    if edge.is_loop:
        return "both" if clause.undirected else "out"
    if left is not None:
        if left.type_name not in (edge.source, edge.target):
            _reject_endpoint(ctx, clause.source, left, edge)
        return "out" if left.type_name == edge.source else "in"
    if right is not None:
        if right.type_name not in (edge.source, edge.target):
            _reject_endpoint(ctx, clause.target, right, edge)
        return "out" if right.type_name == edge.target else "in"
    return "out"


def _reject_endpoint(ctx: Context, variable: ast.Variable, bound: VariableType, edge: EdgeType) -> NoReturn:
    message = f"variable `${variable.name}` has type `{bound.type_name}`, but {_endpoints(edge)}"
    ctx.reject(variable.span, "T5", message)


def _endpoints(edge: EdgeType) -> str:
    return f"edge `{edge.name}` is {edge.source} -> {edge.target}"


def _bind_endpoint(ctx: Context, scope: Scope, variable: ast.Variable, type_name: str) -> str:
    if variable.name == ast.ANONYMOUS:
        return ctx.fresh_variable()
    _bind(ctx, scope, variable, type_name)
    return variable.name


def _check_edge_variable(ctx: Context, scope: Scope, clause: ast.Traversal, edge: EdgeType) -> str | None:
    variable = clause.edge_variable
    if variable is None or variable.name == ast.ANONYMOUS:
        return None
    name = variable.name
    if (clause.min, clause.max) not in ((None, None), (1, 1)):
        message = f"edge binding `${name}` requires a single hop, got {{{clause.min},{clause.max}}}"
        ctx.reject(variable.span, "T23", message)
    if name in (clause.source.name, clause.target.name):
        ctx.reject(variable.span, "T23", f"edge binding `${name}` reuses the name of an endpoint")
    if scope.find(name) is not None:
        ctx.reject(variable.span, "T23", f"edge binding `${name}` is already bound")
    scope.own[name] = VariableType("edge", edge.name)
    return name
