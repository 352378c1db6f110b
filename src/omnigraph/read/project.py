"""Project matched rows to the rows of the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.deadline import check_deadline
from omnigraph.engine.memory.cached_table import NO_ROWS
from omnigraph.engine.memory.column_chunks import to_indices
from omnigraph.engine.projection import arrow_projection
from omnigraph.engine.projection.projection_plan import (
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    used_columns,
)
from omnigraph.lang import ir
from omnigraph.read.binding_table import BindingTable
from omnigraph.read.column_sources import BindingSource
from omnigraph.read.plan import ReadPlan
from omnigraph.read.read_session import ReadSession
from omnigraph.read.scoring import score_rows
from omnigraph.search.ranking import RowScores

# With at most this many rows, values are looked up immediately; with more, columns hold positions until the final
# rows are known.
_IMMEDIATE_ROWS = 4_096
# From this many rows on, DuckDB is used, which has threads and spills to disk.
DUCKDB_ROWS = 20_000_000

_RANKS = (ir.Nearest, ir.Bm25, ir.Rrf)
_NO_TRUTHS = pa.array([], pa.bool_())
RunProjection = Callable[[ProjectionPlan, MatchedRows], pa.Table]


def choose_engine(session: ReadSession, num_rows: int) -> str:
    """Return the projection engine for this many rows: ``arrow`` or ``duckdb``."""
    return session.settings.projection or ("duckdb" if num_rows >= DUCKDB_ROWS else "arrow")


def _run_on(engine: str) -> RunProjection:
    if engine == "arrow":
        return arrow_projection.run_projection
    # Few reads need DuckDB, and importing it takes most of the start-up time of a small program.
    from omnigraph.engine import duckdb

    return duckdb.run_projection


def project(session: ReadSession, plan: ReadPlan, rows: BindingTable) -> pa.Table:
    """Group, order and project matched rows."""
    check_deadline()
    query = plan.query
    scores: dict[ir.Expr, RowScores] = {}
    for item in query.order:
        if isinstance(item.expr, _RANKS):
            found = score_rows(session, item.expr, rows)
            rows = rows.take(found.ranked)
            scores[item.expr] = found.take(found.ranked)
    run = _run_on(choose_engine(session, rows.num_rows))
    projection = plan.projection
    merged = query.aggregated or query.distinct
    if not merged:
        rows, scores = _final_rows(session, plan, rows, scores, run)
        projection = ProjectionPlan(projection.outputs)
    keys = {item.value.column for item in projection.outputs if isinstance(item.value, InputRef)}
    columns = _Columns(session, rows, scores)
    for place in range(1 + max(used_columns(projection), default=-1)):
        columns.of(plan.inputs[place], as_key=merged and place in keys)
    return run(
        projection,
        MatchedRows(rows.num_rows, tuple(columns.built), rows.weights, frozenset(columns.distinct)),
    )


def input_schema(session: ReadSession, plan: ReadPlan) -> pa.Schema:
    """Return the schema of the projection's input columns. Reads no rows."""
    names = [item.name for item in plan.query.variables]
    columns = _Columns(session, BindingTable(0, dict.fromkeys(names, NO_ROWS)), {})
    for expr in plan.inputs:
        columns.of(expr)
    return pa.schema([pa.field(f"c{place}", column.type) for place, column in enumerate(columns.built)])


def _final_rows(
    session: ReadSession,
    plan: ReadPlan,
    rows: BindingTable,
    scores: dict[ir.Expr, RowScores],
    run: RunProjection,
) -> tuple[BindingTable, dict[ir.Expr, RowScores]]:
    """Return the rows of the result in order. Only the columns that decide the order are looked up."""
    projection, exprs = plan.projection, plan.inputs
    if not projection.order:
        if not projection.skip and projection.limit is None:
            return rows, scores
        end = None if projection.limit is None else projection.skip + projection.limit
        chosen = np.arange(rows.num_rows)[projection.skip : end]
    else:
        columns = _Columns(session, rows, scores)
        number = columns.add(pa.array(np.arange(rows.num_rows)))
        numbered = replace(
            projection,
            outputs=(OutputColumn("row", pa.int64(), InputRef(number)),),
            order=tuple(replace(key, column=columns.of(exprs[key.column])) for key in projection.order),
            ties=tuple(columns.of(exprs[place]) for place in projection.ties),
        )
        found = run(numbered, MatchedRows(rows.num_rows, tuple(columns.built)))
        chosen = found["row"].to_numpy()
    return rows.take(chosen), {rank: item.take(chosen) for rank, item in scores.items()}


@dataclass
class _Columns:
    """The input columns of a projection, each built at its first use."""

    session: ReadSession
    rows: BindingTable
    scores: Mapping[ir.Expr, RowScores]
    built: list[InputColumn] = field(default_factory=list)
    distinct: set[int] = field(default_factory=set)
    _positions: dict[ir.Expr, int] = field(default_factory=dict)

    def add(self, column: InputColumn) -> int:
        """Add a column and return its position."""
        self.built.append(column)
        return len(self.built) - 1

    def of(self, expr: ir.Expr, *, as_key: bool = False) -> int:
        """Return the position of the column of an expression. `as_key` means that rows are grouped by it."""
        found = self._positions.get(expr)
        if found is None:
            encoded = self._dictionary_column(expr) if as_key else None
            found = self._positions[expr] = self.add(self._build(expr) if encoded is None else encoded)
            if encoded is not None:
                self.distinct.add(found)
        return found

    def _dictionary_column(self, expr: ir.Expr) -> pa.DictionaryArray | None:
        """Return a group key column whose dictionary has each value once; None if there are few rows."""
        if not isinstance(expr, ir.PropertyRef | ir.EntityRef) or self.rows.num_rows <= _IMMEDIATE_ROWS:
            return None
        name = "id" if isinstance(expr, ir.EntityRef) else expr.property
        encoded = self.session.variables[expr.variable].dictionary_column(name, self.rows.num_rows)
        if encoded is None:
            return None
        ordinals = self.rows.columns[expr.variable]
        codes = np.where(ordinals < 0, np.int32(-1), encoded.codes[ordinals])
        return pa.DictionaryArray.from_arrays(to_indices(codes), encoded.values)

    def _build(self, expr: ir.Expr) -> InputColumn:
        match expr:
            case ir.PropertyRef():
                return self._look_up(expr.variable, expr.property)
            case ir.EntityRef():
                return self._look_up(expr.variable, "id")
            case ir.Nearest() | ir.Bm25() | ir.Rrf():
                known = self.scores.get(expr)
                return (known or score_rows(self.session, expr, self.rows)).column()
            case ir.TextMatch():
                # Without rows there is nothing to search, so no text index is built.
                rows = BindingSource(self.session, self.rows)
                return rows.search(expr) if self.rows.num_rows else _NO_TRUTHS
            case ir.Const() | ir.ParamRef() | ir.Now():
                value = pa.array([self.session.bindings.value(expr)], arrow_type(expr.type))
                return pa.DictionaryArray.from_arrays(np.zeros(self.rows.num_rows, np.int32), value)
            case _:
                raise AssertionError(f"{expr} is not a column")

    def _look_up(self, variable: str, name: str) -> InputColumn:
        table = self.session.variables[variable]
        ordinals = self.rows.columns[variable]
        cached = table.cached_column(name, len(ordinals)) if len(ordinals) > _IMMEDIATE_ROWS else None
        if cached is None:
            return table.values(name, ordinals)
        return pa.DictionaryArray.from_arrays(to_indices(ordinals), cached)
