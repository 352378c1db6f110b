"""Checks of the expressions of a read: properties, variables, function calls."""

from __future__ import annotations

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.literals import check_literal
from omnigraph.lang.gq.check.scope import Context, Scope, did_you_mean_variable
from omnigraph.lang.gq.check.search_options import check_depth, check_search_options
from omnigraph.lang.source import Span
from omnigraph.lang.types import BOOL, F64, I64, INT_RANGES, STRING, PropType, Scalar, vector

DEFAULT_RRF_K = ir.Const(60, I64)
DEFAULT_MAX_EDITS = ir.Const(2, I64)
MAX_FACTOR = 1e6


def check_expr(ctx: Context, scope: Scope, expr: ast.Expr) -> ir.Expr:
    """Check an expression with one value per row."""
    match expr:
        case ast.Literal():
            return check_literal(ctx, expr)
        case ast.Now():
            return ir.Now()
        case ast.PropertyAccess():
            return check_property(ctx, scope, expr)
        case ast.Variable():
            return check_variable(ctx, scope, expr)
        case ast.TextCall():
            return check_text_call(ctx, scope, expr)
        case ast.Nearest():
            return check_nearest(ctx, scope, expr)
        case ast.Bm25():
            return check_bm25(ctx, scope, expr)
        case ast.Rrf():
            return check_rrf(ctx, scope, expr)
        case ast.Snippet():
            ctx.reject(expr.span, "T19", "`snippet` is only allowed as a column of `return`")
        case ast.Aggregate():
            hint = "return it with an alias and use the alias in `order`"
            ctx.reject(expr.span, "T9", f"aggregate `{expr.fn}` is only allowed in `return`", hint)
        case ast.AliasRef() | ast.ColumnName():
            hint = "refer to a property as `$variable.name`"
            ctx.reject(expr.span, "T6", f"`{expr.name}` is not bound", hint)


def check_property(ctx: Context, scope: Scope, expr: ast.PropertyAccess) -> ir.PropertyRef:
    """Check ``$v.name``; it is nullable when the property or the variable is."""
    bound = ctx.variable(scope, expr.variable, expr.span)
    prop = ctx.property_of(bound, expr.name, expr.name_span, "T6")
    type_ = prop.type.optional if bound.nullable else prop.type
    return ir.PropertyRef(expr.variable, expr.name, type_)


def check_variable(ctx: Context, scope: Scope, expr: ast.Variable) -> ir.EntityRef | ir.ParamRef:
    """Check a bare ``$v``: a bound node, else a parameter."""
    bound = scope.find(expr.name)
    if bound is not None:
        if bound.kind == "edge":
            hint = f"use one of its properties: `${expr.name}.<property>`"
            ctx.reject(
                expr.span, "T23", f"edge binding `${expr.name}` cannot be used without a property", hint
            )
        type_ = STRING.optional if bound.nullable else STRING
        return ir.EntityRef(expr.name, bound.type_name, type_)
    return check_param(ctx, scope, expr)


def check_param(ctx: Context, scope: Scope, expr: ast.Variable) -> ir.ParamRef:
    """Return a parameter, or reject the variable."""
    type_ = ctx.params.get(expr.name)
    if type_ is None:
        if scope.is_poisoned(expr.name):
            ctx.abandon()
        tail = did_you_mean_variable(expr.name, [*scope.names(), *ctx.params])
        ctx.reject(expr.span, None, f"variable `${expr.name}` is not bound{tail}")
    return ir.ParamRef(expr.name, type_)


def reject_blob(ctx: Context, expr: ir.Expr, span: Span) -> None:
    """Reject a Blob, which queries cannot read."""
    if expr.type.scalar is not Scalar.BLOB:
        return
    if isinstance(expr, ir.PropertyRef):
        message = f"Blob property `{expr.property}` cannot be read in a query"
        ctx.reject(span, "T24", message, "read it with `omnigraph blob get`")
    ctx.reject(span, "T24", "a Blob parameter cannot be read in a query", "declare it as String")


def is_string(type_: PropType) -> bool:
    """Return whether the type is a single String."""
    return type_.scalar is Scalar.STRING and not type_.is_list


def display_type(expr: ir.Expr) -> str:
    """Return the type of an operand for messages: a node type or the type of a value."""
    return f"node `{expr.type_name}`" if isinstance(expr, ir.EntityRef) else str(expr.type.core)


