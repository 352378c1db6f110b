"""Reads evaluated in the most obvious way: nested loops over Python values, straight from the language definition.

Nothing here is shared with an engine, and nothing is clever: what it gives is what an engine must give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, TypeAlias

from omnigraph.lang import ir
from tests.differential.naive_graph import Edge, NaiveGraph, Node
from tests.differential.naive_values import (
    Row,
    Setting,
    as_json,
    compare_in_order,
    identity,
    is_nan,
    truth_of,
    value_of,
)

JsonRow: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class NaiveResult:
    """All rows before `skip` and `limit`. Rows of one class tie: they may stand in any order."""

    classes: tuple[tuple[JsonRow, ...], ...]
    skip: int
    limit: int | None

    @property
    def rows(self) -> list[JsonRow]:
        """One right answer."""
        found = [row for part in self.classes for row in part][self.skip :]
        return found if self.limit is None else found[: self.limit]


def naive_read(
    query: ir.ReadQuery, graph: NaiveGraph, params: Mapping[str, ir.Value], now: int
) -> list[JsonRow]:
    """The rows of a read, as JSON has them; `params` are bound values and `now` epoch milliseconds."""
    return naive_result(query, graph, params, now).rows


def naive_result(
    query: ir.ReadQuery, graph: NaiveGraph, params: Mapping[str, ir.Value], now: int
) -> NaiveResult:
    """The rows of a read with what is left open about their order."""
    setting = Setting(graph, params, now)
    rows = match_pattern(query.pattern, {}, setting)
    if query.aggregated or query.distinct:
        found = _aggregated(query, rows, setting) if query.aggregated else _projected(query, rows, setting)
        if query.distinct:
            found = list({identity(tuple(values.values())): values for values in reversed(found)}.values())
        keyed = [(_output_keys(query, values), values) for values in found]
    else:
        keyed = _keyed(query, rows, setting)
    classes = _sorted(query, keyed)
    types = {output.name: output.type for output in query.outputs}
    shown = tuple(
        tuple(
            _nested(query, {name: as_json(value, types[name]) for name, value in values.items()})
            for values in part
        )
        for part in classes
    )
    return NaiveResult(shown, query.skip or 0, query.limit)


def _nested(query: ir.ReadQuery, row: JsonRow) -> JsonRow:
    """The row with one object for the fields of each entity, or null where there is no entity."""
    nested: JsonRow = {}
    for output in query.outputs:
        if output.entity is None:
            nested[output.name] = row[output.name]
        elif output.label == "id":
            nested[output.entity.name] = None if row[output.name] is None else {"id": row[output.name]}
        elif nested[output.entity.name] is not None:
            nested[output.entity.name][output.label] = row[output.name]
    return nested


# --- the pattern -----------------------------------------------------------------------------------------


def match_pattern(steps: Sequence[ir.Step], row: Row, setting: Setting) -> list[Row]:
    """Every extension of a row that the steps allow."""
    rows = [row]
    for step in steps:
        rows = [after for before in rows for after in _take_step(step, before, setting)]
    return rows


def _take_step(step: ir.Step, row: Row, setting: Setting) -> Iterator[Row]:
    match step:
        case ir.NodeScan():
            yield from _scan(step, row, setting)
        case ir.Expand():
            yield from _expand(step, row, setting)
        case ir.Filter():
            if truth_of(step.predicate, row, setting) is True:
                yield row
        case ir.AntiJoin():
            if not match_pattern(step.pattern, row, setting):
                yield row
        case ir.OptionalMatch():
            found = match_pattern(step.pattern, row, setting)
            nothing: dict[str, Node | Edge | None] = dict.fromkeys(step.introduces)
            yield from found or [{**row, **nothing}]


def _scan(step: ir.NodeScan, row: Row, setting: Setting) -> Iterator[Row]:
    candidates = [row[step.variable]] if step.bound else setting.graph.nodes[step.type_name].values()
    for node in candidates:
        after = {**row, step.variable: node}
        if node is not None and all(truth_of(item, after, setting) is True for item in step.where):
            yield after


def _expand(step: ir.Expand, row: Row, setting: Setting) -> Iterator[Row]:
    source = row[step.source]
    if source is None:
        return
    assert isinstance(source, Node)
    graph = setting.graph
    for target_id, edge in _reached(step, source, graph):
        target = graph.nodes[step.target_type][target_id]
        if step.target_bound and row[step.target] != target:
            continue
        bound = {} if step.edge_variable is None else {step.edge_variable: edge}
        yield {**row, step.target: target, **bound}


def _reached(step: ir.Expand, source: Node, graph: NaiveGraph) -> list[tuple[str, Edge | None]]:
    if step.edge_variable is not None:
        return [
            (id_, edge) for edge in graph.edges[step.edge_type] for id_ in far_ends(edge, source.id, step)
        ]
    kind = graph.catalog.schema.edge(step.edge_type)
    assert kind is not None
    # Between different types a second hop would start from a node that the edge does not start from.
    deepest = step.max if kind.is_loop else 1
    distances = distances_from(source.id, step, graph.edges[step.edge_type], deepest)
    return [(id_, None) for id_, distance in distances.items() if step.min <= distance <= deepest]


def distances_from(source: str, step: ir.Expand, edges: Sequence[Edge], deepest: int) -> dict[str, int]:
    """Breadth first: the shortest distance to each node, the source itself only if it has a self-loop."""
    distances: dict[str, int] = {}
    frontier = [source]
    for distance in range(1, deepest + 1):
        following = []
        for id_ in frontier:
            for edge in edges:
                for end in far_ends(edge, id_, step):
                    is_return = end == source and id_ != source
                    if end not in distances and not is_return:
                        distances[end] = distance
                        following.append(end)
        frontier = [id_ for id_ in following if id_ != source]
    return distances


def far_ends(edge: Edge, id_: str, step: ir.Expand) -> list[str]:
    """Where an edge leads from a node: nowhere, or to one end."""
    if step.direction in ("out", "both") and edge.src == id_:
        return [edge.dst]
    if step.direction in ("in", "both") and edge.dst == id_:
        return [edge.src]
    return []


# --- what comes after ------------------------------------------------------------------------------------

_Keys: TypeAlias = tuple[Any, ...]
_Keyed: TypeAlias = list[tuple[_Keys, JsonRow]]


def _projected(query: ir.ReadQuery, rows: Sequence[Row], setting: Setting) -> list[JsonRow]:
    columns = {output.name: _column(output.expr, rows, setting) for output in query.outputs}
    return [{name: values[place] for name, values in columns.items()} for place in range(len(rows))]


def _column(expr: ir.Expr, rows: Sequence[Row], setting: Setting) -> list[Any]:
    if isinstance(expr, ir.Rrf):
        return _fused(expr, rows, setting)
    return [value_of(expr, row, setting) for row in rows]


def _keyed(query: ir.ReadQuery, rows: list[Row], setting: Setting) -> _Keyed:
    """Rows that are still bindings: ranking drops some, and the ids of the variables break ties."""
    ranked = [
        _ranking(item.expr, rows, setting) if isinstance(item.expr, ir.Rank) else None for item in query.order
    ]
    projected = _projected(query, rows, setting)
    variables = sorted(item.name for item in query.variables)
    found: _Keyed = []
    for place, (row, values) in enumerate(zip(rows, projected, strict=True)):
        keys = []
        for item, ranking in zip(query.order, ranked, strict=True):
            if ranking is not None:
                keys.append(ranking[place])
            elif isinstance(item.expr, ir.OutputRef):
                keys.append(values[item.expr.name])
            else:
                keys.append(value_of(item.expr, row, setting))
        is_out = any(ranking is not None and ranking[place] is None for ranking in ranked)
        if not is_out:
            bound = (row[name] for name in variables)
            ids = [None if entity is None else entity.id for entity in bound]
            found.append(((*keys, *ids), values))
    return found


def _output_keys(query: ir.ReadQuery, values: JsonRow) -> _Keys:
    keys = []
    for item in query.order:
        assert isinstance(item.expr, ir.OutputRef)
        keys.append(values[item.expr.name])
    return tuple(keys)


def _sorted(query: ir.ReadQuery, keyed: _Keyed) -> list[list[JsonRow]]:
    """Classes of rows that tie, in order; a read without order is one class."""
    if not query.order:
        return [[values for _, values in keyed]]
    signs = [-1 if item.descending else 1 for item in query.order]

    def compare(left: tuple[_Keys, JsonRow], right: tuple[_Keys, JsonRow]) -> int:
        for place, (one, other) in enumerate(zip(left[0], right[0], strict=True)):
            sign = signs[place] if place < len(signs) else 1
            found = sign * compare_in_order(one, other)
            if found:
                return found
        return 0

    classes: list[list[JsonRow]] = []
    before: tuple[_Keys, JsonRow] | None = None
    for item in sorted(keyed, key=cmp_to_key(compare)):
        if before is None or compare(before, item):
            classes.append([])
        classes[-1].append(item[1])
        before = item
    return classes


# --- aggregates ------------------------------------------------------------------------------------------


def _aggregated(query: ir.ReadQuery, rows: Sequence[Row], setting: Setting) -> list[JsonRow]:
    keys = [output for output in query.outputs if not isinstance(output.expr, ir.Aggregate)]
    groups: dict[Any, list[Row]] = {} if keys else {(): []}
    for row in rows:
        key = identity(tuple(value_of(output.expr, row, setting) for output in keys))
        groups.setdefault(key, []).append(row)
    found = []
    for group in groups.values():
        values = {}
        for output in query.outputs:
            if isinstance(output.expr, ir.Aggregate):
                values[output.name] = _aggregate(output.expr, group, setting)
            else:
                values[output.name] = value_of(output.expr, group[0], setting)
        found.append(values)
    return found


def _aggregate(aggregate: ir.Aggregate, rows: Sequence[Row], setting: Setting) -> Any:
    values = [value_of(aggregate.argument, row, setting) for row in rows]
    values = [value for value in values if value is not None]
    if aggregate.distinct:
        values = list({identity(value): value for value in reversed(values)}.values())
    match aggregate.fn:
        case "count":
            return len(values)
        case "collect":
            return values
        case "sum":
            return _sum(values) if values else None
        case "avg":
            return _sum(values) / len(values) if values else None
        case "min" | "max":
            # A NaN counts only when there is nothing else.
            values = [value for value in values if not is_nan(value)] or values
            choose = min if aggregate.fn == "min" else max
            return choose(values) if values else None


def _sum(values: Sequence[Any]) -> float:
    numbers = [float(value) for value in values]
    return math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)


# --- ranking ---------------------------------------------------------------------------------------------


def _ranking(rank: ir.Rank, rows: Sequence[Row], setting: Setting) -> list[float | None]:
    """What each row is ranked by; None for a row that is not in the ranking."""
    if isinstance(rank, ir.Rrf):
        return _fused(rank, rows, setting)
    found = [value_of(rank, row, setting) for row in rows]
    if isinstance(rank, ir.Bm25):
        return [score or None for score in found]
    return found


def _fused(rank: ir.Rrf, rows: Sequence[Row], setting: Setting) -> list[float | None]:
    k, depth = value_of(rank.k, {}, setting), value_of(rank.depth, {}, setting)
    scores: list[float | None] = [None] * len(rows)
    for part, weight in zip(rank.ranks, rank.weights, strict=True):
        worth = _worth(part, rows, setting)
        best = sorted(_positions(part, worth).items(), key=lambda item: item[1])[:depth]
        worth = {id_: worth[id_] for id_, _ in best}
        if rank.fn == "rrf":
            added = {id_: 1 / (k + place + 1) for id_, place in _positions(part, worth).items()}
        else:
            added = _normalized(part, worth)
        for place, row in enumerate(rows):
            entity = row[part.field.variable]
            if entity is not None and entity.id in added:
                scores[place] = (scores[place] or 0.0) + weight * added[entity.id]
    return scores


def _worth(rank: ir.Nearest | ir.Bm25, rows: Sequence[Row], setting: Setting) -> dict[str, float]:
    """The score of each entity in a ranking."""
    worth: dict[str, float] = {}
    for row, value in zip(rows, _ranking(rank, rows, setting), strict=True):
        entity = row[rank.field.variable]
        if entity is not None and value is not None:
            worth[entity.id] = value
    return worth


def _positions(rank: ir.Nearest | ir.Bm25, worth: Mapping[str, float]) -> dict[str, int]:
    """The place of each entity in a ranking, counted from 0; equal ones stand by id."""
    sign = 1 if isinstance(rank, ir.Nearest) else -1
    return {id_: place for place, id_ in enumerate(sorted(worth, key=lambda id_: (sign * worth[id_], id_)))}


def _normalized(rank: ir.Nearest | ir.Bm25, worth: Mapping[str, float]) -> dict[str, float]:
    """Scores from 1 for the best to 0 for the worst."""
    finite = [value for value in worth.values() if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    best, worst = (low, high) if isinstance(rank, ir.Nearest) else (high, low)
    return {
        id_: 0.0 if not math.isfinite(value) else 1.0 if best == worst else (value - worst) / (best - worst)
        for id_, value in worth.items()
    }
