"""Conversion of DataFrames and tables of other libraries to Arrow, or to rows when Arrow cannot hold a column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from omnigraph.errors import InvalidInput
from omnigraph.sources.python_records import unbox_numpy

# Rows of a DataFrame that are converted at a time.
_CHUNK_ROWS = 8_192
# Errors of Arrow for values of different types, values out of range, and invalid Unicode.
_CONVERSION_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows as dicts with the same names, whose values have the meaning of values in an Arrow table."""

    rows: Iterable[Mapping[str, Any]]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over the rows, once."""
        return iter(self.rows)


AnyTable: TypeAlias = pa.Table | pa.RecordBatchReader | TypedRows


def table_of(source: Any) -> AnyTable | None:
    """Return a table of any library as Arrow or as rows, or None for other objects.

    >>> import pandas as pd
    >>> list(table_of(pd.DataFrame({"name": ["Ann", "Bo"], "age": [30, "x"]})))
    [{'name': 'Ann', 'age': 30}, {'name': 'Bo', 'age': 'x'}]
    """
    if isinstance(source, pa.Table | pa.RecordBatchReader | TypedRows):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if _is_frame_of("pandas", source):
        return _from_pandas(source)
    if hasattr(source, "__arrow_c_stream__"):
        return _from_stream(source)
    return None


def _is_frame_of(library: str, source: Any) -> bool:
    return any(
        kind.__module__.split(".")[0] == library and kind.__name__ == "DataFrame"
        for kind in type(source).__mro__
    )


def _from_stream(source: Any) -> pa.RecordBatchReader:
    # Polars exports the memory addresses of Python objects as if they were values.
    if _is_frame_of("polars", source):
        for name, kind in source.schema.items():
            if str(kind) == "Object":
                raise _unsupported(f"column '{name}' contains Python objects")
    try:
        return pa.RecordBatchReader.from_stream(source)
    except pa.ArrowException as error:
        raise _unsupported(
            f"a column of the table has a type that Arrow does not support: {error}"
        ) from error


def _unsupported(message: str) -> InvalidInput:
    return InvalidInput(message, hint="convert the column to numbers, text, dates or timestamps first")


def _from_pandas(frame: Any) -> AnyTable:
    duplicate = next((name for name, count in Counter(map(str, frame.columns)).items() if count > 1), None)
    if duplicate is not None:
        raise InvalidInput(f"duplicate column '{duplicate}'")
    try:
        # The Arrow stream of pandas would keep NaN, which is a missing value in pandas.
        return pa.Table.from_pandas(frame, preserve_index=False)
    except _CONVERSION_ERRORS:
        # Row by row the reader can report the rows with errors.
        return TypedRows(_rows_of(frame))


def _rows_of(frame: Any) -> Iterator[Mapping[str, Any]]:
    names = [str(name) for name in frame.columns]
    for start in range(0, len(frame), _CHUNK_ROWS):
        part = frame.iloc[start : start + _CHUNK_ROWS]
        columns = [_values_of(part.iloc[:, index]) for index in range(len(names))]
        yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _values_of(series: Any) -> list[Any]:
    """Return the values of a pandas column, with None for missing ones."""
    try:
        array = pa.Array.from_pandas(series)
        if isinstance(array, pa.Array) and not isinstance(array.type, pa.BaseExtensionType):
            values: list[Any] = array.to_pylist()
            return values
    except _CONVERSION_ERRORS:
        pass
    return [
        None if missing else unbox_numpy(value)
        for value, missing in zip(series.tolist(), series.isna().tolist(), strict=True)
    ]