def _text_fields(
    ctx: Context, scope: Scope, fn: str, expr: ast.Expr | ast.Fields, code: str
) -> tuple[ir.TextField, ...]:
    """Return the properties that a text function searches: one, or several of one variable."""
    if not isinstance(expr, ast.Fields):
        return (_text_field(ctx, scope, fn, expr, code, 1.0),)
    found: list[ir.TextField] = []
    for item, boost in zip(expr.items, expr.boosts, strict=True):
        if found and item.variable != found[0].ref.variable:
            ctx.reject(item.span, code, f"the fields of `{fn}` must be properties of one variable")
        factor = _factor(ctx, boost, code, "boost")
        if boost is not None and fn != "bm25":
            hint = "boosts count in the scores of `bm25`"
            ctx.reject(boost.span, code, f"`{fn}` has no scores to boost", hint)
        found.append(_text_field(ctx, scope, fn, item, code, factor))
    return tuple(found)


def _text_field(ctx: Context, scope: Scope, fn: str, expr: ast.Expr, code: str, boost: float) -> ir.TextField:
    if not isinstance(expr, ast.PropertyAccess):
        ctx.reject(expr.span, code, f"the field of `{fn}` must be a String property `$v.name`")
    _reject_edge_field(ctx, scope, fn, expr)
    field = check_property(ctx, scope, expr)
    if not is_string(field.type):
        ctx.reject(expr.span, code, f"the field of `{fn}` must be String, got {display_type(field)}")
    bound = ctx.variable(scope, expr.variable, expr.span)
    prop = ctx.property_of(bound, expr.name, expr.name_span, code)
    return ir.TextField(field, prop.text_analysis, boost)


def _factor(ctx: Context, number: ast.Literal | None, code: str, name: str) -> float:
    """Return a boost or weight, 1 if there is none."""
    if number is None:
        return 1.0
    value = number.value
    if not isinstance(value, int | float) or not 0 < value <= MAX_FACTOR:
        ctx.reject(number.span, code, f"a {name} must be above 0 and at most {MAX_FACTOR:.0f}")
    return float(value)


def _reject_edge_field(ctx: Context, scope: Scope, fn: str, expr: ast.PropertyAccess) -> None:
    bound = scope.find(expr.variable)
    if bound is not None and bound.kind == "edge":
        ctx.reject(expr.span, "T23", f"edge binding `${expr.variable}` cannot be the target of `{fn}`")


def _text_query(ctx: Context, scope: Scope, fn: str, expr: ast.Expr, code: str) -> ir.Expr:
    query = check_expr(ctx, scope, expr)
    if isinstance(query, ir.EntityRef) or not is_string(query.type):
        ctx.reject(expr.span, code, f"the query of `{fn}` must be String, got {display_type(query)}")
    return query


def check_text_call(ctx: Context, scope: Scope, call: ast.TextCall) -> ir.TextMatch:
    """Check ``search``, ``fuzzy`` or ``match_text``."""
    code = "T20" if call.fn == "match_text" else "T19"
    first, *others = _text_fields(ctx, scope, call.fn, call.field, code)
    query = _text_query(ctx, scope, call.fn, call.query, code)
    type_ = BOOL.optional if _is_null_with(first, others, query) else BOOL
    edits: ir.Expr | None = None
    if call.fn == "fuzzy":
        edits = DEFAULT_MAX_EDITS if call.max_edits is None else check_expr(ctx, scope, call.max_edits)
        if not _is_integer(edits) or (isinstance(edits, ir.Const) and _below(edits, 0)):
            span = call.span if call.max_edits is None else call.max_edits.span
            ctx.reject(span, "T19", "max_edits of `fuzzy` must be a non-negative integer")
    return ir.TextMatch(call.fn, first.ref, query, edits, type_, first.analysis, first.boost, tuple(others))


def check_bm25(ctx: Context, scope: Scope, call: ast.Bm25) -> ir.Bm25:
    """Check ``bm25(field, query)`` and ``bm25([field ^ boost, …], query)``."""
    first, *others = _text_fields(ctx, scope, "bm25", call.field, "T20")
    query = _text_query(ctx, scope, "bm25", call.query, "T20")
    type_ = F64.optional if _is_null_with(first, others, query) else F64
    return ir.Bm25(first.ref, query, type_, first.analysis, first.boost, tuple(others))


def _is_null_with(first: ir.TextField, others: list[ir.TextField], query: ir.Expr) -> bool:
    """Return whether a search can be null: when the query is, or all fields are."""
    return query.type.nullable or all(field.ref.type.nullable for field in (first, *others))


