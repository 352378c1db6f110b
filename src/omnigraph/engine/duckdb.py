"""DuckDB in this process: projections, SQL over Arrow tables, and databases on disk.

Calls share one in-memory database, because opening one takes tens of milliseconds. Each call uses a cursor of its
own, which takes microseconds: threads do not block each other and do not see each other's tables. Data that
exceeds the memory limit spills to a directory that only this process uses.
"""

from __future__ import annotations

import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from omnigraph.budget.deadline import interrupt_at_deadline
from omnigraph.budget.query_budget import SPILLED
from omnigraph.engine.database_limits import DatabaseLimits, default_limits
from omnigraph.engine.exact_counts import INT64_MAX, total
from omnigraph.engine.projection import arrow_projection
from omnigraph.engine.projection.projection_plan import (
    InputColumn,
    InputRef,
    MatchedRows,
    OutputColumn,
    ProjectionPlan,
    SortKey,
    used_columns,
)
from omnigraph.engine.projection.sql_projection import ROW, TABLE, WEIGHT, column_name, projection_query
from omnigraph.errors import InvalidInput, ResourceLimit, StorageError

ArrowInput: TypeAlias = pa.Table | pa.RecordBatchReader

# Rows per row group, which is the unit of work of a thread of DuckDB.
_APPENDED_ROWS = 122_880
_STREAMED_ROWS = 65_536
_RESULT = "projected"
# Never download extensions, and resolve names only to registered tables, not to Python variables.
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def configure(limits: DatabaseLimits) -> None:
    """Use a new shared database with these limits from now on. Running calls finish on the previous one."""
    _shared.replace(limits)


def run_sql(expression: exp.Expression, tables: Mapping[str, ArrowInput]) -> pa.Table:
    """Return the rows of a query over Arrow tables by name. A reader can be read only once.

    >>> query = exp.select(exp.Sum(this=exp.column("x")).as_("total")).from_("numbers")
    >>> run_sql(query, {"numbers": pa.table({"x": [0.5, 2.0]})}).to_pylist()
    [{'total': 2.5}]
    """
    return _run(expression.sql("duckdb"), tables)


def _run(sql: str, tables: Mapping[str, ArrowInput]) -> pa.Table:
    with _shared.cursor() as cursor:
        for name, table in tables.items():
            cursor.register(name, table)
        with interrupt_at_deadline(cursor.interrupt, duckdb.InterruptException):
            return cursor.sql(sql).to_arrow_table()


# --- projections -----------------------------------------------------------------------------------------


def run_projection(projection: ProjectionPlan, matched: MatchedRows) -> pa.Table:
    """Return the rows of a projection, in order, as columns with the names and types of the outputs.

    Counts beyond 64 bits, which the integers of DuckDB do not always hold, are left to the Arrow projection.
    """
    if matched.weights is not None and total(matched.weights) > INT64_MAX:
        return arrow_projection.run_projection(projection, matched)
    schema = pa.schema([(output.name, output.type) for output in projection.outputs])
    if projection.grouped or projection.distinct:
        columns = _query(projection, matched).columns
    else:
        # Only the columns that decide the order go through SQL. Most rows are cut off before their values are
        # looked up.
        positions = _final_rows(projection, matched)
        columns = [
            _values(matched.columns[_input_position(output)], positions) for output in projection.outputs
        ]
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(cast, schema=schema)


def _final_rows(projection: ProjectionPlan, matched: MatchedRows) -> pa.Array:
    """Return the numbers of the rows that remain, in order."""
    numbers = pa.array(np.arange(matched.num_rows))
    if not projection.order and not projection.ties:
        return numbers.slice(projection.skip, projection.limit)
    order = (
        SortKey(_input_position(projection.outputs[key.column]), key.descending) if key.of_output else key
        for key in projection.order
    )
    number = OutputColumn(ROW, numbers.type, InputRef(len(matched.columns)))
    numbered = replace(matched, columns=(*matched.columns, numbers))
    return _query(replace(projection, outputs=(number,), order=tuple(order)), numbered).column(0)


def _input_position(output: OutputColumn) -> int:
    if not isinstance(output.value, InputRef):
        raise InvalidInput(f"output `{output.name}` is an aggregate in a projection without groups")
    return output.value.column


def _query(projection: ProjectionPlan, matched: MatchedRows) -> pa.Table:
    table = _table(projection, matched)
    return _run(_sql(projection, table.schema), {TABLE: table})


def _table(projection: ProjectionPlan, matched: MatchedRows, first_row: int = 0) -> pa.Table:
    """Return the columns that a projection uses, the weights and the row numbers."""
    columns = {column_name(at): _values(matched.columns[at]) for at in used_columns(projection)}
    if matched.weights is not None:
        columns[WEIGHT] = pa.array(matched.weights.astype(np.int64))
    columns[ROW] = pa.array(np.arange(first_row, first_row + matched.num_rows))
    return pa.table(columns)


# Building the SQL takes longer than running it over few rows, and queries repeat.
@lru_cache(maxsize=256)
def _sql(projection: ProjectionPlan, schema: pa.Schema) -> str:
    return projection_query(projection, schema).sql("duckdb")


