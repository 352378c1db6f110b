"""Match a pattern: run the steps of a plan over a binding table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from omnigraph.budget.deadline import check_deadline
from omnigraph.budget.query_budget import hold_bytes, visit_edges
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.csr import split_by_weight
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
# If a limit needs few rows: the rows that a product makes at a time, and the rows that an expansion starts from.
_ROWS_PER_PIECE = 1 << 18
_SOURCES_PER_PIECE = 1 << 10
_MAX_GROWTH = 16

START = BindingTable(1)


def match_pattern(
    session: ReadSession,
    steps: Sequence[PlanStep],
    duplicates: Duplicates,
    rows: BindingTable = START,
    limit: int | None = None,
) -> BindingTable:
    """Return the rows that the steps of a pattern make of the given rows.

    With `limit`, any rows that are at least as many are enough. Large steps then run on some rows at a time.
    """
    for at, step in enumerate(steps):
        check_deadline()
        if limit is not None and (size := _piece_size(session, step, rows)) < rows.num_rows:
            return _match_pieces(session, steps[at:], duplicates, rows, size, limit)
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


def _piece_size(session: ReadSession, step: PlanStep, rows: BindingTable) -> int:
    """Return the number of rows that a step works on at a time, if the rest may not be needed."""
    match step:
        case ScanStep():
            found = _selected(session, step) if rows.num_rows > 1 else NO_ROWS
            return max(1, _ROWS_PER_PIECE // max(1, len(found)))
        case ExpandStep() if step.expand.max > 1:
            # At most every node is reached from every row.
            targets = session.nodes(step.expand.target_type).num_rows
            return min(_SOURCES_PER_PIECE, max(1, _ROWS_PER_PIECE // max(1, targets)))
        case ExpandStep() | OptionalStep():
            return _SOURCES_PER_PIECE
        case FilterStep() | AntiJoinStep():
            return max(1, rows.num_rows)


def _match_pieces(
    session: ReadSession,
    steps: Sequence[PlanStep],
    duplicates: Duplicates,
    rows: BindingTable,
    size: int,
    limit: int,
) -> BindingTable:
    """Match some rows after others until there are enough. Pieces grow, because few of them may match."""
    found: list[BindingTable] = []
    total, start, largest = 0, 0, size * _MAX_GROWTH
    while start < rows.num_rows and (total < limit or not found):
        check_deadline()
        piece = rows.take(np.arange(start, min(start + size, rows.num_rows)))
        with hold_bytes(rows.nbytes + sum(item.nbytes for item in found)):
            first = match_pattern(session, steps[:1], duplicates, piece)
            found.append(match_pattern(session, steps[1:], duplicates, first, limit - total))
        total += found[-1].num_rows
        start += size
        size = min(2 * size, largest)
    rows.require_bytes(total)
    return _concatenate(found)


# --- scan --------------------------------------------------------------------------------------------------


def _scan(session: ReadSession, step: ScanStep, rows: BindingTable, duplicates: Duplicates) -> BindingTable:
    found = _selected(session, step)
    if step.variable not in step.keep and duplicates != "keep":
        if not len(found):
            return rows.take(NO_ROWS)
        return rows if duplicates == "drop" else rows.weighted(len(found))
    if rows.num_rows == 1 and not rows.columns and rows.weights is None:
        return BindingTable(len(found), {step.variable: found})
    rows.require_bytes(rows.num_rows * len(found))
    crossed = rows.take(np.repeat(np.arange(rows.num_rows), len(found)))
    return crossed.with_column(step.variable, np.tile(found, rows.num_rows))


def _selected(session: ReadSession, step: ScanStep) -> Ordinals:
    """Return the rows of a scan. A step that runs several times selects them once."""
    table = session.variables[step.variable] = session.nodes(step.type_name)
    found = session.selected.get(id(step))
    if found is None:
        found = session.selected[id(step)] = select_rows(session, table, step.where)
    return found


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
    topology, mode = session.topology(expand.edge_type), session.settings.expand
    if expand.target_bound and expand.max == 1:
        ends = rows.columns[expand.target]
        return _expand_into(expand, topology.connections(expand.direction, frontier, ends, mode), rows)
    view = topology.neighbourhood(expand.direction, frontier, expand.max, mode)
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
    visit_edges(rows.num_rows)
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
    visit_edges(rows.num_rows)
    if duplicates == "keep":
        rows.require_bytes(int(counts.sum()))
        return rows.take(np.repeat(np.arange(rows.num_rows), counts))
    matched = counts > 0
    kept = rows.take(matched)
    return kept if duplicates == "drop" else kept.weighted(counts[matched])


def _expand_all(
    session: ReadSession, step: ExpandStep, expand: ir.Expand, view: AdjacencyView, rows: BindingTable
) -> BindingTable:
    frontier = view.to_local(rows.columns[expand.source])
    edges: Ordinals | None = None
    if expand.max == 1:
        count = expand_total(view.adjacency, frontier, expand.edge_variable is None)
        visit_edges(count)
        rows.require_bytes(count, more_columns=3)
    if expand.edge_variable is not None:
        places, targets, edges = expand_edges(view.adjacency, frontier)
    elif expand.max == 1:
        places, targets = expand_unique(view.adjacency, frontier)
    else:
        with hold_bytes(rows.nbytes):
            places, targets = reach(view.adjacency, frontier, expand.min, expand.max)
        rows.require_bytes(len(places), more_columns=3)
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
    if OUTER_ROW in rows.columns:
        return _expand_all(session, step, expand, view, rows)
    frontier = view.to_local(rows.columns[expand.source])
    if expand.max > 1:
        # At most every node is reached from every row.
        counts = np.full(rows.num_rows, view.adjacency.n_targets, np.int64)
    else:
        counts = degrees(view.adjacency, frontier, unique=expand.edge_variable is None)
    if counts.sum() <= _ROWS_PER_BATCH:
        return _expand_all(session, step, expand, view, rows)
    merged: BindingTable | None = None
    for batch in split_by_weight(counts, _ROWS_PER_BATCH):
        check_deadline()
        part = rows.take(np.arange(batch.start, batch.stop))
        with hold_bytes(rows.nbytes if merged is None else rows.nbytes + merged.nbytes):
            expanded = _expand_all(session, step, expand, view, part).project(keep)
        expanded = merge_duplicates(expanded, duplicates)
        merged = (
            expanded if merged is None else merge_duplicates(_concatenate([merged, expanded]), duplicates)
        )
    assert merged is not None
    return merged


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
    with hold_bytes(rows.nbytes + start.nbytes):
        found = match_pattern(session, step.steps, "drop", start)
    mask = np.zeros(count, np.bool_)
    mask[found.columns[OUTER_ROW]] = True
    return mask if inverse is None else mask[inverse]


def _match_optional(session: ReadSession, step: OptionalStep, rows: BindingTable) -> BindingTable:
    outer = {name: rows.columns[name] for name in step.outer}
    start = BindingTable(rows.num_rows, {**outer, OUTER_ROW: np.arange(rows.num_rows)})
    declare_variables(session, step.steps)
    with hold_bytes(rows.nbytes + start.nbytes):
        found = match_pattern(session, step.steps, "keep", start)
    with hold_bytes(found.nbytes):
        rows.require_bytes(found.num_rows + rows.num_rows, more_columns=len(step.introduces))
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
