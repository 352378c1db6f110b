"""Conversion of input rows to typed rows of one type: required values, keys and ids, rejected rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, ENDPOINT_NAMES, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey, missing_key
from omnigraph.errors import ErrorLocation, InvalidInput, NotFound
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import FLOATS
from omnigraph.sources.graph_records import RecordConverter, wrong_id
from omnigraph.sources.input_rows import InputRows
from omnigraph.sources.mapping.column_mapper import ColumnMapper, ConvertColumn
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.operation_columns import OperationColumns, change_schema, parse_operations
from omnigraph.sources.order_keys import order_keys
from omnigraph.sources.rejects import OnReject, RejectHandler, Unit
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.row_operations import Operation, RowOperations
from omnigraph.sources.table_values import RowErrors, column_error


@dataclass(frozen=True, slots=True)
class TableInput:
    """Type, mapping and name of an input with rows of one type.

    `source` is its name in errors. `csv_null` is the text of an unquoted CSV cell that means null.
    """

    key: str
    catalog: Catalog
    source: str | None
    on_reject: OnReject | None = None
    mapping: TypeMapping | None = None
    csv_null: str = ""


@dataclass(frozen=True, slots=True)
class RowError:
    """A rejected row: its number, its error, and the row as rejected records show it."""

    place: int
    error: InvalidInput
    record: Any
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ConvertedRows:
    """Valid rows of a type, their positions in the input, and the errors of the other rows by position.

    `ids` has the ids of rows with errors, where they can be told.
    """

    rows: pa.Table
    positions: np.ndarray[Any, Any]
    errors: RowErrors
    ids: Mapping[int, str] = field(default_factory=dict)


class TableReader:
    """Converts rows of an input to batches of one type."""

    def __init__(
        self,
        catalog: Catalog,
        key: str,
        unit: Unit,
        convert_column: ConvertColumn,
        *,
        source: str | None = None,
        on_reject: OnReject | None = None,
        mapping: TypeMapping | None = None,
    ) -> None:
        table = catalog.tables.get(key)
        if table is None:
            raise NotFound(f"unknown type '{key}'", hint=suggestion(key, catalog.tables))
        self.converter = RecordConverter.of(catalog, table)
        self.mapper = ColumnMapper(catalog, table, convert_column, mapping)
        self.rejects = RejectHandler(unit, source, on_reject, table.name)
        has_operations = mapping is not None and mapping.operations is not None
        self._schema = change_schema(table) if has_operations else logical_schema(table)

    @classmethod
    def of(cls, file: TableInput, unit: Unit, convert_column: ConvertColumn) -> TableReader:
        """Return the reader of an input whose errors count in this unit."""
        return cls(
            file.catalog,
            file.key,
            unit,
            convert_column,
            source=file.source,
            on_reject=file.on_reject,
            mapping=file.mapping,
        )

    def check_names(self, names: Sequence[str]) -> None:
        """Raise `InvalidInput` for missing required columns and for unknown columns."""
        with self._located():
            self.mapper.check_names(names, self.converter.required)
            self._check_identity(names)

    def _check_identity(self, names: Sequence[str]) -> None:
        """Raise `InvalidInput` if no column identifies the rows that patches and deletes refer to."""
        operations, key = self.mapper.mapping.operations, self.converter.key
        own = {column.name for column in self.mapper.own}
        if operations is None or not operations.is_partial or key is None or "id" not in own - {*names}:
            return
        given = {*names, *(name for name, other in ENDPOINT_NAMES.items() if other in names)}
        missing = next((item.name for item in key.columns if item.name in own - given), None)
        if missing is not None:
            raise InvalidInput(
                f"missing column '{missing}' of the key of '{self.converter.table.key}'",
                hint="patches and deletes need the columns of the key, or the column 'id'",
            )

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Add the name of the input to errors."""
        try:
            yield
        except InvalidInput as error:
            raise error.located(ErrorLocation(source=self.rejects.source)) from error

    def read(
        self,
        rows: InputRows,
        numbers: np.ndarray[Any, Any],
        invalid: RowErrors | None = None,
        left_out: Iterable[RowError] = (),
    ) -> Iterator[InputBatch]:
        """Yield a batch of the valid rows and reject the others.

        `numbers` are the numbers of the rows in the input. `invalid` has errors that are already known, by
        position. `left_out` are rejected rows that are not among `rows`.
        """
        yield from self.emit(self.convert(rows, invalid), rows, numbers, left_out)

    def convert(self, rows: InputRows, invalid: RowErrors | None = None) -> ConvertedRows:
        """Convert rows to the columns of the type, derive ids, and collect the errors of single rows."""
        operations = self.mapper.mapping.operations
        changes: OperationColumns | None = None
        with self._located():
            arrays, conversion_errors = self.mapper.convert(rows)
            if operations is not None:
                changes = _read_operations(operations, self, rows, arrays)
        errors = {
            **self._key_errors(arrays),
            **self._missing_values(arrays, changes),
            **conversion_errors,
            **({} if changes is None else changes.errors),
            **(invalid or {}),
        }
        columns = [*arrays.values(), *(() if changes is None else changes.arrays())]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        positions = np.arange(rows.count)
        ids: dict[int, str] = {}
        if errors:
            ids = self._ids_of(table, list(errors))
            positions = np.delete(positions, list(errors))
            table = table.take(pa.array(positions))
        return self._with_ids(ConvertedRows(table, positions, errors, ids))

    def _ids_of(self, table: pa.Table, positions: list[int]) -> dict[int, str]:
        """Return the ids of rows with errors, for those that have an id or a complete key."""
        rows = table.take(pa.array(positions))
        key = self.converter.key
        if key is None:
            ids = rows["id"].to_pylist()
            return {at: id_ for at, id_ in zip(positions, ids, strict=True) if id_ is not None}
        complete = np.ones(rows.num_rows, bool)
        for column in key.columns:
            complete &= rows[column.name].is_valid().to_numpy()
            if column.type.scalar in FLOATS:
                complete &= pc.is_finite(rows[column.name]).fill_null(False).to_numpy()
        derived = derive_ids(key, rows.filter(pa.array(complete))).to_pylist()
        return dict(zip(np.array(positions)[complete].tolist(), derived, strict=True))

    def emit(
        self,
        converted: ConvertedRows,
        rows: InputRows,
        numbers: np.ndarray[Any, Any],
        left_out: Iterable[RowError] = (),
    ) -> Iterator[InputBatch]:
        """Reject the rows with errors and yield the others as a batch."""
        rejected = [
            RowError(int(numbers[position]), error, rows.record(position), converted.ids.get(position))
            for position, error in converted.errors.items()
        ]
        self.reject([*rejected, *left_out])
        if converted.rows.num_rows:
            places = pa.array(numbers[converted.positions], pa.int64())
            yield InputBatch(self.converter.table.key, converted.rows, places, self.rejects.source)

    def reject(self, errors: Iterable[RowError]) -> None:
        """Reject rows in input order, so that the first error does not depend on the size of batches.

        Without a callback the error of the first row is raised. For a table in memory it has the number of further
        rejected rows of the batch. For a file it has not: that number depends on how the file is split, and the
        errors of a load must not.
        """
        ordered = sorted(errors, key=lambda item: item.place)
        if self.rejects.on_reject is None and self.rejects.source is None and len(ordered) > 1:
            ordered = [_with_count(ordered[0], len(ordered) - 1)]
        for item in ordered:
            self.rejects.reject(item.place, item.error, item.record, id_=item.id)

    def _missing_values(self, arrays: Mapping[str, pa.Array], changes: OperationColumns | None) -> RowErrors:
        """Return the errors of rows without a key value, an endpoint or a required property.

        A patch or a delete needs its key or its id only.
        """
        converter = self.converter
        complete = None if changes is None else changes.is_complete
        keys = () if converter.key is None else tuple(item.name for item in converter.key.columns)
        endpoints = ENDPOINT_COLUMNS.values() if converter.table.kind == "edge" else ()
        errors: RowErrors = {}
        for name in (*keys, *endpoints, *sorted(converter.required)):
            if not arrays[name].null_count:
                continue
            if name in endpoints:
                error = column_error(name, "must not be null")
            elif converter.key is not None and name in keys:
                error = InvalidInput(missing_key(converter.key))
            else:
                error = InvalidInput(f"non-nullable property '{name}' has null or invalid values")
            is_null = arrays[name].is_null().to_numpy(zero_copy_only=False)
            for position in np.flatnonzero(is_null if complete is None else is_null & complete).tolist():
                errors.setdefault(position, error)
        if changes is not None:
            errors.update(self._missing_identities(arrays, changes, keys))
        return errors

    def _missing_identities(
        self, arrays: Mapping[str, pa.Array], changes: OperationColumns, keys: Sequence[str]
    ) -> RowErrors:
        """Return the errors of patches and deletes that do not identify their row."""
        without_id = arrays["id"].is_null().to_numpy(zero_copy_only=False) & ~changes.is_complete
        if self.converter.key is None:
            unknown = without_id & (changes.operations == Operation.DELETE)
            error = InvalidInput(
                f"a delete of {self.converter.table.kind} '{self.converter.table.name}' needs its id"
            )
        else:
            # Part of a key would change the key of the row with this id.
            absent = [arrays[name].is_null().to_numpy(zero_copy_only=False) for name in keys]
            incomplete = np.logical_or.reduce(absent) & ~changes.is_complete
            unknown = incomplete & (without_id | ~np.logical_and.reduce(absent))
            error = InvalidInput(missing_key(self.converter.key))
        return {int(position): error for position in np.flatnonzero(unknown)}

    def _key_errors(self, arrays: Mapping[str, pa.Array]) -> RowErrors:
        """Return the errors of rows with NaN or infinity in the key, from which no id can be derived."""
        errors: RowErrors = {}
        for column in () if self.converter.key is None else self.converter.key.columns:
            if column.type.scalar in FLOATS:
                numbers = pc.fill_null(arrays[column.name], 0).to_numpy(zero_copy_only=False)
                error = InvalidInput(f"key property '{column.name}' must be a finite {column.type}")
                for position in np.flatnonzero(~np.isfinite(numbers)).tolist():
                    errors.setdefault(position, error)
        return errors

    def _with_ids(self, converted: ConvertedRows) -> ConvertedRows:
        """Return the rows with derived ids; an explicit id that differs is an error of its row."""
        rows, positions, key = converted.rows, converted.positions, self.converter.key
        if key is None or not rows.num_rows:
            return converted
        ids = rows["id"].combine_chunks()
        derived = self._derive_ids(key, rows, ids)
        rows = rows.set_column(0, self._schema.field(0), derived)
        differs = pc.fill_null(pc.not_equal(ids, derived), False).to_numpy(zero_copy_only=False)
        if not differs.any():
            return ConvertedRows(rows, positions, converted.errors, converted.ids)
        errors = {
            int(positions[at]): wrong_id(key, ids[at].as_py(), derived[at].as_py())
            for at in np.flatnonzero(differs).tolist()
        }
        valid = rows.filter(pa.array(~differs))
        return ConvertedRows(valid, positions[~differs], {**converted.errors, **errors}, converted.ids)

    def _derive_ids(self, key: TypeKey, rows: pa.Table, ids: pa.Array) -> pa.Array:
        """Return the derived ids. A patch or a delete without the key has its explicit id."""
        if self.mapper.mapping.operations is None:
            return derive_ids(key, rows)
        valid = reduce(pc.and_, (rows[item.name].is_valid() for item in key.columns)).combine_chunks()
        if valid.true_count == len(valid):
            return derive_ids(key, rows)
        return pc.replace_with_mask(ids, valid, derive_ids(key, rows.filter(valid)))


