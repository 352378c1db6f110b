"""Tables of one type: Arrow tables, Parquet files and CSV files, a row for a node or an edge.

Columns have the names of properties. An edge table has its ends under ``from`` and ``to`` or under ``src`` and
``dst``; either may have ``id``. Rows are counted from 1, the header of a file not included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from omnigraph.catalog.catalog import Catalog, Column
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import missing_key
from omnigraph.errors import InvalidInput, NotFound, StorageError
from omnigraph.lang.source import suggestion
from omnigraph.lang.types import FLOATS
from omnigraph.write.input import InputBatch, Rejecting
from omnigraph.write.overlay import ENDPOINTS, logical_schema
from omnigraph.write.records import BATCH_ROWS, Places, Sheet, wrong_id
from omnigraph.write.table_values import Faults, fit, fit_text

ArrowTable: TypeAlias = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]
File: TypeAlias = str | Path | BinaryIO

_CSV_BLOCK = 4 * 1024 * 1024


def read_table(
    key: str,
    table: ArrowTable,
    catalog: Catalog,
    *,
    source: str | None = None,
    rejecting: Rejecting | None = None,
) -> Iterator[InputBatch]:
    """The rows of a table for the type `key`, such as ``node:Person``, in its types.

    Casts lose nothing: a value that would change or does not fit is an error that names its row, column and value.
    An unknown column and a missing one that is required are errors of the whole table.
    """
    reader = _TableReader(_sheet(catalog, key), Places("row", source, rejecting), fit)
    names = _names(table)
    if names is not None:
        reader.check_names(names)
    place = 1
    for batch in _batches(table):
        reader.check_names(batch.schema.names)
        yield from reader.read(batch, np.arange(place, place + batch.num_rows))
        place += batch.num_rows


def read_parquet(
    file: File,
    key: str,
    catalog: Catalog,
    *,
    source: str | None = None,
    rejecting: Rejecting | None = None,
) -> Iterator[InputBatch]:
    """The rows of a Parquet file, as `read_table` reads them; one batch is held at a time."""
    name = source or _name(file)
    with arrow_errors(name):
        opened = pq.ParquetFile(file)
    with opened:
        batches = guarded(opened.iter_batches(BATCH_ROWS), name)
        reader = pa.RecordBatchReader.from_batches(opened.schema_arrow, batches)
        yield from read_table(key, reader, catalog, source=name, rejecting=rejecting)


def read_csv(
    file: File,
    key: str,
    catalog: Catalog,
    *,
    source: str | None = None,
    rejecting: Rejecting | None = None,
) -> Iterator[InputBatch]:
    """The rows of a CSV file in UTF-8 with a header; one block is held at a time.

    Values are read by the type of their property. An empty cell is null, a quoted empty cell is the empty text, a
    list or a vector is a JSON array.
    """
    name = source or _name(file)
    places = Places("row", name, rejecting)
    sheet = _sheet(catalog, key)
    odd: list[pv.InvalidRow] = []
    with arrow_errors(name):
        opened = _open_csv(file, sheet, odd)
    reader = _TableReader(sheet, places, fit_text)
    reader.check_names(opened.schema.names)
    seen, refused = 0, 0
    for batch in guarded(opened, name):
        refused = _refuse_odd(odd, refused, places)
        numbers, seen = _numbers(batch.num_rows, seen, [row.number - 1 for row in odd])
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield from reader.read(batch.slice(start, BATCH_ROWS), numbers[start : start + BATCH_ROWS])
    _refuse_odd(odd, refused, places)


def _sheet(catalog: Catalog, key: str) -> Sheet:
    table = catalog.tables.get(key)
    if table is None:
        raise NotFound(f"no type '{key}'", hint=suggestion(key, catalog.tables))
    return Sheet.of(catalog, table)


class _TableReader:
    def __init__(
        self, sheet: Sheet, places: Places, fit_column: Callable[[Column, pa.Array], tuple[pa.Array, Faults]]
    ) -> None:
        self._sheet = sheet
        self._places = places
        self._fit = fit_column
        self._schema = logical_schema(sheet.table)

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse a table without a column it needs, and one with a column of no property."""
        table = self._sheet.table
        known = [column.name for column in table.columns]
        if table.kind == "edge":
            known += list(ENDPOINTS)
        unknown = [name for name in names if name not in known]
        if unknown:
            listed = ", ".join(f"'{name}'" for name in unknown)
            raise self._whole(
                f"unknown column{'s'[: len(unknown) > 1]} {listed} for '{table.key}'",
                hint=suggestion(unknown[0], known) or f"known columns: {', '.join(known)}",
            )
        repeated = next((name for name in names if list(names).count(name) > 1), None)
        if repeated is not None:
            raise self._whole(f"column '{repeated}' occurs twice")
        for column in table.columns:
            self._check_present(column, names)

    def _check_present(self, column: Column, names: Sequence[str]) -> None:
        other = next((word for word, stored in ENDPOINTS.items() if stored == column.name), None)
        if self._sheet.table.kind == "edge" and other is not None:
            if (column.name in names) == (other in names):
                raise self._whole(
                    f"'{self._sheet.table.key}' needs one of the columns '{other}', '{column.name}'"
                )
        elif column.name in self._sheet.required and column.name not in names:
            raise self._whole(f"column '{column.name}' is missing: '{self._sheet.table.key}' requires it")

    def _whole(self, message: str, hint: str | None = None) -> InvalidInput:
        return InvalidInput(message, hint=hint, details={"source": self._places.source})

    def read(self, batch: pa.RecordBatch, numbers: np.ndarray[Any, Any]) -> Iterator[InputBatch]:
        """The rows of a batch, without those that are rejected."""
        faults: Faults = {}
        arrays: dict[str, pa.Array] = {}
        for column in self._sheet.table.columns:
            arrays[column.name], found = self._column(column, batch)
            for position, message in found.items():
                faults.setdefault(position, message)
        self._find_missing(arrays, faults)
        self._find_odd_keys(arrays, faults)
        keep = self._refuse(faults, batch, numbers)
        rows = pa.Table.from_arrays(list(arrays.values()), schema=self._schema)
        if keep is not None:
            rows, batch, numbers = rows.filter(pa.array(keep)), batch.filter(pa.array(keep)), numbers[keep]
        rows, numbers = self._with_ids(rows, batch, numbers)
        if rows.num_rows:
            places = pa.array(numbers, pa.int64())
            yield InputBatch(self._sheet.table.key, rows, places, self._places.source)

    def _column(self, column: Column, batch: pa.RecordBatch) -> tuple[pa.Array, Faults]:
        names = [column.name, *(word for word, stored in ENDPOINTS.items() if stored == column.name)]
        name = next((name for name in names if name in batch.schema.names), None)
        if name is None:
            return pa.nulls(batch.num_rows, self._schema.field(column.name).type), {}
        return self._fit(Column(name, column.type, column.physical), batch.column(name))

    def _find_missing(self, arrays: dict[str, pa.Array], faults: Faults) -> None:
        keys = () if self._sheet.key is None else tuple(item.name for item in self._sheet.key.columns)
        ends = ENDPOINTS.values() if self._sheet.table.kind == "edge" else ()
        for name in (*keys, *ends, *sorted(self._sheet.required)):
            if not arrays[name].null_count:
                continue
            if self._sheet.key is not None and name in keys:
                message = missing_key(self._sheet.key)
            elif name in ends:
                message = f"column '{name}' is null"
            else:
                message = f"non-nullable property '{name}' has null or invalid values"
            for position in np.flatnonzero(arrays[name].is_null().to_numpy(zero_copy_only=False)).tolist():
                faults.setdefault(position, message)

    def _find_odd_keys(self, arrays: dict[str, pa.Array], faults: Faults) -> None:
        """A float in a key is a number: NaN and infinity give no id."""
        for column in () if self._sheet.key is None else self._sheet.key.columns:
            if column.type.scalar in FLOATS:
                numbers = arrays[column.name].to_numpy(zero_copy_only=False)
                message = f"key property '{column.name}' must be a finite {column.type}"
                for position in np.flatnonzero(~np.isfinite(numbers)).tolist():
                    faults.setdefault(position, message)

    def _refuse(
        self, faults: Faults, batch: pa.RecordBatch, numbers: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
        if not faults:
            return None
        for position in sorted(faults):
            record = batch.slice(position, 1).to_pylist()[0]
            self._places.refuse(int(numbers[position]), InvalidInput(faults[position]), record)
        keep = np.ones(batch.num_rows, bool)
        keep[list(faults)] = False
        return keep

    def _with_ids(
        self, rows: pa.Table, batch: pa.RecordBatch, numbers: np.ndarray[Any, Any]
    ) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """Rows with the ids that their keys give; a given one that differs is refused."""
        if self._sheet.key is None or not rows.num_rows:
            return rows, numbers
        derived = derive_ids(self._sheet.key, rows)
        given = rows["id"].combine_chunks()
        differs = pc.fill_null(pc.not_equal(given, derived), False).to_numpy(zero_copy_only=False)
        for position in np.flatnonzero(differs).tolist():
            error = wrong_id(self._sheet.table.name, given[position].as_py(), derived[position].as_py())
            self._places.refuse(int(numbers[position]), error, batch.slice(position, 1).to_pylist()[0])
        rows = rows.set_column(0, self._schema.field(0), derived)
        return (rows.filter(pa.array(~differs)), numbers[~differs]) if differs.any() else (rows, numbers)


# --- files and batches ------------------------------------------------------------------------------------


def _names(table: ArrowTable) -> Sequence[str] | None:
    schema = getattr(table, "schema", None)
    return None if schema is None else list(schema.names)


def _batches(table: ArrowTable) -> Iterator[pa.RecordBatch]:
    found: Iterable[pa.RecordBatch]
    found = table.to_batches(max_chunksize=BATCH_ROWS) if isinstance(table, pa.Table) else table
    for batch in found:
        if not isinstance(batch, pa.RecordBatch):
            raise InvalidInput(f"record batches expected, got {type(batch).__name__}")
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _name(file: File) -> str | None:
    return str(file) if isinstance(file, str | Path) else getattr(file, "name", None)


def _open_csv(file: File, sheet: Sheet, odd: list[pv.InvalidRow]) -> pv.CSVStreamingReader:
    """The rows of a file as text; those with too few or too many cells go to `odd`."""

    def keep_out(row: pv.InvalidRow) -> str:
        # An exception would be lost in Arrow.
        odd.append(row)
        return "skip"

    names = [*(column.name for column in sheet.table.columns), *ENDPOINTS]
    return pv.open_csv(
        str(file) if isinstance(file, Path) else file,
        # Arrow numbers the rows only when it reads them one after the other.
        pv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK),
        pv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep_out),
        pv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )


