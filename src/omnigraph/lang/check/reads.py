"""The read tail: projections, aggregates, ordering, distinct, skip and limit."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.lang import ir
from omnigraph.lang import query_ast as ast
from omnigraph.lang.check.expressions import check_expr, is_string, refuse_blob
from omnigraph.lang.check.patterns import check_pattern
from omnigraph.lang.check.scope import Context, Scope, sorted_entities
from omnigraph.lang.source import did_you_mean
from omnigraph.lang.types import F64, I64, PropType, Scalar


def check_read(ctx: Context, query: ast.Query, body: ast.Read) -> ir.ReadQuery:
    """A read query; what is wrong with it is in the context's diagnostics."""
    params = ctx.declare_params(query.params)
    scope = Scope()
    pattern = check_pattern(ctx, scope, body.clauses)
    outputs = _check_outputs(ctx, scope, body.projections)
    aggregated = any(isinstance(item.expr, ir.Aggregate) for item in outputs)
    if aggregated:
        _check_group_keys(ctx, body.projections, outputs)
    order = _check_order(ctx, scope, body, outputs, aggregated)
    return ir.ReadQuery(
        name=query.name,
        params=params,
        variables=tuple(
            ir.Variable(name, bound.kind, bound.type_name, bound.nullable) for name, bound in scope.own.items()
        ),
        pattern=pattern,
        outputs=tuple(outputs),
        aggregated=aggregated,
        distinct=body.distinct,
        order=order,
        skip=body.skip,
        limit=body.limit,
        reads=sorted_entities(ctx.reads),
        description=query.description,
        instruction=query.instruction,
    )


def _check_outputs(ctx: Context, scope: Scope, projections: tuple[ast.Projection, ...]) -> list[ir.Output]:
    outputs: list[ir.Output] = []
    taken: set[str] = set()
    for item in projections:
        with ctx.recovering():
            output = _check_output(ctx, scope, item, outputs)
            if output.name in taken:
                hint = "give one of them an alias: `… as other_name`"
                ctx.reject(item.span, None, f"two result columns are called `{output.name}`", hint)
            taken.add(output.name)
            outputs.append(output)
    return outputs


def _check_output(ctx: Context, scope: Scope, item: ast.Projection, before: Sequence[ir.Output]) -> ir.Output:
    expr: ir.Expr
    if isinstance(item.expr, ast.Aggregate):
        expr = _check_aggregate(ctx, scope, item.expr)
    elif isinstance(item.expr, ast.AliasRef):
        expr = _find_alias(ctx, item.expr, before).expr
    else:
        expr = check_expr(ctx, scope, item.expr)
    refuse_blob(ctx, expr, item.span)
    kind = "object" if isinstance(expr, ir.EntityRef) else expr.type.kind
    name, label = _names(item.expr)
    return ir.Output(item.alias or name, expr, item.alias or label, kind)


def _names(expr: ast.Expr) -> tuple[str, str]:
    """The column name of an expression without an alias, and what its descriptor calls it."""
    match expr:
        case ast.Property():
            return f"{expr.variable}.{expr.name}", expr.name
        case ast.Variable() | ast.AliasRef() | ast.Column():
            return expr.name, expr.name
        case ast.Aggregate():
            return _names(expr.argument)
        case ast.TextCall():
            return expr.fn, expr.fn
        case ast.Literal():
            return "literal", "literal"
        case ast.Now() | ast.Nearest() | ast.Bm25() | ast.Rrf():
            name = type(expr).__name__.lower()
            return name, name


def _find_alias(ctx: Context, ref: ast.AliasRef, outputs: Sequence[ir.Output]) -> ir.Output:
    found = next((item for item in outputs if item.name == ref.name), None)
    if found is None:
        tail = did_you_mean(ref.name, [item.name for item in outputs])
        hint = "an alias is given with `as` in `return`; a property is written `$variable.name`"
        ctx.reject(ref.span, "T6", f"no result column is called `{ref.name}`{tail}", hint)
    return found


def _check_aggregate(ctx: Context, scope: Scope, node: ast.Aggregate) -> ir.Aggregate:
    if isinstance(node.argument, ast.Aggregate):
        ctx.reject(node.span, "T9", "an aggregate cannot hold another")
    argument = check_expr(ctx, scope, node.argument)
    refuse_blob(ctx, argument, node.argument.span)
    result = _aggregate_type(node.fn, argument)
    if isinstance(result, str):
        got = "a node" if isinstance(argument, ir.EntityRef) else argument.type.core
        ctx.reject(node.argument.span, "T8", f"`{node.fn}` needs {result}, got {got}")
    return ir.Aggregate(node.fn, argument, node.distinct, result)


