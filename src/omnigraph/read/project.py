"""From matched bindings to the rows of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.deadline import check_deadline
from omnigraph.engine.memory.table_columns import indices
from omnigraph.engine.projection import arrow_projection
from omnigraph.engine.projection.plan_projection import plan_projection
from omnigraph.engine.projection.projection_plan import (
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    used_columns,
)
from omnigraph.lang import ir
from omnigraph.read.binding_rows import Bound
from omnigraph.read.plan import Plan
from omnigraph.read.ranking import Scores, score_rows
from omnigraph.read.session import BoundRows, ReadSession, no_rows

# Up to here a column is looked up at once; beyond, its rows only point to values until they are final.
_LOOK_UP = 4_096
# From here on DuckDB's threads, and its way to disk, are worth the trip.
DUCKDB_ROWS = 20_000_000

_RANKS = (ir.Nearest, ir.Bm25, ir.Rrf)
_NO_TRUTHS = pa.array([], pa.bool_())
RunProjection = Callable[[ProjectionPlan, MatchedRows], pa.Table]


def choose_projection_engine(session: ReadSession, num_rows: int) -> str:
    """The engine that runs the rest of a query over so many rows."""
    return session.settings.projection or ("duckdb" if num_rows >= DUCKDB_ROWS else "arrow")


def _engine(name: str) -> RunProjection:
    if name == "arrow":
        return arrow_projection.run_projection
    # Most reads never need it, and importing it is most of a small program's start.
    from omnigraph.engine import duckdb

    return duckdb.run_projection


def project(session: ReadSession, plan: Plan, rows: Bound) -> pa.Table:
    """Order, group and project the rows that a pattern matched."""
    check_deadline()
    query = plan.query
    scores: dict[ir.Expr, Scores] = {}
    for item in query.order:
        if isinstance(item.expr, _RANKS):
            found = score_rows(session, item.expr, rows)
            rows = rows.take(found.ranked)
            scores[item.expr] = Scores(found.values[found.ranked], found.ranked[found.ranked])
    run = _engine(choose_projection_engine(session, rows.num_rows))
    projection, exprs = plan_projection(query)
    folded = query.aggregated or query.distinct
    if not folded:
        rows, scores = _final_rows(session, projection, exprs, rows, scores, run)
        projection = ProjectionPlan(projection.outputs)
    keys = {item.value.column for item in projection.outputs if isinstance(item.value, InputRef)}
    columns = _Columns(session, rows, scores)
    for place in range(1 + max(used_columns(projection), default=-1)):
        columns.of(exprs[place], as_key=folded and place in keys)
    weights = None if rows.weights is None else pa.array(rows.weights)
    return run(
        projection, MatchedRows(rows.num_rows, tuple(columns.made), weights, frozenset(columns.distinct))
    )


def full_projection(session: ReadSession, query: ir.ReadQuery) -> tuple[ProjectionPlan, pa.Schema]:
    """All that comes after the pattern as one projection, and the columns that it is over; nothing is read for
    it.
    """
    names = [item.name for item in query.variables]
    columns = _Columns(session, Bound(0, {name: no_rows() for name in names}), {})
    projection, exprs = plan_projection(query)
    for expr in exprs:
        columns.of(expr)
    return projection, pa.schema(
        [pa.field(f"c{place}", column.type) for place, column in enumerate(columns.made)]
    )


def _final_rows(
    session: ReadSession,
    projection: ProjectionPlan,
    exprs: Sequence[ir.Expr],
    rows: Bound,
    scores: dict[ir.Expr, Scores],
    run: RunProjection,
) -> tuple[Bound, dict[ir.Expr, Scores]]:
    """The rows of the result in their order, before anything but the order has been looked up."""
    if not projection.order:
        if not projection.skip and projection.limit is None:
            return rows, scores
        chosen = np.arange(rows.num_rows)[
            projection.skip : None if projection.limit is None else projection.skip + projection.limit
        ]
    else:
        columns = _Columns(session, rows, scores)
        number = columns.add(pa.array(np.arange(rows.num_rows)))
        numbered = replace(
            projection,
            outputs=(OutputColumn("row", pa.int64(), InputRef(number)),),
            order=tuple(replace(key, column=columns.of(exprs[key.column])) for key in projection.order),
            ties=tuple(columns.of(exprs[place]) for place in projection.ties),
        )
        found = run(numbered, MatchedRows(rows.num_rows, tuple(columns.made)))
        chosen = found["row"].to_numpy()
    picked = {rank: Scores(item.values[chosen], item.ranked[chosen]) for rank, item in scores.items()}
    return rows.take(chosen), picked


@dataclass
class _Columns:
    """The input columns of a projection, each made when it is first asked for."""

    session: ReadSession
    rows: Bound
    scores: Mapping[ir.Expr, Scores]
    made: list[InputColumn] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)
    _places: dict[ir.Expr, int] = field(default_factory=dict)

    def add(self, column: InputColumn) -> int:
        """InputRef a column in; its position."""
        self.made.append(column)
        return len(self.made) - 1

    def of(self, expr: ir.Expr, *, as_key: bool = False) -> int:
        """The position of the column of an expression; `as_key` says that rows are grouped by it."""
        found = self._places.get(expr)
        if found is None:
            coded = self._coded(expr) if as_key else None
            found = self._places[expr] = self.add(self._make(expr) if coded is None else coded)
            if coded is not None:
                self.distinct.add(found)
        return found

    def _coded(self, expr: ir.Expr) -> pa.DictionaryArray | None:
        """A column to group by whose dictionary has every value once, when there are many rows."""
        if not isinstance(expr, ir.PropertyRef | ir.EntityRef) or self.rows.num_rows <= _LOOK_UP:
            return None
        name = "id" if isinstance(expr, ir.EntityRef) else expr.property
        coded = self.session.types[expr.variable].coded(name)
        if coded is None:
            return None
        ordinals = self.rows.columns[expr.variable]
        codes = np.where(ordinals < 0, np.int32(-1), coded.codes[ordinals])
        return pa.DictionaryArray.from_arrays(indices(codes), coded.values)

    def _make(self, expr: ir.Expr) -> InputColumn:
        match expr:
            case ir.PropertyRef():
                return self._look_up(expr.variable, expr.property)
            case ir.EntityRef():
                return self._look_up(expr.variable, "id")
            case ir.Nearest() | ir.Bm25() | ir.Rrf():
                known = self.scores.get(expr)
                return (known or score_rows(self.session, expr, self.rows)).column()
            case ir.TextMatch():
                # Without rows there is nothing to look for, and an index would be made for nobody.
                return BoundRows(self.session, self.rows).search(expr) if self.rows.num_rows else _NO_TRUTHS
            case ir.Const() | ir.ParamRef() | ir.Now():
                value = pa.array([self.session.bindings.value(expr)], arrow_type(expr.type))
                return pa.DictionaryArray.from_arrays(np.zeros(self.rows.num_rows, np.int32), value)
            case _:
                raise AssertionError(f"{expr} is no column")

    def _look_up(self, variable: str, name: str) -> InputColumn:
        frame = self.session.types[variable]
        ordinals = self.rows.columns[variable]
        held = frame.held(name) if len(ordinals) > _LOOK_UP else None
        if held is None:
            return frame.values(name, ordinals)
        return pa.DictionaryArray.from_arrays(indices(ordinals), held)
