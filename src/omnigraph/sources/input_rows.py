"""Rows of an input before conversion: access to columns by name or by a path into nested values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.python_records import unbox_numpy
from omnigraph.sources.table_values import RowErrors, Values, column_error, plain_array, python_items

# Extension types whose Python values have the intended meaning.
_SUPPORTED_EXTENSIONS = frozenset({"arrow.json", "arrow.uuid", "arrow.bool8", "arrow.fixed_shape_tensor"})


@dataclass(frozen=True)
class InputColumn:
    """A column of an input. `is_json` is true when its values come from JSON text, even in another format."""

    values: Values
    errors: RowErrors
    is_json: bool = False


class InputRows(Protocol):
    """Some rows of an input."""

    @property
    def count(self) -> int:
        """Number of rows."""
        ...

    def column(self, path: str) -> InputColumn | None:
        """Return the values under a name or a dotted path; None when no row can have them."""
        ...

    def given(self, path: str) -> np.ndarray[Any, Any]:
        """Return which rows have a value or a null under a name or a dotted path."""
        ...

    def record(self, position: int) -> Any:
        """Return a row as rejected records show it."""
        ...


class ArrowRows:
    """Rows of a record batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = frozenset(batch.schema.names)

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self._batch.num_rows)

    def column(self, path: str) -> InputColumn | None:
        """Return the column of a name, or the values of a path: fields of structs, members of JSON text."""
        if path in self._names:
            return InputColumn(self._values(path), {})
        head, *rest = path.split(".")
        if head not in self._names or not rest:
            return None
        values = self._values(head)
        while rest and pa.types.is_struct(values.type):
            name = rest.pop(0)
            fields = [values.type.field(index).name for index in range(values.type.num_fields)]
            if name not in fields:
                raise InvalidInput(
                    f"column '{head}' has no field '{name}' for '{path}'", hint=suggestion(name, fields)
                )
            values = plain_array(pc.struct_field(values, [name]))
        if not rest:
            return InputColumn(values, {})
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            if pa.types.is_null(values.type):
                return InputColumn(values, {})
            raise InvalidInput(f"column '{head}' of type {values.type} has no members for '{path}'")
        return _resolve_path(path, values.to_pylist(), rest)

    def given(self, path: str) -> np.ndarray[Any, Any]:
        """Return whether the batch has the column, for each row."""
        has = path in self._names or path.split(".")[0] in self._names
        return np.full(self.count, has)

    def _values(self, name: str) -> pa.Array:
        field = self._batch.schema.field(name)
        extension = _unsupported_extension(field)
        if extension is not None:
            raise InvalidInput(
                f"column '{name}' has the unsupported extension type '{extension}'",
                hint="convert it to numbers, text, dates or timestamps first",
            )
        return plain_array(self._batch.column(name))

    def record(self, position: int) -> Any:
        """Return the row as a dict."""
        row = self._batch.slice(position, 1)
        return {
            name: python_items(values)[0] for name, values in zip(row.schema.names, row.columns, strict=True)
        }


class DictRows:
    """Rows that are dicts. `is_typed` is true when their values have Arrow types rather than JSON types.

    `records` are the forms of the rows in rejected records, by default the dicts.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, Any]],
        *,
        is_typed: bool = False,
        records: Sequence[Any] | None = None,
    ) -> None:
        self._rows = rows
        self._is_typed = is_typed
        self._records = rows if records is None else records

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def column(self, path: str) -> InputColumn | None:
        """Return the values of all rows; None in a row without the name or path."""
        head, *rest = path.split(".")
        if not rest:
            return InputColumn(self._to_arrow([unbox_numpy(row.get(path)) for row in self._rows]), {})
        has_exact_name = any(path in row for row in self._rows)
        if not has_exact_name:
            resolved = _resolve_path(path, [row.get(head) for row in self._rows], rest)
        else:
            nested = _resolve_path(path, [None if path in row else row.get(head) for row in self._rows], rest)
            named = [row.get(path, value) for row, value in zip(self._rows, nested.values, strict=True)]
            resolved = InputColumn(named, nested.errors)
        values = self._to_arrow(list(resolved.values))
        return InputColumn(values, resolved.errors, is_json=not self._is_typed)

    def given(self, path: str) -> np.ndarray[Any, Any]:
        """Return which rows have the name, or the first name of the path."""
        head = path.split(".")[0]
        return np.array([path in row or head in row for row in self._rows], bool)

    def _to_arrow(self, values: list[Any]) -> Values:
        # Arrow would convert values of different types to one of them.
        if not self._is_typed or len({type(value) for value in values if value is not None}) > 1:
            return values
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            return values

    def record(self, position: int) -> Any:
        """Return the form of the row in rejected records."""
        return self._records[position]


def _unsupported_extension(field: pa.Field) -> str | None:
    """Return the name of an extension type whose values may not have the meaning of their storage, or None.

    A period type, for example, stores months since 1970 as integers. An unregistered type appears in the metadata
    only.
    """
    kind = field.type
    in_metadata = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode("utf-8", "replace")
    name = kind.extension_name if isinstance(kind, pa.BaseExtensionType) else in_metadata
    if name:
        return None if name in _SUPPORTED_EXTENSIONS else name
    if pa.types.is_dictionary(kind):
        return _unsupported_extension(pa.field("", kind.value_type))
    inner = (_unsupported_extension(kind.field(index)) for index in range(kind.num_fields))
    return next(filter(None, inner), None)


def _resolve_path(path: str, values: Sequence[Any], rest: Sequence[str]) -> InputColumn:
    """Return the members of nested values; null has none, and any value other than an object is an error."""
    members: list[Any] = []
    errors: RowErrors = {}
    for position, value in enumerate(values):
        try:
            members.append(_member(value, rest))
        except ValueError:
            errors[position] = column_error(path, f"expected an object, got {display_value(value)}")
            members.append(None)
    return InputColumn(members, errors, is_json=True)


def _member(value: Any, rest: Sequence[str]) -> Any:
    for name in rest:
        if isinstance(value, str):
            value = json.loads(value)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError
        value = value.get(name)
    return unbox_numpy(value)