def _values(column: InputColumn, positions: pa.Array | None = None) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column, at the given positions or all, with dictionaries decoded.

    DuckDB supports dictionaries, but groups by them more slowly, and fails on dictionaries of vectors.
    """
    if isinstance(column, pa.ChunkedArray) and pa.types.is_dictionary(column.type):
        column = pa.chunked_array([_values(chunk) for chunk in column.chunks], column.type.value_type)
    if isinstance(column, pa.DictionaryArray):
        indices = column.indices if positions is None else column.indices.take(positions)
        return column.dictionary.take(indices)
    return column if positions is None else column.take(positions)


def run_spilled_projection(
    projection: ProjectionPlan, parts: Iterable[MatchedRows], limits: DatabaseLimits
) -> Iterator[pa.Table]:
    """Yield the rows of a projection over rows that arrive in parts. Rows and intermediate results are on disk.

    Raises `ResourceLimit` if the database exceeds its memory or its size on disk, before the first rows.
    """
    schema = pa.schema([(output.name, output.type) for output in projection.outputs])
    with Workspace(Path(tempfile.gettempdir()), limits) as workspace:
        tables = _numbered_tables(projection, parts, limits.spill_bytes)
        first = next(tables)
        workspace.append(TABLE, (batch for table in chain([first], tables) for batch in table.to_batches()))
        workspace.derive(_RESULT, projection_query(projection, first.schema))
        for batch in workspace.stream(exp.select("*").from_(_RESULT)):
            columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
            yield pa.Table.from_arrays(columns, schema=schema)


def _numbered_tables(
    projection: ProjectionPlan, parts: Iterable[MatchedRows], limit: int | None
) -> Iterator[pa.Table]:
    """Yield the used columns of each part, with numbers that continue and with the types of the first part.

    Raises `ResourceLimit` if they have more bytes than the database may use on disk.
    """
    done = size = 0
    schema: pa.Schema | None = None
    for part in parts:
        table = _table(projection, part, done)
        schema = schema or table.schema
        size += table.nbytes
        if limit is not None and size > limit:
            raise ResourceLimit(
                f"the rows need more than {limit:,} bytes of disk space to be sorted or grouped",
                details={"resource": SPILLED, "limit": limit, "actual": size},
                hint="match fewer rows, order and group by fewer values, or raise the limit",
            )
        yield table.cast(schema)
        done += part.num_rows


# --- tables on disk --------------------------------------------------------------------------------------


class Workspace:
    """A database on disk, for data larger than memory.

    It is in a new directory below `directory` while the context is open. When the context ends, also by an error,
    streams are closed and the directory is removed.
    """

    def __init__(self, directory: Path, limits: DatabaseLimits | None = None) -> None:
        self._directory = directory
        self._limits = limits or default_limits()
        # The Parquet files of each view, and the views that are not yet defined over all their files.
        self._files: dict[str, tuple[str, ...]] = {}
        self._outdated: set[str] = set()

    def __enter__(self) -> Workspace:
        self._home = tempfile.TemporaryDirectory(prefix="workspace-", dir=self._directory)
        home = Path(self._home.name)
        try:
            spill = self._limits.spill_directory or home
            self._database = _Database(replace(self._limits, spill_directory=spill), home / "tables.duckdb")
            # The file is about to be removed, so a checkpoint at shutdown would be wasted.
            self._database.root.execute("PRAGMA disable_checkpoint_on_shutdown")
        except BaseException:
            self._home.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._database.close()
        finally:
            self._home.cleanup()

    def append(self, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Append rows to a table and return their number. All rows are added or, after an error, none.

        The first batch defines the columns of the table, even if it has no rows. The rows become a Parquet
        file that queries scan: to insert them into a table of the database takes nine times the processor time.
        """
        self._database.check_open()
        path = Path(self._home.name) / f"rows-{uuid.uuid4().hex}.parquet"
        try:
            added = _write_parquet(path, batches)
        except OSError as error:
            raise StorageError(f"the database cannot access its files: {error}") from error
        self.attach(name, [*self._files.get(name, ()), str(path)])
        return added

    def attach(self, name: str, files: Sequence[str]) -> None:
        """Create a view of Parquet files, or replace it. The files are read when the view is queried."""
        self._files[name] = tuple(files)
        self._outdated.add(name)

    def derive(self, name: str, expression: exp.Query) -> None:
        """Store the rows of a query as a table."""
        target = exp.Table(this=exp.to_identifier(name, quoted=True))
        with self._cursor() as cursor, interrupt_at_deadline(cursor.interrupt, duckdb.InterruptException):
            cursor.execute(exp.Create(this=target, kind="TABLE", expression=expression).sql("duckdb"))

    def replace(self, name: str, expression: exp.Query) -> None:
        """Store the rows of a query, which may read the table or view of this name, in its place."""
        old, new = (exp.Table(this=exp.to_identifier(item, quoted=True)) for item in (name, f"{name}_new"))
        with self._cursor() as cursor:
            cursor.execute(exp.Create(this=new, kind="TABLE", expression=expression).sql("duckdb"))
        self.drop(name)
        with self._cursor() as cursor:
            cursor.execute(f"ALTER TABLE {new.sql('duckdb')} RENAME TO {old.sql('duckdb')}")

    def drop(self, name: str) -> None:
        """Remove a table or view."""
        kind = "TABLE" if self._files.pop(name, None) is None else "VIEW"
        self._outdated.discard(name)
        target = exp.Table(this=exp.to_identifier(name, quoted=True))
        with self._cursor() as cursor:
            cursor.execute(f"DROP {kind} IF EXISTS {target.sql('duckdb')}")

    def stream(self, expression: exp.Expression) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a query in batches. Rows appended meanwhile are not included."""
        with self._cursor() as cursor:
            for batch in cursor.sql(expression.sql("duckdb")).to_arrow_reader(_STREAMED_ROWS):
                yield batch
                # A reader whose cursor was closed meanwhile would end as if there were no more rows.
                self._database.check_open()

    @contextmanager
    def _cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Return a cursor that sees every view over all its files.

        Views are defined when they are read: to define one after each of many appends would be quadratic.
        """
        with self._database.cursor() as cursor:
            while self._outdated:
                name = self._outdated.pop()
                target = exp.Table(this=exp.to_identifier(name, quoted=True))
                listed = exp.Array(expressions=[exp.Literal.string(file) for file in self._files[name]])
                rows = exp.select("*").from_(exp.Anonymous(this="read_parquet", expressions=[listed]))
                create = exp.Create(this=target, kind="VIEW", replace=True, expression=rows)
                cursor.execute(create.sql("duckdb"))
            yield cursor


