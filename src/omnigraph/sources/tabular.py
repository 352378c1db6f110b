"""Tables of one type, a row for a node or an edge: the checks and the ids that all readers of tables share.

Columns have the names of properties, unless a mapping names others. An edge table has its ends under ``from`` and
``to`` or under ``src`` and ``dst``; either may have ``id``. Rows are counted from 1, the header of a file not
included.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.catalog.catalog import Catalog
from omnigraph.catalog.columns import ENDPOINT_COLUMNS, logical_schema
from omnigraph.catalog.key_arrays import derive_ids
from omnigraph.catalog.keys import missing_key
from omnigraph.errors import ErrorLocation, InvalidInput, NotFound, StorageError
from omnigraph.lang.suggestions import suggestion
from omnigraph.lang.types import FLOATS
from omnigraph.sources.graph_records import BATCH_ROWS, Places, Sheet, Unit, wrong_id
from omnigraph.sources.input_rows import ArrowRows, DictRows, GivenRows
from omnigraph.sources.json.json_values import display_value
from omnigraph.sources.mapping.column_filling import Filling, Fit
from omnigraph.sources.mapping.type_mapping import TypeMapping
from omnigraph.sources.row_batch import InputBatch, OnReject
from omnigraph.sources.table_values import Faults, fit, fit_json

ArrowTable: TypeAlias = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class TableInput:
    """How a file of rows is to be read: for which type, with which mapping, and what messages call it."""

    key: str
    catalog: Catalog
    source: str | None
    on_reject: OnReject | None = None
    mapping: TypeMapping | None = None


def read_table(
    key: str,
    table: ArrowTable,
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
) -> Iterator[InputBatch]:
    """The rows of a table for the type `key`, such as ``node:Person``, in its types.

    Columns have the names of properties, or those that `mapping` gives them. Casts lose nothing: a value that would
    change or does not fit is an error that names its row, column and value. An unknown column, and a missing one
    that is required, are errors of the whole table.
    """
    reader = TableReader(catalog, key, Places("row", source, on_reject), fit, mapping)
    names = _names(table)
    if names is not None:
        reader.check_names(names)
    place = 1
    for batch in _batches(table):
        reader.check_names(batch.schema.names)
        yield from reader.read(ArrowRows(batch), np.arange(place, place + batch.num_rows))
        place += batch.num_rows


def read_dict_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
    is_typed: bool = False,
) -> Iterator[InputBatch]:
    """Rows that are dicts, some at a time; messages count them from 1.

    Values are read as strictly as those of records, unless they are of Arrow types: `is_typed`.
    """
    reader = TableReader(
        catalog, key, Places("row", source, on_reject), fit if is_typed else fit_json, mapping
    )
    iterator = iter(rows)
    place = 1
    while found := list(islice(iterator, BATCH_ROWS)):
        odd = odd_rows(reader.filling, found)
        given = DictRows(objects_of(found), is_typed=is_typed, records=found)
        yield from reader.read(given, np.arange(place, place + len(found)), odd)
        place += len(found)


def read_typed_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    on_reject: OnReject | None = None,
    mapping: TypeMapping | None = None,
) -> Iterator[InputBatch]:
    """The rows of a table that come one by one, all with the same columns; they mean what `read_table` says."""
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        return
    TableReader(catalog, key, Places("row", None, on_reject), fit, mapping).check_names(list(first))
    rest = chain([first], iterator)
    yield from read_dict_rows(key, rest, catalog, on_reject=on_reject, mapping=mapping, is_typed=True)


def objects_of(rows: Sequence[Any]) -> list[Mapping[str, Any]]:
    """The rows, with an empty one for each that is none."""
    return [row if isinstance(row, Mapping) else {} for row in rows]


def odd_rows(filling: Filling, rows: Sequence[Any]) -> Faults:
    """The rows that are no objects, or have a field that fills nothing."""
    faults: Faults = {}
    known = None if filling.mapping.ignores_others else frozenset(filling.known)
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping):
            faults[position] = f"a row is an object, got {display_value(row)}"
        elif known is not None and not row.keys() <= known:
            faults[position] = filling.refusal(filling.unknown(row)).message
    return faults


def _sheet(catalog: Catalog, key: str) -> Sheet:
    table = catalog.tables.get(key)
    if table is None:
        raise NotFound(f"no type '{key}'", hint=suggestion(key, catalog.tables))
    return Sheet.of(catalog, table)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that is left out: its number, why, and what it is."""

    place: int
    error: InvalidInput
    record: Any


@dataclass(frozen=True, slots=True)
class Filled:
    """Rows of a type, the positions that those kept had in the input, and what is wrong with the others."""

    rows: pa.Table
    kept: np.ndarray[Any, Any]
    wrong: Mapping[int, InvalidInput]


