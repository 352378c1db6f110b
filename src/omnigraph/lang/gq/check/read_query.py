"""The read tail: projections, aggregates, ordering, distinct, skip and limit."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.expressions import check_expr, is_string, refuse_blob, shown
from omnigraph.lang.gq.check.patterns import check_pattern
from omnigraph.lang.gq.check.scope import Context, Scope, sorted_entities
from omnigraph.lang.source import did_you_mean
from omnigraph.lang.types import F64, I64, PropType, Scalar


def check_read(ctx: Context, query: ast.Query, body: ast.ReadBody) -> ir.ReadQuery:
    """A read query; what is wrong with it is in the context's diagnostics."""
    params = ctx.declare_params(query.params)
    scope = Scope()
    pattern = check_pattern(ctx, scope, body.clauses)
    outputs = _check_outputs(ctx, scope, body.projections)
    aggregated = any(isinstance(item.expr, ast.Aggregate) for item in body.projections)
    if aggregated:
        _check_group_keys(ctx, body.projections, outputs)
    order = _check_order(ctx, scope, body, outputs, aggregated)
    return ir.ReadQuery(
        name=query.name,
        params=params,
        variables=tuple(
            ir.Variable(name, bound.kind, bound.type_name, bound.nullable)
            for name, bound in scope.own.items()
        ),
        pattern=pattern,
        outputs=tuple(item for item in outputs.values() if item is not None),
        aggregated=aggregated,
        distinct=body.distinct,
        order=order,
        skip=body.skip,
        limit=body.limit,
        reads=sorted_entities(ctx.reads),
        description=query.description,
        instruction=query.instruction,
    )


def _check_outputs(
    ctx: Context, scope: Scope, projections: tuple[ast.Projection, ...]
) -> dict[str, ir.Output | None]:
    """The result columns by name; one whose projection was rejected is None."""
    outputs: dict[str, ir.Output | None] = {}
    for item in projections:
        name = item.alias or _names(item.expr)[0]
        if name in outputs:
            hint = "give one of them an alias: `… as other_name`"
            ctx.report(item.span, None, f"two result columns are called `{name}`", hint)
            continue
        output = None
        with ctx.recovering():
            output = _check_output(ctx, scope, item, outputs)
        outputs[name] = output
    return outputs


def _check_output(
    ctx: Context, scope: Scope, item: ast.Projection, before: Mapping[str, ir.Output | None]
) -> ir.Output:
    expr: ir.Expr
    if isinstance(item.expr, ast.Aggregate):
        expr = _check_aggregate(ctx, scope, item.expr)
    elif isinstance(item.expr, ast.AliasRef):
        expr = _find_alias(ctx, item.expr, before).expr
    else:
        expr = check_expr(ctx, scope, item.expr)
    refuse_blob(ctx, expr, item.expr.span)
    kind = "object" if isinstance(expr, ir.EntityRef) else expr.type.kind
    name, label = _names(item.expr)
    return ir.Output(item.alias or name, expr, item.alias or label, kind)


def _names(expr: ast.Expr) -> tuple[str, str]:
    """The column name of an expression without an alias, and what its descriptor calls it."""
    match expr:
        case ast.PropertyAccess():
            return f"{expr.variable}.{expr.name}", expr.name
        case ast.Variable() | ast.AliasRef() | ast.ColumnName():
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


def _find_alias(ctx: Context, ref: ast.AliasRef, outputs: Mapping[str, ir.Output | None]) -> ir.Output:
    if ref.name not in outputs:
        tail = did_you_mean(ref.name, outputs)
        hint = "an alias is given with `as` in `return`; a property is written `$variable.name`"
        ctx.reject(ref.span, "T6", f"no result column is called `{ref.name}`{tail}", hint)
    found = outputs[ref.name]
    if found is None:
        ctx.give_up()
    return found


