"""Conversion of the columns of an input to the columns of a table, by name or by a mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES, arrow_type
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import TypeKey, endpoint_key, integer_key
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import FLOATS, STRING
from omnigraph.sources.input_rows import InputColumn, InputRows
from omnigraph.sources.json.json_values import build_array, value_converter
from omnigraph.sources.mapping.casts import Cast, apply_cast, read_cast
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.table_values import RowErrors, Values, column_error, convert_json_column

ConvertColumn: TypeAlias = Callable[[Column, Values], tuple[pa.Array, RowErrors]]


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column of the input that is read: its path, its target column and its cast."""

    path: str
    column: Column
    cast: Cast | None = None


class ColumnMapper:
    """Converts rows of an input to the columns of one table.

    `convert_column` converts the values of a column without a cast.
    """

    def __init__(
        self, catalog: Catalog, table: Table, convert_column: ConvertColumn, mapping: TypeMapping | None
    ) -> None:
        self.table = table
        self.mapping = mapping or TypeMapping(table.key)
        self._convert_column = convert_column
        self._casts = {
            column.name: read_cast(self.mapping.casts[column.name], column)
            for column in table.columns
            if column.name in self.mapping.casts
        }
        self._endpoints = {
            name: _EndpointMapper(catalog, table, name, self.mapping) for name in self.mapping.endpoints
        }
        self._integer_keys = {
            name: integer_key(endpoint_key(catalog, table.name, name))
            for name in ENDPOINT_NAMES
            if table.kind == "edge"
        }
        self._constants = {
            column.name: _constant(column, self.mapping.constants[column.name])
            for column in table.columns
            if column.name in self.mapping.constants
        }

    # --- names of columns ------------------------------------------------------------------------------------

    @property
    def paths(self) -> list[str]:
        """Columns that the mapping names."""
        named = [self.mapping.columns[name] for name in self.mapping.columns]
        return [*named, *(path for paths in self.mapping.endpoints.values() for path in paths)]

    @property
    def own(self) -> list[Column]:
        """Columns of the table that are read from input columns of the same name."""
        mapping = self.mapping
        mapped = {*mapping.columns, *mapping.endpoints, *mapping.constants}
        return [column for column in self.table.columns if column.name not in mapped]

    @property
    def known(self) -> list[str]:
        """Allowed names of input columns."""
        own = [column.name for column in self.own]
        endpoints = [ENDPOINT_NAMES[name] for name in own if self._is_endpoint(name)]
        paths = [name for path in self.paths for name in (path, path.split(".")[0])]
        return [*own, *endpoints, *paths, *self.operation_names, *self.mapping.ignore]

    @property
    def operation_names(self) -> list[str]:
        """Input columns with the operations of the rows, and with their order unless it is a property."""
        operations = self.mapping.operations
        return [] if operations is None else operations.names

    @property
    def inputs(self) -> list[MappedColumn]:
        """All columns that may be read of an input; an endpoint has two possible names."""
        inputs = [part for endpoint in self._endpoints.values() for part in endpoint.parts]
        for column in self.table.columns:
            path = self.mapping.columns.get(column.name)
            cast = self._casts.get(column.name)
            if path is not None:
                inputs.append(MappedColumn(path, column, cast))
        for column in self.own:
            names = [column.name, *([ENDPOINT_NAMES[column.name]] if self._is_endpoint(column.name) else [])]
            inputs += [MappedColumn(name, column, self._casts.get(column.name)) for name in names]
        return inputs

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the names that are not read and not ignored."""
        if self.mapping.ignores_others:
            return []
        known = frozenset(self.known)
        return [name for name in names if name not in known]

    def unknown_columns_error(self, unknown: Sequence[str]) -> InvalidInput:
        """Return the error for unknown columns."""
        listed = ", ".join(f"'{name}'" for name in unknown)
        hint = suggestion(unknown[0], self.known) or f"known columns: {', '.join(dict.fromkeys(self.known))}"
        return InvalidInput(
            f"unknown column{'s'[: len(unknown) > 1]} {listed} for '{self.table.key}'", hint=hint
        )

    def check_names(self, names: Sequence[str], required: Iterable[str]) -> None:
        """Raise `InvalidInput` for unknown, duplicate and missing columns."""
        unknown = self.unknown(names)
        if unknown:
            raise self.unknown_columns_error(unknown)
        used = frozenset(self.known) - frozenset(self.mapping.ignore)
        duplicate = next((name for name in names if list(names).count(name) > 1 and name in used), None)
        if duplicate is not None:
            raise InvalidInput(f"duplicate column '{duplicate}'")
        for path in self.paths:
            if path not in names and path.split(".")[0] not in names:
                raise InvalidInput(
                    f"missing column '{path}', which the mapping of '{self.table.key}' reads",
                    hint=suggestion(path, names),
                )
        operations = self.mapping.operations
        is_partial = operations is not None and operations.is_partial
        self._check_operation_names(names)
        required_names = frozenset(() if is_partial else required)
        for column in self.own:
            self._check_present(column, names, required_names, is_partial=is_partial)

    def _is_endpoint(self, name: str) -> bool:
        return self.table.kind == "edge" and name in ENDPOINT_NAMES

    def _check_operation_names(self, names: Sequence[str]) -> None:
        properties = {column.name for column in self.table.columns}
        for name in self.operation_names:
            if name not in names and name.split(".")[0] not in names and name not in properties:
                raise InvalidInput(
                    f"missing column '{name}', which has the operation or the order of the rows",
                    hint=suggestion(name, names),
                )

    def _check_present(
        self, column: Column, names: Sequence[str], required: frozenset[str], *, is_partial: bool
    ) -> None:
        if self._is_endpoint(column.name):
            other = ENDPOINT_NAMES[column.name]
            if (column.name in names) == (other in names) and (other in names or not is_partial):
                raise InvalidInput(
                    f"'{self.table.key}' requires exactly one of the columns '{other}', '{column.name}'"
                )
        elif column.name in required and column.name not in names:
            raise InvalidInput(f"missing column '{column.name}', which '{self.table.key}' requires")

    # --- values ----------------------------------------------------------------------------------------------

    def convert(self, rows: InputRows) -> tuple[dict[str, pa.Array], RowErrors]:
        """Return every column of the table in its type, and the errors of rows."""
        arrays: dict[str, pa.Array] = {}
        errors: RowErrors = {}
        for column in self.table.columns:
            arrays[column.name], column_errors = self._column(column, rows)
            errors = {**column_errors, **errors}
        return arrays, errors

    def given(self, rows: InputRows) -> np.ndarray[Any, Any]:
        """Return which columns of the table the input has, for each row."""
        return np.stack([self._given(column, rows) for column in self.table.columns], axis=1)

    def _given(self, column: Column, rows: InputRows) -> np.ndarray[Any, Any]:
        if column.name in self._constants:
            return np.ones(rows.count, bool)
        paths = self.mapping.endpoints.get(column.name)
        if paths is not None:
            return reduce(np.logical_and, (rows.given(path) for path in paths))
        path = self.mapping.columns.get(column.name, column.name)
        given = rows.given(path)
        if column.name not in self.mapping.columns and self._is_endpoint(column.name):
            given = given | rows.given(ENDPOINT_NAMES[column.name])
        return given

    def _column(self, column: Column, rows: InputRows) -> tuple[pa.Array, RowErrors]:
        constant = self._constants.get(column.name)
        if constant is not None:
            return constant.take(pa.array(np.zeros(rows.count, np.int64))), {}
        endpoint = self._endpoints.get(column.name)
        if endpoint is not None:
            return endpoint.convert(rows, self._input_column, self._convert)
        path = self.mapping.columns.get(column.name)
        if path is None and self._is_endpoint(column.name):
            return self._endpoint(column, rows)
        return self._column_at(column, path or column.name, rows)

    def _column_at(self, column: Column, path: str, rows: InputRows) -> tuple[pa.Array, RowErrors]:
        source = self._input_column(path, rows)
        if source is None:
            return pa.nulls(rows.count, arrow_type(column.type)), {}
        integer = self._integer_keys.get(column.name)
        if integer is not None and column.name not in self._casts:
            return self._endpoint_ids(_renamed(column, path), _renamed(integer, path), source)
        return self._convert(_renamed(column, path), source, self._casts.get(column.name))

    def _endpoint_ids(
        self, column: Column, integer: Column, source: InputColumn
    ) -> tuple[pa.Array, RowErrors]:
        """Return the ids of nodes whose key is an integer: text is an id, a number is a key value."""
        texts, numbers = _split_numbers(source.values)
        if numbers is None:
            return self._convert(column, source, None)
        keys, key_errors = self._convert(integer, InputColumn(numbers, source.errors, source.is_json), None)
        ids = keys.cast(pa.string())
        if texts is None:
            return ids, key_errors
        others, text_errors = self._convert(column, InputColumn(texts, {}, source.is_json), None)
        return pc.coalesce(others, ids), {**text_errors, **key_errors}

    def _endpoint(self, column: Column, rows: InputRows) -> tuple[pa.Array, RowErrors]:
        """Return an endpoint column, which the input has under either of its names."""
        name = ENDPOINT_NAMES[column.name]
        array, errors = self._column_at(column, name, rows)
        other, other_errors = self._column_at(column, column.name, rows)
        errors = {**other_errors, **errors}
        if other.null_count < len(other):
            both = pc.and_(array.is_valid(), other.is_valid()).to_numpy(zero_copy_only=False)
            for position in np.flatnonzero(both).tolist():
                message = f"only one of '{name}' and '{column.name}' is allowed"
                errors.setdefault(position, InvalidInput(message))
            array = pc.coalesce(array, other)
        return array, errors

    def _input_column(self, path: str, rows: InputRows) -> InputColumn | None:
        source = rows.column(path)
        if source is None or not self.mapping.null_values:
            return source
        return InputColumn(
            _with_nulls(source.values, self.mapping.null_values), source.errors, source.is_json
        )

    def _convert(self, column: Column, source: InputColumn, cast: Cast | None) -> tuple[pa.Array, RowErrors]:
        if cast is not None:
            array, errors = apply_cast(cast, column, source.values)
        else:
            convert = convert_json_column if source.is_json else self._convert_column
            array, errors = convert(column, source.values)
        return array, {**errors, **source.errors}


class _EndpointMapper:
    """Derives the ids of an endpoint of an edge from the columns of the key of its node."""

    def __init__(self, catalog: Catalog, table: Table, name: str, mapping: TypeMapping) -> None:
        key = endpoint_key(catalog, table.name, name)
        self._paths = mapping.endpoints[name]
        # A single column for a composite key contains the id itself.
        self._key = None if key is None or len(key.columns) != len(self._paths) else key
        parts = (Column(name, STRING, name),) if self._key is None else self._key.columns
        casts = mapping.endpoint_casts.get(name, (None,) * len(parts))
        self.parts = [
            MappedColumn(path, _renamed(part, path), None if cast is None else read_cast(cast, part))
            for part, path, cast in zip(parts, self._paths, casts, strict=True)
        ]

    def convert(
        self,
        rows: InputRows,
        input_column: Callable[[str, InputRows], InputColumn | None],
        convert: Callable[[Column, InputColumn, Cast | None], tuple[pa.Array, RowErrors]],
    ) -> tuple[pa.Array, RowErrors]:
        arrays: list[pa.Array] = []
        errors: RowErrors = {}
        for part in self.parts:
            source = input_column(part.path, rows)
            if source is None:
                return pa.nulls(rows.count, pa.string()), errors
            array, part_errors = convert(part.column, source, part.cast)
            arrays.append(array)
            errors = {**part_errors, **errors}
        if self._key is None:
            return arrays[0], errors
        ids, key_errors = self._derive_ids(self._key, arrays)
        return ids, {**key_errors, **errors}

    def _derive_ids(self, key: TypeKey, arrays: list[pa.Array]) -> tuple[pa.Array, RowErrors]:
        errors: RowErrors = {}
        valid = np.ones(len(arrays[0]), bool)
        for part, array in zip(self.parts, arrays, strict=True):
            column = part.column
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
            if column.type.scalar in FLOATS:
                finite = np.isfinite(pc.fill_null(array, 0).to_numpy(zero_copy_only=False))
                for position in np.flatnonzero(~finite).tolist():
                    message = f"a key must be a finite {column.type}"
                    errors.setdefault(position, column_error(column.name, message))
                valid &= finite
        all_valid = valid.all()
        kept = arrays if all_valid else [array.filter(pa.array(valid)) for array in arrays]
        ids = derive_ids(key, {column.name: array for column, array in zip(key.columns, kept, strict=True)})
        if not all_valid:
            ids = ids.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))
        return ids, errors


def _split_numbers(values: Values) -> tuple[Values | None, Values | None]:
    """Return the values other than numbers, and the numbers, each with null elsewhere; None if there are none."""
    if isinstance(values, pa.Array):
        kind = values.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return (None, values) if is_number else (values, None)
    numeric = [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values]
    if not any(numeric):
        return values, None
    texts = [None if number else value for value, number in zip(values, numeric, strict=True)]
    return texts, [value if number else None for value, number in zip(values, numeric, strict=True)]


def _renamed(column: Column, name: str) -> Column:
    return Column(name, column.type, column.physical)


def _constant(column: Column, value: Any) -> pa.Array:
    return build_array(column, [value_converter(column)(value)])


def _with_nulls(values: Values, null_values: tuple[str, ...]) -> Values:
    """Replace texts that mean null by null."""
    if isinstance(values, list):
        return [None if isinstance(value, str) and value in null_values else value for value in values]
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    is_null = pc.is_in(values, pa.array(null_values, values.type))
    return pc.if_else(is_null, pa.scalar(None, values.type), values)
