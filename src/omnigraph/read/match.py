"""Match a pattern: run the steps of a plan over a binding table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.deadline import check_deadline
from omnigraph.engine.layered_adjacency import (
    connected,
    connecting_edges,
    degrees,
    expand_edges,
    expand_total,
    expand_unique,
)
from omnigraph.engine.memory.cached_table import NO_ROWS, Ordinals
from omnigraph.engine.reachability import reach, reachable
from omnigraph.lang import ir
from omnigraph.read.binding_table import OUTER_ROW, BindingTable, merge_duplicates
from omnigraph.read.column_sources import BindingSource
from omnigraph.read.plan import (
    AntiJoinStep,
    Duplicates,
    ExpandStep,
    FilterStep,
    OptionalStep,
    PlanStep,
    ScanStep,
    materializes_rows,
)
from omnigraph.read.read_session import ReadSession, conjunction
from omnigraph.read.select import satisfies, select_rows
from omnigraph.read.topology import AdjacencyView

# The number of rows that an expansion produces at a time if duplicates among them are merged afterwards.
_ROWS_PER_BATCH = 1 << 22

START = BindingTable(1)


def match_pattern(
    session: ReadSession, steps: Sequence[PlanStep], duplicates: Duplicates, rows: BindingTable = START
) -> BindingTable:
    """Return the rows that the steps of a pattern make of the given rows."""
    for step in steps:
        check_deadline()
        before = rows.columns.keys()
        match step:
            case ScanStep():
                rows = _scan(session, step, rows, duplicates)
            case ExpandStep():
                rows = _expand(session, step, rows, duplicates)
            case FilterStep():
                mask = matches(conjunction(step.predicates), BindingSource(session, rows), session.bindings)
                rows = rows.take(mask.to_numpy(zero_copy_only=False))
            case AntiJoinStep():
                rows = rows.take(~_has_match(session, step, rows))
            case OptionalStep():
                rows = _match_optional(session, step, rows)
        kept = rows.project(step.keep | {OUTER_ROW})
        dropped = (before | rows.columns.keys()) - kept.columns.keys()
        rows = merge_duplicates(kept, duplicates) if dropped else kept
    return rows


# --- scan --------------------------------------------------------------------------------------------------


def _scan(session: ReadSession, step: ScanStep, rows: BindingTable, duplicates: Duplicates) -> BindingTable:
    table = session.variables[step.variable] = session.nodes(step.type_name)
    found = select_rows(session, table, step.where)
    if step.variable not in step.keep and duplicates != "keep":
        if not len(found):
            return rows.take(NO_ROWS)
        return rows if duplicates == "drop" else rows.weighted(len(found))
    if rows.num_rows == 1 and not rows.columns and rows.weights is None:
        return BindingTable(len(found), {step.variable: found})
    crossed = rows.take(np.repeat(np.arange(rows.num_rows), len(found)))
    return crossed.with_column(step.variable, np.tile(found, rows.num_rows))


# --- expansion ---------------------------------------------------------------------------------------------


def _expand(
    session: ReadSession, step: ExpandStep, rows: BindingTable, duplicates: Duplicates
) -> BindingTable:
    expand = step.expand
    edge = session.edge_type(expand.edge_type)
    if expand.edge_variable is not None:
        session.variables[expand.edge_variable] = session.edges(expand.edge_type)
    if not expand.target_bound:
        session.variables[expand.target] = session.nodes(expand.target_type)
    if edge.source != edge.target:
        # An edge between two types cannot be followed twice, so only the first hop matches.
        if expand.min > 1:
            return _no_matches(expand, rows)
        expand = replace(expand, max=1)
    frontier = rows.columns[expand.source]
    view = session.topology(expand.edge_type).neighbourhood(
        expand.direction, frontier, expand.max, session.settings.expand
    )
    if expand.target_bound:
        return _expand_into(expand, view, rows)
    if expand.max == 1 and not materializes_rows(step):
        return _count_edges(expand, view, rows, duplicates)
    edge_needed = expand.edge_variable is not None and expand.edge_variable in step.keep
    if duplicates != "keep" and not step.keep - {expand.target} and not edge_needed:
        return _expand_in_batches(session, step, expand, view, rows, duplicates)
    return _expand_all(session, step, expand, view, rows)


def _no_matches(expand: ir.Expand, rows: BindingTable) -> BindingTable:
    empty = rows.take(NO_ROWS)
    if not expand.target_bound:
        empty = empty.with_column(expand.target, NO_ROWS)
    return empty if expand.edge_variable is None else empty.with_column(expand.edge_variable, NO_ROWS)


def _expand_into(expand: ir.Expand, view: AdjacencyView, rows: BindingTable) -> BindingTable:
    """Keep the rows whose source and target are connected; one row per edge if the edge is bound."""
    left = view.to_local(rows.columns[expand.source])
    right = view.to_local(rows.columns[expand.target], far=True)
    if expand.edge_variable is not None:
        places, edges = connecting_edges(view.adjacency, left, right)
        return rows.take(places).with_column(expand.edge_variable, view.edge_positions(edges))
    if expand.max == 1:
        return rows.take(connected(view.adjacency, left, right))
    return rows.take(reachable(view.adjacency, left, right, expand.min, expand.max))


def _count_edges(
    expand: ir.Expand, view: AdjacencyView, rows: BindingTable, duplicates: Duplicates
) -> BindingTable:
    """Repeat or weight the rows by their number of matches, without materializing the new variables."""
    frontier = view.to_local(rows.columns[expand.source])
    counts = degrees(view.adjacency, frontier, unique=expand.edge_variable is None)
    if duplicates == "keep":
        return rows.take(np.repeat(np.arange(rows.num_rows), counts))
    matched = counts > 0
    kept = rows.take(matched)
    return kept if duplicates == "drop" else kept.weighted(counts[matched])


def _expand_all(
    session: ReadSession, step: ExpandStep, expand: ir.Expand, view: AdjacencyView, rows: BindingTable
) -> BindingTable:
    frontier = view.to_local(rows.columns[expand.source])
    edges: Ordinals | None = None
    if expand.edge_variable is not None:
        places, targets, edges = expand_edges(view.adjacency, frontier)
    elif expand.max == 1:
        places, targets = expand_unique(view.adjacency, frontier)
    else:
        places, targets = reach(view.adjacency, frontier, expand.min, expand.max)
    targets = view.node_positions(targets)
    if expand.max == 1:
        order = view.storage_order(places, targets)
        if order is not None:
            places, targets = places[order], targets[order]
            edges = None if edges is None else edges[order]
    if step.where:
        mask = satisfies(session, session.variables[expand.target], step.where, targets)
        places, targets = places[mask], targets[mask]
        edges = None if edges is None else edges[mask]
    expanded = rows.take(places, step.keep | {OUTER_ROW}).with_column(expand.target, targets)
    if expand.edge_variable is None or edges is None:
        return expanded
    return expanded.with_column(expand.edge_variable, view.edge_positions(edges))


def _expand_in_batches(
    session: ReadSession,
    step: ExpandStep,
    expand: ir.Expand,
    view: AdjacencyView,
    rows: BindingTable,
    duplicates: Duplicates,
) -> BindingTable:
    """Expand some rows at a time and merge duplicate targets, so that memory stays bounded."""
    keep = step.keep | {OUTER_ROW}
    if expand.max > 1 or OUTER_ROW in rows.columns:
        return _expand_all(session, step, expand, view, rows)
    frontier = view.to_local(rows.columns[expand.source])
    if expand_total(view.adjacency, frontier, expand.edge_variable is None) <= _ROWS_PER_BATCH:
        return _expand_all(session, step, expand, view, rows)
    counts = degrees(view.adjacency, frontier, unique=expand.edge_variable is None)
    ends = np.searchsorted(np.cumsum(counts), np.arange(_ROWS_PER_BATCH, counts.sum(), _ROWS_PER_BATCH))
    batches = []
    for batch in np.split(np.arange(rows.num_rows), np.unique(ends)):
        check_deadline()
        expanded = _expand_all(session, step, expand, view, rows.take(batch)).project(keep)
        batches.append(merge_duplicates(expanded, duplicates))
    return merge_duplicates(_concatenate(batches), duplicates)


def _concatenate(tables: Sequence[BindingTable]) -> BindingTable:
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    weights = None
    if any(table.weights is not None for table in tables):
        weights = np.concatenate(
            [
                np.ones(table.num_rows, np.int64) if table.weights is None else table.weights
                for table in tables
            ]
        )
    return BindingTable(sum(table.num_rows for table in tables), columns, weights)


# --- inner patterns ----------------------------------------------------------------------------------------


def _has_match(session: ReadSession, step: AntiJoinStep, rows: BindingTable) -> npt.NDArray[np.bool_]:
    """Return for which rows the inner pattern, with their bindings fixed, has a match."""
    outer = {name: rows.columns[name] for name in step.outer}
    inverse: Ordinals | None = None
    count = rows.num_rows
    if len(outer) == 1:
        # Match the inner pattern once for each distinct node.
        name, column = next(iter(outer.items()))
        distinct, inverse = np.unique(column, return_inverse=True)
        outer, count = {name: distinct}, len(distinct)
    start = BindingTable(count, {**outer, OUTER_ROW: np.arange(count)})
    found = match_pattern(session, step.steps, "drop", start)
    mask = np.zeros(count, np.bool_)
    mask[found.columns[OUTER_ROW]] = True
    return mask if inverse is None else mask[inverse]


def _match_optional(session: ReadSession, step: OptionalStep, rows: BindingTable) -> BindingTable:
    outer = {name: rows.columns[name] for name in step.outer}
    start = BindingTable(rows.num_rows, {**outer, OUTER_ROW: np.arange(rows.num_rows)})
    declare_variables(session, step.steps)
    found = match_pattern(session, step.steps, "keep", start)
    places = found.columns[OUTER_ROW]
    unmatched = np.ones(rows.num_rows, np.bool_)
    unmatched[places] = False
    rest = np.flatnonzero(unmatched)
    extended = rows.take(np.concatenate([places, rest]))
    for name in step.introduces:
        if name in found.columns:
            nulls = np.full(len(rest), -1, np.int64)
            extended = extended.with_column(name, np.concatenate([found.columns[name], nulls]))
    return extended


def declare_variables(session: ReadSession, steps: Sequence[PlanStep]) -> None:
    """Set the tables of all variables of the steps, including those that no row may bind."""
    for step in steps:
        match step:
            case ScanStep():
                session.variables[step.variable] = session.nodes(step.type_name)
            case ExpandStep():
                expand = step.expand
                if expand.edge_variable is not None:
                    session.variables[expand.edge_variable] = session.edges(expand.edge_type)
                if not expand.target_bound:
                    session.variables[expand.target] = session.nodes(expand.target_type)
            case OptionalStep():
                declare_variables(session, step.steps)
            case FilterStep() | AntiJoinStep():
                pass
