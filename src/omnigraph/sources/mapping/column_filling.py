"""How the columns of a table are filled from the rows of an input, with a mapping or by their own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog, Column, Table
from omnigraph.catalog.columns import ENDPOINT_NAMES, arrow_type
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import NodeKey, endpoint_key, integer_key
from omnigraph.errors import InvalidInput
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import FLOATS, STRING
from omnigraph.sources.input_rows import Given, GivenRows
from omnigraph.sources.json.json_values import build_array, converter
from omnigraph.sources.mapping.casts import Cast, apply_cast, read_cast
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.table_values import Faults, Values, fit_json

Fit: TypeAlias = Callable[[Column, Values], tuple[pa.Array, Faults]]


@dataclass(frozen=True, slots=True)
class Input:
    """A column of an input that is read: where it is, and what it becomes."""

    path: str
    column: Column
    cast: Cast | None = None


class Filling:
    """The columns of one table from rows of an input whose values `fit` makes those of properties."""

    def __init__(self, catalog: Catalog, table: Table, fit: Fit, mapping: TypeMapping | None) -> None:
        self.table = table
        self.mapping = mapping or TypeMapping(table.key)
        self._is_mapped = mapping is not None
        self._fit = fit
        self._casts = {
            column.name: read_cast(self.mapping.casts[column.name], column)
            for column in table.columns
            if column.name in self.mapping.casts
        }
        self._ends = {name: _End(catalog, table, name, self.mapping) for name in self.mapping.ends}
        self._end_integers = {
            name: integer_key(endpoint_key(catalog, table.name, name))
            for name in ENDPOINT_NAMES
            if table.kind == "edge"
        }
        self._constants = {
            column.name: _constant(column, self.mapping.constants[column.name])
            for column in table.columns
            if column.name in self.mapping.constants
        }

    # --- which columns there are -----------------------------------------------------------------------------

    @property
    def paths(self) -> list[str]:
        """The columns that the mapping names."""
        named = [self.mapping.columns[name] for name in self.mapping.columns]
        return [*named, *(path for paths in self.mapping.ends.values() for path in paths)]

    @property
    def own(self) -> list[Column]:
        """The columns of the table that come from input columns of their own names."""
        mapping = self.mapping
        filled = {*mapping.columns, *mapping.ends, *mapping.constants}
        return [column for column in self.table.columns if column.name not in filled]

    @property
    def known(self) -> list[str]:
        """The names that columns of the input may have."""
        own = [column.name for column in self.own]
        words = [ENDPOINT_NAMES[name] for name in own if self._is_end(name)]
        paths = [name for path in self.paths for name in (path, path.split(".")[0])]
        return [*own, *words, *paths, *self.mapping.ignore]

    @property
    def inputs(self) -> list[Input]:
        """Everything that is read of an input; the end of an edge under either of its names."""
        found = [part for end in self._ends.values() for part in end.parts]
        for column in self.table.columns:
            path = self.mapping.columns.get(column.name)
            cast = self._casts.get(column.name)
            if path is not None:
                found.append(Input(path, column, cast))
        for column in self.own:
            names = [column.name, *([ENDPOINT_NAMES[column.name]] if self._is_end(column.name) else [])]
            found += [Input(name, column, self._casts.get(column.name)) for name in names]
        return found

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of these names that fill nothing and are not to be ignored."""
        if self.mapping.ignores_others:
            return []
        known = frozenset(self.known)
        return [name for name in names if name not in known]

    def refusal(self, unknown: Sequence[str]) -> InvalidInput:
        """The refusal of unknown columns."""
        listed = ", ".join(f"'{name}'" for name in unknown)
        hint = suggestion(unknown[0], self.known) or f"known columns: {', '.join(dict.fromkeys(self.known))}"
        return InvalidInput(
            f"unknown column{'s'[: len(unknown) > 1]} {listed} for '{self.table.key}'", hint=hint
        )

    def check_names(self, names: Sequence[str], required: Iterable[str]) -> None:
        """Refuse a table without a column it needs, and one with a column of no property."""
        unknown = self.unknown(names)
        if unknown:
            raise self.refusal(unknown)
        used = frozenset(self.known) - frozenset(self.mapping.ignore)
        repeated = next((name for name in names if list(names).count(name) > 1 and name in used), None)
        if repeated is not None:
            raise InvalidInput(f"column '{repeated}' occurs twice")
        for path in self.paths:
            if path not in names and path.split(".")[0] not in names:
                raise InvalidInput(
                    f"column '{path}' is missing: the mapping of '{self.table.key}' reads it",
                    hint=suggestion(path, names),
                )
        needed = frozenset(required)
        for column in self.own:
            self._check_present(column, names, needed)

    def _is_end(self, name: str) -> bool:
        return self.table.kind == "edge" and name in ENDPOINT_NAMES

    def _check_present(self, column: Column, names: Sequence[str], required: frozenset[str]) -> None:
        if self._is_end(column.name):
            other = ENDPOINT_NAMES[column.name]
            if (column.name in names) == (other in names):
                raise InvalidInput(f"'{self.table.key}' needs one of the columns '{other}', '{column.name}'")
        elif column.name in required and column.name not in names:
            raise InvalidInput(f"column '{column.name}' is missing: '{self.table.key}' requires it")

    # --- what is in them -------------------------------------------------------------------------------------

    def fill(self, rows: GivenRows) -> tuple[dict[str, pa.Array], Faults]:
        """Every column of the table, in its type, and what is wrong with which row."""
        arrays: dict[str, pa.Array] = {}
        faults: Faults = {}
        for column in self.table.columns:
            arrays[column.name], found = self._column(column, rows)
            for position, message in found.items():
                faults.setdefault(position, message)
        return arrays, faults

    def _column(self, column: Column, rows: GivenRows) -> tuple[pa.Array, Faults]:
        constant = self._constants.get(column.name)
        if constant is not None:
            return constant.take(pa.array(np.zeros(rows.count, np.int64))), {}
        end = self._ends.get(column.name)
        if end is not None:
            return end.fill(rows, self._given, self._fitted)
        path = self.mapping.columns.get(column.name)
        if path is None and self._is_end(column.name):
            return self._either(column, rows)
        return self._one(column, path or column.name, rows)

    def _one(self, column: Column, path: str, rows: GivenRows) -> tuple[pa.Array, Faults]:
        given = self._given(path, rows)
        if given is None:
            return pa.nulls(rows.count, arrow_type(column.type)), {}
        integer = self._end_integers.get(column.name)
        if integer is not None and column.name not in self._casts:
            return self._end_ids(_called(column, path), _called(integer, path), given)
        return self._fitted(_called(column, path), given, self._casts.get(column.name))

    def _end_ids(self, column: Column, integer: Column, given: Given) -> tuple[pa.Array, Faults]:
        """Ids of nodes whose key is an integer: texts are ids, numbers are keys."""
        texts, numbers = _apart(given.values)
        if numbers is None:
            return self._fitted(column, given, None)
        keys, faults = self._fitted(integer, Given(numbers, given.faults, given.is_json), None)
        ids = keys.cast(pa.string())
        if texts is None:
            return ids, faults
        others, found = self._fitted(column, Given(texts, {}, given.is_json), None)
        return pc.coalesce(others, ids), {**found, **faults}

    def _either(self, column: Column, rows: GivenRows) -> tuple[pa.Array, Faults]:
        """The end of an edge under the one or the other of its names."""
        word = ENDPOINT_NAMES[column.name]
        array, faults = self._one(column, word, rows)
        other, found = self._one(column, column.name, rows)
        faults = {**found, **faults}
        if other.null_count < len(other):
            both = pc.and_(array.is_valid(), other.is_valid()).to_numpy(zero_copy_only=False)
            for position in np.flatnonzero(both).tolist():
                faults.setdefault(position, f"both '{word}' and '{column.name}' are given")
            array = pc.coalesce(array, other)
        return array, faults

    def _given(self, path: str, rows: GivenRows) -> Given | None:
        found = rows.column(path)
        if found is None or not self.mapping.null_values:
            return found
        return Given(_without(found.values, self.mapping.null_values), found.faults, found.is_json)

    def _fitted(self, column: Column, given: Given, cast: Cast | None) -> tuple[pa.Array, Faults]:
        if cast is not None:
            array, faults = apply_cast(cast, column, given.values)
        else:
            array, faults = (fit_json if given.is_json else self._fit)(column, given.values)
        return array, {**faults, **given.faults}