def _refuse_odd(odd: Sequence[pv.InvalidRow], refused: int, places: Places) -> int:
    """Refuse the rows that were left out since the last time; how many there are now."""
    for row in odd[refused:]:
        message = f"{row.expected_columns} cells expected, got {row.actual_columns}"
        # The header is a row to Arrow.
        places.refuse(row.number - 1, InvalidInput(message), row.text)
    return len(odd)


@contextmanager
def arrow_errors(name: str | None) -> Iterator[None]:
    """What Arrow and the system say about a file, as errors of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{name}`") from error
    except pa.ArrowInvalid as error:
        raise InvalidInput(f"`{name}` cannot be read: {error}", details={"source": name}) from error
    except OSError as error:
        raise StorageError(f"`{name}` cannot be read: {error}", details={"source": name}) from error


def guarded(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    iterator = iter(batches)
    while True:
        with arrow_errors(name):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch


def _numbers(count: int, seen: int, odd: Sequence[int]) -> tuple[np.ndarray[Any, Any], int]:
    """The numbers of the next rows of a file, and of the last of them, where some rows were left out."""
    span = np.arange(seen + 1, seen + count + len(odd) + 1)
    numbers = span[~np.isin(span, odd)][:count]
    return numbers, int(numbers[-1]) if count else seen
