"""From matched bindings to the rows of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine import tail_arrow
from omnigraph.engine.tail import Fold, Key, Matched, Projected, Tail, TailColumn, Take
from omnigraph.lang import ir
from omnigraph.read.bound import Bound
from omnigraph.read.frames import indices
from omnigraph.read.plan import Plan
from omnigraph.read.ranking import Scores, is_descending, score_rows
from omnigraph.read.session import ReadSession, no_rows

# Up to here a column is looked up at once; beyond, its rows only point to values until they are final.
_LOOK_UP = 4_096
# From here on DuckDB's threads, and its way to disk, are worth the trip.
DUCKDB_ROWS = 20_000_000

_RANKS = (ir.Nearest, ir.Bm25, ir.Rrf)
RunTail = Callable[[Tail, Matched], pa.Table]


def choose_tail(session: ReadSession, num_rows: int) -> str:
    """The engine that runs the rest of a query over so many rows."""
    return session.settings.tail or ("duckdb" if num_rows >= DUCKDB_ROWS else "arrow")


def _engine(name: str) -> RunTail:
    if name == "arrow":
        return tail_arrow.run_tail
    # Most reads never need it, and importing it is most of a small program's start.
    from omnigraph.engine import duckdb

    return duckdb.run_tail


def project(session: ReadSession, plan: Plan, rows: Bound) -> pa.Table:
    """Order, group and project the rows that a pattern matched."""
    query = plan.query
    scores: dict[ir.Expr, Scores] = {}
    for item in query.order:
        if isinstance(item.expr, _RANKS):
            found = score_rows(session, item.expr, rows)
            rows = rows.take(found.ranked)
            scores[item.expr] = Scores(found.values[found.ranked], found.ranked[found.ranked])
    run = _engine(choose_tail(session, rows.num_rows))
    if not query.aggregated and not query.distinct:
        rows, scores = _final_rows(session, query, rows, scores, run)
        columns = _Columns(session, rows, scores)
        tail = Tail(_outputs(query, columns))
    else:
        columns = _Columns(session, rows, scores)
        tail = _tail(query, columns)
    weights = None if rows.weights is None else pa.array(rows.weights)
    return run(tail, Matched(rows.num_rows, tuple(columns.made), weights, frozenset(columns.distinct)))


def whole_tail(session: ReadSession, query: ir.ReadQuery) -> tuple[Tail, pa.Schema]:
    """All that comes after the pattern as one tail, and the columns that it is over; nothing is read for it."""
    names = [item.name for item in query.variables]
    columns = _Columns(session, Bound(0, {name: no_rows() for name in names}), {})
    if query.aggregated or query.distinct:
        tail = _tail(query, columns)
    else:
        tail = Tail(
            _outputs(query, columns),
            order=tuple(_key(query, item, columns) for item in query.order),
            ties=_ties(query, columns) if query.order else (),
            skip=query.skip or 0,
            limit=query.limit,
        )
    return tail, pa.schema([pa.field(f"c{place}", column.type) for place, column in enumerate(columns.made)])


def _ties(query: ir.ReadQuery, columns: _Columns) -> tuple[int, ...]:
    return tuple(columns.of(_entity(item)) for item in sorted(query.variables, key=lambda item: item.name))


def _final_rows(
    session: ReadSession,
    query: ir.ReadQuery,
    rows: Bound,
    scores: dict[ir.Expr, Scores],
    run: RunTail,
) -> tuple[Bound, dict[ir.Expr, Scores]]:
    """The rows of the result in their order, before anything but the order has been looked up."""
    skip, limit = query.skip or 0, query.limit
    if not query.order:
        if not skip and limit is None:
            return rows, scores
        chosen = np.arange(rows.num_rows)[skip : None if limit is None else skip + limit]
    else:
        columns = _Columns(session, rows, scores)
        number = columns.add(pa.array(np.arange(rows.num_rows)))
        order = tuple(_key(query, item, columns) for item in query.order)
        ties = tuple(
            columns.of(_entity(item)) for item in sorted(query.variables, key=lambda item: item.name)
        )
        output = Projected("row", pa.int64(), Take(number))
        tail = Tail((output,), order=order, ties=ties, skip=skip, limit=limit)
        found = run(tail, Matched(rows.num_rows, tuple(columns.made)))
        chosen = found["row"].to_numpy()
    picked = {rank: Scores(item.values[chosen], item.ranked[chosen]) for rank, item in scores.items()}
    return rows.take(chosen), picked


def _entity(variable: ir.Variable) -> ir.EntityRef:
    return ir.EntityRef(variable.name, variable.type_name)


def _key(query: ir.ReadQuery, item: ir.Order, columns: _Columns) -> Key:
    expr = item.expr
    descending = item.descending
    if isinstance(expr, ir.OutputRef):
        expr = next(output.expr for output in query.outputs if output.name == expr.name)
    if isinstance(item.expr, _RANKS):
        descending = is_descending(item.expr)
    return Key(columns.of(expr), descending)


def _outputs(query: ir.ReadQuery, columns: _Columns) -> tuple[Projected, ...]:
    return tuple(
        Projected(item.name, arrow_type(item.type), _value(query, item.expr, columns))
        for item in query.outputs
    )


def _tail(query: ir.ReadQuery, columns: _Columns) -> Tail:
    names = [item.name for item in query.outputs]
    order = []
    for item in query.order:
        assert isinstance(item.expr, ir.OutputRef)
        order.append(Key(names.index(item.expr.name), item.descending, of_output=True))
    return Tail(
        _outputs(query, columns),
        grouped=query.aggregated,
        distinct=query.distinct,
        order=tuple(order),
        skip=query.skip or 0,
        limit=query.limit,
    )


def _value(query: ir.ReadQuery, expr: ir.Expr, columns: _Columns) -> Take | Fold:
    if not isinstance(expr, ir.Aggregate):
        return Take(columns.of(expr, as_key=query.aggregated or query.distinct))
    argument = expr.argument
    if expr.fn == "count" and not expr.distinct and isinstance(argument, ir.EntityRef):
        nullable = next(item.nullable for item in query.variables if item.name == argument.variable)
        if not nullable:
            return Fold("count")
    return Fold(expr.fn, columns.of(argument), expr.distinct)


@dataclass
class _Columns:
    """The input columns of a tail, each made when it is first asked for."""

    session: ReadSession
    rows: Bound
    scores: Mapping[ir.Expr, Scores]
    made: list[TailColumn] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)
    _places: dict[ir.Expr, int] = field(default_factory=dict)

    def add(self, column: TailColumn) -> int:
        """Take a column in; its position."""
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

    def _make(self, expr: ir.Expr) -> TailColumn:
        match expr:
            case ir.PropertyRef():
                return self._look_up(expr.variable, expr.property)
            case ir.EntityRef():
                return self._look_up(expr.variable, "id")
            case ir.Nearest() | ir.Bm25() | ir.Rrf():
                known = self.scores.get(expr)
                return (known or score_rows(self.session, expr, self.rows)).column()
            case ir.Const() | ir.ParamRef() | ir.Now():
                value = pa.array([self.session.bindings.value(expr)], arrow_type(expr.type))
                return pa.DictionaryArray.from_arrays(np.zeros(self.rows.num_rows, np.int32), value)
            case _:
                raise AssertionError(f"{expr} is no column")

    def _look_up(self, variable: str, name: str) -> TailColumn:
        frame = self.session.types[variable]
        ordinals = self.rows.columns[variable]
        held = frame.held(name) if len(ordinals) > _LOOK_UP else None
        if held is None:
            return frame.values(name, ordinals)
        return pa.DictionaryArray.from_arrays(indices(ordinals), held)
