"""The result of a read query."""

from __future__ import annotations

import operator
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

from omnigraph.errors import InvalidInput
from omnigraph.extras import requires

if TYPE_CHECKING:
    import networkx
    import pandas
    import polars
    import pyarrow as pa

    from omnigraph.api.results.reranking import Reranker
    from omnigraph.api.results.result_graph import NodeKey, ResultGraph
    from omnigraph.lang.types import ColumnType

_SHOWN_ROWS = 20


@dataclass(frozen=True, repr=False)
class Result:
    """The rows of a read query and the commit that they were read from.

    `table` is the typed Arrow table. `rows()` returns JSON values: dates and ids are strings. A result prints as a
    table; an index selects a row, a column or some of the rows.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-result", schema="node Person { name: String @key  age: I32? }")
    >>> _ = g.mutate('query add() { insert Person { name: "Ana", age: 30 } }')
    >>> result = g.query("query all() { match { $p: Person } return { $p.name as name, $p.age as age } }")
    >>> result
    name | age
    -----+----
    Ana  |  30
    1 row
    >>> result.rows()
    [{'name': 'Ana', 'age': 30}]
    >>> result[0], result["age"]
    ({'name': 'Ana', 'age': 30}, [30])
    >>> result.table.schema.types
    [DataType(string), DataType(int32)]
    """

    table: pa.Table
    commit_id: str
    query_name: str
    branch: str | None = None
    snapshot: str | None = None
    types: Sequence[ColumnType] = ()

    @property
    def columns(self) -> list[str]:
        """The column names, in the order of the projection."""
        return list(self.table.column_names)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: str) -> list[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Result: ...

    def __getitem__(self, index: int | str | slice) -> dict[str, Any] | list[Any] | Result:
        """Return the row at a position, the values of a column by name, or the rows of a slice as a result."""
        from omnigraph.catalog.row_json import column_values

        if isinstance(index, str):
            place = self._place(index)
            return column_values(self.table.column(place), self.types[place])
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return replace(self, table=self.table.slice(start, max(0, stop - start)))
            return replace(self, table=self.table.take(list(range(start, stop, step))))
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"no row {position}; the result has {len(self):,}")
        return replace(self, table=self.table.slice(position % len(self), 1)).rows()[0]

    def head(self, count: int = 5) -> Result:
        """Return the first rows as a result."""
        return self[: max(0, count)]

    def select(self, columns: Sequence[str]) -> Result:
        """Return some of the columns as a result, in the given order. Raises `KeyError` for an unknown name."""
        places = [self._place(name) for name in columns]
        return replace(self, table=self.table.select(places), types=tuple(self.types[at] for at in places))

    def rerank(self, reranker: Reranker, limit: int | None = None, *, column: str | None = None) -> Result:
        """Return the rows in the order of new scores, highest first, at most `limit` of them.

        `reranker` gets all rows as dicts, in their order, and returns a number for each. Rows with equal scores
        keep their order. With `column`, the scores are a column of that name. The candidates are the rows of the
        query, so its `limit` bounds the work of the reranker.

        Raises `InvalidInput` if the reranker does not return one number for each row. An error of the reranker is
        passed on.

        >>> import omnigraph as og
        >>> g = og.init("memory://docs-rerank", schema="node Doc { slug: String @key  body: String }")
        >>> _ = g.load({"Doc": [{"slug": "a", "body": "red"}, {"slug": "b", "body": "red wine"}]})
        >>> docs = g.query('query w() { match { $d: Doc search($d.body, "red") } return { $d.body as body } }')
        >>> docs.rerank(lambda rows: [len(row["body"]) for row in rows], 1, column="score").rows()
        [{'body': 'red wine', 'score': 8.0}]
        """
        from omnigraph.api.results.reranking import rerank_order, rerank_scores
        from omnigraph.lang.types import F64

        if limit is not None and limit < 0:
            raise InvalidInput(f"limit must not be negative, got {limit}")
        if column in self.columns:
            raise InvalidInput(
                f"the result has a column {column!r}", hint="choose another name for the scores"
            )
        scores = rerank_scores(reranker, self.rows())
        order = rerank_order(scores)[:limit]
        table, types = self.table.take(order), tuple(self.types)
        if column is not None:
            table, types = table.append_column(column, [scores[order]]), (*types, F64)
        return replace(self, table=table, types=types)

    def unnest(self, column: str) -> Result:
        """Return the fields of a column of whole nodes or edges as the columns of a result.

        Rows where the column is null are left out.
        """
        from omnigraph.lang.types import ObjectType

        place = self._place(column)
        type_ = self.types[place]
        if not isinstance(type_, ObjectType):
            raise ValueError(f"column {column!r} has no nodes or edges; return them with `$v.* as {column}`")
        entities = self.table.select([place]).drop_null()
        table = entities.flatten().rename_columns([name for name, _ in type_.fields])
        return replace(self, table=table, types=tuple(field for _, field in type_.fields))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of JSON values, with keys in the order of the projection."""
        from omnigraph.catalog.row_json import column_values

        names = self.columns
        columns = [
            column_values(self.table.column(position), type_) for position, type_ in enumerate(self.types)
        ]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts, as `rows` does. Polars has a method of this name too."""
        return self.rows()

    def scalar(self) -> Any:
        """Return the value of a result with one row and one column. Raises `ValueError` for any other shape."""
        if self.table.num_rows != 1 or self.table.num_columns != 1:
            raise ValueError(
                f"the result has {self.table.num_rows} rows and {self.table.num_columns} columns"
            )
        return next(iter(self.rows()[0].values()))

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame. Needs the extra ``pandas``.

        Columns of integers and booleans with nulls have pandas' nullable types, such as ``Int64``. As floats, large
        integers would lose precision.
        """
        import pyarrow as pa

        with requires("pandas", "to_pandas()"):
            import pandas

        nullable = {
            pa.int8(): pandas.Int8Dtype(),
            pa.int16(): pandas.Int16Dtype(),
            pa.int32(): pandas.Int32Dtype(),
            pa.int64(): pandas.Int64Dtype(),
            pa.uint8(): pandas.UInt8Dtype(),
            pa.uint16(): pandas.UInt16Dtype(),
            pa.uint32(): pandas.UInt32Dtype(),
            pa.uint64(): pandas.UInt64Dtype(),
            pa.bool_(): pandas.BooleanDtype(),
        }
        from omnigraph.lang.types import ObjectType

        frame = self.table.to_pandas()
        for position, column in enumerate(self.table.columns):
            if isinstance(self.types[position], ObjectType):
                # pandas would convert integers inside of objects to floats.
                frame.isetitem(position, pandas.Series(column.to_pylist(), dtype=object))
            elif column.null_count and column.type in nullable:
                frame.isetitem(position, column.to_pandas(types_mapper=nullable.get))
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars DataFrame. Needs the extra ``polars``."""
        with requires("polars", "to_polars()"):
            import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_graph(self) -> ResultGraph:
        """Return the whole nodes and edges of the result as a graph, which a notebook displays as a picture.

        Return them with ``$v.* as v`` in the query.
        """
        from omnigraph.api.results.result_graph import ResultGraph

        return ResultGraph.of(self)

    def to_networkx(self) -> networkx.MultiDiGraph[NodeKey]:
        """Return the whole nodes and edges of the result as a graph of networkx: `ResultGraph.to_networkx`."""
        return self.to_graph().to_networkx()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Export the rows as an Arrow C stream, for ``polars.DataFrame(result)`` or ``pyarrow.table(result)``."""
        return self.table.__arrow_c_stream__(requested_schema)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the HTTP response."""
        body: dict[str, Any] = {
            "query_name": self.query_name,
            "target": {"branch": self.branch, "snapshot": self.snapshot},
            "row_count": len(self),
        }
        if self.columns:
            body["columns"] = self.columns
        return {**body, "rows": self.rows(), "graph_commit_id": self.commit_id}

    def __repr__(self) -> str:
        """Return the first rows as a table that fits the terminal, and the number of rows."""
        from omnigraph.api.display.text_table import fitted_table_lines

        width = shutil.get_terminal_size().columns
        return "\n".join([*fitted_table_lines(self.columns, self._shown_rows(), width), self._caption()])

    def _repr_html_(self) -> str:
        """Return the first rows as an HTML table, and the number of rows."""
        from omnigraph.api.display.html_table import html_table

        return html_table(self.columns, self._shown_rows(), self._caption())

    def _place(self, name: str) -> int:
        if name not in self.columns:
            raise KeyError(f"no column {name!r}; the columns are {', '.join(self.columns)}")
        return self.columns.index(name)

    def _shown_rows(self) -> list[list[Any]]:
        return [list(row.values()) for row in self.head(_SHOWN_ROWS).rows()]

    def _caption(self) -> str:
        total = f"{len(self):,} {'row' if len(self) == 1 else 'rows'}"
        return f"{_SHOWN_ROWS} of {total}" if len(self) > _SHOWN_ROWS else total
