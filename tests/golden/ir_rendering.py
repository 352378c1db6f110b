"""A complete text form of checked queries, for the golden corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator

from omnigraph.lang import ir
from omnigraph.lang.ir_text import render_expr, render_predicate

_ARROWS: dict[ir.Direction, tuple[str, str]] = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("-", "-")}


def render_ir(query: ir.CheckedQuery) -> str:
    """Render one line per IR node, steps in order, indented by nesting; the text ends with a newline."""
    lines = _read(query) if isinstance(query, ir.ReadQuery) else _mutation(query)
    return "\n".join(lines) + "\n"


def _step(step: ir.Step, indent: str = "") -> Iterator[str]:
    match step:
        case ir.NodeScan():
            word = "restrict" if step.bound else "scan"
            where = " and ".join(render_predicate(item) for item in step.where)
            note = " (implicit)" if step.implicit else ""
            tail = f" where {where}" if where else ""
            yield f"{indent}{word} ${step.variable}: {step.type_name}{tail}{note}"
        case ir.Expand():
            yield indent + _expand(step)
        case ir.Filter():
            yield f"{indent}filter {render_predicate(step.predicate)}"
        case ir.AntiJoin():
            yield f"{indent}anti join"
            for item in step.pattern:
                yield from _step(item, indent + "  ")
        case ir.OptionalMatch():
            names = ", ".join(f"${name}" for name in step.introduces)
            yield f"{indent}optional" + (f" introduces {names}" if names else "")
            for item in step.pattern:
                yield from _step(item, indent + "  ")


def _expand(step: ir.Expand) -> str:
    left, right = _ARROWS[step.direction]
    edge = f"${step.edge_variable}: {step.edge_type}" if step.edge_variable else step.edge_type
    hops = "" if (step.min, step.max) == (1, 1) else f"{{{step.min},{step.max}}}"
    word = "check" if step.target_bound else "expand"
    return f"{word} ${step.source} {left}[{edge}{hops}]{right} ${step.target}: {step.target_type}"


def _head(kind: str, query: ir.CheckedQuery) -> Iterator[str]:
    params = ", ".join(f"${item.name}: {item.type}" for item in query.params)
    yield f"{kind} {query.name}({params})"
    if query.description is not None:
        yield f"  description {json.dumps(query.description, ensure_ascii=False)}"
    if query.instruction is not None:
        yield f"  instruction {json.dumps(query.instruction, ensure_ascii=False)}"


def _entities(word: str, found: tuple[ir.EntityType, ...]) -> str:
    return f"  {word} " + (", ".join(f"{item.kind}:{item.type_name}" for item in found) or "nothing")


def _read(query: ir.ReadQuery) -> Iterator[str]:
    yield from _head("read", query)
    for step in query.pattern:
        yield from _step(step, "  ")
    word = "group and return" if query.aggregated else "return"
    yield f"  {word}{' distinct' if query.distinct else ''}"
    for item in query.outputs:
        shown = "object" if item.kind == "object" else item.type
        nullable = "?" if item.kind == "object" and item.type.nullable else ""
        yield f"    {item.name}: {shown}{nullable} = {render_expr(item.expr)}"
    for order in query.order:
        yield f"  order {render_expr(order.expr)} {'desc' if order.descending else 'asc'}"
    if query.skip is not None:
        yield f"  skip {query.skip}"
    if query.limit is not None:
        yield f"  limit {query.limit}"
    yield _entities("reads", query.reads)


def _mutation(query: ir.MutationQuery) -> Iterator[str]:
    yield from _head("mutation", query)
    for item in query.statements:
        yield from _statement(item)
    yield _entities("reads", query.reads)
    yield _entities("writes", query.writes)


def _statement(item: ir.Statement) -> Iterator[str]:
    match item:
        case ir.InsertNode():
            yield f"  insert node:{item.type_name}"
        case ir.InsertEdge():
            ends = f"from {render_expr(item.source)} to {render_expr(item.target)}"
            yield f"  insert edge:{item.type_name} {ends}"
        case ir.UpdateNode():
            yield f"  update node:{item.type_name} where {render_predicate(item.where)}"
        case ir.UpdateEdge():
            yield f"  update edge:{item.type_name} where {render_predicate(item.where)}"
        case ir.DeleteNode():
            cascades = ", ".join(f"edge:{name}" for name in item.cascades)
            tail = f" cascading to {cascades}" if cascades else ""
            yield f"  delete node:{item.type_name} where {render_predicate(item.where)}{tail}"
        case ir.DeleteEdge():
            yield f"  delete edge:{item.type_name} where {render_predicate(item.where)}"
    if isinstance(item, ir.InsertNode | ir.InsertEdge | ir.UpdateNode | ir.UpdateEdge):
        for assign in item.assigns:
            yield f"    {assign.property}: {assign.type} = {render_expr(assign.value)}"