def _aggregate_type(fn: ir.AggregateFn, argument: ir.Expr) -> PropType | str:
    """The type of an aggregate, or in words what it needs instead of the argument."""
    type_ = argument.type
    is_node = isinstance(argument, ir.EntityRef)
    match fn:
        case "count":
            return I64
        case "sum" | "avg":
            return F64.optional if type_.is_numeric else "a number"
        case "min" | "max":
            fits = not is_node and (type_.is_numeric or is_string(type_))
            return type_.optional if fits else "a number or String"
        case "collect":
            fits = not type_.is_list and type_.scalar is not Scalar.VECTOR
            return PropType(type_.scalar, is_list=True) if fits else "a scalar"


def _check_group_keys(
    ctx: Context, projections: tuple[ast.Projection, ...], outputs: Sequence[ir.Output]
) -> None:
    by_name = {item.name: item for item in outputs}
    for item in projections:
        output = by_name.get(item.alias or _names(item.expr)[0])
        if output is None or isinstance(output.expr, ir.Aggregate | ir.PropertyRef | ir.EntityRef):
            continue
        message = "in an aggregate query every other projection must be `$v.p` or `$v`"
        ctx.report(item.span, "T9", message)


def _check_order(
    ctx: Context, scope: Scope, body: ast.Read, outputs: Sequence[ir.Output], aggregated: bool
) -> tuple[ir.Order, ...]:
    order: list[ir.Order] = []
    for item in body.order:
        with ctx.recovering():
            order.append(_check_ordering(ctx, scope, body, item, outputs, aggregated))
    _check_rankings(ctx, body)
    return tuple(order)


def _check_ordering(
    ctx: Context,
    scope: Scope,
    body: ast.Read,
    item: ast.Ordering,
    outputs: Sequence[ir.Output],
    aggregated: bool,
) -> ir.Order:
    descending = bool(item.descending)
    if isinstance(item.expr, ast.AliasRef):
        found = _find_alias(ctx, item.expr, outputs)
        return ir.Order(ir.OutputRef(found.name, found.type), descending)
    if isinstance(item.expr, ast.Aggregate):
        expr: ir.Expr = _check_aggregate(ctx, scope, item.expr)
    else:
        expr = check_expr(ctx, scope, item.expr)
    refuse_blob(ctx, expr, item.span)
    if aggregated or body.distinct or isinstance(expr, ir.Aggregate):
        # Rows are no longer bindings here: only what is returned can order them.
        same = next((output for output in outputs if output.expr == expr), None)
        if same is None:
            what = "an aggregated" if aggregated or isinstance(expr, ir.Aggregate) else "a distinct"
            hint = "add it to `return`"
            ctx.reject(item.span, "T25", f"{what} read is ordered by what it returns", hint)
        return ir.Order(ir.OutputRef(same.name, same.type), descending)
    if isinstance(expr, ir.Nearest):
        return ir.Order(expr, descending=False)
    if isinstance(expr, ir.Bm25 | ir.Rrf):
        # Best first whatever the direction.
        return ir.Order(expr, descending=True)
    if expr.type.is_list or expr.type.scalar is Scalar.VECTOR:
        ctx.reject(item.span, "T7", f"a {expr.type.core} has no order")
    if not isinstance(expr, ir.PropertyRef | ir.EntityRef):
        ctx.reject(item.span, "T6", "order by `$v.property`, an alias, or one ranking call")
    return ir.Order(expr, descending)


def _check_rankings(ctx: Context, body: ast.Read) -> None:
    rankings = [item for item in body.order if isinstance(item.expr, ast.Nearest | ast.Bm25 | ast.Rrf)]
    for item in rankings[1:]:
        ctx.report(item.span, "T18", "a read is ordered by one ranking", "fuse two with `rrf`")
    for item in rankings:
        if isinstance(item.expr, ast.Nearest):
            if body.limit is None:
                ctx.report(item.span, "T17", "`nearest` ordering needs `limit`")
            if any(isinstance(other.expr, ast.AliasRef) for other in body.order):
                ctx.report(item.span, "T18", "alias ordering cannot stand together with a standalone `nearest`")
        if isinstance(item.expr, ast.Rrf) and body.limit is None:
            ctx.report(item.span, "T21", "`rrf` ordering needs `limit`")
