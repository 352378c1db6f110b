"""Rows as an input has them, before they are those of a type: by column name or by a path into nested values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.python_records import plain
from omnigraph.sources.table_values import Faults, Values, plain_array, python_items

# Those whose values Arrow gives for what they mean.
_KNOWN_EXTENSIONS = frozenset({"arrow.json", "arrow.uuid", "arrow.bool8", "arrow.fixed_shape_tensor"})


@dataclass(frozen=True)
class Given:
    """A column of an input. `is_json` when it was taken out of a JSON text, whatever the input is otherwise."""

    values: Values
    faults: Faults
    is_json: bool = False


class GivenRows(Protocol):
    """Some rows of an input."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        ...

    def column(self, path: str) -> Given | None:
        """The values under a name, or under a path of names with dots between; None when no row can have them."""
        ...

    def record(self, position: int) -> Any:
        """One row, as a message about it shows it."""
        ...


class ArrowRows:
    """Rows of a record batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._names = frozenset(batch.schema.names)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self._batch.num_rows)

    def column(self, path: str) -> Given | None:
        """The column of this name, or what a path leads to: fields of structs, members of JSON texts."""
        if path in self._names:
            return Given(self._values(path), {})
        head, *rest = path.split(".")
        if head not in self._names or not rest:
            return None
        values = self._values(head)
        while rest and pa.types.is_struct(values.type):
            name = rest.pop(0)
            fields = [values.type.field(place).name for place in range(values.type.num_fields)]
            if name not in fields:
                raise InvalidInput(
                    f"column '{head}' has no field '{name}' for '{path}'", hint=suggestion(name, fields)
                )
            values = plain_array(pc.struct_field(values, [name]))
        if not rest:
            return Given(values, {})
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            if pa.types.is_null(values.type):
                return Given(values, {})
            raise InvalidInput(f"column '{head}' is {values.type}, which has nothing under '{path}'")
        return _walked(path, values.to_pylist(), rest)

    def _values(self, name: str) -> pa.Array:
        field = self._batch.schema.field(name)
        odd = _unknown_extension(field)
        if odd is not None:
            raise InvalidInput(
                f"column '{name}' is of the extension type '{odd}', which has no meaning here",
                hint="convert it to numbers, texts, dates or timestamps first",
            )
        return plain_array(self._batch.column(name))

    def record(self, position: int) -> Any:
        """The row as a dict."""
        row = self._batch.slice(position, 1)
        return {
            name: python_items(values)[0] for name, values in zip(row.schema.names, row.columns, strict=True)
        }


class DictRows:
    """Rows that are dicts; `is_typed` when their values have Arrow types, which JSON values need not.

    `records` are what messages show instead of the dicts.
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
        """How many rows there are."""
        return len(self._rows)

    def column(self, path: str) -> Given | None:
        """The values of all rows; a row without it has None."""
        head, *rest = path.split(".")
        if not rest:
            return Given(self._arrowed([plain(row.get(path)) for row in self._rows]), {})
        exact = any(path in row for row in self._rows)
        if not exact:
            found = _walked(path, [row.get(head) for row in self._rows], rest)
        else:
            walked = _walked(path, [None if path in row else row.get(head) for row in self._rows], rest)
            named = [row.get(path, value) for row, value in zip(self._rows, walked.values, strict=True)]
            found = Given(named, walked.faults)
        return Given(self._arrowed(list(found.values)), found.faults, is_json=not self._is_typed)

    def _arrowed(self, values: list[Any]) -> Values:
        # Values of several types are looked at one by one: Arrow would make some of them others.
        if not self._is_typed or len({type(value) for value in values if value is not None}) > 1:
            return values
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            return values

    def record(self, position: int) -> Any:
        """What stands for the row in messages."""
        return self._records[position]


def _unknown_extension(field: pa.Field) -> str | None:
    """The name of an extension type in a column whose values need not mean what is stored for them.

    Months since 1970 are stored as integers, for one. A type that nobody has registered is in the metadata alone.
    """
    kind = field.type
    told = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode("utf-8", "replace")
    name = kind.extension_name if isinstance(kind, pa.BaseExtensionType) else told
    if name:
        return None if name in _KNOWN_EXTENSIONS else name
    if pa.types.is_dictionary(kind):
        return _unknown_extension(pa.field("", kind.value_type))
    inner = (_unknown_extension(kind.field(place)) for place in range(kind.num_fields))
    return next(filter(None, inner), None)


def _walked(path: str, values: Sequence[Any], rest: Sequence[str]) -> Given:
    """What is under a path in each of these values; null has nothing, anything but an object is a fault."""
    found: list[Any] = []
    faults: Faults = {}
    for position, given in enumerate(values):
        try:
            found.append(_step(given, rest))
        except ValueError:
            faults[position] = f"column '{path}': {display_value(given)} is no object"
            found.append(None)
    return Given(found, faults, is_json=True)


def _step(value: Any, rest: Sequence[str]) -> Any:
    for name in rest:
        if isinstance(value, str):
            value = json.loads(value)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError
        value = value.get(name)
    return plain(value)