class TableReader:
    """Typed rows of one type out of rows as an input has them."""

    def __init__(
        self, catalog: Catalog, key: str, places: Places, fit_column: Fit, mapping: TypeMapping | None = None
    ) -> None:
        self.sheet = _sheet(catalog, key)
        self.filling = Filling(catalog, self.sheet.table, fit_column, mapping)
        self.places = places
        self._schema = logical_schema(self.sheet.table)

    @classmethod
    def of(cls, file: TableInput, unit: Unit, fit_column: Fit) -> TableReader:
        """The reader of a file whose places are of this unit."""
        places = Places(unit, file.source, file.on_reject)
        return cls(file.catalog, file.key, places, fit_column, file.mapping)

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse a table without a column it needs, and one with a column of no property."""
        with self._of_source():
            self.filling.check_names(names, self.sheet.required)

    @contextmanager
    def _of_source(self) -> Iterator[None]:
        """What is refused says which input it is about."""
        try:
            yield
        except InvalidInput as error:
            raise error.located(ErrorLocation(source=self.places.source)) from error

    def read(
        self,
        given: GivenRows,
        numbers: np.ndarray[Any, Any],
        odd: Faults | None = None,
        left_out: Iterable[Refusal] = (),
    ) -> Iterator[InputBatch]:
        """The rows with these numbers, without those that are rejected.

        `odd` are rows that were found wrong before, `left_out` what is not among the rows for that reason.
        """
        yield from self.finish(self.fill(given, odd), given, numbers, left_out)

    def fill(self, given: GivenRows, odd: Faults | None = None) -> Filled:
        """The rows as those of the type, ids derived, and everything that is wrong with one by itself."""
        with self._of_source():
            arrays, faults = self.filling.fill(given)
        self._find_missing(arrays, faults)
        self._find_odd_keys(arrays, faults)
        wrong = {at: InvalidInput(message) for at, message in {**faults, **(odd or {})}.items()}
        rows = pa.Table.from_arrays(list(arrays.values()), schema=self._schema)
        kept = np.arange(given.count)
        if wrong:
            kept = np.delete(kept, list(wrong))
            rows = rows.take(pa.array(kept))
        return self._with_ids(rows, kept, wrong)

    def finish(
        self,
        filled: Filled,
        given: GivenRows,
        numbers: np.ndarray[Any, Any],
        left_out: Iterable[Refusal] = (),
    ) -> Iterator[InputBatch]:
        """Filled rows as a batch; those with something wrong are refused, in the order of the input."""
        refused = [Refusal(int(numbers[at]), error, given.record(at)) for at, error in filled.wrong.items()]
        self.refuse([*refused, *left_out])
        if filled.rows.num_rows:
            places = pa.array(numbers[filled.kept], pa.int64())
            yield InputBatch(self.sheet.table.key, filled.rows, places, self.places.source)

    def refuse(self, refused: Iterable[Refusal]) -> None:
        """Refuse rows, the first of the input first: which one that is must not depend on how it was cut."""
        for item in sorted(refused, key=lambda item: item.place):
            self.places.refuse(item.place, item.error, item.record)

    def _find_missing(self, arrays: dict[str, pa.Array], faults: Faults) -> None:
        keys = () if self.sheet.key is None else tuple(item.name for item in self.sheet.key.columns)
        ends = ENDPOINT_COLUMNS.values() if self.sheet.table.kind == "edge" else ()
        for name in (*keys, *ends, *sorted(self.sheet.required)):
            if not arrays[name].null_count:
                continue
            if self.sheet.key is not None and name in keys:
                message = missing_key(self.sheet.key)
            elif name in ends:
                message = f"column '{name}' is null"
            else:
                message = f"non-nullable property '{name}' has null or invalid values"
            for position in np.flatnonzero(arrays[name].is_null().to_numpy(zero_copy_only=False)).tolist():
                faults.setdefault(position, message)

    def _find_odd_keys(self, arrays: dict[str, pa.Array], faults: Faults) -> None:
        """A float in a key is a number: NaN and infinity give no id."""
        for column in () if self.sheet.key is None else self.sheet.key.columns:
            if column.type.scalar in FLOATS:
                numbers = arrays[column.name].to_numpy(zero_copy_only=False)
                message = f"key property '{column.name}' must be a finite {column.type}"
                for position in np.flatnonzero(~np.isfinite(numbers)).tolist():
                    faults.setdefault(position, message)

    def _with_ids(self, rows: pa.Table, kept: np.ndarray[Any, Any], wrong: dict[int, InvalidInput]) -> Filled:
        """Rows with the ids that their keys give; those with another one are wrong."""
        if self.sheet.key is None or not rows.num_rows:
            return Filled(rows, kept, wrong)
        derived = derive_ids(self.sheet.key, rows)
        ids = rows["id"].combine_chunks()
        rows = rows.set_column(0, self._schema.field(0), derived)
        differs = pc.fill_null(pc.not_equal(ids, derived), False).to_numpy(zero_copy_only=False)
        if not differs.any():
            return Filled(rows, kept, wrong)
        refused = {
            int(kept[at]): wrong_id(self.sheet.table.name, ids[at].as_py(), derived[at].as_py())
            for at in np.flatnonzero(differs).tolist()
        }
        return Filled(rows.filter(pa.array(~differs)), kept[~differs], {**wrong, **refused})


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


@contextmanager
def translate_arrow_errors(name: str | None) -> Iterator[None]:
    """What Arrow and the system say about a file, as errors of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no file `{name}`") from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInput(f"`{name}` cannot be read: {error}", details={"source": name}) from error
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(f"`{name}` cannot be read: {error}", details={"source": name}) from error


def validated_batches(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a file after validation; Arrow itself accepts invalid offsets and invalid UTF-8."""
    return translated_batches(map(_validate, batches), name)


def _validate(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch


def translated_batches(batches: Iterable[pa.RecordBatch], name: str | None) -> Iterator[pa.RecordBatch]:
    iterator = iter(batches)
    while True:
        with translate_arrow_errors(name):
            batch = next(iterator, None)
        if batch is None:
            return
        yield batch