def _write_parquet(path: Path, batches: Iterable[pa.RecordBatch]) -> int:
    """Write rows to a file and return their number. After an error there is no file."""
    writer: pq.ParquetWriter | None = None
    added = 0
    try:
        for table in _coalesce(batches):
            if writer is None:
                # The file is read once or twice, and completely: dictionaries and statistics would be wasted.
                writer = pq.ParquetWriter(
                    path, table.schema, compression="lz4", use_dictionary=False, write_statistics=False
                )
            writer.write_table(table)
            added += table.num_rows
        if writer is not None:
            writer.close()
    except BaseException:
        if writer is not None:
            # The file handle may fail to close for the reason that the write failed.
            with suppress(OSError, pa.ArrowException):
                writer.close()
            path.unlink(missing_ok=True)
        raise
    return added


def _coalesce(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the same rows in larger tables. Empty batches still define the schema."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _APPENDED_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


# --- databases -------------------------------------------------------------------------------------------


class _Database:
    """An open database, which is used through cursors."""

    def __init__(self, limits: DatabaseLimits, path: Path | None = None) -> None:
        spill = limits.spill_directory or Path(tempfile.gettempdir())
        config: dict[str, str | bool | int | float | list[str]] = {
            **_CONFIG,
            # Processes that spill into one directory would overwrite each other's files.
            "temp_directory": str(spill / f"spill-{uuid.uuid4().hex}"),
        }
        if limits.memory is not None:
            config["memory_limit"] = limits.memory
        if limits.spill_bytes is not None:
            config["max_temp_directory_size"] = f"{limits.spill_bytes}B"
        if limits.threads is not None:
            config["threads"] = limits.threads
        self._limits = limits
        self._closed = False
        self._open: list[duckdb.DuckDBPyConnection] = []
        try:
            with self._errors():
                self.root = duckdb.connect(":memory:" if path is None else str(path), config=config)
        except (duckdb.ParserException, duckdb.InvalidInputException) as error:
            raise InvalidInput(f"cannot open a database with {limits}: {error}") from error

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self.check_open()
        cursor = self.root.cursor()
        self._open.append(cursor)
        try:
            with self._errors():
                yield cursor
        finally:
            self._open.remove(cursor)
            cursor.close()

    def check_open(self) -> None:
        if self._closed:
            raise InvalidInput("the database is closed")

    def close(self) -> None:
        self._closed = True
        for cursor in [*self._open]:
            cursor.close()
        self.root.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            details = {"memory_limit": self._limits.memory or "80%"}
            raise ResourceLimit(
                f"the query exceeded its memory limit: {error}",
                details=details,
                hint="match fewer rows, return fewer columns, or raise the limit",
            ) from error
        except duckdb.IOException as error:
            raise StorageError(f"the database cannot access its files: {error}") from error


class _SharedDatabase:
    """The shared in-memory database. It is opened on first use, and again after a fatal error."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: DatabaseLimits | None = None
        self._database: _Database | None = None

    def replace(self, limits: DatabaseLimits | None = None) -> None:
        # Cursors keep the previous database alive, so it is dropped and not closed.
        with self._lock:
            self._limits = limits or self._limits
            self._database = None

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            if self._database is None:
                self._database = _Database(self._limits or default_limits())
            database = self._database
        try:
            with database.cursor() as cursor:
                yield cursor
        except (duckdb.FatalException, duckdb.InternalException):
            # After an internal error DuckDB rejects all further calls on every cursor.
            self.replace()
            raise


_shared = _SharedDatabase()
