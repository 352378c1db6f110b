"""Matching a pattern: planned steps over rows of bindings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omnigraph.catalog.catalog import table_key
from omnigraph.engine.arrow_expressions import matches
from omnigraph.engine.csr import (
    connected,
    connecting_edges,
    degrees,
    expand_edges,
    expand_total,
    expand_unique,
)
from omnigraph.engine.deadline import check_deadline
from omnigraph.engine.memory.table_columns import Ordinals
from omnigraph.engine.reachability import reach, reachable
from omnigraph.lang import ir
from omnigraph.read.binding_rows import OUTER_ROW, Bound, merge_equal
from omnigraph.read.plan import Check, Maybe, PlannedStep, Purpose, Scan, Walk, Without
from omnigraph.read.select import satisfies, select_rows
from omnigraph.read.session import BoundRows, ReadSession, all_of, no_rows
from omnigraph.read.topology import Graphlet

# So many rows are made at a time where the next step shrinks them again.
_ROWS_AT_A_TIME = 1 << 22

START = Bound(1)


def match_pattern(
    session: ReadSession, steps: Sequence[PlannedStep], purpose: Purpose, rows: Bound = START
) -> Bound:
    """The rows that a pattern makes of the given ones."""
    for step in steps:
        check_deadline()
        before = rows.columns.keys()
        match step:
            case Scan():
                rows = _scan(session, step, rows, purpose)
            case Walk():
                rows = _walk(session, step, rows, purpose)
            case Check():
                mask = matches(all_of(step.predicates), BoundRows(session, rows), session.bindings)
                rows = rows.take(mask.to_numpy(zero_copy_only=False))
            case Without():
                rows = rows.take(~_has_match(session, step, rows))
            case Maybe():
                rows = _optional(session, step, rows)
        kept = rows.project(step.keep | {OUTER_ROW})
        forgotten = (before | rows.columns.keys()) - kept.columns.keys()
        rows = merge_equal(kept, purpose) if forgotten else kept
    return rows


# --- scans -------------------------------------------------------------------------------------------------


def _scan(session: ReadSession, step: Scan, rows: Bound, purpose: Purpose) -> Bound:
    frame = session.types[step.variable] = session.nodes(step.type_name)
    found = select_rows(session, frame, step.where)
    if step.variable not in step.keep and purpose != "rows":
        if not len(found):
            return rows.take(no_rows())
        return rows if purpose == "set" else rows.weighted(len(found))
    if rows.num_rows == 1 and not rows.columns and rows.weights is None:
        return Bound(len(found), {step.variable: found})
    crossed = rows.take(np.repeat(np.arange(rows.num_rows), len(found)))
    return crossed.with_column(step.variable, np.tile(found, rows.num_rows))


# --- expansion ---------------------------------------------------------------------------------------------


def _walk(session: ReadSession, step: Walk, rows: Bound, purpose: Purpose) -> Bound:
    expand = step.expand
    edge = session.edge(expand.edge_type)
    if expand.edge_variable is not None:
        session.types[expand.edge_variable] = session.frame(table_key("edge", edge.name))
    if not expand.target_bound:
        session.types[expand.target] = session.nodes(expand.target_type)
    if edge.source != edge.target:
        # Two steps along such an edge lead nowhere: only the first can match.
        if expand.min > 1:
            return _bind_nothing(step, rows)
        expand = replace(expand, max=1)
    frontier = rows.columns[expand.source]
    depth = expand.max
    found = session.topology(expand.edge_type).around(
        expand.direction, frontier, depth, session.settings.expand
    )
    if expand.target_bound:
        return _close(expand, found, rows)
    target_needed = expand.target in step.keep or bool(step.where)
    edge_needed = expand.edge_variable is not None and expand.edge_variable in step.keep
    if not target_needed and not edge_needed and depth == 1:
        return _count(expand, found, rows, purpose)
    if purpose != "rows" and len(step.keep - {expand.target}) == 0 and not edge_needed:
        return _walk_in_pieces(session, step, expand, found, rows, purpose)
    return _follow(session, step, expand, found, rows)


def _bind_nothing(step: Walk, rows: Bound) -> Bound:
    empty = rows.take(no_rows())
    expand = step.expand
    if not expand.target_bound:
        empty = empty.with_column(expand.target, no_rows())
    return empty if expand.edge_variable is None else empty.with_column(expand.edge_variable, no_rows())


def _close(expand: ir.Expand, found: Graphlet, rows: Bound) -> Bound:
    """Keep the rows whose two ends are connected; one row an edge when it is bound."""
    left = found.inward(rows.columns[expand.source])
    right = found.inward(rows.columns[expand.target])
    if expand.edge_variable is not None:
        places, edges = connecting_edges(found.adjacency, left, right)
        return rows.take(places).with_column(expand.edge_variable, found.edge_rows(edges))
    if expand.max == 1:
        return rows.take(connected(found.adjacency, left, right))
    return rows.take(reachable(found.adjacency, left, right, expand.min, expand.max))


def _count(expand: ir.Expand, found: Graphlet, rows: Bound, purpose: Purpose) -> Bound:
    """Rows whose new variables nobody looks at: how many there are is all that matters."""
    frontier = found.inward(rows.columns[expand.source])
    fans = degrees(found.adjacency, frontier, unique=expand.edge_variable is None)
    if purpose == "rows":
        return rows.take(np.repeat(np.arange(rows.num_rows), fans))
    some = fans > 0
    kept = rows.take(some)
    return kept if purpose == "set" else kept.weighted(fans[some])


def _follow(session: ReadSession, step: Walk, expand: ir.Expand, found: Graphlet, rows: Bound) -> Bound:
    frontier = found.inward(rows.columns[expand.source])
    edges: Ordinals | None = None
    if expand.edge_variable is not None:
        places, targets, edges = expand_edges(found.adjacency, frontier)
    elif expand.max == 1:
        places, targets = expand_unique(found.adjacency, frontier)
    else:
        places, targets = reach(found.adjacency, frontier, expand.min, expand.max)
    targets = found.outward(targets)
    if step.where:
        mask = satisfies(session, session.types[expand.target], step.where, targets)
        places, targets = places[mask], targets[mask]
        edges = None if edges is None else edges[mask]
    made = rows.take(places, step.keep | {OUTER_ROW}).with_column(expand.target, targets)
    if expand.edge_variable is None or edges is None:
        return made
    return made.with_column(expand.edge_variable, found.edge_rows(edges))


def _walk_in_pieces(
    session: ReadSession, step: Walk, expand: ir.Expand, found: Graphlet, rows: Bound, purpose: Purpose
) -> Bound:
    """Follow from some of the rows at a time where only the targets matter, so that memory stays bounded."""
    keep = step.keep | {OUTER_ROW}
    if expand.max > 1 or OUTER_ROW in rows.columns:
        return _follow(session, step, expand, found, rows)
    frontier = found.inward(rows.columns[expand.source])
    if expand_total(found.adjacency, frontier, expand.edge_variable is None) <= _ROWS_AT_A_TIME:
        return _follow(session, step, expand, found, rows)
    fans = degrees(found.adjacency, frontier, unique=expand.edge_variable is None)
    ends = np.searchsorted(np.cumsum(fans), np.arange(_ROWS_AT_A_TIME, fans.sum(), _ROWS_AT_A_TIME))
    pieces = []
    for piece in np.split(np.arange(rows.num_rows), np.unique(ends)):
        check_deadline()
        made = _follow(session, step, expand, found, rows.take(piece)).project(keep)
        pieces.append(merge_equal(made, purpose))
    return merge_equal(_stacked(pieces), purpose)


def _stacked(pieces: Sequence[Bound]) -> Bound:
    columns = {name: np.concatenate([piece.columns[name] for piece in pieces]) for name in pieces[0].columns}
    weights = None
    if any(piece.weights is not None for piece in pieces):
        weights = np.concatenate(
            [
                np.ones(piece.num_rows, np.int64) if piece.weights is None else piece.weights
                for piece in pieces
            ]
        )
    return Bound(sum(piece.num_rows for piece in pieces), columns, weights)


# --- inner patterns ----------------------------------------------------------------------------------------


def _has_match(
    session: ReadSession, step: Without, rows: Bound
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For which rows the inner pattern, with their bindings fixed, has a match."""
    outer = {name: rows.columns[name] for name in step.outer}
    spread: Ordinals | None = None
    count = rows.num_rows
    if len(outer) == 1:
        # The same node asks the same question.
        name, column = next(iter(outer.items()))
        distinct, spread = np.unique(column, return_inverse=True)
        outer, count = {name: distinct}, len(distinct)
    start = Bound(count, {**outer, OUTER_ROW: np.arange(count)})
    found = match_pattern(session, step.steps, "set", start)
    mask = np.zeros(count, np.bool_)
    mask[found.columns[OUTER_ROW]] = True
    return mask if spread is None else mask[spread]