def _with_count(first: RowError, others: int) -> RowError:
    error = first.error
    more = f"(and {others:,} more {'row' if others == 1 else 'rows'})"
    counted = InvalidInput(
        f"{error.reason} {more}", details=error.details, hint=error.hint, location=error.location
    )
    return RowError(first.place, counted, first.record)


def _read_operations(
    operations: RowOperations, reader: TableReader, rows: InputRows, arrays: dict[str, pa.Array]
) -> OperationColumns:
    """Return the operations of rows with the typed columns `arrays`. Inserts and replacements give every column."""
    codes: np.ndarray[Any, Any] = np.full(rows.count, operations.default, np.int8)
    errors: RowErrors = {}
    if operations.column is not None:
        codes, errors = parse_operations(operations, _values(operations.column, rows))
    order = pa.nulls(rows.count, pa.string())
    if operations.order_by is not None:
        typed = arrays.get(operations.order_by)
        order, order_errors = order_keys(
            operations.order_by, _values(operations.order_by, rows) if typed is None else typed
        )
        errors = {**order_errors, **errors}
    given = reader.mapper.given(rows)
    # A row that is identified by its id does not change its key.
    for position, column in enumerate(reader.converter.table.columns):
        if reader.converter.key is not None and column in reader.converter.key.columns:
            given[:, position] &= arrays[column.name].is_valid().to_numpy(zero_copy_only=False)
        if column.name == "id":
            given[:, position] = True
    given[codes <= Operation.REPLACE] = True
    return OperationColumns(codes, given, order, errors)


def _values(name: str, rows: InputRows) -> Any:
    found = rows.column(name)
    if found is None:
        raise InvalidInput(f"missing column '{name}', which has the operation or the order of the rows")
    return found.values
