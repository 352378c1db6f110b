"""A plan as text: what is scanned and how, how edges are followed and why, and what comes after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.engine.memory.table_columns import Frame
from omnigraph.engine.pushdown import push_down
from omnigraph.lang import ir
from omnigraph.lang.ir_text import render_expr, render_predicate
from omnigraph.read.match import declare_types
from omnigraph.read.plan import Check, Maybe, Plan, PlannedStep, Purpose, Scan, Walk, Without
from omnigraph.read.project import choose_projection_engine, full_projection
from omnigraph.read.references import properties_of
from omnigraph.read.select import physical_name, spelled_key
from omnigraph.read.session import ReadSession, all_of

_ARROWS: dict[ir.Direction, tuple[str, str]] = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("-", "-")}
_PURPOSES: dict[Purpose, str] = {
    "rows": "every row",
    "counts": "counts (equal rows are added up on the way)",
    "set": "a set (equal rows are merged on the way)",
}


def explain_plan(session: ReadSession, plan: Plan) -> str:
    """One line a step, indented by nesting, in the order in which they run."""
    query = plan.query
    lines = [
        f"read {query.name} at commit {session.snapshot.commit_id}",
        f"  for {_PURPOSES[plan.purpose]}",
        *_steps(session, plan.steps, "  "),
        *_projection(session, plan),
    ]
    return "\n".join(lines) + "\n"


def _steps(session: ReadSession, steps: Sequence[PlannedStep], indent: str) -> Iterator[str]:
    for step in steps:
        rows = f"~{max(0, round(step.estimate)):,} rows"
        match step:
            case Scan():
                yield f"{indent}scan ${step.variable}: {step.type_name}  ({rows})"
                yield from _access(session, session.nodes(step.type_name), step.where, indent + "  ")
            case Walk():
                yield f"{indent}{_expand(step.expand)}  ({rows})"
                yield f"{indent}  by {_mode(session, step.expand)}"
                if step.where:
                    yield f"{indent}  where {render_predicate(all_of(step.where))}"
                if step.expand.target not in step.keep and not step.where and step.expand.max == 1:
                    yield f"{indent}  counted, not visited"
            case Check():
                yield f"{indent}filter {render_predicate(all_of(step.predicates))}  ({rows})"
            case Without():
                yield f"{indent}without  ({rows})"
                yield from _steps(session, step.steps, indent + "  ")
            case Maybe():
                yield f"{indent}optional  ({rows})"
                yield from _steps(session, step.steps, indent + "  ")


def _access(session: ReadSession, frame: Frame, where: Sequence[ir.Predicate], indent: str) -> Iterator[str]:
    table = f"{frame.table.key}, {frame.num_rows:,} rows"
    if not where:
        yield f"{indent}all rows of {table}"
        return
    predicate = all_of(where)
    yield f"{indent}where {render_predicate(predicate)}"
    if spelled_key(session, frame, where) is not None:
        yield f"{indent}by key in {table}"
        return
    pushed = push_down(predicate, lambda ref: physical_name(frame, ref), session.bindings)
    if pushed.sql is None:
        yield f"{indent}read {table}; nothing to push down"
        return
    columns = {frame.table.physical(ref.property) for ref in properties_of(predicate)}
    index = ", ".join(sorted(columns & frame.indexed())) or "none"
    exact = "exact" if pushed.exact else "then checked again"
    held = all(frame.is_held(ref.property) for ref in properties_of(predicate))
    place = "columns in memory" if held else "pushed into the scan"
    yield f"{indent}{place}: {pushed.sql} ({exact}); index: {index}; {table}"


def _expand(expand: ir.Expand) -> str:
    before, after = _ARROWS[expand.direction]
    name = expand.edge_type if expand.edge_variable is None else f"${expand.edge_variable}:{expand.edge_type}"
    bounds = "" if (expand.min, expand.max) == (1, 1) else f"{{{expand.min},{expand.max}}}"
    verb = "connect" if expand.target_bound else "expand"
    return f"{verb} ${expand.source} {before}[{name}{bounds}]{after} ${expand.target}"


def _mode(session: ReadSession, expand: ir.Expand) -> str:
    if session.settings.expand is not None:
        return f"{session.settings.expand} (as set)"
    mode, why = session.topology(expand.edge_type).preview(expand.direction)
    return f"{mode} ({why})"


def _projection(session: ReadSession, plan: Plan) -> Iterator[str]:
    query = plan.query
    outputs = ", ".join(f"{item.name} = {render_expr(item.expr)}" for item in query.outputs)
    engine = choose_projection_engine(session, 0)
    yield f"  {'group' if query.aggregated else 'distinct' if query.distinct else 'project'} {outputs}"
    if query.order:
        items = ", ".join(
            render_expr(item.expr) + (" desc" if item.descending else "") for item in query.order
        )
        ties = "" if query.aggregated or query.distinct else ", then ids of all variables"
        yield f"  order {items}{ties}"
    if query.skip:
        yield f"  skip {query.skip}"
    if query.limit is not None:
        yield f"  limit {query.limit}"
    yield f"  on {engine}, as {_sql(session, plan)}"


def _sql(session: ReadSession, plan: Plan) -> str:
    """The projection as the SQL that an engine of that language runs."""
    # The SQL library is only needed for looking at it.
    from omnigraph.engine.projection.sql_projection import projection_query

    declare_types(session, plan.steps)
    return projection_query(*full_projection(session, plan.query)).sql("duckdb")