def _optional(session: ReadSession, step: Maybe, rows: Bound) -> Bound:
    outer = {name: rows.columns[name] for name in step.outer}
    start = Bound(rows.num_rows, {**outer, OUTER_ROW: np.arange(rows.num_rows)})
    declare_types(session, step.steps)
    found = match_pattern(session, step.steps, "rows", start)
    places = found.columns[OUTER_ROW]
    alone = np.ones(rows.num_rows, np.bool_)
    alone[places] = False
    rest = np.flatnonzero(alone)
    made = rows.take(np.concatenate([places, rest]))
    for name in step.introduces:
        if name in found.columns:
            nulls = np.full(len(rest), -1, np.int64)
            made = made.with_column(name, np.concatenate([found.columns[name], nulls]))
    return made


def declare_types(session: ReadSession, steps: Sequence[PlannedStep]) -> None:
    """Note what variables range over, also where the pattern has no row to bind them in."""
    for step in steps:
        match step:
            case Scan():
                session.types[step.variable] = session.nodes(step.type_name)
            case Walk():
                if step.expand.edge_variable is not None:
                    edge = session.edge(step.expand.edge_type)
                    session.types[step.expand.edge_variable] = session.frame(table_key("edge", edge.name))
                if not step.expand.target_bound:
                    session.types[step.expand.target] = session.nodes(step.expand.target_type)
            case Maybe():
                declare_types(session, step.steps)
            case Check() | Without():
                pass
