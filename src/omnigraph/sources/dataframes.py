"""Tables of other libraries, as Arrow has them, or row by row where a column has values that Arrow cannot hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.sources.python_records import plain

# So many rows of a frame are taken apart at a time.
_ROWS = 8_192
# What Arrow raises for values that are of several types, too great, or no Unicode.
_UNFIT = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows as dicts, all with the same names, whose values mean what they would mean in a table of Arrow."""

    rows: Iterable[Mapping[str, Any]]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """The rows, once."""
        return iter(self.rows)


AnyTable: TypeAlias = pa.Table | pa.RecordBatchReader | TypedRows


def table_of(source: Any) -> AnyTable | None:
    """A table of any library, or None when it is none.

    >>> import pandas as pd
    >>> list(table_of(pd.DataFrame({"name": ["Ann", "Bo"], "age": [30, "x"]})))
    [{'name': 'Ann', 'age': 30}, {'name': 'Bo', 'age': 'x'}]
    """
    if isinstance(source, pa.Table | pa.RecordBatchReader | TypedRows):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if _is_frame_of("pandas", source):
        return _of_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _of_stream(source)
    return None


def _is_frame_of(library: str, source: Any) -> bool:
    return any(
        kind.__module__.split(".")[0] == library and kind.__name__ == "DataFrame"
        for kind in type(source).__mro__
    )


def _of_stream(source: Any) -> pa.RecordBatchReader:
    # Arrow is handed the addresses of such objects, as if these were what the column holds.
    if _is_frame_of("polars", source):
        for name, kind in source.schema.items():
            if str(kind) == "Object":
                raise _unreadable(f"column '{name}' holds Python objects")
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowException as error:
        raise _unreadable(f"the table has a column of a type that Arrow does not know: {error}") from error


def _unreadable(message: str) -> InvalidInput:
    return InvalidInput(message, hint="convert the column to numbers, texts, dates or timestamps first")


def _of_pandas(frame: Any) -> AnyTable:
    repeated = next((name for name, count in Counter(map(str, frame.columns)).items() if count > 1), None)
    if repeated is not None:
        raise InvalidInput(f"column '{repeated}' occurs twice")
    try:
        # Its own Arrow stream would keep NaN, which means a missing value there.
        return pa.Table.from_pandas(frame, preserve_index=False)
    except _UNFIT:
        # Which rows are to blame is found out one by one.
        return TypedRows(_rows_of(frame))


def _rows_of(frame: Any) -> Iterator[Mapping[str, Any]]:
    names = [str(name) for name in frame.columns]
    for start in range(0, len(frame), _ROWS):
        part = frame.iloc[start : start + _ROWS]
        columns = [_values_of(part.iloc[:, place]) for place in range(len(names))]
        yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _values_of(series: Any) -> list[Any]:
    """The values of a column of pandas, with None for whatever stands for a missing one there."""
    try:
        found = pa.Array.from_pandas(series)
        if isinstance(found, pa.Array) and not isinstance(found.type, pa.BaseExtensionType):
            values: list[Any] = found.to_pylist()
            return values
    except _UNFIT:
        pass
    return [
        None if missing else plain(value)
        for value, missing in zip(series.tolist(), series.isna().tolist(), strict=True)
    ]
