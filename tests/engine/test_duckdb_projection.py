"""The rest of a query on DuckDB gives the rows of the contract, and its databases leave nothing behind."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from sqlglot import exp

from omnigraph.engine.database_limits import DatabaseLimits
from omnigraph.engine.duckdb import Workspace, configure, run_projection, run_sql
from omnigraph.engine.projection import arrow_projection
from omnigraph.engine.projection.projection_plan import (
    AggregateCall,
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    SortKey,
)
from omnigraph.engine.projection.sql_projection import Dialect, projection_query
from omnigraph.errors import InvalidInput, ResourceLimit, StorageError
from omnigraph.lang.ir import AggregateFn
from tests.engine.projections import comparable, naive_projection, projections, rows_of

NAN = math.nan


def matched(*columns: InputColumn, weights: list[int] | None = None) -> MatchedRows:
    return MatchedRows(len(columns[0]), columns, None if weights is None else np.array(weights, np.int64))


def taken(column: InputColumn, at: int = 0) -> OutputColumn:
    return OutputColumn("taken", column.type, InputRef(at))


def folded(
    fn: AggregateFn, kind: pa.DataType, *, distinct: bool = False, column: int | None = 0
) -> OutputColumn:
    return OutputColumn(fn, kind, AggregateCall(fn, column, distinct))


def only_value(fold: OutputColumn, rows: MatchedRows) -> object:
    return run_projection(ProjectionPlan((fold,), grouped=True), rows).column(0)[0].as_py()


def numbered_rows(query: exp.Select) -> pa.Table:
    """What a query over a table of ten thousand numbered rows gives."""
    return run_sql(query, {"numbers": pa.table({"n": range(10_000)})})


# --- the same rows as everyone else ----------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(projections())
def test_duckdb_projection_equals_the_reference(case: tuple[ProjectionPlan, MatchedRows]) -> None:
    projection, rows = case
    found = run_projection(projection, rows)
    assert found.schema == pa.schema([(output.name, output.type) for output in projection.outputs])
    assert comparable(rows_of(found)) == comparable(naive_projection(projection, rows))
    assert comparable(rows_of(found)) == comparable(
        rows_of(arrow_projection.run_projection(projection, rows))
    )


@settings(max_examples=50, deadline=None)
@given(projections())
def test_duckdb_projection_in_one_query_equals_late_lookup(
    case: tuple[ProjectionPlan, MatchedRows],
) -> None:
    projection, rows = case
    columns = {f"c{at}": _plain(column) for at, column in enumerate(rows.columns)}
    if rows.weights is not None:
        columns["w"] = pa.array(rows.weights)
    table = pa.table({**columns, "r": pa.array(range(rows.num_rows), pa.int64())})
    found = run_sql(projection_query(projection, table.schema), {"matched": table})
    assert comparable(rows_of(found)) == comparable(naive_projection(projection, rows))


def _plain(column: InputColumn) -> pa.Array | pa.ChunkedArray:
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


# --- values that are easy to get wrong -------------------------------------------------------------------


def test_group_of_both_zeros_shows_the_first_value() -> None:
    zeros = pa.array([5.0] * 3000 + [-0.0] + [0.0] * 3000)
    projection = ProjectionPlan((taken(zeros), folded("count", pa.int64(), column=None)), grouped=True)
    found = run_projection(projection, matched(zeros)).to_pydict()
    assert found == {"taken": [5.0, 0.0], "count": [3000, 3001]}
    assert math.copysign(1, found["taken"][1]) == -1
    # Without asking for it, it depends on which thread comes first.
    schema = pa.schema([("c0", pa.float64()), ("r", pa.int64())])
    assert projection_query(projection, schema).find(exp.ArgMin) is not None


def test_groups_of_many_batches_are_in_first_seen_order() -> None:
    keys = pa.array([f"key {(at * 7919) % 50_000}" for at in range(150_000)])
    projection = ProjectionPlan((taken(keys), folded("count", pa.int64(), column=None)), grouped=True)
    found = run_projection(projection, matched(keys))
    assert found.column("taken").to_pylist() == list(dict.fromkeys(keys.to_pylist()))
    assert set(found.column("count").to_pylist()) == {3}


def test_collect_over_many_batches_keeps_row_order() -> None:
    values = pa.array([(at * 7919) % 1000 for at in range(150_000)])
    in_order = only_value(folded("collect", pa.list_(pa.int64())), matched(values))
    assert in_order == values.to_pylist()
    first_seen = only_value(folded("collect", pa.list_(pa.int64()), distinct=True), matched(values))
    assert first_seen == list(dict.fromkeys(values.to_pylist()))


@pytest.mark.parametrize(
    "values",
    [
        [2**63 - 1, 2**63 - 1, 1],
        [-(2**63), -(2**63), -1],
        # A double holds this one exactly, and DuckDB's own cast still misses it.
        [-10463702661674150],
    ],
)
def test_sum_of_integers_is_rounded_once(values: list[int]) -> None:
    assert only_value(folded("sum", pa.float64()), matched(pa.array(values))) == float(sum(values))


def test_weights_multiply_counts_and_sums_but_not_distinct_aggregates() -> None:
    rows = matched(pa.array([2**63, 5, None, 5], pa.uint64()), weights=[2**40, 3, 7, 1])
    total = 2**63 * 2**40 + 5 * 4
    assert only_value(folded("count", pa.int64(), column=None), rows) == 2**40 + 11
    assert only_value(folded("count", pa.int64()), rows) == 2**40 + 4
    assert only_value(folded("sum", pa.float64()), rows) == float(total)
    assert only_value(folded("avg", pa.float64()), rows) == float(total) / (2**40 + 4)
    assert only_value(folded("count", pa.int64(), distinct=True), rows) == 2
    assert only_value(folded("sum", pa.float64(), distinct=True), rows) == float(2**63 + 5)


def test_max_ignores_nan_unless_all_values_are_nan() -> None:
    assert only_value(folded("max", pa.float64()), matched(pa.array([NAN, -math.inf, None]))) == -math.inf
    assert only_value(folded("min", pa.float64()), matched(pa.array([NAN, math.inf, None]))) == math.inf
    lonely = only_value(folded("max", pa.float64()), matched(pa.array([NAN, None])))
    assert isinstance(lonely, float)
    assert math.isnan(lonely)


def test_sum_of_floats_overflows_to_infinity() -> None:
    largest = pa.array([1.7e308, 1.7e308])
    assert only_value(folded("sum", pa.float64()), matched(largest)) == math.inf
    assert only_value(folded("sum", pa.float64()), matched(largest, weights=[9, 9])) == math.inf


def test_duckdb_projection_of_vector_dictionary_takes_and_groups() -> None:
    # Handed to DuckDB as a dictionary, this one is an internal failure.
    vectors = pa.array([[0.0, 1.0], [9.0, 9.0], [-0.0, 1.0]], pa.list_(pa.float32(), 2))
    column = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, None, 2]), vectors)
    output = OutputColumn("v", vectors.type, InputRef(0))
    found = run_projection(ProjectionPlan((output,), skip=1, limit=2), matched(column))
    assert found.to_pydict() == {"v": [None, [0.0, 1.0]]}
    count = folded("count", pa.int64(), column=None)
    grouped = run_projection(ProjectionPlan((output, count), grouped=True), matched(column))
    assert grouped.to_pydict() == {"v": [[0.0, 1.0], None], "count": [3, 2]}


def test_duckdb_projection_of_chunks_with_different_dictionaries() -> None:
    chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()]
    column = pa.chunked_array(chunks)
    output = OutputColumn("s", pa.string(), InputRef(0))
    assert run_projection(ProjectionPlan((output,), distinct=True), matched(column)).to_pydict() == {
        "s": ["b", "a", "c"]
    }
    assert run_projection(
        ProjectionPlan((output,), order=(SortKey(0),), limit=3), matched(column)
    ).to_pydict() == {"s": ["a", "b", "b"]}


def test_duckdb_projection_with_two_outputs_of_one_name() -> None:
    column = pa.array([1, 2])
    found = run_projection(ProjectionPlan((taken(column), taken(column)), grouped=True), matched(column))
    assert found.column_names == ["taken", "taken"]
    assert rows_of(found) == [(1, 1), (2, 2)]


def test_aggregate_without_grouping_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`sum` is an aggregate"):
        run_projection(ProjectionPlan((folded("sum", pa.float64()),)), matched(pa.array([1])))


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_projection_sql_parses_in_either_dialect(dialect: Dialect) -> None:
    folds = [("count", False), ("sum", False), ("avg", True), ("max", False), ("collect", True)]
    outputs = [OutputColumn(fn, pa.float64(), AggregateCall(fn, 0, distinct)) for fn, distinct in folds]  # type: ignore[arg-type]
    projection = ProjectionPlan(
        (OutputColumn("k", pa.string(), InputRef(1)), *outputs),
        grouped=True,
        order=(SortKey(1),),
        skip=1,
        limit=2,
    )
    schema = pa.schema([("c0", pa.int64()), ("c1", pa.string()), ("w", pa.int64()), ("r", pa.int64())])
    sql = projection_query(projection, schema, dialect).sql(dialect)
    assert sqlglot.parse_one(sql, read=dialect).sql(dialect) == sql
    assert ("INT128" in sql, "DECIMAL(38, 0)" in sql) == (dialect == "duckdb", dialect == "spark")


# --- SQL over Arrow --------------------------------------------------------------------------------------


def test_run_sql_joins_tables_and_readers() -> None:
    left = pa.table({"id": [1, 2, 3]})
    right = pa.table({"id": [2, 3, 4], "name": ["b", "c", "d"]})
    query = exp.select("r.name").from_("l").join("r", using="id").order_by("r.name")
    assert run_sql(query, {"l": left, "r": right.to_reader()}).to_pydict() == {"name": ["b", "c"]}


def test_run_sql_releases_its_tables() -> None:
    table = pa.table({"x": [1]})
    alive = weakref.ref(table)
    run_sql(exp.select("*").from_("t"), {"t": table})
    del table
    gc.collect()
    assert alive() is None
    with pytest.raises(duckdb.CatalogException):
        run_sql(exp.select("*").from_("t"), {})


def test_run_sql_does_not_read_python_variables() -> None:
    # `table` is what the variable is called that holds each of them while they are registered.
    variable = exp.Table(this=exp.to_identifier("table", quoted=True))
    with pytest.raises(duckdb.CatalogException):
        run_sql(exp.select("*").from_(variable), {"t": pa.table({"x": [1]})})


def test_run_sql_in_threads_sees_only_its_own_tables() -> None:
    def total(number: int) -> int:
        found = run_sql(exp.select("sum(x) AS s").from_("t"), {"t": pa.table({"x": [number] * 1000})})
        return int(found.column("s")[0].as_py())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(total, range(40))) == [number * 1000 for number in range(40)]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """A database of little memory that spills into the directory given."""
    configure(DatabaseLimits(memory="24MB", spill_directory=tmp_path, threads=1))
    yield tmp_path
    configure(DatabaseLimits())


def test_run_sql_over_memory_spills_to_the_configured_folder(limited: Path) -> None:
    table = pa.table({"x": pa.array(range(600_000), pa.int64()), "s": ["some text that is long"] * 600_000})
    query = exp.select("x", "s").from_("t").order_by("x DESC")
    assert run_sql(query, {"t": table.to_reader()}).column("x")[0].as_py() == 599_999
    assert [path.name.split("-")[0] for path in limited.iterdir()] == ["spill"]


def test_run_sql_over_all_memory_raises_resource_limit(limited: Path) -> None:
    query = exp.select("list(s || x::varchar) AS everything").from_("t")
    table = pa.table({"x": range(600_000), "s": ["some text that is long"] * 600_000})
    with pytest.raises(ResourceLimit) as raised:
        run_sql(query, {"t": table})
    assert raised.value.details == {"memory_limit": "24MB"}
    assert limited.is_dir()


def test_run_sql_after_internal_error_opens_a_new_database() -> None:
    vectors = pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2))
    breaking = pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0]), vectors)})
    with pytest.raises(duckdb.InternalException):
        run_sql(exp.select("x").from_("t"), {"t": breaking})
    assert numbered_rows(exp.select("count(*) AS c").from_("numbers")).to_pydict() == {"c": [10_000]}


# --- workspaces ------------------------------------------------------------------------------------------


def batches(count: int, rows: int = 1000) -> Iterator[pa.RecordBatch]:
    for at in range(count):
        yield pa.record_batch({"n": pa.array(range(at * rows, (at + 1) * rows), pa.int64())})


def test_workspace_returns_the_appended_rows(tmp_path: Path) -> None:
    kinds = pa.schema(
        [
            ("at", pa.timestamp("ms")),
            ("big", pa.uint64()),
            ("vector", pa.list_(pa.float32(), 2)),
            ("tags", pa.list_(pa.string())),
        ]
    )
    batch = pa.record_batch([[1, None], [2**64 - 1, 0], [[1.0, 2.0], None], [["a"], []]], schema=kinds)
    with Workspace(tmp_path) as workspace:
        assert workspace.append('odd "name"', [batch]) == 2
        assert workspace.append('odd "name"', [batch]) == 2
        found = list(
            workspace.stream(exp.select("*").from_(exp.Table(this=exp.to_identifier('odd "name"', True))))
        )
    assert pa.Table.from_batches(found).cast(kinds) == pa.Table.from_batches([batch, batch])


def test_workspace_with_many_row_groups_returns_all_rows(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.append("t", batches(3, rows=100_000))
        workspace.append("t", batches(300))
        found = pa.Table.from_batches(workspace.stream(exp.select("n").from_("t").order_by("n")))
    assert found.column("n").to_pylist() == [number for number in range(300_000) for _ in range(2)]


def test_workspace_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        assert workspace.append("t", [next(batches(1)).slice(0, 0)]) == 0
        assert [batch.num_rows for batch in workspace.stream(exp.select("n").from_("t"))] in ([], [0])


def test_workspace_failed_append_adds_nothing(tmp_path: Path) -> None:
    def breaking() -> Iterator[pa.RecordBatch]:
        yield from batches(3, rows=100_000)
        raise StorageError("the source is gone")

    count = exp.select("count(*) AS c").from_("t")
    with Workspace(tmp_path) as workspace:
        workspace.append("t", batches(2))
        with pytest.raises(StorageError, match="the source is gone"):
            workspace.append("t", breaking())
        assert [row for batch in workspace.stream(count) for row in batch.to_pylist()] == [{"c": 2000}]


def test_workspace_stream_during_append_is_unchanged(tmp_path: Path) -> None:
    with Workspace(tmp_path, DatabaseLimits(memory="64MB")) as workspace:
        workspace.append("t", batches(4, rows=100_000))
        seen = 0
        for batch in workspace.stream(exp.select("n").from_("t")):
            seen += batch.num_rows
            assert workspace.append("t", batches(1)) == 1000
        assert seen == 400_000


def test_workspace_after_use_leaves_no_file(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.append("t", batches(2))
        assert list(tmp_path.rglob("*.duckdb"))
    assert list(tmp_path.iterdir()) == []


def test_workspace_after_error_with_open_stream_leaves_no_file(tmp_path: Path) -> None:
    streams: list[Iterator[pa.RecordBatch]] = []

    def fail_while_streaming() -> None:
        with Workspace(tmp_path) as workspace:
            workspace.append("t", batches(3, rows=100_000))
            streams.append(workspace.stream(exp.select("n").from_("t")))
            assert next(streams[0]).num_rows > 0
            raise StorageError("elsewhere")

    with pytest.raises(StorageError, match="elsewhere"):
        fail_while_streaming()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match="closed"):
        next(streams[0])


def test_closed_workspace_stream_is_refused(tmp_path: Path) -> None:
    with Workspace(tmp_path) as workspace:
        workspace.append("t", batches(1))
        stream = workspace.stream(exp.select("n").from_("t"))
    with pytest.raises(InvalidInput, match="closed"):
        next(stream)
    with pytest.raises(InvalidInput, match="closed"):
        workspace.append("t", batches(1))


def test_workspace_that_fails_to_open_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match="gibberish"),
        Workspace(tmp_path, DatabaseLimits(memory="gibberish")),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
