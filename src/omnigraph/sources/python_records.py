"""Readers of records and rows that are Python objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from omnigraph.catalog.catalog import Catalog, Column
from omnigraph.catalog.columns import ENDPOINT_COLUMNS
from omnigraph.catalog.keys import canonical_text, endpoint_key, integer_key
from omnigraph.errors import InvalidInput
from omnigraph.sources.graph_records import BatchBuilder, RecordConverter, RecordConverters, Row, is_baseline
from omnigraph.sources.json.json_values import check_unicode, display_value
from omnigraph.sources.rejects import OnReject, RejectHandler
from omnigraph.sources.row_batch import InputBatch
from omnigraph.sources.row_operations import RowOperations

# Units of numpy times that are finer than the microseconds of Python.
_BELOW_MICROSECONDS = frozenset({"ns", "ps", "fs", "as"})


def read_dicts(
    records: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
    operations: RowOperations | None = None,
) -> Iterator[InputBatch]:
    """Read records of the form of NDJSON lines, with the same strict rules; errors count records from 1.

    Besides JSON values they may contain dates, datetimes (naive ones are UTC), bytes for a Blob, and numpy values.
    """
    converters = RecordConverters(catalog, operations)
    rejects = RejectHandler("record", source, on_reject)
    builder = BatchBuilder(source)
    for place, record in enumerate(records, 1):
        if is_baseline(record):
            continue
        try:
            converter, row = converters.convert(_unbox_record(record))
        except InvalidInput as error:
            rejects.reject(place, error, record, *converters.entity_of(record))
            continue
        yield from builder.add(converter, row, place)
    yield from builder.flush()


def read_rows(
    key: str,
    rows: Iterable[Mapping[str, Any]],
    catalog: Catalog,
    *,
    source: str | None = None,
    on_reject: OnReject | None = None,
) -> Iterator[InputBatch]:
    """Read rows of one type: dicts of properties, for an edge with its endpoints; errors count rows from 1."""
    converter = RecordConverter.of(catalog, catalog.tables[key])
    rejects = RejectHandler("row", source, on_reject, converter.table.name)
    builder = BatchBuilder(source)
    integer_keys = {
        column: integer_key(endpoint_key(catalog, converter.table.name, column))
        for column in ENDPOINT_COLUMNS.values()
        if converter.table.kind == "edge"
    }
    for place, item in enumerate(rows, 1):
        try:
            row = _row(converter, item, integer_keys)
        except InvalidInput as error:
            rejects.reject(place, error, item, id_=converter.id_of(item))
            continue
        yield from builder.add(converter, row, place)
    yield from builder.flush()


def _row(converter: RecordConverter, item: Any, integer_keys: Mapping[str, Column | None]) -> Row:
    if not isinstance(item, Mapping):
        raise InvalidInput(f"expected a dict, got {type(item).__name__}")
    data = {name: unbox_numpy(value) for name, value in item.items()}
    endpoints: Row = {}
    for end, column in ENDPOINT_COLUMNS.items() if converter.table.kind == "edge" else ():
        value = data.pop(end) if end in data else data.pop(column, None)
        integer = integer_keys[column]
        if integer is not None and type(value) is int:
            value = canonical_text(value, integer.type, end)
        if not isinstance(value, str):
            raise InvalidInput(f"endpoint '{end}': expected the id of a node, got {display_value(value)}")
        check_unicode(end, value)
        endpoints[column] = value
    row = {**converter.row(data), **endpoints}
    converter.check_id(row)
    return row


def _unbox_record(record: Any) -> Any:
    if not isinstance(record, Mapping):
        return record
    unboxed = dict(record)
    if isinstance(unboxed.get("data"), Mapping):
        unboxed["data"] = {name: unbox_numpy(value) for name, value in unboxed["data"].items()}
    return unboxed


def unbox_numpy(value: Any) -> Any:
    """Return the Python value of a numpy value; other values unchanged.

    A datetime with digits below a microsecond, which Python does not have, is returned as ISO text.

    >>> unbox_numpy(np.datetime64("2020-01-01T00:00:00.000000001"))
    '2020-01-01T00:00:00.000000001Z'
    """
    if not isinstance(value, np.generic | np.ndarray):
        return value
    if value.dtype.kind not in "mM" or np.datetime_data(value.dtype.str)[0] not in _BELOW_MICROSECONDS:
        return value.tolist()
    # For these units `tolist` returns integers instead of datetimes.
    micros = value.astype(f"{value.dtype.kind}8[us]")
    if value.dtype.kind == "m" or not ((micros != value) & ~np.isnat(value)).any():
        return micros.tolist()
    if isinstance(value, np.ndarray):
        return [unbox_numpy(item) for item in value]
    return f"{value}Z"