def _check_aggregate(ctx: Context, scope: Scope, node: ast.Aggregate) -> ir.Aggregate:
    if isinstance(node.argument, ast.Aggregate):
        ctx.reject(node.argument.span, "T9", "an aggregate cannot hold another")
    argument = check_expr(ctx, scope, node.argument)
    refuse_blob(ctx, argument, node.argument.span)
    result = _aggregate_type(node.fn, argument)
    if isinstance(result, str):
        ctx.reject(node.argument.span, "T8", f"`{node.fn}` needs {result}, got {shown(argument)}")
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
    ctx: Context, projections: tuple[ast.Projection, ...], outputs: Mapping[str, ir.Output | None]
) -> None:
    for item in projections:
        output = outputs[item.alias or _names(item.expr)[0]]
        if output is not None and not isinstance(output.expr, ir.Aggregate | ir.PropertyRef | ir.EntityRef):
            message = "in an aggregate query every other projection must be `$v.p` or `$v`"
            ctx.report(item.span, "T9", message, "aggregate it too, or return it from a query of its own")


def _check_order(
    ctx: Context,
    scope: Scope,
    body: ast.ReadBody,
    outputs: Mapping[str, ir.Output | None],
    aggregated: bool,
) -> tuple[ir.Order, ...]:
    order: list[ir.Order] = []
    for item in body.order:
        with ctx.recovering():
            key = _check_order_key(ctx, scope, body, item, outputs, aggregated)
            if key.type.is_list or key.type.scalar is Scalar.VECTOR:
                ctx.reject(item.expr.span, "T7", f"a {key.type.core} has no order")
            # A distance is best when small and a score when large, whatever direction is written.
            descending = bool(item.descending)
            if isinstance(key, ir.Rank):
                descending = not isinstance(key, ir.Nearest)
            order.append(ir.Order(key, descending))
    _check_rankings(ctx, body)
    return tuple(order)


def _check_order_key(
    ctx: Context,
    scope: Scope,
    body: ast.ReadBody,
    item: ast.Ordering,
    outputs: Mapping[str, ir.Output | None],
    aggregated: bool,
) -> ir.Expr:
    if isinstance(item.expr, ast.AliasRef):
        found = _find_alias(ctx, item.expr, outputs)
        return ir.OutputRef(found.name, found.type)
    if isinstance(item.expr, ast.Aggregate):
        key: ir.Expr = _check_aggregate(ctx, scope, item.expr)
    else:
        key = check_expr(ctx, scope, item.expr)
    refuse_blob(ctx, key, item.expr.span)
    if not isinstance(key, ir.PropertyRef | ir.EntityRef | ir.Aggregate | ir.Rank):
        ctx.reject(item.expr.span, "T6", "order by `$v.property`, an alias, or one ranking call")
    if aggregated or isinstance(key, ir.Aggregate):
        return _returned(ctx, item, key, outputs, "an aggregated", "rank in a query that aggregates nothing")
    if body.distinct:
        hint = "return the score under an alias and order by that"
        return _returned(ctx, item, key, outputs, "a distinct", hint)
    return key


def _returned(
    ctx: Context,
    item: ast.Ordering,
    key: ir.Expr,
    outputs: Mapping[str, ir.Output | None],
    read: str,
    ranking_hint: str,
) -> ir.OutputRef:
    """The result column that is the key; rows are no longer bindings, so nothing else can order them."""
    message = f"{read} read is ordered by what it returns"
    if isinstance(key, ir.Rank):
        ctx.reject(item.expr.span, "T25", message, ranking_hint)
    same = next((output for output in outputs.values() if output is not None and output.expr == key), None)
    if same is None:
        ctx.reject(item.expr.span, "T25", message, "add it to `return`")
    return ir.OutputRef(same.name, same.type)


def _check_rankings(ctx: Context, body: ast.ReadBody) -> None:
    rankings = [item for item in body.order if isinstance(item.expr, ast.Nearest | ast.Bm25 | ast.Rrf)]
    for item in rankings[1:]:
        ctx.report(item.span, "T18", "a read is ordered by one ranking", "fuse two with `rrf`")
    for item in rankings:
        if isinstance(item.expr, ast.Nearest):
            if body.limit is None:
                ctx.report(item.span, "T17", "`nearest` ordering needs `limit`", "add `limit n` at the end")
            if any(isinstance(other.expr, ast.AliasRef) for other in body.order):
                message = "alias ordering cannot stand together with a standalone `nearest`"
                ctx.report(item.span, "T18", message, "order by `$v.property` instead of the alias")
        if isinstance(item.expr, ast.Rrf) and body.limit is None:
            ctx.report(item.span, "T21", "`rrf` ordering needs `limit`", "add `limit n` at the end")
