"""The result of a read query."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.extras import requires

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow as pa

    from omnigraph.lang.types import PropType

_SHOWN_ROWS = 20


@dataclass(frozen=True)
class Result:
    """The rows of a read query and the commit that they were read from.

    `table` is the typed Arrow table. `rows()` returns JSON values: dates and ids are strings.

    >>> import omnigraph as og
    >>> g = og.init("memory://docs-result", schema="node Person { name: String @key  age: I32? }")
    >>> _ = g.mutate('query add() { insert Person { name: "Ana", age: 30 } }')
    >>> result = g.query("query all() { match { $p: Person } return { $p.name as name, $p.age as age } }")
    >>> result.rows()
    [{'name': 'Ana', 'age': 30}]
    >>> result.table.schema.types
    [DataType(string), DataType(int32)]
    """

    table: pa.Table
    commit_id: str
    query_name: str
    branch: str | None = None
    snapshot: str | None = None
    types: Sequence[PropType] = field(default=(), repr=False)

    @property
    def columns(self) -> list[str]:
        """The column names, in the order of the projection."""
        return list(self.table.column_names)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of JSON values, with keys in the order of the projection."""
        from omnigraph.catalog.row_json import json_values

        names = self.columns
        columns = [
            json_values(self.table.column(position), type_) for position, type_ in enumerate(self.types)
        ]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

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
        frame = self.table.to_pandas()
        for position, column in enumerate(self.table.columns):
            if column.null_count and column.type in nullable:
                frame.isetitem(position, column.to_pandas(types_mapper=nullable.get))
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a polars DataFrame. Needs the extra ``polars``."""
        with requires("polars", "to_polars()"):
            import polars

        frame = polars.from_arrow(self.table)
        assert isinstance(frame, polars.DataFrame)
        return frame

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

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks: the first rows and the number of rows."""
        shown = Result(self.table.slice(0, _SHOWN_ROWS), self.commit_id, self.query_name, types=self.types)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
            for row in shown.rows()
        )
        more = f", first {_SHOWN_ROWS} shown" if len(self) > _SHOWN_ROWS else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{len(self):,} {'row' if len(self) == 1 else 'rows'}{more}</p>"
        )


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
