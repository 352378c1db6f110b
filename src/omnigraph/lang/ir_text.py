"""The IR as text that people read: golden files, `explain`, debugging."""

from __future__ import annotations

import json
from collections.abc import Iterator

from omnigraph.lang import ir
from omnigraph.lang.temporal import format_date, format_datetime
from omnigraph.lang.types import PropType, Scalar

_ARROWS: dict[ir.Direction, tuple[str, str]] = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("-", "-")}


def render_ir(query: ir.CheckedQuery) -> str:
    """One line per node, steps in order, indented by nesting; ends with a newline."""
    lines = _read(query) if isinstance(query, ir.ReadQuery) else _mutation(query)
    return "\n".join(lines) + "\n"


def render_expr(expr: ir.Expr) -> str:
    """One expression.

    >>> render_expr(ir.Const(19723, PropType(Scalar.DATE)))
    'date("2024-01-01")'
    """
    match expr:
        case ir.Const():
            return _const(expr.value, expr.type)
        case ir.ParamRef():
            return f"param {expr.name}" + (" as enum" if expr.type.is_enum else "")
        case ir.Now():
            return "now()"
        case ir.PropertyRef():
            return f"${expr.variable}.{expr.property}"
        case ir.EntityRef():
            return f"id(${expr.variable})"
        case ir.OutputRef():
            return f"output {expr.name}"
        case ir.ColumnRef():
            return f"column {expr.name}"
        case ir.EmbedText():
            model = f", model={expr.model}" if expr.model else ""
            return f"embed({render_expr(expr.text)} as {expr.type}{model})"
        case ir.Nearest():
            return f"nearest({render_expr(expr.field)}, {render_expr(expr.query)})"
        case ir.Bm25():
            return f"bm25({render_expr(expr.field)}, {render_expr(expr.query)})"
        case ir.Rrf():
            return f"rrf({render_expr(expr.first)}, {render_expr(expr.second)}, k={render_expr(expr.k)})"
        case ir.TextMatch():
            edits = f", max_edits={render_expr(expr.max_edits)}" if expr.max_edits else ""
            return f"{expr.fn}({render_expr(expr.field)}, {render_expr(expr.query)}{edits})"
        case ir.Aggregate():
            return f"{expr.fn}({'distinct ' if expr.distinct else ''}{render_expr(expr.argument)})"


def render_predicate(predicate: ir.Predicate) -> str:
    """One predicate, compound ones in parentheses."""
    match predicate:
        case ir.Compare():
            return f"{render_expr(predicate.left)} {predicate.op} {render_expr(predicate.right)}"
        case ir.ListContains():
            return f"{render_expr(predicate.items)} has {render_expr(predicate.item)}"
        case ir.Substring():
            return f"{render_expr(predicate.text)} contains {render_expr(predicate.part)}"
        case ir.StartsWith():
            return f"{render_expr(predicate.text)} starts_with {render_expr(predicate.prefix)}"
        case ir.InSet():
            word = "not in" if predicate.negated else "in"
            return f"{render_expr(predicate.operand)} {word} {render_expr(predicate.items)}"
        case ir.IsNull():
            return f"{render_expr(predicate.operand)} is {'not ' if predicate.negated else ''}null"
        case ir.And():
            return "(" + " and ".join(render_predicate(item) for item in predicate.items) + ")"
        case ir.Or():
            return "(" + " or ".join(render_predicate(item) for item in predicate.items) + ")"
        case ir.Not():
            return f"not ({render_predicate(predicate.item)})"
        case ir.TextMatch():
            return render_expr(predicate)


def render_step(step: ir.Step, indent: str = "") -> Iterator[str]:
    """One step of a pattern and what is nested in it."""
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
                yield from render_step(item, indent + "  ")
        case ir.OptionalMatch():
            names = ", ".join(f"${name}" for name in step.introduces)
            yield f"{indent}optional" + (f" introduces {names}" if names else "")
            for item in step.pattern:
                yield from render_step(item, indent + "  ")


def _expand(step: ir.Expand) -> str:
    left, right = _ARROWS[step.direction]
    edge = f"${step.edge_variable}: {step.edge_type}" if step.edge_variable else step.edge_type
    hops = "" if (step.min, step.max) == (1, 1) else f"{{{step.min},{step.max}}}"
    word = "check" if step.target_bound else "expand"
    return f"{word} ${step.source} {left}[{edge}{hops}]{right} ${step.target}: {step.target_type}"


def _const(value: ir.Value, type_: PropType) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return "[" + ", ".join(_const(item, type_) for item in value) + "]"
    if type_.scalar is Scalar.DATE and isinstance(value, int):
        return f'date("{format_date(value)}")'
    if type_.scalar is Scalar.DATETIME and isinstance(value, int):
        return f'datetime("{format_datetime(value)}")'
    return json.dumps(value, ensure_ascii=False)


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
        yield from render_step(step, "  ")
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
        case ir.DeleteNode():
            cascades = ", ".join(f"edge:{name}" for name in item.cascades)
            tail = f" cascading to {cascades}" if cascades else ""
            yield f"  delete node:{item.type_name} where {render_predicate(item.where)}{tail}"
        case ir.DeleteEdge():
            yield f"  delete edge:{item.type_name} where {render_predicate(item.where)}"
    if isinstance(item, ir.InsertNode | ir.InsertEdge | ir.UpdateNode):
        for assign in item.assigns:
            yield f"    {assign.property}: {assign.type} = {render_expr(assign.value)}"
