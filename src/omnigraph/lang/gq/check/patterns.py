"""The match block: bindings, traversals, filters, negation and optional parts, in source order."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.expressions import check_expr, check_param
from omnigraph.lang.gq.check.literals import comparable_literal
from omnigraph.lang.gq.check.predicates import check_predicate
from omnigraph.lang.gq.check.scope import Context, Scope, VariableType, as_nullable
from omnigraph.lang.gq.check.values import fit_now, fit_parameter
from omnigraph.lang.schema import EdgeType, Property
from omnigraph.lang.types import PropType, Scalar

_FLIPPED: dict[ir.Direction, ir.Direction] = {"out": "in", "in": "out", "both": "both"}


def check_pattern(ctx: Context, scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[ir.Step, ...]:
    """The steps of a pattern; a clause in error is reported and left out."""
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
    found = check_expr(ctx, scope, expr)
    if isinstance(found, ir.Rank):
        # It ranks the rows that the pattern leaves, so that a condition of the pattern cannot ask for it.
        name = type(found).__name__.lower()
        hint = "order by it, with `limit`, or return it as a column"
        ctx.reject(expr.span, "T7", f"`{name}` ranks the rows of the match and cannot filter them", hint)
    return found


def _check_negation(ctx: Context, scope: Scope, clause: ast.Negation) -> ir.AntiJoin:
    inner = Scope(scope)
    before = len(ctx.diagnostics.found)
    steps = check_pattern(ctx, inner, clause.clauses)
    if not inner.used_outer and len(ctx.diagnostics.found) == before:
        hint = "without one the block would decide for all rows at once"
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
        # Poisoned until the binding holds, so that its uses do not add errors of their own.
        scope.poisoned.add(name)
    node = ctx.node_type(clause.type_name, clause.type_span)
    if poison:
        scope.poisoned.discard(name)
    ctx.touch("node", node.name)
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
    """Bind a variable to a node type; whether it was bound to it before."""
    found = scope.find(variable.name)
    if found is None:
        scope.own[variable.name] = VariableType("node", type_name)
        return False
    if found.kind == "edge":
        ctx.reject(variable.span, "T23", f"edge binding `${variable.name}` cannot be bound as a node")
    if found.type_name != type_name:
        message = (
            f"variable `${variable.name}` already bound to type `{found.type_name}`,"
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
        ctx.reject(item.span, "T3", f"Blob property `{prop.name}` cannot be matched")
    if target.scalar is Scalar.VECTOR:
        hint = "rank by `nearest` instead"
        ctx.reject(item.span, "T3", f"vector property `{prop.name}` cannot be matched by equality", hint)
    if target.is_list:
        # A list property is matched by one of its elements.
        owner = f"an element of `{prop.name}`"
        return ir.ListContains(ref, _inline_value(ctx, scope, owner, target.item, item))
    return ir.Compare("=", ref, _inline_value(ctx, scope, f"`{prop.name}`", target, item))


def _inline_value(ctx: Context, scope: Scope, owner: str, wanted: PropType, item: ast.InlineMatch) -> ir.Expr:
    match item.value:
        case ast.Literal() as literal:
            if literal.kind == "list":
                hint = "use a filter: `in` for one of several values, `contains` for an element of a list"
                ctx.reject(literal.span, "T3", f"{owner} cannot be matched against a list", hint)
            return comparable_literal(ctx, literal, owner, wanted)
        case ast.Now() as now:
            return fit_now(ctx, owner, wanted, now.span)
        case ast.Variable() as variable:
            if variable.name not in ctx.params and scope.find(variable.name) is not None:
                message = f"{owner} is {wanted.core}, `${variable.name}` is not a value"
                ctx.reject(variable.span, "T7", message, "compare two properties in a filter")
            param = check_param(ctx, scope, variable)
            return fit_parameter(ctx, param, owner, wanted, variable.span)


def _check_traversal(ctx: Context, scope: Scope, clause: ast.Traversal) -> list[ir.Step]:
    left, right = clause.source, clause.target
    fresh = _poison_fresh(scope, clause)
    left_bound, right_bound = _endpoint(ctx, scope, left, fresh), _endpoint(ctx, scope, right, fresh)
    edge = ctx.edge_type(clause.edge, clause.edge_span)
    low, high = _check_bounds(ctx, clause)
    if clause.undirected and not edge.is_loop:
        message = f"`<{clause.edge}>` needs both ends of one type, `{edge.name}` {_run(edge)}"
        ctx.reject(clause.edge_span, "T22", message, f"write `{clause.edge}`: the types give the direction")
    direction = _direction(ctx, clause, edge, left_bound, right_bound)
    left_type, right_type = (edge.target, edge.source) if direction == "in" else (edge.source, edge.target)
    same = right.name == left.name and right.name != ast.ANONYMOUS
    if same and left_bound is None and left_type != right_type:
        message = f"`${left.name}` cannot be both ends: edge `{edge.name}` {_run(edge)}"
        ctx.reject(right.span, "T5", message)
    for variable, bound, wanted in ((left, left_bound, left_type), (right, right_bound, right_type)):
        if bound is not None and bound.type_name != wanted:
            _wrong_endpoint(ctx, variable, bound, edge)
    ctx.touch("edge", edge.name)
    ctx.touch("node", left_type)
    ctx.touch("node", right_type)

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
    """Poison what the clause would bind until it is known to hold; gives the names."""
    written = {item.name for item in (clause.source, clause.target, clause.edge_variable) if item is not None}
    known = {ast.ANONYMOUS, *scope.names()}
    fresh = {name for name in written - known if not scope.is_poisoned(name)}
    scope.poisoned |= fresh
    return fresh


def _check_bounds(ctx: Context, clause: ast.Traversal) -> tuple[int, int]:
    if clause.min is None:
        return 1, 1
    if clause.max is None:
        message = "unbounded traversal is disabled; use bounded traversal {min,max}"
        ctx.reject(clause.span, "T15", message)
    if clause.min < 1:
        message = f"hop bounds start at 1, got {{{clause.min},{clause.max}}}"
        ctx.reject(clause.span, "T15", message)
    if clause.max < clause.min:
        message = f"hop bounds {{{clause.min},{clause.max}}} are reversed: max must be at least min"
        ctx.reject(clause.span, "T15", message)
    return clause.min, clause.max


def _endpoint(ctx: Context, scope: Scope, variable: ast.Variable, fresh: set[str]) -> VariableType | None:
    if variable.name == ast.ANONYMOUS or variable.name in fresh:
        return None
    found = scope.find(variable.name)
    if found is None:
        # It is in sight without a type: an error that has been reported left it so.
        ctx.give_up()
    if found.kind == "edge":
        ctx.reject(variable.span, "T23", f"edge binding `${variable.name}` cannot be the end of a traversal")
    return found


def _direction(
    ctx: Context, clause: ast.Traversal, edge: EdgeType, left: VariableType | None, right: VariableType | None
) -> ir.Direction:
    """The way the edge runs, seen from the left: as written for one type, else as the bound types say."""
    if edge.is_loop:
        return "both" if clause.undirected else "out"
    if left is not None:
        if left.type_name not in (edge.source, edge.target):
            _wrong_endpoint(ctx, clause.source, left, edge)
        return "out" if left.type_name == edge.source else "in"
    if right is not None:
        if right.type_name not in (edge.source, edge.target):
            _wrong_endpoint(ctx, clause.target, right, edge)
        return "out" if right.type_name == edge.target else "in"
    return "out"


def _wrong_endpoint(ctx: Context, variable: ast.Variable, bound: VariableType, edge: EdgeType) -> NoReturn:
    message = f"variable `${variable.name}` has type `{bound.type_name}`, edge `{edge.name}` {_run(edge)}"
    ctx.reject(variable.span, "T5", message)


def _run(edge: EdgeType) -> str:
    return f"runs {edge.source} -> {edge.target}"


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
        message = f"edge binding `${name}` needs a single hop, not {{{clause.min},{clause.max}}}"
        ctx.reject(variable.span, "T23", message)
    if name in (clause.source.name, clause.target.name):
        ctx.reject(variable.span, "T23", f"edge binding `${name}` reuses the name of an endpoint")
    if scope.find(name) is not None:
        ctx.reject(variable.span, "T23", f"edge binding `${name}` is already bound")
    scope.own[name] = VariableType("edge", edge.name)
    return name
