"""Checks of read queries: projections, aggregates, ordering, distinct, skip and limit."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.all_properties import check_all_properties
from omnigraph.lang.gq.check.expressions import (
    check_expr,
    check_snippet,
    display_type,
    is_string,
    reject_blob,
)
from omnigraph.lang.gq.check.patterns import check_pattern
from omnigraph.lang.gq.check.scope import Context, Scope, sorted_entities
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import F64, I64, PropType, Scalar


def check_read(ctx: Context, query: ast.Query, body: ast.ReadBody) -> ir.ReadQuery:
    """Check a read query; errors are recorded in the diagnostics of the context."""
    params = ctx.declare_params(query.params)
    if body.limit is not None:
        # All rows of the result are ranked.
        end = (body.skip or 0) + body.limit
        ctx.fusion_depth = min(max(ir.FUSION_DEPTH, end), ir.MAX_FUSION_DEPTH)
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
    """Return the result columns by name; None for a rejected projection."""
    outputs: dict[str, ir.Output | None] = {}
    entities: set[str] = set()
    for item in projections:
        if isinstance(item.expr, ast.AllProperties):
            with ctx.recovering():
                found = check_all_properties(ctx, scope, item.expr, item.alias)
                is_taken = any(output.name in outputs for output in found)
                if is_taken or item.alias in entities or item.alias in outputs:
                    _report_duplicate(ctx, item, item.alias or f"{item.expr.variable}.*")
                    continue
                outputs |= {output.name: output for output in found}
                entities |= {item.alias} if item.alias else set()
            continue
        name = item.alias or _names(item.expr)[0]
        if name in outputs or name in entities:
            _report_duplicate(ctx, item, name)
            continue
        output = None
        with ctx.recovering():
            output = _check_output(ctx, scope, item, item.expr, outputs)
        outputs[name] = output
    return outputs


def _report_duplicate(ctx: Context, item: ast.Projection, name: str) -> None:
    hint = "give one of them an alias: `… as other_name`"
    ctx.report(item.span, None, f"duplicate result column `{name}`", hint)


def _check_output(
    ctx: Context,
    scope: Scope,
    item: ast.Projection,
    node: ast.Expr,
    before: Mapping[str, ir.Output | None],
) -> ir.Output:
    expr: ir.Expr
    if isinstance(node, ast.Aggregate):
        expr = _check_aggregate(ctx, scope, node)
    elif isinstance(node, ast.AliasRef):
        expr = _find_alias(ctx, node, before).expr
    elif isinstance(node, ast.Snippet):
        expr = check_snippet(ctx, scope, node)
    else:
        expr = check_expr(ctx, scope, node)
    reject_blob(ctx, expr, node.span)
    kind = "object" if isinstance(expr, ir.EntityRef) else expr.type.kind
    name, label = _names(node)
    return ir.Output(item.alias or name, expr, item.alias or label, kind)


def _names(expr: ast.Expr) -> tuple[str, str]:
    """Return the column name of an expression without an alias, and its name in descriptors."""
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
        case ast.Now() | ast.Nearest() | ast.Bm25() | ast.Snippet():
            name = type(expr).__name__.lower()
            return name, name
        case ast.Rrf():
            return expr.fn, expr.fn


def _find_alias(ctx: Context, ref: ast.AliasRef, outputs: Mapping[str, ir.Output | None]) -> ir.Output:
    if ref.name not in outputs:
        tail = did_you_mean(ref.name, outputs)
        hint = "define an alias with `as` in `return`, or refer to a property as `$variable.name`"
        ctx.reject(ref.span, "T6", f"unknown result column `{ref.name}`{tail}", hint)
    output = outputs[ref.name]
    if output is None:
        ctx.abandon()
    return output


def _check_aggregate(ctx: Context, scope: Scope, node: ast.Aggregate) -> ir.Aggregate:
    if isinstance(node.argument, ast.Aggregate):
        ctx.reject(node.argument.span, "T9", "aggregates cannot be nested")
    argument = check_expr(ctx, scope, node.argument)
    reject_blob(ctx, argument, node.argument.span)
    result = _aggregate_type(node.fn, argument)
    if isinstance(result, str):
        ctx.reject(node.argument.span, "T8", f"`{node.fn}` expects {result}, got {display_type(argument)}")
    return ir.Aggregate(node.fn, argument, node.distinct, result)


def _aggregate_type(fn: ir.AggregateFn, argument: ir.Expr) -> PropType | str:
    """Return the type of an aggregate, or a description of the expected argument when the argument is invalid."""
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
        if isinstance(item.expr, ast.AllProperties):
            continue
        output = outputs[item.alias or _names(item.expr)[0]]
        if output is not None and not isinstance(output.expr, ir.Aggregate | ir.PropertyRef | ir.EntityRef):
            message = "in an aggregate query every other projection must be `$v.p` or `$v`"
            ctx.report(item.span, "T9", message, "aggregate it, or return it in a separate query")


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
                ctx.reject(item.expr.span, "T7", f"cannot order by {key.type.core}")
            # A ranking always puts the best rows first: small distances, large scores.
            descending = bool(item.descending)
            if isinstance(key, ir.Rank):
                descending = not isinstance(key, ir.Nearest)
            order.append(ir.Order(key, descending))
    _check_rankings(ctx, body, outputs)
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
        output = _find_alias(ctx, item.expr, outputs)
        return ir.OutputRef(output.name, output.type)
    if isinstance(item.expr, ast.Aggregate):
        key: ir.Expr = _check_aggregate(ctx, scope, item.expr)
    else:
        key = check_expr(ctx, scope, item.expr)
    reject_blob(ctx, key, item.expr.span)
    if not isinstance(key, ir.PropertyRef | ir.EntityRef | ir.Aggregate | ir.Rank):
        ctx.reject(item.expr.span, "T6", "`order` accepts `$v.property`, an alias, or one ranking call")
    if aggregated or isinstance(key, ir.Aggregate):
        return _find_output(ctx, item, key, outputs, "an aggregated", "rank in a query without aggregates")
    if body.distinct:
        hint = "return the score with an alias and order by the alias"
        return _find_output(ctx, item, key, outputs, "a distinct", hint)
    return key


def _find_output(
    ctx: Context,
    item: ast.Ordering,
    key: ir.Expr,
    outputs: Mapping[str, ir.Output | None],
    read: str,
    ranking_hint: str,
) -> ir.OutputRef:
    """Return the result column that equals the key. Grouped and distinct rows have no bindings to order by."""
    message = f"{read} read can only be ordered by its result columns"
    if isinstance(key, ir.Rank):
        ctx.reject(item.expr.span, "T25", message, ranking_hint)
    same = next((output for output in outputs.values() if output is not None and output.expr == key), None)
    if same is None:
        ctx.reject(item.expr.span, "T25", message, "add it to `return`")
    return ir.OutputRef(same.name, same.type)


def _check_rankings(ctx: Context, body: ast.ReadBody, outputs: Mapping[str, ir.Output | None]) -> None:
    """Check the rules of rankings. An alias in `order` follows the rules of the ranking that it names."""
    calls = [item for item in body.order if isinstance(item.expr, ast.Nearest | ast.Bm25 | ast.Rrf)]
    aliases = [item for item in body.order if isinstance(item.expr, ast.AliasRef)]
    ranked_aliases = [item for item in aliases if isinstance(_named_expr(item, outputs), ir.Rank)]
    if calls:
        for item in [*calls[1:], *ranked_aliases]:
            ctx.report(
                item.span, "T18", "a read can be ordered by one ranking only", "combine two with `rrf`"
            )
    for item in calls:
        if isinstance(item.expr, ast.Nearest) and aliases:
            message = "alias ordering cannot be combined with a standalone `nearest`"
            ctx.report(item.span, "T18", message, "order by `$v.property` instead of the alias")
    if body.limit is None:
        for item in body.order:
            _report_missing_limit(ctx, item, _named_expr(item, outputs))


def _named_expr(item: ast.Ordering, outputs: Mapping[str, ir.Output | None]) -> ast.Expr | ir.Expr:
    """Return the expression of a sort key, or the checked expression of the result column that it names."""
    output = outputs.get(item.expr.name) if isinstance(item.expr, ast.AliasRef) else None
    return item.expr if output is None else output.expr


def _report_missing_limit(ctx: Context, item: ast.Ordering, ranking: ast.Expr | ir.Expr) -> None:
    if isinstance(ranking, ast.Nearest | ir.Nearest):
        ctx.report(item.span, "T17", "`nearest` ordering requires `limit`", "add `limit n` at the end")
    if isinstance(ranking, ast.Rrf | ir.Rrf):
        ctx.report(item.span, "T21", f"`{ranking.fn}` ordering requires `limit`", "add `limit n` at the end")
