"""Project matched rows to the rows of the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from omnigraph.budget.deadline import check_deadline
from omnigraph.budget.query_budget import BYTES, check_rows, hold_bytes, require_bytes
from omnigraph.catalog.columns import arrow_type
from omnigraph.engine.memory.cached_table import NO_ROWS, type_bytes
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
from omnigraph.errors import ResourceLimit
from omnigraph.lang import ir
from omnigraph.lang.types import PropType
from omnigraph.read.binding_table import BindingTable
from omnigraph.read.column_sources import BindingSource
from omnigraph.read.plan import ReadPlan
from omnigraph.read.read_session import ReadSession
from omnigraph.read.references import walk
from omnigraph.read.scoring import score_rows
from omnigraph.read.spilling import PART_ROWS, find_spill
from omnigraph.search.ranking import RowScores
from omnigraph.search.snippets import text_snippets

# With at most this many rows, values are looked up immediately; with more, columns hold positions until the final
# rows are known.
_IMMEDIATE_ROWS = 4_096
# From this many rows on, DuckDB is used, which has threads and spills to disk.
DUCKDB_ROWS = 20_000_000

_BYTES_PER_INDEX = 8
# Arrays over all rows that a sort and a grouping hold at a time, besides those of their columns.
_ARRAYS_PER_SORT = 4
_ARRAYS_PER_GROUPING = 5
# Arrow stores a null vector as a vector of the declared dimension.
_MAX_NULL_BYTES = 64 << 20
# Of a snippet, usually. A longer word counts where its text does.
_SNIPPET_BYTES = 256.0

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
    scores = _returned_fusions(session, query, rows)
    for place, item in enumerate(query.order):
        if isinstance(item.expr, _RANKS):
            with hold_bytes(rows.nbytes):
                found = score_rows(session, item.expr, rows, None if place else best_rows(plan))
            rows = rows.take(found.ranked)
            scores = {rank: known.take(found.ranked) for rank, known in scores.items()}
            scores[item.expr] = found.take(found.ranked)
    run = _run_on(choose_engine(session, rows.num_rows))
    projection = plan.projection
    merged = query.aggregated or query.distinct
    if merged:
        size = _grouping_bytes(session, plan, rows)
        spill = find_spill(size, rows)
        if spill is not None:
            return spill.run(projection, _parts(session, plan, used_columns(projection), rows, scores))
        require_bytes(size)
    else:
        rows, scores = _final_rows(session, plan, rows, scores, run)
        projection = ProjectionPlan(projection.outputs)
        check_rows(rows.num_rows)
        width = sum(_value_bytes(session, output.expr) for output in query.outputs)
        require_bytes(rows.nbytes + int(rows.num_rows * (width + _BYTES_PER_INDEX * len(query.outputs))))
    keys = {item.value.column for item in projection.outputs if isinstance(item.value, InputRef)}
    columns = _Columns(session, rows, scores)
    for place in range(1 + max(used_columns(projection), default=-1)):
        check_deadline()
        columns.of(plan.inputs[place], as_key=merged and place in keys)
    result = run(
        projection,
        MatchedRows(rows.num_rows, tuple(columns.built), rows.weights, frozenset(columns.distinct)),
    )
    check_rows(result.num_rows)
    return result


def _returned_fusions(
    session: ReadSession, query: ir.ReadQuery, rows: BindingTable
) -> dict[ir.Expr, RowScores]:
    """Return the scores of fusions that do not order the rows; they depend on all rows, whatever the limit."""
    ordered = {item.expr for item in query.order}
    found = {item for output in query.outputs for item in walk(output.expr) if isinstance(item, ir.Rrf)}
    return {rank: score_rows(session, rank, rows) for rank in found - ordered}


def best_rows(plan: ReadPlan) -> int | None:
    """Return the number of rows with the lowest first sort key that decide the result; None if all rows do."""
    query, projection = plan.query, plan.projection
    if query.aggregated or query.distinct or projection.limit is None:
        return None
    if not query.order or query.order[0].descending:
        return None
    return projection.skip + projection.limit


def _parts(
    session: ReadSession,
    plan: ReadPlan,
    used: Collection[int],
    rows: BindingTable,
    scores: Mapping[ir.Expr, RowScores],
) -> Iterator[MatchedRows]:
    """Yield the rows in parts, with the values of the input columns that are used and nulls for the others."""
    for start in range(0, max(1, rows.num_rows), PART_ROWS):
        check_deadline()
        chosen = np.arange(start, min(start + PART_ROWS, rows.num_rows))
        part = rows.take(chosen)
        columns = _Columns(session, part, {rank: item.take(chosen) for rank, item in scores.items()})
        built = [
            columns.built[columns.of(expr)] if place in used else pa.nulls(part.num_rows)
            for place, expr in enumerate(plan.inputs)
        ]
        yield MatchedRows(part.num_rows, tuple(built), part.weights)


def _grouping_bytes(session: ReadSession, plan: ReadPlan, rows: BindingTable) -> int:
    """Return the memory for grouping: codes of each key, and copies of the values that are collected."""
    width = float(_BYTES_PER_INDEX * _ARRAYS_PER_GROUPING)
    for output in plan.query.outputs:
        match output.expr:
            case ir.Aggregate(fn="collect", argument=argument):
                width += _value_bytes(session, argument) + 2 * _BYTES_PER_INDEX
            case ir.Aggregate(distinct=False):
                width += _BYTES_PER_INDEX
            case _:
                width += 2 * _BYTES_PER_INDEX
    return rows.nbytes + int(rows.num_rows * width)


def _value_bytes(session: ReadSession, expr: ir.Expr) -> float:
    """Return the estimated size of a value of an expression."""
    match expr:
        case ir.PropertyRef():
            return session.variables[expr.variable].value_bytes(expr.property)
        case ir.EntityRef():
            return session.variables[expr.variable].value_bytes("id")
        case ir.Const() | ir.ParamRef() | ir.Now():
            value = session.bindings.value(expr)
            return float(len(value)) if isinstance(value, str) else type_bytes(arrow_type(expr.type))
        case ir.Snippet():
            return _SNIPPET_BYTES
        case _:
            return float(_BYTES_PER_INDEX)


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
        arrays = _ARRAYS_PER_SORT + 2 * len(projection.order) + len(projection.ties)
        size = rows.nbytes + rows.num_rows * arrays * _BYTES_PER_INDEX
        spill = find_spill(size, rows)
        if spill is not None:
            used = {key.column for key in projection.order} | {*projection.ties}
            chosen = spill.sort(projection, _parts(session, plan, used, rows, scores))
            return rows.take(chosen), {rank: item.take(chosen) for rank, item in scores.items()}
        require_bytes(size)
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


def _constant_array(value: ir.Value, declared: PropType) -> pa.Array:
    """Return an array with one value. A null vector takes the memory of all of its elements."""
    kind = arrow_type(declared)
    size = int(type_bytes(kind))
    if value is None and size > _MAX_NULL_BYTES:
        raise ResourceLimit(
            f"a null of type {declared} needs {size:,} bytes of memory, the limit is {_MAX_NULL_BYTES:,}",
            details={"resource": BYTES, "limit": _MAX_NULL_BYTES, "actual": size},
            hint="declare the parameter with the dimension of the vectors that the query compares it with",
        )
    return pa.array([value], kind)


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
            case ir.Snippet():
                texts = BindingSource(self.session, self.rows).column(expr.field)
                return text_snippets(expr, texts, self.session.text(expr.query))
            case ir.TextMatch():
                # Without rows there is nothing to search, so no text index is built.
                rows = BindingSource(self.session, self.rows)
                return rows.search(expr) if self.rows.num_rows else _NO_TRUTHS
            case ir.Const() | ir.ParamRef() | ir.Now():
                value = _constant_array(self.session.bindings.value(expr), expr.type)
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
