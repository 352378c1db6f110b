"""Checks of ``$v.*`` in `return`: a column for each property, or with an alias one column with whole entities."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang import ir
from omnigraph.lang.gq import query_ast as ast
from omnigraph.lang.gq.check.scope import Context, Scope, VariableType
from omnigraph.lang.schema import EdgeType, NodeType
from omnigraph.lang.types import STRING, Scalar


def check_all_properties(
    ctx: Context, scope: Scope, node: ast.AllProperties, alias: str | None
) -> tuple[ir.Output, ...]:
    """Return the outputs of ``$v.*``. A Blob is not among them, because queries cannot read it.

    With an alias they are the fields of one entity: the id, the endpoints of an edge, and the properties.
    """
    bound = ctx.variable(scope, node.variable, node.span)
    schema = ctx.schema
    owner = schema.node(bound.type_name) if bound.kind == "node" else schema.edge(bound.type_name)
    assert owner is not None
    fields = tuple(_readable(owner, bound, node.variable))
    if alias is None:
        if not fields:
            message = f"{bound.kind} type `{bound.type_name}` has no properties to return"
            ctx.reject(node.span, "T6", message, "give it an alias, `$v.* as v`, to return ids and endpoints")
        return tuple(
            ir.Output(f"{node.variable}.{ref.property}", ref, ref.property, ref.type.kind) for ref in fields
        )
    endpoints = (owner.source, owner.target) if isinstance(owner, EdgeType) else None
    entity = ir.Entity(alias, bound.kind, bound.type_name, bound.nullable, endpoints)
    text = STRING.optional if bound.nullable else STRING
    keys: list[tuple[str, ir.Expr]] = [("id", ir.EntityRef(node.variable, bound.type_name, text))]
    if bound.kind == "edge":
        keys += [
            ("from", ir.PropertyRef(node.variable, "src", text)),
            ("to", ir.PropertyRef(node.variable, "dst", text)),
        ]
    return tuple(
        ir.Output(f"{alias}.{name}", expr, name, expr.type.kind, entity)
        for name, expr in (*keys, *((ref.property, ref) for ref in fields))
    )


def _readable(owner: NodeType | EdgeType, bound: VariableType, variable: str) -> Iterator[ir.PropertyRef]:
    for prop in owner.properties:
        if prop.type.scalar is not Scalar.BLOB:
            type_ = prop.type.optional if bound.nullable else prop.type
            yield ir.PropertyRef(variable, prop.name, type_)
