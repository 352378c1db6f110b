"""Checks of mutation queries: any mix of inserts, updates and deletes."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.literals import assigned_literal, check_literal
from omnigraph.lang.gq.check.predicates import check_predicate
from omnigraph.lang.gq.check.scope import Context, Scope, did_you_mean_variable, sorted_entities
from omnigraph.lang.gq.check.values import check_now_value, check_param_value
from omnigraph.lang.schema import EdgeType, NodeType, Property
from omnigraph.lang.source import Span
from omnigraph.lang.suggestions import did_you_mean
from omnigraph.lang.types import STRING, PropType, Scalar

ENDPOINTS = ("from", "to")


def check_mutation(ctx: Context, query: ast.Query, body: ast.MutationBody) -> ir.MutationQuery:
    """Check a mutation query; errors are recorded in the diagnostics of the context."""
    params = ctx.declare_params(query.params)
    statements: list[ir.Statement] = []
    for item in body.statements:
        with ctx.recovering():
            match item:
                case ast.Insert():
                    statements.append(_check_insert(ctx, item))
                case ast.Update():
                    statements.append(_check_update(ctx, item))
                case ast.Delete():
                    statements.append(_check_delete(ctx, item))
    return ir.MutationQuery(
        name=query.name,
        params=params,
        statements=tuple(statements),
        reads=sorted_entities(ctx.reads),
        writes=sorted_entities(ctx.writes),
        description=query.description,
        instruction=query.instruction,
    )


def _target(ctx: Context, name: str, span: Span, names_ends: bool) -> NodeType | EdgeType:
    """Return the target type of a statement; if a node and an edge share the name, an endpoint selects the edge."""
    node = ctx.schema.node(name)
    edge = next((item for item in ctx.schema.edges if item.name == name), None)
    target = (edge or node) if names_ends else (node or edge)
    if target is None:
        known = [item.name for item in (*ctx.schema.nodes, *ctx.schema.edges)]
        hint = ctx.not_a_node_type(name)
        ctx.reject(span, "T10", f"unknown type `{name}`{'' if hint else did_you_mean(name, known)}", hint)
    return target


def _record_write(ctx: Context, target: NodeType | EdgeType) -> None:
    kind: ir.EntityKind = "node" if isinstance(target, NodeType) else "edge"
    ctx.record_read(kind, target.name)
    ctx.writes.add(ir.EntityType(kind, target.name))


def _check_insert(ctx: Context, item: ast.Insert) -> ir.InsertNode | ir.InsertEdge:
    names_ends = any(assign.name in ENDPOINTS for assign in item.assigns)
    target = _target(ctx, item.type_name, item.type_span, names_ends)
    _record_write(ctx, target)
    ends, assigns = _check_assigns(ctx, target, item.assigns, item.type_span)
    _check_complete(ctx, target, item)
    if isinstance(target, NodeType):
        return ir.InsertNode(target.name, assigns)
    ctx.record_read("node", target.source)
    ctx.record_read("node", target.target)
    if len(ends) < len(ENDPOINTS):
        ctx.abandon()
    return ir.InsertEdge(target.name, ends["from"], ends["to"], assigns)


def _check_complete(ctx: Context, target: NodeType | EdgeType, item: ast.Insert) -> None:
    assigned = {assign.name for assign in item.assigns}
    missing = [prop.name for prop in target.properties if _is_missing(prop, assigned)]
    if isinstance(target, EdgeType):
        missing = [name for name in ENDPOINTS if name not in assigned] + missing
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        ctx.report(item.type_span, "T12", f"insert of `{target.name}` is missing required {names}")


def _is_missing(prop: Property, assigned: set[str]) -> bool:
    embedded = prop.embed is not None and prop.embed.source in assigned
    return not prop.type.nullable and prop.name not in assigned and not embedded


def _check_update(ctx: Context, item: ast.Update) -> ir.UpdateNode | ir.UpdateEdge:
    target = _target(ctx, item.type_name, item.type_span, _names_ends(item.where))
    if isinstance(target, EdgeType) and target.key is None:
        hint = "delete the edge and insert a new one, or give the type a key such as @key(src, dst)"
        ctx.reject(item.type_span, "T16", f"edge type `{target.name}` cannot be updated", hint)
    _record_write(ctx, target)
    _, assigns = _check_assigns(ctx, target, item.assigns, item.type_span)
    for assign in item.assigns:
        is_end = isinstance(target, EdgeType) and assign.name in ENDPOINTS
        if is_end or (target.key and assign.name in target.key):
            part = "endpoint" if is_end else "@key property"
            message = f"cannot update {part} '{assign.name}' — delete and re-insert instead"
            ctx.report(assign.span, None, message)
    where = _check_where(ctx, target, item.where)
    if isinstance(target, EdgeType):
        return ir.UpdateEdge(target.name, assigns, where)
    return ir.UpdateNode(target.name, assigns, where)


def _check_delete(ctx: Context, item: ast.Delete) -> ir.DeleteNode | ir.DeleteEdge:
    target = _target(ctx, item.type_name, item.type_span, _names_ends(item.where))
    _record_write(ctx, target)
    where = _check_where(ctx, target, item.where)
    if isinstance(target, EdgeType):
        return ir.DeleteEdge(target.name, where)
    cascades = tuple(ctx.schema.edges_of(target.name))
    for edge in cascades:
        _record_write(ctx, edge)
    return ir.DeleteNode(target.name, where, tuple(edge.name for edge in cascades))


def _names_ends(where: ast.Predicate) -> bool:
    match where:
        case ast.And() | ast.Or():
            return any(_names_ends(item) for item in where.items)
        case ast.Not():
            return _names_ends(where.item)
        case ast.Compare():
            return isinstance(where.left, ast.ColumnName) and where.left.name in ENDPOINTS
        case ast.InList() | ast.IsNull():
            return isinstance(where.operand, ast.ColumnName) and where.operand.name in ENDPOINTS
        case ast.TextCall():
            return False


def _check_assigns(
    ctx: Context, target: NodeType | EdgeType, assigns: tuple[ast.Assign, ...], span: Span
) -> tuple[dict[str, ir.Expr], tuple[ir.Assign, ...]]:
    """Check the assignments of a statement; return the endpoints and the properties, without rejected ones."""
    ends: dict[str, ir.Expr] = {}
    checked: list[ir.Assign] = []
    seen: set[str] = set()
    if not assigns:
        ctx.report(span, "T10", f"no property of `{target.name}` is assigned")
    for assign in assigns:
        with ctx.recovering():
            if assign.name in seen:
                ctx.reject(assign.span, "T13", f"`{assign.name}` is assigned more than once")
            seen.add(assign.name)
            if isinstance(target, EdgeType) and assign.name in ENDPOINTS:
                ends[assign.name] = _check_value(ctx, assign, STRING)
                continue
            prop = target.by_name.get(assign.name)
            if prop is None:
                _unknown_property(ctx, target, assign.name, assign.span)
            checked.append(ir.Assign(prop.name, _check_value(ctx, assign, prop.type), prop.type))
    return ends, tuple(checked)


def _unknown_property(ctx: Context, target: NodeType | EdgeType, name: str, span: Span) -> NoReturn:
    known = [*target.by_name, *(ENDPOINTS if isinstance(target, EdgeType) else ())]
    ctx.reject(span, "T11", f"type `{target.name}` has no property `{name}`{did_you_mean(name, known)}")


def _check_value(ctx: Context, assign: ast.Assign, expected: PropType) -> ir.Expr:
    owner = f"`{assign.name}`"
    match assign.value:
        case ast.Literal() as literal:
            return assigned_literal(ctx, literal, owner, expected)
        case ast.Now() as now:
            return check_now_value(ctx, owner, expected, now.span)
        case ast.Variable() as variable:
            param = _check_param(ctx, variable)
            if expected.scalar is Scalar.BLOB and param.type.core == STRING:
                # A String assigned to a Blob is a URI or a `base64:` payload.
                return param
            return check_param_value(ctx, param, owner, expected, variable.span)


def _check_param(ctx: Context, variable: ast.Variable) -> ir.ParamRef:
    type_ = ctx.params.get(variable.name)
    if type_ is None:
        tail = did_you_mean_variable(variable.name, list(ctx.params))
        ctx.reject(variable.span, "T14", f"`${variable.name}` is not a declared parameter{tail}")
    return ir.ParamRef(variable.name, type_)


def _check_where(ctx: Context, target: NodeType | EdgeType, where: ast.Predicate) -> ir.Predicate:
    def resolve(expr: ast.Expr) -> ir.Expr:
        match expr:
            case ast.ColumnName():
                return _check_column(ctx, target, expr)
            case ast.Variable():
                return _check_param(ctx, expr)
            case ast.Literal():
                return check_literal(ctx, expr)
            case ast.Now():
                return ir.Now()
            case _:
                ctx.reject(expr.span, "T11", "`where` can only compare properties of the type with values")

    return check_predicate(ctx, Scope(), where, resolve)


def _check_column(ctx: Context, target: NodeType | EdgeType, column: ast.ColumnName) -> ir.ColumnRef:
    if isinstance(target, EdgeType) and column.name in ENDPOINTS:
        return ir.ColumnRef(column.name, STRING)
    prop = target.by_name.get(column.name)
    if prop is None:
        _unknown_property(ctx, target, column.name, column.span)
    if prop.type.scalar is Scalar.BLOB:
        ctx.reject(column.span, "T11", f"Blob property `{column.name}` cannot be used in `where`")
    return ir.ColumnRef(prop.name, prop.type)