class _End:
    """The id of the node at an end of an edge, from the columns of its key."""

    def __init__(self, catalog: Catalog, table: Table, name: str, mapping: TypeMapping) -> None:
        key = endpoint_key(catalog, table.name, name)
        self._paths = mapping.ends[name]
        # One column for a key of several is the id itself.
        self._key = None if key is None or len(key.columns) != len(self._paths) else key
        parts = (Column(name, STRING, name),) if self._key is None else self._key.columns
        texts = mapping.end_casts.get(name, (None,) * len(parts))
        self.parts = [
            Input(path, _called(part, path), None if text is None else read_cast(text, part))
            for part, path, text in zip(parts, self._paths, texts, strict=True)
        ]

    def fill(
        self,
        rows: GivenRows,
        given: Callable[[str, GivenRows], Given | None],
        fitted: Callable[[Column, Given, Cast | None], tuple[pa.Array, Faults]],
    ) -> tuple[pa.Array, Faults]:
        arrays: list[pa.Array] = []
        faults: Faults = {}
        for part in self.parts:
            values = given(part.path, rows)
            if values is None:
                return pa.nulls(rows.count, pa.string()), faults
            array, found = fitted(part.column, values, part.cast)
            arrays.append(array)
            faults = {**found, **faults}
        return (arrays[0] if self._key is None else self._ids(self._key, arrays, faults)), faults

    def _ids(self, key: NodeKey, arrays: list[pa.Array], faults: Faults) -> pa.Array:
        valid = np.ones(len(arrays[0]), bool)
        for part, array in zip(self.parts, arrays, strict=True):
            column = part.column
            valid &= array.is_valid().to_numpy(zero_copy_only=False)
            if column.type.scalar in FLOATS:
                finite = np.isfinite(pc.fill_null(array, 0).to_numpy(zero_copy_only=False))
                for position in np.flatnonzero(~finite).tolist():
                    faults.setdefault(
                        position, f"column '{column.name}': a key must be a finite {column.type}"
                    )
                valid &= finite
        whole = valid.all()
        kept = arrays if whole else [array.filter(pa.array(valid)) for array in arrays]
        ids = derive_ids(key, {column.name: array for column, array in zip(key.columns, kept, strict=True)})
        return ids if whole else ids.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _apart(values: Values) -> tuple[Values | None, Values | None]:
    """The values without their numbers, and the numbers alone, null for the others; None where there are none."""
    if isinstance(values, pa.Array):
        kind = values.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        return (None, values) if is_number else (values, None)
    numeric = [isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values]
    if not any(numeric):
        return values, None
    texts = [None if number else value for value, number in zip(values, numeric, strict=True)]
    return texts, [value if number else None for value, number in zip(values, numeric, strict=True)]


def _called(column: Column, name: str) -> Column:
    return Column(name, column.type, column.physical)


def _constant(column: Column, value: Any) -> pa.Array:
    return build_array(column, [converter(column)(value)])


def _without(values: Values, nulls: tuple[str, ...]) -> Values:
    """Values with null for the texts that stand for it."""
    if isinstance(values, list):
        return [None if isinstance(value, str) and value in nulls else value for value in values]
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    return pc.if_else(pc.is_in(values, pa.array(nulls, values.type)), pa.scalar(None, values.type), values)
