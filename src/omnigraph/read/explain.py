"""Print a query plan: how tables are scanned, how edges are followed and why, and the projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.engine.memory.cached_table import CachedTable
from omnigraph.engine.pushdown import push_down
from omnigraph.lang import ir
from omnigraph.lang.ir_text import render_expr, render_predicate
from omnigraph.read.match import declare_variables
from omnigraph.read.plan import (
    AntiJoinStep,
    Duplicates,
    ExpandStep,
    FilterStep,
    OptionalStep,
    PlanStep,
    ReadPlan,
    ScanStep,
    materializes_rows,
)
from omnigraph.read.project import best_rows, choose_engine, input_schema
from omnigraph.read.read_session import ReadSession, conjunction
from omnigraph.read.references import properties_of, walk
from omnigraph.read.scoring import search_path
from omnigraph.read.select import physical_name, specified_key
from omnigraph.read.topology import INDEX_FRONTIER, ExpandMode
from omnigraph.search.inverted.indexed_columns import text_index_coverage
from omnigraph.search.rank_fusion import check_depth

_ARROWS: dict[ir.Direction, tuple[str, str]] = {"out": ("-", "->"), "in": ("<-", "-"), "both": ("-", "-")}
_DUPLICATES: dict[Duplicates, str] = {
    "keep": "keep",
    "count": "count (pre-aggregate equal rows)",
    "drop": "drop (deduplicate early)",
}
_MODES: dict[ExpandMode, str] = {"csr": "CSR adjacency", "index": "index lookup"}

# The estimate of a product of many tables may be infinite.
_MAX_ESTIMATE = 1e18


def explain_plan(session: ReadSession, plan: ReadPlan) -> str:
    """Return one line per step, indented by nesting, in execution order."""
    lines = [
        f"read {plan.query.name} at commit {session.snapshot.commit_id}",
        f"  duplicates: {_DUPLICATES[plan.duplicates]}",
        *_step_lines(session, plan.steps, "  "),
        *_projection_lines(session, plan),
    ]
    return "\n".join(lines) + "\n"


def _step_lines(session: ReadSession, steps: Sequence[PlanStep], indent: str) -> Iterator[str]:
    for step in steps:
        estimate = f"~{_count_rows(max(0, round(min(step.estimate, _MAX_ESTIMATE))))}"
        match step:
            case ScanStep():
                yield f"{indent}scan ${step.variable}: {step.type_name}  ({estimate})"
                yield from _access_lines(session, session.nodes(step.type_name), step.where, indent + "  ")
            case ExpandStep():
                yield f"{indent}{_expand_text(step.expand)}  ({estimate})"
                yield f"{indent}  by {_mode_text(session, step.expand)}"
                if step.where:
                    yield f"{indent}  where {render_predicate(conjunction(step.where))}"
                if step.expand.max == 1 and not step.expand.target_bound and not materializes_rows(step):
                    yield f"{indent}  count without materializing rows"
            case FilterStep():
                yield f"{indent}filter {render_predicate(conjunction(step.predicates))}  ({estimate})"
            case AntiJoinStep():
                yield f"{indent}anti-join  ({estimate})"
                yield from _step_lines(session, step.steps, indent + "  ")
            case OptionalStep():
                yield f"{indent}optional match  ({estimate})"
                yield from _step_lines(session, step.steps, indent + "  ")


def _access_lines(
    session: ReadSession, table: CachedTable, where: Sequence[ir.Predicate], indent: str
) -> Iterator[str]:
    name = f"{table.layout.key} ({_count_rows(table.num_rows)})"
    if not where:
        yield f"{indent}full scan of {name}"
        return
    predicate = conjunction(where)
    yield f"{indent}where {render_predicate(predicate)}"
    if specified_key(session, table, where) is not None:
        yield f"{indent}key lookup in {name}"
        return
    pushed = push_down(predicate, lambda ref: physical_name(table, ref), session.bindings)
    if pushed.sql is None:
        yield f"{indent}full scan of {name}, no pushdown"
        return
    columns = {table.layout.physical(ref.property) for ref in properties_of(predicate)}
    index = ", ".join(sorted(columns & table.indexed_columns())) or "none"
    exact = "exact" if pushed.exact else "recheck"
    cached = all(table.is_cached(ref.property) for ref in properties_of(predicate))
    method = "filter cached columns of" if cached else "filtered scan of"
    yield f"{indent}{method} {name}: {pushed.sql} ({exact}), index: {index}"


def _count_rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def _expand_text(expand: ir.Expand) -> str:
    before, after = _ARROWS[expand.direction]
    name = expand.edge_type if expand.edge_variable is None else f"${expand.edge_variable}:{expand.edge_type}"
    bounds = "" if (expand.min, expand.max) == (1, 1) else f"{{{expand.min},{expand.max}}}"
    verb = "expand into" if expand.target_bound else "expand"
    return f"{verb} ${expand.source} {before}[{name}{bounds}]{after} ${expand.target}"


def _mode_text(session: ReadSession, expand: ir.Expand) -> str:
    if session.settings.expand is not None:
        return f"{_MODES[session.settings.expand]} (forced by a setting)"
    topology = session.topology(expand.edge_type)
    if expand.target_bound and expand.max == 1 and topology.looks_up_pairs(expand.direction, 1):
        return f"key lookup (up to {INDEX_FRONTIER} pairs of nodes)"
    mode, reason = topology.preview_mode(expand.direction)
    return f"{_MODES[mode]} ({reason})"


def _projection_lines(session: ReadSession, plan: ReadPlan) -> Iterator[str]:
    query = plan.query
    outputs = ", ".join(f"{item.name} = {render_expr(item.expr)}" for item in query.outputs)
    yield f"  {'group' if query.aggregated else 'distinct' if query.distinct else 'project'} {outputs}"
    if query.order:
        items = ", ".join(
            render_expr(item.expr) + (" desc" if item.descending else "") for item in query.order
        )
        ties = "" if query.aggregated or query.distinct else ", ties by the ids of all variables"
        yield f"  order {items}{ties}"
    yield from _search_lines(session, plan)
    yield from _text_search_lines(session, plan)
    if query.skip:
        yield f"  skip {query.skip}"
    if query.limit is not None:
        yield f"  limit {query.limit}"
    yield f"  on {choose_engine(session, 0)}, as {_sql(session, plan)}"


def _search_lines(session: ReadSession, plan: ReadPlan) -> Iterator[str]:
    """Print how vectors are searched. The number of candidates is an estimate, as for all steps."""
    best = best_rows(plan)
    for place, item in enumerate(plan.query.order):
        if isinstance(item.expr, ir.Nearest):
            if place or best is None:
                yield "  search exactly: all rows are ranked"
            else:
                yield from _path_lines(session, plan, item.expr, best)
        elif isinstance(item.expr, ir.Rrf):
            depth = check_depth(session.constant(item.expr.depth))
            yield f"  fuse the best {depth:,} of each ranking"
            for rank in item.expr.ranks:
                if isinstance(rank, ir.Nearest):
                    yield from _path_lines(session, plan, rank, depth)


def _path_lines(session: ReadSession, plan: ReadPlan, rank: ir.Nearest, count: int) -> Iterator[str]:
    """Print how the `count` nearest are searched."""
    declare_variables(session, plan.steps)
    rows = session.variables[rank.field.variable].num_rows
    candidates = round(min(plan.steps[-1].estimate, rows)) if plan.steps else 0
    path, settings = search_path(session, rank, candidates)
    if path.index is None:
        yield f"  search exactly: {path.reason}"
        return
    method, share = path.index.method, 100 * path.uncovered / rows
    yield (
        f"  search index {method.kind} for {method.metric}, nprobes {settings.nprobes_for(path.covered)}, refine"
        f" {settings.refine_for(path.index, count)}: {path.reason}"
    )
    yield f"    compare exactly {_count_rows(path.uncovered)} without an index ({share:.1f} %)"


def _text_search_lines(session: ReadSession, plan: ReadPlan) -> Iterator[str]:
    """Print how the words of each searched property are found."""
    searches = (item for item in walk(plan.query) if isinstance(item, ir.Bm25 | ir.TextMatch))
    fields = [(field.ref, field.analysis) for item in searches for field in item.fields]
    for ref, analysis in dict.fromkeys(fields):
        declare_variables(session, plan.steps)
        table = session.variables[ref.variable]
        found = text_index_coverage(table, ref.property, analysis)
        rows = table.num_rows
        share = 100 * (rows - found.rows) / max(1, rows)
        yield f"  search words of ${ref.variable}.{ref.property}: {found.reason}"
        yield f"    analyze {_count_rows(rows - found.rows)} without an index ({share:.1f} %)"


def _sql(session: ReadSession, plan: ReadPlan) -> str:
    """Return the projection as SQL."""
    # Only explain needs the SQL library here.
    from omnigraph.engine.projection.sql_projection import projection_query

    declare_variables(session, plan.steps)
    return projection_query(plan.projection, input_schema(session, plan)).sql("duckdb")