def check_snippet(ctx: Context, scope: Scope, call: ast.Snippet) -> ir.Snippet:
    """Check ``snippet(field, query)``."""
    field = _text_field(ctx, scope, "snippet", call.field, "T19", 1.0)
    query = _text_query(ctx, scope, "snippet", call.query, "T19")
    if not isinstance(query, ir.Const | ir.ParamRef):
        ctx.reject(call.query.span, "T19", "the query of `snippet` must be a literal or a parameter")
    return ir.Snippet(field.ref, query, field.analysis, _propagate_null(STRING, field.ref, query))


def check_nearest(ctx: Context, scope: Scope, call: ast.Nearest) -> ir.Nearest:
    """Check ``nearest($v.vector, query)``; a text query is embedded when the query runs."""
    _reject_edge_field(ctx, scope, call.fn, call.field)
    bound = ctx.variable(scope, call.field.variable, call.field.span, "T15")
    prop = ctx.property_of(bound, call.field.name, call.field.name_span, "T15")
    if prop.type.scalar is not Scalar.VECTOR or prop.type.dim is None:
        ctx.reject(call.field.span, "T15", f"`{call.fn}` requires a Vector property, got {prop.type}")
    field = check_property(ctx, scope, call.field)
    query = check_expr(ctx, scope, call.query)
    expected = vector(prop.type.dim)
    if not isinstance(query, ir.EntityRef) and is_string(query.type):
        type_ = expected.optional if query.type.nullable else expected
        query = ir.EmbedText(query, prop.embed, type_, bound.type_name, prop.name)
    else:
        query = _query_vector(ctx, call, query, expected)
    metric = prop.vector_index.metric if call.fn == "nearest" else call.fn
    options = check_search_options(ctx, call, lambda value: check_expr(ctx, scope, value))
    return ir.Nearest(field, query, _propagate_null(F64, field, query), metric, options)


def _propagate_null(result: PropType, *operands: ir.Expr) -> PropType:
    """Return the type of a call that is null when an operand is null."""
    return result.optional if any(item.type.nullable for item in operands) else result


def _query_vector(ctx: Context, call: ast.Nearest, query: ir.Expr, expected: PropType) -> ir.Expr:
    if query.type.scalar is Scalar.VECTOR:
        if query.type.dim != expected.dim:
            message = f"`{call.field.name}` expects {expected.dim} dimensions, got {query.type.dim}"
            ctx.reject(call.query.span, "T15", message)
        return query
    if isinstance(query, ir.Const) and isinstance(query.value, tuple):
        if query.value and not query.type.item.is_numeric:
            ctx.reject(call.query.span, "T15", "a query vector must contain only numbers")
        if len(query.value) != expected.dim:
            message = f"`{call.field.name}` expects {expected.dim} dimensions, got {len(query.value)}"
            ctx.reject(call.query.span, "T15", message)
        return ir.Const(tuple(float(item) for item in query.value if isinstance(item, int | float)), expected)
    message = f"the query of `{call.fn}` must be {expected} or String, got {display_type(query)}"
    ctx.reject(call.query.span, "T15", message)


def check_rrf(ctx: Context, scope: Scope, call: ast.Rrf) -> ir.Rrf:
    """Check ``rrf(rank, …, k, depth: n)`` and ``fuse(rank ^ weight, …, depth: n)``."""
    ranks = tuple(
        check_nearest(ctx, scope, item) if isinstance(item, ast.Nearest) else check_bm25(ctx, scope, item)
        for item in call.ranks
    )
    weights = tuple(_factor(ctx, item, "T21", "weight") for item in call.weights)
    depth = check_depth(ctx, call, lambda value: check_expr(ctx, scope, value))
    if call.k is None:
        return ir.Rrf(ranks, weights, DEFAULT_RRF_K, call.fn, depth=depth)
    k = check_expr(ctx, scope, call.k)
    if not _is_integer(k) or (isinstance(k, ir.Const) and _below(k, 1)):
        ctx.reject(call.k.span, "T21", "k of `rrf` must be a positive integer")
    return ir.Rrf(ranks, weights, k, call.fn, depth=depth)


def _is_integer(expr: ir.Expr) -> bool:
    is_fixed = isinstance(expr, ir.Const | ir.ParamRef)
    return is_fixed and expr.type.scalar in INT_RANGES and not expr.type.is_list


def _below(const: ir.Const, bound: int) -> bool:
    return isinstance(const.value, int) and const.value < bound
